"""Messages between balancing nodes as JSON, for whatever carries them.

One object a message: its kind and its fields. What cannot be a message is refused with what is
wrong, because it comes from elsewhere. Carries nothing itself: a processor's control API does.
"""

from dataclasses import asdict, fields
from math import isfinite
from typing import Any

from millstream.balance.protocol import (
    LoadReport,
    LoadRequest,
    Message,
    PartnerAnswer,
    PartnerEnd,
    PartnerRequest,
    Probe,
    ProbeAnswer,
)
from millstream.errors import UsageError

KINDS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        PartnerRequest,
        PartnerAnswer,
        PartnerEnd,
        LoadReport,
        LoadRequest,
        Probe,
        ProbeAnswer,
    )
}
LEAST = {"cpu": 1e-6}  # amounts are divided by it
READERS = {"float": float, "int": int, "bool": bool}


def to_json(message: Message) -> dict[str, Any]:
    """A message as an object.

    >>> to_json(LoadRequest(0.25, 7))
    {'kind': 'LoadRequest', 'amount': 0.25, 'number': 7}
    """
    return {"kind": type(message).__name__, **asdict(message)}


def from_json(data: Any) -> Message:
    """The message an object stands for.

    >>> from_json({"kind": "Probe", "number": 3})
    Probe(number=3)
    """
    known_kind = isinstance(data, dict) and isinstance(data.get("kind"), str)
    if not known_kind or data["kind"] not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise UsageError("not a balancing message", detail=str(data)[:200], hint=f"one of {known}")
    kind = KINDS[data["kind"]]
    given = {name: value for name, value in data.items() if name != "kind"}
    values = {}
    for field in fields(kind):
        if field.name in given:
            values[field.name] = _read(data["kind"], field.name, str(field.type), given)
            del given[field.name]
    if given:
        raise UsageError(f"a {data['kind']} message has no field {min(given)!r}")
    try:
        return kind(**values)
    except TypeError as error:
        raise UsageError(f"a {data['kind']} message lacks a field", detail=str(error)) from error


def _read(kind: str, name: str, type_name: str, given: dict[str, Any]) -> Any:
    value = given[name]
    wanted = type_name.removeprefix("<class '").removesuffix("'>")
    fits = isinstance(value, bool) == (wanted == "bool") and isinstance(value, int | float)
    if not fits or not _bounded(value) or (wanted == "int" and value != int(value)):
        detail = repr(value)[:200]
        raise UsageError(f"field {name!r} of a {kind} message is no {wanted}", detail=detail)
    if value < LEAST.get(name, value):
        raise UsageError(f"field {name!r} of a {kind} message is {value}, which cannot be")
    return READERS[wanted](value)


def _bounded(value: float) -> bool:
    return isfinite(value) if isinstance(value, float) else abs(value) < 1 << 62
