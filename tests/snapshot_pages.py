"""What a page does with the changes that it hears of."""

from collections.abc import Mapping
from typing import Any

from millstream.control.snapshot.changes import KEYED


def apply_changes(old: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    new = dict(old)
    for name, value in told.items():
        if name not in KEYED:
            new[name] = value
            continue
        members = {key_of(name, m): m for m in old.get(name, ())}
        for key in value["removed"]:
            members.pop(tuple(key), None)
        for member in value["changed"]:
            key = key_of(name, member)
            members[key] = {**members.get(key, {}), **member}
        new[name] = list(members.values())
    return new


def key_of(name: str, member: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(member[part] for part in KEYED[name])
