"""JSON of planning problems and solutions, field by field: what is wrong, and where exactly.

Reads a file, and its objects with the fields that they may have. Never guesses a missing field, and
lets no field pass that nobody reads. Knows no problem.
"""

import json
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from millstream.core.errors import UsageError
from millstream.core.suggestions import nearest
from millstream.decide.place.problem import AMOUNT_MAX

NUMBER_HINT = "a number of at most 308 digits"


def read_json(path: Path) -> Any:
    """A file's JSON, or a `UsageError` with line and column."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except OSError as error:
        raise UsageError(f"cannot read {path}", detail=str(error.strerror or error)) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path} is not JSON",
            detail=f"line {error.lineno}, column {error.colno}: {error.msg}",
        ) from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply") from None
    except ValueError as error:  # Python reads no whole number of thousands of digits
        raise UsageError(f"{path} is not JSON that can be read", detail=str(error)) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no field stands twice: of two values the first would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                break
            seen.add(name)
        values = ", ".join(repr(value)[:60] for known, value in pairs if known == name)
        raise UsageError(
            f"field {name!r} appears twice in one object", detail=values, hint="leave one out"
        )
    return found


class Fields:
    """One JSON object being read: knows its place for messages."""

    def __init__(self, place: str, value: Any, known: tuple[str, ...]) -> None:
        if not isinstance(value, Mapping):
            raise UsageError(
                f"{place} must be an object, not {kind(value)}",
                detail=shown(value),
                hint=f"its fields may be {', '.join(known)}",
            )
        refuse_unknown(place, value, known)
        self.place = place
        self.value = value

    def get(self, name: str) -> Any:
        return self.value.get(name)

    def items(self, name: str, *, required: bool = False) -> list[tuple[str, Any]]:
        value = self.value.get(name)
        if value is None and not required:
            return []
        if value is None:
            raise UsageError(f"{self.place} lacks {name!r}", hint=f'"{name}" is a list')
        if not isinstance(value, list):
            raise UsageError(
                f"{name} must be a list, not {kind(value)}",
                detail=shown(value),
                hint=f'write "{name}": [...]',
            )
        return [(f"{name}[{number}]", item) for number, item in enumerate(value)]

    def text(self, name: str, *, required: bool = True) -> str | None:
        value = self.value.get(name)
        if value is None and not required:
            return None
        if value is None:
            raise UsageError(f"{self.place} lacks {name!r}", hint=f'"{name}" is text')
        return text(value, f"{name} of {self.place}")

    def word(self, name: str) -> str:
        value = self.text(name)
        assert value is not None
        return value

    def number(self, name: str, default: float | None = None) -> float | None:
        value = self.value.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(
                f"{name} of {self.place} must be a number, not {kind(value)}",
                detail=shown(value),
                hint="write it without quotes, as in 0.5",
            )
        try:
            return float(value)
        except OverflowError:
            raise UsageError(f"{name} of {self.place} is too large", hint=NUMBER_HINT) from None

    def amount(self, name: str, default: float | None = None) -> float:
        value = self.number(name, default)
        if value is None:
            raise UsageError(f"{self.place} lacks {name!r}", hint=f'"{name}" is a number')
        return value

    def capacity(self, name: str, default: float | None = None) -> float:
        """An amount that may be without limit: JSON has no word for that but a large number."""
        value = self.amount(name, default)
        return inf if value > AMOUNT_MAX else value


def text(value: object, what: str) -> str:
    """A value that must be text: an id, a name."""
    if not isinstance(value, str):
        raise UsageError(
            f"{what} must be text, not {kind(value)}",
            detail=shown(value),
            hint='write it in quotes, as in "h1"',
        )
    return value


def refuse_unknown(place: str, value: Mapping[str, Any], known: Sequence[str]) -> None:
    """A misspelt field would otherwise mean that nothing was given."""
    unknown = sorted(str(name) for name in set(value) - set(known))
    if unknown:
        near = nearest(unknown[0], known)
        meant = f"did you mean {near}? " if near else ""
        raise UsageError(
            f"{place} has the unknown field {unknown[0]!r}",
            hint=f"{meant}known: {', '.join(known)}",
        )


def refuse_misspelt(place: str, value: Mapping[str, Any], known: Sequence[str]) -> None:
    """Where others may add fields of their own, only what looks like one of ours is a mistake."""
    near = {str(name) for name in set(value) - set(known) if nearest(str(name), known)}
    refuse_unknown(place, dict.fromkeys(near), known)


def shown(value: object) -> str:
    return f"it is {value!r}"[:200]


def kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")
