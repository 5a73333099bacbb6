"""What is an alarm: one function, for a run, a session, a processor, a cluster and those above it.

`judged` takes a snapshot as it was measured and returns it with its alarms, with queries that do
not advance marked as stalled, and with the culprit that holds each query up. Every maker of
snapshots calls it last. Pure, except for `AlarmBook`, which remembers since when an alarm stands.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.control.protocol.records import PAUSED
from millstream.control.snapshot.diagnosis import seconds, title_of
from millstream.control.snapshot.model import (
    Alarm,
    GoalSnapshot,
    OperatorSnapshot,
    ProcessorSnapshot,
    QuerySnapshot,
    Snapshot,
    StreamSnapshot,
)

PRESSURE_ALARM = 0.9  # of what makes sources wait, or of the longest wait that is usual
DELAY_ALARM_S = 60.0  # a row that waits longer than this is worth a look
LOAD_FULL = 0.95
MOST = 0.5  # of a stream's rows
HOG_LOAD = 0.3  # of a processor, from which on an operator can keep others waiting
AWAY = ("silent", "lost")
OVER = ("finished", "stopped", "done", "left")
QUERIES_NAMED = 3


def judged(snapshot: Snapshot) -> Snapshot:
    """The same moment with states that tell the truth, and with its alarms, the worst first."""
    judge = _Judge(snapshot)
    queries = tuple(judge.query(q) for q in snapshot.queries)
    judge.snapshot = replace(snapshot, queries=queries)
    found = sorted(
        judge.alarms(), key=lambda a: (a.severity != "error", a.subject_kind, a.subject, a.kind)
    )
    return replace(
        snapshot, queries=queries, overview=replace(snapshot.overview, alarms=tuple(found))
    )


@dataclass(frozen=True, slots=True)
class Culprit:
    """Who holds a query up."""

    sentence: str
    operator: str = ""  # "" where a processor is to blame


class _Judge:
    """One snapshot, read once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.over = snapshot.overview.state in OVER
        self._operators = {o.id: o for o in snapshot.operators}
        self._away = {p.id: p for p in snapshot.processors if p.state in AWAY}
        self._streams = {s.id: s for s in snapshot.streams}
        self._inputs: dict[str, list[str]] = {}
        for edge in snapshot.edges:
            self._inputs.setdefault(edge.target, []).append(edge.source)
        self._heaviest: dict[str, OperatorSnapshot] = {}
        self._hogs: dict[str, list[OperatorSnapshot]] = {}
        for one in snapshot.operators:
            before = self._heaviest.get(one.processor)
            if before is None or one.load > before.load:
                self._heaviest[one.processor] = one
            if one.state == "busy" or one.load >= HOG_LOAD:
                self._hogs.setdefault(one.processor, []).append(one)

    # -- queries --------------------------------------------------------------------------------

    def query(self, query: QuerySnapshot) -> QuerySnapshot:
        """A query as it stands: one that runs on a processor that is away does not run."""
        shed_rows = sum(o.shed_rows for o in self._needed(query))
        query = replace(query, shed_rows=shed_rows) if shed_rows else query
        if self.over or query.state not in ("running", "stalled"):
            return query
        if query.state == "stalled":  # it was judged by older figures
            query = replace(query, state="running", reason="")
        gone = self._processor_away(query)
        if gone is not None:
            reason, heard = gone
            waited = max(query.delay_s or 0.0, self.snapshot.taken - heard if heard else 0)
            return replace(
                query, state="stalled", reason=reason, delay_s=waited, cause=reason,
                cause_operator="",
            )  # fmt: skip
        culprit = self.culprit(query)
        if culprit is None:
            return query
        told = replace(query, cause=culprit.sentence, cause_operator=culprit.operator)
        if (query.delay_s or 0.0) < DELAY_ALARM_S or self._works(query):
            return told
        return replace(told, state="stalled", reason="its rows wait and no step processes them")

    def _needed(self, query: QuerySnapshot) -> list[OperatorSnapshot]:
        return [self._operators[o] for o in query.operators if o in self._operators]

    def _processor_away(self, query: QuerySnapshot) -> tuple[str, float] | None:
        """Which processor a query waits for, and when that was last heard of; 0 for unknown."""
        for operator in self._needed(query):
            if operator.away:
                return operator.away, 0.0
            places = [operator.processor]
            for source in self._inputs.get(operator.id, ()):
                stream = self._streams.get(source)
                if stream is not None and not stream.ended:
                    places.append(stream.processor)
            gone = next((self._away[place] for place in places if place in self._away), None)
            if gone is not None:
                return f"processor {gone.id} is {gone.state}", gone.seen
        return None

    def _works(self, query: QuerySnapshot) -> bool:
        """Whether anybody has worked for a query lately."""
        return any(o.load > 0 or o.state == "busy" for o in self._needed(query))

    def culprit(self, query: QuerySnapshot) -> Culprit | None:
        """Who keeps the rows of a query waiting: itself, or an operator that leaves no time.

        None where no row waits.
        """
        waiting = [o for o in self._needed(query) if o.queue_rows and o.waiting_s is not None]
        if not waiting:
            return None
        worst = max(waiting, key=lambda o: (o.waiting_s or 0.0, o.queue_rows, o.id))
        hog = self._hog(worst, query)
        if hog is None:
            return Culprit(query.cause, query.cause_operator) if query.cause else None
        does = "is busy" if hog.state == "busy" else f"takes {hog.load:.0%} of the time"
        return Culprit(
            f"{title_of(hog)} {does} while {title_of(worst)} has {worst.queue_rows:,} rows waiting "
            f"for {seconds(worst.waiting_s)}",
            hog.id,
        )

    def _hog(self, worst: OperatorSnapshot, query: QuerySnapshot) -> OperatorSnapshot | None:
        """An operator of others on the same processor that leaves no time for this one."""
        if worst.state in ("paused", "moving") or self._works(query):
            heaviest = self._heaviest[worst.processor]
            foreign = heaviest.id not in query.operators and worst.state == "running"
            return heaviest if foreign and heaviest.load >= max(HOG_LOAD, 2 * worst.load) else None
        others = [o for o in self._hogs.get(worst.processor, ()) if o.id not in query.operators]
        return max(others, key=lambda o: (o.load, o.state == "busy", o.id), default=None)

    # -- alarms ---------------------------------------------------------------------------------

    def alarms(self) -> Iterator[Alarm]:
        snapshot = self.snapshot
        if not self.over:
            for one in snapshot.processors:
                yield from self._of_processor(one)
            yield from self._of_pressure()
        for query in snapshot.queries:
            yield from self._of_query(query)
        for stream in snapshot.streams:
            yield from self._of_stream(stream)

    def _of_processor(self, one: ProcessorSnapshot) -> Iterator[Alarm]:
        here = self._queries_at(one.id)
        subject = ("processor", one.id)
        if one.state in AWAY:
            yield Alarm(
                "error", f"processor {one.id} is {one.state}", *subject, "away",
                f"processor {one.id}", here, one.seen,
                "start it again with its home: its queries continue where they stopped; if the "
                f"home is gone: millstream remove --lost {one.id}",
            )  # fmt: skip
        elif one.load >= LOAD_FULL:
            heaviest = self._heaviest.get(one.id)
            culprit = f"{title_of(heaviest)} takes {heaviest.load:.0%}" if heaviest else ""
            yield Alarm(
                "warning", f"processor {one.id} is fully busy", *subject, "busy", culprit, here,
                todo="add a processor or slots, or drop what is not needed",
            )  # fmt: skip
        if one.unsafe:
            yield Alarm(
                "error", f"processor {one.id} has too few copies of its home and sends nothing",
                *subject, "replicas", one.unsafe, here,
                todo="start another processor, or ask for fewer replicas; all that it sent is safe",
            )  # fmt: skip
        for trouble in one.troubles:
            yield Alarm(
                "error", f"processor {one.id}: {trouble}", *subject, "trouble", trouble, here,
                todo="its log has more; a manager's own alarms say what to do",
            )  # fmt: skip
        if missed := _missed(one.goals):
            yield Alarm(
                "warning", f"all queries together miss {missed}", *subject, "goal",
                f"processor {one.id}", here, todo="relax the goal or give it less to do",
            )  # fmt: skip
        if soon := _foretold(one.goals):
            yield Alarm(
                "warning", f"at this rate all queries together miss {soon}", *subject, "foretold",
                f"processor {one.id}", here, todo="give it less to do",
            )  # fmt: skip

    def _of_pressure(self) -> Iterator[Alarm]:
        full = {e.target for e in self.snapshot.edges if e.pressure >= PRESSURE_ALARM}
        for target in sorted(full):
            operator = self._operators.get(target)
            if operator is not None and operator.state == "paused":
                continue  # its queries say why
            name = title_of(operator) if operator is not None else target
            yield Alarm(
                "warning", f"{name} does not keep up with its rows", "operator", target, "pressure",
                name, operator.queries if operator is not None else (),
                todo="give it a processor with time left, or fewer rows",
            )  # fmt: skip

    def _of_query(self, query: QuerySnapshot) -> Iterator[Alarm]:
        subject, mine = ("query", query.name), (query.name,)
        since = self.snapshot.taken - query.delay_s if query.delay_s else 0.0
        if query.state == "failed":
            yield Alarm(
                "error", f"query {query.name} failed: {query.reason}", *subject, "failed",
                query.error.place if query.error else "", mine,
                query.error.at if query.error else 0.0,
                RESTART if query.restartable else "correct the row or the query, then register it "
                "again",
            )  # fmt: skip
        elif query.state == "stalled":
            yield Alarm(
                "error", f"query {query.name} does not advance: {query.reason}", *subject,
                "stalled", query.cause or query.reason, mine, since,
                "fix the culprit; the query then continues by itself",
            )  # fmt: skip
        elif query.state not in ("running", *OVER):
            why = f": {query.reason}" if query.reason else ""
            yield Alarm(
                "warning", f"query {query.name} is {query.state}{why}", *subject, "held",
                query.reason, mine, todo=_help(query),
            )  # fmt: skip
        if query.lost:
            yield Alarm(
                "warning", f"query {query.name} has a gap: {query.lost}", *subject, "gap",
                query.lost, mine, todo="it continues; to clear this, drop it and submit it again",
            )  # fmt: skip
        if query.shed_rows:
            yield Alarm(
                "warning", f"query {query.name} did without {query.shed_rows:,} rows that had "
                "missed its limit of delay", *subject, "shed", query.cause, mine,
                todo="see to the culprit, relax the limit, or take may_drop from its goals",
            )  # fmt: skip
        if self.over:
            return
        if missed := _missed(query.goals):
            yield Alarm(
                "warning", f"query {query.name} misses {missed}", *subject, "goal", query.cause,
                mine, todo="see to the culprit, or relax the goal",
            )  # fmt: skip
        if soon := _foretold(query.goals):
            yield Alarm(
                "warning", f"at this rate query {query.name} misses {soon}", *subject, "foretold",
                query.cause, mine, todo="raise its weight, or give it less to do",
            )  # fmt: skip
        if query.state == "running" and (query.delay_s or 0.0) >= DELAY_ALARM_S:
            yield Alarm(
                "warning", f"query {query.name} is {seconds(query.delay_s)} behind", *subject,
                "delay", query.cause, mine, since, "see to the culprit, or give it another place",
            )  # fmt: skip

    def _of_stream(self, stream: StreamSnapshot) -> Iterator[Alarm]:
        total = stream.rows + stream.late + stream.rejected
        readers = self._readers(stream.id)
        subject = ("stream", stream.name)
        if stream.rejected:
            most = stream.rejected > MOST * total
            yield Alarm(
                "error" if most else "warning",
                f"stream {stream.name}: {stream.rejected:,} malformed rows were put aside",
                *subject, "rejected", f"stream {stream.name}", readers,
                todo=f"{stream.name}.rejected has them with reasons: correct columns and options",
            )  # fmt: skip
        if held := self._held_back(stream):
            told = seconds(stream.silent_s)
            yield Alarm(
                "warning", f"stream {stream.name} has had no row for {told}, and others wait for "
                "it", *subject, "silent", f"stream {stream.name}", held,
                self.snapshot.taken - (stream.silent_s or 0.0),
                'check the sender of its rows; with idle = "10 seconds" others continue without it',
            )  # fmt: skip
        if stream.late > MOST * total:
            yield Alarm(
                "error", f"stream {stream.name}: {stream.late:,} of {total:,} rows came late",
                *subject, "late", f"stream {stream.name}", readers, todo="raise its lateness",
            )  # fmt: skip

    def _held_back(self, stream: StreamSnapshot) -> tuple[str, ...]:
        """The queries that wait for a silent stream: what they read beside it has got further."""
        if self.over or stream.ended or (stream.silent_s or 0.0) < DELAY_ALARM_S:
            return ()
        held = []
        for query in self.snapshot.queries:
            read = [
                self._streams[source]
                for operator in query.operators
                for source in self._inputs.get(operator, ())
                if source in self._streams
            ]
            further = any(
                s.id != stream.id and s.rows and (s.watermark or "") > (stream.watermark or "")
                for s in read
            )
            if query.state not in OVER and further and stream in read:
                held.append(query.name)
        return tuple(sorted(held))

    def _queries_at(self, processor: str) -> tuple[str, ...]:
        found = {q for o in self.snapshot.operators if o.processor == processor for q in o.queries}
        return tuple(sorted(found))

    def _readers(self, stream: str) -> tuple[str, ...]:
        targets = [t for t, sources in self._inputs.items() if stream in sources]
        found = {q for t in targets if t in self._operators for q in self._operators[t].queries}
        return tuple(sorted(found))


