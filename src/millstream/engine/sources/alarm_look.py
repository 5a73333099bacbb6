"""What is an alarm on one engine, for `sys.alarms`: its flow as a snapshot, judged as everywhere.

The figures are those of the ledger, the queues and the goals. Queries over the system itself are
left out, so that watching does not feed on itself.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from millstream.control.snapshot.alarm_rows import Key, by_key, changes
from millstream.control.snapshot.alarms import judged
from millstream.control.snapshot.diagnosis import cause_of, pressure_of
from millstream.control.snapshot.model import (
    Alarm,
    EdgeSnapshot,
    GoalSnapshot,
    OperatorSnapshot,
    Overview,
    ProcessorSnapshot,
    QuerySnapshot,
    Snapshot,
    StreamSnapshot,
)
from millstream.engine.dataflow import Dataflow
from millstream.engine.scheduling.goal_snapshots import goals_told
from millstream.engine.scheduling.idleness import silent_s
from millstream.engine.sources.system_rows import watches
from millstream.engine.status import mark
from millstream.engine.steps.shedding import shed_rows
from millstream.language.share.dataflow import Operator, base_stream

Goals = Mapping[str | None, tuple[GoalSnapshot, ...]]


class AlarmLook:
    """Remembers which alarms were told, and how much was worked until the last look."""

    def __init__(self, flow: Dataflow, processor: str) -> None:
        self._flow, self._processor = flow, processor
        self._told: dict[Key, Alarm] = {}
        self._worked: dict[str, float] = {}  # seconds of each operator so far
        self._looked = 0.0

    def rows(self) -> list[dict[str, Any]]:
        """What has begun and ended since the last look."""
        now = by_key(judged(self._snapshot(time.time())).overview.alarms)
        found, self._told = changes(self._told, now), now
        return found

    def _snapshot(self, now: float) -> Snapshot:
        operators = self._operators(now)
        by_id = {o.id: o for o in operators}
        edges = tuple(
            EdgeSnapshot(stream, o.id, queue_rows=rows, pressure=pressure)
            for o in list(self._flow.operators.values())
            if o.id in by_id
            for stream, rows, pressure in self._queues(o, now)
        )
        goals = goals_told(self._flow)
        busy = sum(o.load for o in operators) / self._flow.settings.slots
        processor = ProcessorSnapshot(
            self._processor, load=min(1.0, busy), goals=goals.get(None, ())
        )
        return Snapshot(
            now, Overview(""), streams=self._streams(), queries=self._queries(by_id, goals),
            operators=operators, edges=edges, processors=(processor,),
        )  # fmt: skip

    def _queues(self, operator: Operator, now: float) -> Iterator[tuple[str, int, float]]:
        """By input: the rows that wait, and how hard they press."""
        limit = self._flow.settings.backlog_rows_max
        for stream, segments in self._flow.pending(operator).items():
            waiting = [s for s in segments if s.rows]
            rows = sum(s.rows for s in waiting)
            waited = now - min(s.arrived for s in waiting) if waiting else 0.0
            yield stream, rows, pressure_of(rows, limit, waited)

    def _operators(self, now: float) -> tuple[OperatorSnapshot, ...]:
        flow, passed_s = self._flow, max(now - self._looked, 1e-9)
        statistics = flow.ledger.operator_statistics()
        worked = {name: float(row["seconds"]) for name, row in statistics.items()}
        found = []
        for o in list(flow.operators.values()):
            if watches(flow, o.id):
                continue
            waiting = [s for pending in flow.pending(o).values() for s in pending if s.rows]
            done = worked.get(o.id, 0.0)
            load = (done - self._worked.get(o.id, done)) / passed_s
            resting = o.id in flow.paused_operators
            found.append(
                OperatorSnapshot(
                    o.id, o.kind, o.label, self._processor,
                    "paused" if resting else "busy" if o.id in flow.in_step else "running",
                    tuple(sorted(q.name for q in flow.queries_of(o.id))),
                    queue_rows=sum(s.rows for s in waiting),
                    waiting_s=now - min(s.arrived for s in waiting) if waiting else None,
                    load=max(0.0, load),
                    shed_rows=shed_rows(statistics[o.id]) if o.id in statistics else 0,
                )
            )  # fmt: skip
        self._worked, self._looked = worked, now
        return tuple(found)

    def _queries(
        self, operators: dict[str, OperatorSnapshot], goals: Goals
    ) -> tuple[QuerySnapshot, ...]:
        found = []
        for query in list(self._flow.queries.values()):
            needed = [operators[o] for o in query.operators if o in operators]
            if query.operators and not needed and query.state in ("running", "parked"):
                continue  # it watches the system
            waits = [o.waiting_s for o in needed if o.waiting_s is not None]
            cause = cause_of(needed)
            found.append(
                QuerySnapshot(
                    query.name, query.cql, state=query.state, reason=query.reason,
                    operators=query.operators, delay_s=max(waits, default=0.0),
                    goals=goals.get(query.name, ()),
                    cause=cause.sentence if cause else "",
                    cause_operator=cause.operator if cause else "",
                )
            )  # fmt: skip
        return tuple(found)

    def _streams(self) -> tuple[StreamSnapshot, ...]:
        ledger = self._flow.ledger
        counters = ledger.counters()
        heads = {row["id"]: row for row in ledger.streams()}
        names = list(self._flow.appenders)
        ended = {n for n in names if ledger.ingest_position(base_stream(n)).get("ended")}
        return tuple(
            StreamSnapshot(
                base_stream(name), name, processor=self._processor,
                rows=heads[base_stream(name)]["rows"], late=counters.get(f"late:{name}", 0),
                rejected=counters.get(f"rejected:{name}", 0),
                watermark=mark(heads[base_stream(name)]["watermark"]),
                ended=name in ended, silent_s=None if name in ended else silent_s(self._flow, name),
            )
            for name in names
            if base_stream(name) in heads
        )  # fmt: skip
