"""Fields of messages between managers and processors, with their limits; records as JSON."""

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from millstream.errors import UsageError

Name = Annotated[str, Field(min_length=1, max_length=300)]
Text = Annotated[str, Field(max_length=1 << 18)]
Names = Annotated[tuple[Name, ...], Field(max_length=100_000)]
Count = Annotated[int, Field(ge=0, le=1 << 62)]
Micros = Annotated[int, Field(ge=-(1 << 63), le=(1 << 63) - 1)]  # event time since 1970, in us
Table = Annotated[dict[str, Any], Field(max_length=100_000)]
Properties = Annotated[dict[Name, str | int | float | bool | None], Field(max_length=200)]
Numbers = Annotated[dict[Name, float], Field(max_length=200)]
Many: Any = Field(max_length=100_000)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another processor, where it answers, and the least epoch of the stream that counts."""

    processor: Name
    url: Name
    epoch: Count = 0


T = TypeVar("T")
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def to_json(record: Any) -> dict[str, Any]:
    """A record of a message as JSON-ready data."""
    data: dict[str, Any] = _adapter(type(record)).dump_python(record, mode="json")
    return data


def from_json(kind: type[T], data: object) -> T:
    """The inverse; anything else is the sender's mistake."""
    try:
        record: T = _adapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"malformed {kind.__name__.lower()}", detail=f"{where}: {first['msg']}"[:500]
        ) from None
    return record
