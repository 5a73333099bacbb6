"""Windows give each row an interval [from, until) in which it is in the relation.

Times are whole microseconds since the epoch. `FOREVER` stands for an open end.
"""

from dataclasses import dataclass

from millstream.plan.expressions import Expr

MICROSECONDS = 1_000_000  # a second
FOREVER = 2**63 - 1
BEGINNING = -(2**63)


@dataclass(frozen=True, slots=True)
class Range:
    """[ts, ts + length + 1 us)."""

    length: int


@dataclass(frozen=True, slots=True)
class Now:
    """[ts, ts + 1 us)."""


@dataclass(frozen=True, slots=True)
class Unbounded:
    """[ts, forever)."""


@dataclass(frozen=True, slots=True)
class Rows:
    """[ts, ts of the count-th next row of the partition)."""

    count: int
    partition: tuple[Expr, ...] = ()


Window = Range | Now | Unbounded | Rows


@dataclass(frozen=True, slots=True)
class Sliding:
    """Aggregate windows [e - length, e) for the multiples e of slide; a result's time is e."""

    length: int
    slide: int


@dataclass(frozen=True, slots=True)
class Instant:
    """Aggregates over [NOW]: one group of windows for each time that occurs."""


@dataclass(frozen=True, slots=True)
class Change:
    """Aggregates over ROWS: a result at each instant at which the group's rows changed."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Aggregates over intervals: at each multiple e of slide, the rows alive at e - 1 us."""

    slide: int


@dataclass(frozen=True, slots=True)
class Running:
    """Aggregates over everything so far: the result is a relation, told by its changes."""


Grouping = Sliding | Instant | Change | Snapshot | Running


def reach(window: Window) -> int:
    """How long after its time a row can still be in the relation; FOREVER where it is open."""
    match window:
        case Range(length):
            return length
        case Now():
            return 0
        case _:
            return FOREVER
