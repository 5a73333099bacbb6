"""A case: a query over given streams, and the rows it must give, worked out by hand.

Cases over the same streams form a scene, which an engine can run as one dataflow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oracle.model import SECOND, Column, Query, Row, Stream


@dataclass(frozen=True, slots=True)
class Case:
    """`expected` holds the select list's values and then ts; relations have no ts."""

    name: str
    query: Query
    cql: str  # by hand; the printer must agree
    expected: tuple[tuple[Any, ...], ...]
    other_spelling: str | None = None  # the same query as a user may also write it
    timeless: bool = False  # the expected rows do not tell ts


@dataclass(frozen=True, slots=True)
class Scene:
    name: str
    streams: tuple[Stream, ...]
    cases: tuple[Case, ...]


def sec(seconds: float) -> int:
    """
    >>> sec(2.5)
    2500000
    """
    return round(seconds * SECOND)


def stream(
    name: str,
    columns: dict[str, str],
    rows: Sequence[tuple[Any, ...]],
    lateness: float = 0,
) -> Stream:
    """A stream from rows (seconds or None, values …) in order of arrival."""
    return Stream(
        name,
        tuple(Column(column, kind) for column, kind in columns.items()),
        tuple(Row(None if at is None else sec(at), tuple(values)) for at, *values in rows),
        sec(lateness),
    )


def rows(*expected: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
    """Expected rows of a stream; the last value is ts in seconds."""
    return tuple((*values, sec(at)) for *values, at in expected)
