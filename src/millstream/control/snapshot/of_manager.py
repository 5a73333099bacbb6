"""A manager's state as the snapshot that people read.

Pure: from one `ManagerState` to one `Snapshot`. Operators, queues and rates come from the
statistics table, places from the plans, decisions from the log. A processor that is silent says so,
and figures older than a few reports count as standing still, because reports tell only changes.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from millstream.control.manager.state import (
    Figures,
    ManagerState,
    OperatorRecord,
    Query,
    StreamRecord,
)
from millstream.control.protocol.records import ASKED, PAUSED
from millstream.control.recovery.replication import degraded
from millstream.control.recovery.silence import quiet
from millstream.control.snapshot.alarms import judged
from millstream.control.snapshot.diagnosis import cause_of, costs_of, error_with_row
from millstream.control.snapshot.model import (
    Connection,
    DecisionSnapshot,
    EdgeSnapshot,
    ErrorSnapshot,
    OperatorSnapshot,
    Overview,
    ProcessorSnapshot,
    QuerySnapshot,
    Snapshot,
    StreamSnapshot,
)
from millstream.language.cql.system_streams import COLUMNS, SOURCE
from millstream.language.cql.views import reads_of

BEATS_FRESH = 2.5  # reports after which a figure that was not told again has stopped moving
BACKLOG_ROWS_MAX = 2_000_000  # where a processor makes its sources wait, unless told otherwise
STATES = {"up": "running", "joining": "joining", "silent": "silent"}
PHASES = {"deploying": "starting", "compiling": "starting", "holding": "starting",
          "placing": "starting", "queued": "waiting"}  # fmt: skip
# Figures travel as floats, which tell the very first and last instants only nearly; what a calendar
# can name lies well inside.
EARLIEST, LATEST = -(2**55), 2**57
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NONE = Figures(0.0, {})


def snapshot_of(state: ManagerState, *, title: str = "cluster", started: float = 0.0) -> Snapshot:
    """Everything a manager knows, at the moment of its last event."""
    return judged(_Reader(state).snapshot(title, started))


class _Reader:
    """One state, read once."""

    def __init__(self, state: ManagerState) -> None:
        self.state = state
        self._fresh_s = BEATS_FRESH * state.settings.beat_s
        self._unsafe = degraded(state)
        self._users: dict[str, list[str]] = {}
        for query in state.queries.values():
            if not query.ended:
                for operator in query.operators:
                    self._users.setdefault(operator, []).append(query.name)
        self._moving = {
            operator for move in state.moves.values() if move.frozen for operator in move.operators
        }

    def snapshot(self, title: str, started: float) -> Snapshot:
        state = self.state
        operators = tuple(self._operator(o) for o in state.operators.values())
        by_id = {o.id: o for o in operators}
        edges = tuple(
            self._edge(source, operator)
            for operator in state.operators.values()
            for source in operator.inputs
        )
        streams = tuple(self._stream(name) for name in state.streams)
        queries = tuple(self._query(q, by_id) for q in state.queries.values())
        processors = tuple(self._processor(name, operators) for name in state.processors)
        overview = Overview(
            title,
            "failed" if state.superseded else "running",
            started,
            rows_in=sum(s.rows for s in streams),
            rows_out=sum(q.rows for q in queries),
            rows_in_per_s=sum(s.rows_per_s for s in streams),
            rows_out_per_s=sum(q.rows_per_s for q in queries),
            backlog_rows=sum(o.queue_rows for o in operators),
            backlog_bytes=sum(o.queue_bytes for o in operators),
            watermark_lag_s=self._lag_s(),
            steps=sum(p.steps for p in processors),
        )
        return Snapshot(
            state.now_s, overview, 1.0, streams, queries, operators, edges, processors,
            tuple(
                DecisionSnapshot(d.number, d.at_s, d.kind, d.sentence, d.reason, d.subject_kind,
                                 d.subject, d.subjects)
                for d in state.decisions
            ),
        )  # fmt: skip

    # -- figures --------------------------------------------------------------------------------

    def _rate(self, figures: Figures, name: str) -> float:
        """A rate that is not told again has fallen to nought."""
        if self.state.now_s - figures.at_s > self._fresh_s:
            return 0.0
        return _rounded(figures.rates.get(name, 0.0))

    def _operator(self, record: OperatorRecord) -> OperatorSnapshot:
        figures = self.state.statistics.operators.get(record.id, NONE)
        value = figures.values
        queue = int(value.get("queue_rows", 0))
        since = value.get("waiting_since")
        lost = self._state_of(record.processor) == "silent"
        users = [self.state.queries[q] for q in self._users.get(record.id, ())]
        rests = bool(users) and all(q.phase == "failed" for q in users)
        return OperatorSnapshot(
            record.id,
            record.kind,
            record.label,
            record.processor,
            "moving" if record.id in self._moving else "paused" if lost or rests else "running",
            tuple(sorted(self._users.get(record.id, ()))),
            rows_in=int(value.get("rows_in", 0)),
            rows_out=int(value.get("rows_out", 0)),
            rows_in_per_s=self._rate(figures, "rows_in"),
            rows_out_per_s=self._rate(figures, "rows_out"),
            queue_rows=queue,
            queue_bytes=int(value.get("queue_bytes", 0)),
            waiting_s=round(self.state.now_s - since, 1) if since and queue else None,
            steps=int(value.get("steps", 0)),
            cost_s=round(value.get("seconds", 0.0), 3),
            load=self._rate(figures, "seconds"),
            text=str(record.properties.get("text", "")),
        )

    def _edge(self, source: str, target: OperatorRecord) -> EdgeSnapshot:
        """Between processors the pulled rows; within one what the source gives."""
        statistics = self.state.statistics
        pulled = statistics.edges.get(f"{source}>{target.processor}")
        given = statistics.streams.get(source, NONE)
        queue = statistics.operators.get(target.id, NONE).values
        behind = int(pulled.values.get("behind_rows", 0)) if pulled is not None else 0
        rows = (int(queue.get("queue_rows", 0)) if len(target.inputs) == 1 else 0) + behind
        return EdgeSnapshot(
            source,
            target.id,
            self._rate(pulled if pulled is not None else given, "rows"),
            self._rate(pulled, "bytes") if pulled is not None else 0.0,
            rows,
            int(queue.get("queue_bytes", 0)) if len(target.inputs) == 1 else 0,
            round(min(1.0, rows / BACKLOG_ROWS_MAX), 2),
        )

    def _stream(self, name: str) -> StreamSnapshot:
        record = self.state.streams[name]
        figures = self.state.statistics.streams.get(record.id, NONE)
        value = figures.values
        columns = record.table.get("columns", {})
        pairs = columns.items() if isinstance(columns, Mapping) else columns
        return StreamSnapshot(
            record.id,
            name,
            _source(record),
            record.processor,
            rows=int(value.get("rows", 0)),
            rows_per_s=self._rate(figures, "rows"),
            late=int(value.get("late", 0)),
            rejected=int(value.get("rejected", 0)),
            watermark=event_time(value.get("watermark_us")),
            ended=bool(value.get("ended", 0)),
            columns=tuple((str(n), str(t)) for n, t in pairs),
            silent_s=value.get("silent_s"),
        )

    def _query(self, query: Query, operators: Mapping[str, OperatorSnapshot]) -> QuerySnapshot:
        needed = [operators[o] for o in query.operators if o in operators]
        figures = self.state.statistics.streams.get(query.result, NONE)
        own, shared, load_own, load_shared = costs_of(query.name, needed)
        cause = cause_of(needed)
        waits = [o.waiting_s for o in needed if o.waiting_s is not None]
        failed = query.phase == "failed"
        told = self.state.statistics.queries.get(query.name, {})
        return QuerySnapshot(
            query.name,
            query.cql,
            query.plan,
            *_condition(query, told),
            query.submitted_s,
            event_time(query.start),
            query.relation,
            query.columns,
            rows=int(figures.values.get("rows", 0)),
            rows_per_s=self._rate(figures, "rows"),
            watermark=event_time(figures.values.get("watermark_us")),
            delay_s=max(waits) if waits else 0.0,
            cost_s_own=round(own, 3),
            cost_s_shared=round(shared, 3),
            ratio=told.get("ratio"),
            ratio_communication=told.get("ratio_communication"),
            load_own=load_own,
            load_shared=load_shared,
            result=query.result,
            operators=query.operators,
            reads=reads_of(query.cql),
            error=self._error(query) if failed else None,
            restartable=failed and query.resumable,
            cause=cause.sentence if cause else "",
            cause_operator=cause.operator if cause else "",
            lost=query.lost,
        )

    def _error(self, query: Query) -> ErrorSnapshot:
        culprits = self.state.statistics.queries.get(query.name, {}).get("culprits") or ()
        return error_with_row(query.reason, culprits)

    # -- processors -----------------------------------------------------------------------------

    def _state_of(self, processor: str) -> str:
        live = self.state.live.get(processor)
        if live is None or quiet(live):
            return "silent"
        return STATES.get(live.state, live.state)

    def _processor(self, name: str, operators: tuple[OperatorSnapshot, ...]) -> ProcessorSnapshot:
        record = self.state.processors[name]
        live = self.state.live.get(name)
        figures = self.state.statistics.processors.get(name, NONE)
        value = figures.values
        memory = value.get("memory_bytes")
        state = self._state_of(name)
        return ProcessorSnapshot(
            name,
            "draining" if record.draining and state == "running" else state,
            record.url,
            live.heard_s if live is not None else 0.0,
            load=float(value.get("load", 0.0)) if state == "running" else 0.0,
            slots=int(record.properties.get("slots", 1)),
            memory_bytes=int(memory) if memory is not None else None,
            memory_bytes_max=int(value["memory_bytes_max"])
            if "memory_bytes_max" in value
            else None,
            connections=self._connections(name),
            operators=sum(o.processor == name for o in operators),
            segments=int(value.get("segments", 0)),
            segment_bytes=int(value.get("segment_bytes", 0)),
            ledger_bytes=int(value.get("ledger_bytes", 0)),
            steps=int(value.get("steps", 0)),
            steps_per_s=self._rate(figures, "steps"),
            epoch=record.epoch,
            unsafe=self._unsafe.get(name, ""),
        )

    def _connections(self, processor: str) -> tuple[Connection, ...]:
        """Who pulls from whom, summed over streams."""
        found: dict[tuple[str, str], list[Figures]] = {}
        for key, figures in self.state.statistics.edges.items():
            stream, _, reader = key.rpartition(">")
            owner = self._owner(stream)
            if owner and owner != reader and processor in (owner, reader):
                direction = "in" if reader == processor else "out"
                peer = owner if direction == "in" else reader
                found.setdefault((peer, direction), []).append(figures)
        return tuple(
            Connection(
                peer,
                direction,
                len(every),
                sum(self._rate(f, "rows") for f in every),
                sum(self._rate(f, "bytes") for f in every),
                sum(int(f.values.get("behind_rows", 0)) for f in every),
            )
            for (peer, direction), every in sorted(found.items())
        )

    def _owner(self, stream: str) -> str:
        if stream.startswith("s:"):
            record = self.state.streams.get(stream.removeprefix("s:"))
            return record.processor if record is not None else ""
        operator = self.state.operators.get(stream)
        return operator.processor if operator is not None else ""

    def _lag_s(self) -> float | None:
        """By how much event time results are behind what has come, at most."""
        marks = {
            k: int(f.values["watermark_us"])
            for k, f in self.state.statistics.streams.items()
            if "watermark_us" in f.values
        }
        lags = []
        for query in self.state.queries.values():
            if query.phase != "running" or query.result not in marks:
                continue
            reached = [marks[s] for s in query.sources if s in marks]
            usual = [m for m in reached if EARLIEST < m < LATEST]
            if usual and EARLIEST < marks[query.result] < LATEST:
                lags.append(max(0, min(usual) - marks[query.result]))
        return round(max(lags) / 1e6, 3) if lags else None


def event_time(at: float | None) -> str | None:
    """An event time for people: ISO, `end`, or nothing yet.

    >>> event_time(1_000_000), event_time(None), event_time(float(2**63 - 1))
    ('1970-01-01T00:00:01Z', None, 'end')
    """
    if at is None or at <= EARLIEST:
        return None
    if at >= LATEST:
        return "end"
    return (EPOCH + timedelta(microseconds=int(at))).isoformat().replace("+00:00", "Z")


def _given_up(query: Query) -> bool:
    """Whether a query ends everywhere to begin again, because a processor was lost."""
    return query.phase == "dropping" and not query.ending


def _condition(query: Query, told: Mapping[str, Any]) -> tuple[str, str]:
    """The state of a query, and why."""
    if _given_up(query) and query.lost:
        return "lost", query.reason or query.lost
    if query.phase == "running" and query.paused:
        return "parked", f"{PAUSED}{ASKED}"
    kept = str(told.get("reason", ""))
    if query.phase == "running" and told.get("state") == "parked" and not kept.startswith(PAUSED):
        return "parked", kept
    return PHASES.get(query.phase, query.phase), query.reason


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _source(record: StreamRecord) -> str:
    """Where a stream's rows come from, in a word."""
    if record.name in COLUMNS:
        return SOURCE
    return str(record.table.get("source", "file" if "path" in record.table else "push"))
