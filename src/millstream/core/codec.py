"""The one codec: frozen dataclasses as JSON and back, and what a malformed body is called.

Whatever crosses a process (messages, replies, snapshots, bodies of requests, records in a store)
is a dataclass; its annotations say what a field may hold. Reading ignores fields that it does not
know and fills absent ones with their defaults, so that an older and a newer process understand
each other; a dataclass with `__pydantic_config__ = EXACT` refuses unknown fields. Numbers that are
not finite become null.
"""

import json
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from millstream.core.errors import UsageError

EXACT = ConfigDict(extra="forbid")
DETAIL_MAX = 500
T = TypeVar("T")
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def to_bytes(record: Any) -> bytes:
    """A record as JSON text."""
    return _adapter(type(record)).dump_json(record, warnings=False)


def to_json(record: Any) -> Any:
    """The same as plain values that `json.dumps` takes."""
    return json.loads(to_bytes(record))


def from_json(kind: type[T], data: object, *, hint: str = "") -> T:
    """The record that plain values stand for; anything else is the sender's mistake."""
    try:
        record: T = _adapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        name = kind.__name__.strip("_").lower()
        detail = f"{where}: {first['msg']}" if where else str(first["msg"])
        raise UsageError(f"malformed {name}", detail=detail[:DETAIL_MAX], hint=hint) from None
    return record
