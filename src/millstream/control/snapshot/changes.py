"""What changed between two snapshots, as JSON: what a page that has the one needs for the other."""

from collections.abc import Mapping
from typing import Any

# Lists of a snapshot whose members are told one by one, with what names a member.
KEYED: Mapping[str, tuple[str, ...]] = {
    "streams": ("id",),
    "queries": ("name",),
    "operators": ("id",),
    "edges": ("source", "target"),
    "processors": ("id",),
    "decisions": ("number",),
}


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """From one snapshot's JSON to another's: changed and removed members of each list.

    Members that changed come whole but for what did not change in them.

    >>> a = {"taken": 1.0, "queries": [{"name": "q", "rows": 1, "cql": "SELECT"}]}
    >>> b = {"taken": 2.0, "queries": [{"name": "q", "rows": 2, "cql": "SELECT"}]}
    >>> changes(a, b)
    {'taken': 2.0, 'queries': {'changed': [{'name': 'q', 'rows': 2}], 'removed': []}}
    """
    told: dict[str, Any] = {}
    for name, value in new.items():
        if name not in KEYED:
            if value != old.get(name):
                told[name] = value
            continue
        before = {_key(name, m): m for m in old.get(name, ())}
        after = {_key(name, m): m for m in value}
        changed = [
            _difference(before[key], member, KEYED[name]) if key in before else member
            for key, member in after.items()
            if before.get(key) != member
        ]
        removed = [list(key) for key in before if key not in after]
        if changed or removed:
            told[name] = {"changed": changed, "removed": removed}
    return told


def _key(name: str, member: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(member[part] for part in KEYED[name])


def _difference(
    old: Mapping[str, Any], new: Mapping[str, Any], key: tuple[str, ...]
) -> dict[str, Any]:
    return {k: v for k, v in new.items() if k in key or k not in old or old[k] != v}
