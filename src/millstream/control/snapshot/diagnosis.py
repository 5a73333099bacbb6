"""Why a query is slow, from a snapshot's parts to sentences; alarms are in `alarms.py`.

Pure functions that every source of snapshots uses, so that one engine and a whole cluster are
judged alike. Nothing here measures.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.control.snapshot.model import (
    ErrorSnapshot,
    OperatorSnapshot,
    QuerySnapshot,
)

# Rows that wait this long press as hard as a full queue.
WAIT_FULL_S = 30.0


@dataclass(frozen=True, slots=True)
class Cause:
    """What holds a query up most."""

    operator: str
    sentence: str


def cause_of(operators: Iterable[OperatorSnapshot]) -> Cause | None:
    """Of a query's operators, the one whose rows wait longest; else the one that works most.

    >>> slow = OperatorSnapshot("o:1", "join", "join 1", queue_rows=9000, waiting_s=12.0, load=0.7,
    ...                         steps=4, cost_s=8.0, queries=("a", "b"))
    >>> cause_of([slow, OperatorSnapshot("o:2", "map", "map 2")]).sentence
    'join for a and 1 more has 9,000 rows waiting, the oldest for 12 s; a step takes 2 s'
    """
    found = list(operators)
    waiting = [o for o in found if o.waiting_s is not None and o.queue_rows]
    if waiting:
        worst = max(waiting, key=lambda o: (o.waiting_s or 0.0, o.queue_rows, o.id))
    else:
        working = [o for o in found if o.cost_s > 0]
        if not working:
            return None
        worst = max(working, key=lambda o: (o.load, o.cost_s, o.id))
    return Cause(worst.id, f"{title_of(worst)} {'; '.join(_symptoms(worst))}")


def title_of(operator: OperatorSnapshot) -> str:
    """An operator as people know it: what it is, and for whom; its label where it has no query.

    >>> title_of(OperatorSnapshot("o:1", "join", "join 3f2a", queries=("a", "b", "c")))
    'join for a and 2 more'
    """
    if not operator.queries:
        return operator.label
    more = len(operator.queries) - 1
    return f"{operator.kind} for {operator.queries[0]}{f' and {more} more' if more else ''}"


def _symptoms(operator: OperatorSnapshot) -> list[str]:
    told: list[str] = []
    if operator.queue_rows:
        age = f", the oldest for {seconds(operator.waiting_s)}" if operator.waiting_s else ""
        told.append(f"has {operator.queue_rows:,} rows waiting{age}")
    else:
        told.append(f"does most of the work: {operator.cost_s:,.1f} s so far")
    if operator.state == "paused":
        told.append("it is paused")
    elif operator.state == "moving":
        told.append("it is being moved")
    if operator.steps:
        told.append(f"a step takes {seconds(operator.cost_s / operator.steps)}")
    return told


def seconds(value: float | None) -> str:
    """A duration for people.

    >>> [seconds(v) for v in (0.0123, 1.5, 75, 7300)]
    ['12 ms', '1.5 s', '1 min 15 s', '2 h 1 min']
    """
    if value is None:
        return "an unknown time"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    if value < 3600:
        return f"{value // 60:.0f} min {value % 60:.0f} s"
    return f"{value // 3600:.0f} h {value % 3600 // 60:.0f} min"


def pressure_of(rows: int, rows_max: int, waited_s: float) -> float:
    """How hard waiting rows press: full at the limit where sources are held back, or after a wait.

    >>> pressure_of(500, 1000, 0.0), pressure_of(10, 1000, 15.0), pressure_of(0, 1000, 99.0)
    (0.5, 0.5, 0.0)
    """
    if not rows:
        return 0.0
    return round(min(1.0, max(rows / rows_max, waited_s / WAIT_FULL_S)), 2)


def error_with_row(reason: str, culprits: Sequence[Mapping[str, Any]]) -> ErrorSnapshot:
    """Why a query failed, and the first of the rows behind it, as an engine tells them.

    >>> error_with_row("x", [{"stream": "s", "rows": 1, "row": 7, "values": {"n": 0}}]).place
    'row 7 of s'
    """
    if not culprits:
        return ErrorSnapshot(reason)
    first = culprits[0]
    number = first.get("row")
    place = f"row {number} of {first['stream']}" if number is not None else str(first["stream"])
    if first.get("rows", 1) > 1:
        place = f"{first['rows']} rows together, the first is {place}"
    return ErrorSnapshot(reason, place=place, row=dict(first["values"]))


def slowest(queries: Sequence[QuerySnapshot]) -> QuerySnapshot | None:
    """The running query that is furthest behind; where none waits, the one that works most.

    Where none works now, the one that has worked most.
    """
    running = [q for q in queries if q.state in ("running", "stalled")]
    if not running:
        return None
    return max(running, key=lambda q: (q.delay_s or 0.0, q.load_own + q.load_shared,
                                       q.cost_s_own + q.cost_s_shared, q.name))  # fmt: skip


def costs_of(
    query: str, operators: Sequence[OperatorSnapshot]
) -> tuple[float, float, float, float]:
    """Seconds of work of a query alone and its part of shared work, ever and a second lately.

    What an operator of a share group costs is its part of a job that others run in as well.
    """
    own = shared = load_own = load_shared = 0.0
    for operator in operators:
        if query not in operator.queries:
            continue
        sharers = len(operator.queries)
        if sharers == 1 and not operator.group:
            own, load_own = own + operator.cost_s, load_own + operator.load
        else:
            shared += operator.cost_s / sharers
            load_shared += operator.load / sharers
    return own, shared, load_own, load_shared
