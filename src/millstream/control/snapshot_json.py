"""Snapshots as JSON and back, and what changed between two.

Values of records become objects, tuples arrays. Reading back ignores fields it does not know and
fills absent ones with their defaults, so that an older page and a newer server understand each
other. `changes` is what a page that has the one needs to have the other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from millstream.control.snapshot import Snapshot

T = TypeVar("T")

# Lists of a snapshot whose members are told one by one, with what names a member.
KEYED: Mapping[str, tuple[str, ...]] = {
    "streams": ("id",),
    "queries": ("name",),
    "operators": ("id",),
    "edges": ("source", "target"),
    "processors": ("id",),
    "decisions": ("number",),
}


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def to_json(value: Any) -> Any:
    """Plain values that `json.dumps` takes.

    >>> from millstream.control.snapshot import Alarm
    >>> to_json(Alarm("error", "it broke"))["sentence"]
    'it broke'
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [to_json(v) for v in value]
    return str(value)


def from_json(kind: type[T], value: Any) -> T:
    """The record of a kind that `to_json` made this of."""
    decoded: T = _decode(kind, value)
    return decoded


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        if value is None:
            return None
        return _decode(next(a for a in get_args(kind) if a is not NoneType), value)
    if origin is tuple:
        inner = get_args(kind)
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_decode(inner[0], v) for v in value)
        return tuple(_decode(k, v) for k, v in zip(inner, value, strict=True))
    if isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise TypeError(f"not the fields of a {kind.__name__}: {value!r:.100}")
        given = {}
        for one in fields(kind):
            if one.name in value:
                given[one.name] = _decode(_hints(kind)[one.name], value[one.name])
            elif one.default is MISSING and one.default_factory is MISSING:
                given[one.name] = _nothing(_hints(kind)[one.name])
        return kind(**given)
    return value


def _nothing(kind: Any) -> Any:
    """What stands for a field that an older writer did not have."""
    return kind() if kind in (str, int, float, bool) else None


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


def apply_changes(old: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """What the page does with `changes`; here for tests and for terminals far away."""
    new = dict(old)
    for name, value in told.items():
        if name not in KEYED:
            new[name] = value
            continue
        members = {_key(name, m): m for m in old.get(name, ())}
        for key in value["removed"]:
            members.pop(tuple(key), None)
        for member in value["changed"]:
            key = _key(name, member)
            members[key] = {**members.get(key, {}), **member}
        new[name] = list(members.values())
    return new


def snapshot_from_json(value: Mapping[str, Any]) -> Snapshot:
    return from_json(Snapshot, value)