RESTART = "correct what broke it, then restart it; or drop it and register it again"
HELD = {
    "parked": "see to what the reason names, read what lies there, or drop the query",
    "waiting": "it is taken when there is room",
    "starting": "it is being deployed",
}


def _help(query: QuerySnapshot) -> str:
    """What lets a query go on that is held."""
    if query.reason.startswith(PAUSED):
        return "resume it on its page, or remove paused from its job file and apply that"
    return HELD.get(query.state, "")


def _missed(goals: Sequence[GoalSnapshot]) -> str:
    return ", ".join(f"{g.statistic} {g.wish}" for g in goals if g.met is False)


def _foretold(goals: Sequence[GoalSnapshot]) -> str:
    return ", ".join(
        f"{g.statistic} {g.wish} in {seconds(g.misses_in_s)}"
        for g in goals
        if g.met and g.misses_in_s is not None
    )


def _named(queries: Sequence[str]) -> str:
    shown = ", ".join(queries[:QUERIES_NAMED])
    more = len(queries) - QUERIES_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


class AlarmBook:
    """Remembers since when each alarm stands, where its snapshot cannot tell."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str, str], float] = {}

    def dated(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with a beginning for each of its alarms."""
        before, self._since = self._since, {}
        dated = []
        for alarm in snapshot.overview.alarms:
            key = (alarm.kind, alarm.subject_kind, alarm.subject)
            since = alarm.since or before.get(key, snapshot.taken)
            self._since[key] = before.get(key, since)
            dated.append(replace(alarm, since=min(since, self._since[key])))
        return replace(snapshot, overview=replace(snapshot.overview, alarms=tuple(dated)))


def told(alarm: Alarm, now: float) -> str:
    """An alarm in a line: what, since when, who, for whom, and what to do.

    >>> told(Alarm("error", "processor p is silent", "processor", "p", "away", "", ("a",), 5.0,
    ...            "start it"), 65.0)
    'processor p is silent; for 1 min 0 s; concerns a; start it'
    """
    parts = [alarm.sentence]
    if alarm.since and now - alarm.since >= 1:
        parts.append(f"for {seconds(now - alarm.since)}")
    if alarm.culprit and alarm.culprit not in alarm.sentence:
        parts.append(f"because {alarm.culprit}")
    if alarm.queries and alarm.subject_kind != "query":
        parts.append(f"concerns {_named(alarm.queries)}")
    return "; ".join([*parts, alarm.todo] if alarm.todo else parts)


def worst(alarms: Iterable[Alarm]) -> str:
    """`error`, `warning` or `ok`."""
    found: Mapping[str, bool] = {a.severity: True for a in alarms}
    return next((word for word in ("error", "warning") if word in found), "ok")
