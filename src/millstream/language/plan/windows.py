"""Windows give each row an interval [from, until) in which it is in the relation.

Times are whole microseconds since the epoch. `FOREVER` stands for an open end.
"""

from dataclasses import dataclass
from typing import Literal as OneOf

from millstream.language.plan.expressions import Expr

MICROSECONDS = 1_000_000  # a second
FOREVER = 2**63 - 1
BEGINNING = -(2**63)


@dataclass(frozen=True, slots=True)
class Range:
    """[ts, ts + length + 1 us); half-open, where an aggregate counts the rows, [ts, ts + length).

    At e - 1 us those of the half-open interval are there that happened in [e - length, e).
    """

    length: int
    half_open: bool = False


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
    """Aggregate windows [e - length, e) for the ends e; a result's time is e.

    Ends are the multiples of slide, moved by offset: 0 aligns ends, length modulo slide starts,
    others come from OFFSET. Windows that cumulate begin at the last multiple of length, moved by
    offset, before their end.
    """

    length: int
    slide: int
    offset: int = 0  # from 0 to slide - 1, of windows that cumulate to length - 1
    cumulates: bool = False


@dataclass(frozen=True, slots=True)
class Instant:
    """Aggregates over [NOW]: one group of windows for each time that occurs."""


@dataclass(frozen=True, slots=True)
class Change:
    """Aggregates over ROWS: a result at each instant at which the group's rows changed."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Aggregates over joins and unions: at each end e, the rows alive at e - 1 us.

    Ranges below are half-open, so these are the rows whose parts happened in [e - range, e). Ends
    are those of `Sliding`; `length` is the longest range, 0 where there is none.
    """

    slide: int
    length: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Running:
    """Aggregates over everything so far: the result is a relation, told by its changes."""


@dataclass(frozen=True, slots=True)
class Session:
    """Aggregates over runs of a group's rows, each less than the gap after the one before.

    A run lasts from its first row to the gap after its last one, which is its result's time.
    """

    gap: int


@dataclass(frozen=True, slots=True)
class Calendar:
    """Aggregate windows of whole days or months of a time zone; a result's time is the end.

    Bounds are counted in units since 1970; ends are the multiples of slide among them. The offset
    is a time of the zone's clock after midnight.
    """

    unit: OneOf["day", "month"]
    length: int
    slide: int
    zone: str
    offset: int = 0


Grouping = Sliding | Instant | Change | Snapshot | Running | Session | Calendar
# Windows that are made by the aggregate over them, and give their rows no interval.
Grouped = Session | Sliding | Calendar


@dataclass(frozen=True, slots=True)
class OverFrame:
    """The rows that OVER takes for a row, from `first` to `last` as seen from it, both included.

    By time (microseconds) they are all rows of the partition in that span, by rows those at these
    places in the order of time and position. BEGINNING is UNBOUNDED PRECEDING. Over a table there
    are also FOREVER, UNBOUNDED FOLLOWING, and `peers`: all rows up to the last one that is equal to
    the row in what rows are ordered by. By values they are all rows whose one key of the order
    lies in that span around the row's own, by doubles likewise, with edges in millionths.
    """

    by: OneOf["time", "rows", "peers", "values", "doubles"]
    first: int
    last: int = 0

    @property
    def unbounded(self) -> bool:
        return self.first == BEGINNING


def reach(window: Window) -> int:
    """How long after its time a row can still be in the relation; FOREVER where it is open."""
    match window:
        case Range(length, half_open):
            return length - 1 if half_open else length
        case Now():
            return 0
        case _:
            return FOREVER


def longer(first_us: int, then_us: int) -> int:
    """Two lengths one after the other; FOREVER where one of them is."""
    return FOREVER if FOREVER in (first_us, then_us) else first_us + then_us


def end_from(grouping: Sliding | Snapshot, instant: int) -> int:
    """The first window end at or after an instant.

    >>> end_from(Sliding(10, 4), 5), end_from(Sliding(10, 4, offset=2), 5)
    (8, 6)
    """
    return instant + (grouping.offset - instant) % grouping.slide


def end_until(grouping: Sliding | Snapshot, instant: int) -> int:
    """The last window end at or before an instant.

    >>> end_until(Sliding(10, 4), 5), end_until(Sliding(10, 4, offset=2), 5)
    (4, 2)
    """
    return instant - (instant - grouping.offset) % grouping.slide


def first_end(window: Sliding, start: int) -> int:
    """The end of the first window that begins at or after a start.

    >>> first_end(Sliding(10, 5), 3), first_end(Sliding(10, 5, cumulates=True), 3)
    (15, 15)
    >>> first_end(Sliding(10, 5, cumulates=True), 10)
    15
    """
    if not window.cumulates:
        return end_from(window, start + window.length)
    return start + (window.offset - start) % window.length + window.slide
