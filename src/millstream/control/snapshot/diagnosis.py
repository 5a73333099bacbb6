"""Why a query is slow, and what deserves an alarm: from a snapshot's parts to sentences.

Pure functions that every source of snapshots uses, so that one engine and a whole cluster are
judged alike. Nothing here measures.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.control.snapshot.model import (
    Alarm,
    ErrorSnapshot,
    OperatorSnapshot,
    ProcessorSnapshot,
    QuerySnapshot,
    StreamSnapshot,
)

PRESSURE_ALARM = 0.9  # of what makes sources wait, or of the longest wait that is usual
DELAY_ALARM_S = 60.0  # a row that waits longer than this is worth a look
LOAD_FULL = 0.95


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
    'join 1 has 9,000 rows waiting, the oldest for 12 s; a step takes 2 s; shared by 2 queries'
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
    return Cause(worst.id, f"{worst.label} {'; '.join(_symptoms(worst))}")


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
    if len(operator.queries) > 1:
        told.append(f"shared by {len(operator.queries)} queries")
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
    """The running query that is furthest behind; where none waits, the one that costs most."""
    running = [q for q in queries if q.state == "running"]
    if not running:
        return None
    return max(running, key=lambda q: (q.delay_s or 0.0, q.load_own + q.load_shared, q.name))


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


def alarms(
    queries: Sequence[QuerySnapshot],
    streams: Sequence[StreamSnapshot],
    processors: Sequence[ProcessorSnapshot],
    pressures: Mapping[str, float],
    labels: Mapping[str, str] | None = None,
) -> tuple[Alarm, ...]:
    """What a person should look at, the worst first; `pressures` and `labels` are by operator."""
    found = [*_of_processors(processors), *_of_queries(queries), *_of_streams(streams)]
    for operator, pressure in sorted(pressures.items()):
        if pressure >= PRESSURE_ALARM:
            name = (labels or {}).get(operator, operator)
            found.append(
                Alarm("warning", f"{name} does not keep up with its rows", "operator", operator)
            )
    return tuple(sorted(found, key=lambda a: (a.severity != "error", a.subject_kind, a.subject)))


def _of_processors(processors: Sequence[ProcessorSnapshot]) -> Iterable[Alarm]:
    for one in processors:
        if one.state in ("silent", "lost"):
            yield Alarm("error", f"processor {one.id} is {one.state}", "processor", one.id)
        elif one.load >= LOAD_FULL:
            yield Alarm("warning", f"processor {one.id} is fully busy", "processor", one.id)
        yield from troubles(one)


def troubles(one: ProcessorSnapshot) -> Iterable[Alarm]:
    """What a processor says that it cannot do."""
    for trouble in one.troubles:
        yield Alarm("error", f"processor {one.id}: {trouble}", "processor", one.id)


def _of_queries(queries: Sequence[QuerySnapshot]) -> Iterable[Alarm]:
    for query in queries:
        if query.state == "failed":
            yield Alarm("error", f"query {query.name} failed: {query.reason}", "query", query.name)
        elif query.state != "running":
            why = f": {query.reason}" if query.reason else ""
            yield Alarm("warning", f"query {query.name} is {query.state}{why}", "query", query.name)
        missed = [g for g in query.goals if g.met is False]
        if missed:
            goals = ", ".join(f"{g.statistic} {g.wish}" for g in missed)
            yield Alarm("warning", f"query {query.name} misses {goals}", "query", query.name)
        if query.state == "running" and (query.delay_s or 0.0) >= DELAY_ALARM_S:
            yield Alarm(
                "warning",
                f"query {query.name} is {seconds(query.delay_s)} behind",
                "query",
                query.name,
            )


def _of_streams(streams: Sequence[StreamSnapshot]) -> Iterable[Alarm]:
    for stream in streams:
        if stream.rejected:
            yield Alarm(
                "warning",
                f"stream {stream.name}: {stream.rejected:,} malformed rows were put aside",
                "stream",
                stream.name,
            )
