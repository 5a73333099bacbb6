"""One engine as a person sees it: implements `SnapshotSource` for a run or a session.

Reads the ledger's copies in memory and the scheduler's figures; a snapshot starts no Spark job and
waits for no step. Queries that are registered here end with the engine.
"""

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.control.snapshot.alarms import AlarmBook, judged
from millstream.control.snapshot.diagnosis import cause_of, costs_of
from millstream.control.snapshot.model import (
    Admission,
    DecisionSnapshot,
    EdgeSnapshot,
    Explanation,
    GoalSnapshot,
    OperatorSnapshot,
    Overview,
    PlannedOperator,
    QuerySnapshot,
    Results,
    Snapshot,
)
from millstream.core.errors import StateError, UsageError
from millstream.edge.views.decision_log import DecisionLog
from millstream.edge.views.engine_ending import final
from millstream.edge.views.engine_figures import Figures, figures_of
from millstream.edge.views.engine_parts import (
    edge_snapshots,
    error_of,
    event_time,
    goals_by_query,
    goals_costs,
    operator_snapshots,
    processor_snapshot,
    stream_snapshots,
    watermark_lag_s,
)
from millstream.edge.views.engine_preview import preview_rows
from millstream.edge.views.kept_rejects import KeptRejects
from millstream.edge.views.query_edits import QueryEdits
from millstream.edge.views.recent import ROWS_KEPT, LatestRows, Rates
from millstream.edge.views.scheduler_watch import SchedulerWatch
from millstream.language.cql.views import reads_of
from millstream.language.plan.explain import explain, warnings

if TYPE_CHECKING:
    from millstream.engine.costs import Cost
    from millstream.engine.engine import Engine
    from millstream.engine.loop import Loop
    from millstream.engine.query import Query
    from millstream.engine.steps.reports import StepReport

INTERVAL_S = 0.5
RESULT_BYTES_MAX = 8 << 20  # a larger segment is counted, and its rows are not shown
LOCAL = "local"


class EngineView:
    """What one engine does, for people."""

    def __init__(
        self,
        engine: "Engine",
        *,
        title: str,
        loop: "Loop | None" = None,
        processor: str = LOCAL,
        edits: QueryEdits | None = None,
    ) -> None:
        self.engine, self.title, self.processor = engine, title, processor
        self.decisions = DecisionLog()
        self.latest = LatestRows()
        self._rejects = KeptRejects(engine, self.latest)
        self.watch = SchedulerWatch(self.decisions, processor)
        # a processor's queries are its manager's to pause
        self._actions = ("pause", "resume") if loop is not None else ()
        self._edits = edits  # who keeps what is registered here, where somebody does
        self._registered: set[str] = set()
        self._known: dict[str, str] = {}  # queries with their states, as told in decisions
        self._plans: dict[str, tuple[str, str]] = {}  # text and plan
        self._results_seen: dict[str, int] = {}
        self._rates, self._book = Rates(), AlarmBook()
        self._lock = threading.RLock()
        self._loop: Loop | None = loop
        self._started = time.time()
        self._last: Snapshot | None = None
        self._closed = ""
        engine.on_step.append(self._stepped)
        engine.on_delivery.append(self._keep)
        engine.on_notice.append(self._noticed)

    def attach(self, loop: "Loop") -> None:
        """The loop that drives the engine, once there is one."""
        self._loop = loop

    def close(self, state: str = "finished") -> None:
        """The engine is about to end: what was seen last stays to be looked at."""
        with self._lock:
            if self._closed:
                return
            last = self._take()
            for name in sorted(self._registered & set(self.engine.queries)):
                self.engine.drop_query(name)
            self._closed, self._last = state, final(last, state)
        self.leave()

    def leave(self) -> None:
        """Looks on no longer; the engine goes on."""
        self.engine.on_step.remove(self._stepped)
        self.engine.on_delivery.remove(self._keep)
        self.engine.on_notice.remove(self._noticed)

    # -- what happens ---------------------------------------------------------------------------

    def _stepped(self, report: "StepReport") -> None:
        """Keeps the last rows of results; called by the loop after each step."""
        self.watch.stepped(report)
        if report.rows_out:
            self._keep(report.operator)

    def _keep(self, stream: str) -> None:
        """The same before a result is handed over: what everybody has taken may go at once, before
        the thread that made it has told of its step."""
        with contextlib.suppress(Exception):  # nobody's answer depends on whoever looks on
            if self._rejects.name_of(stream):
                with self._lock:
                    self._rejects.look(stream)
            for query in list(self.engine.queries.values()):
                if query.stream == stream:
                    self._keep_rows(query)

    def _keep_rows(self, query: "Query") -> None:
        from millstream.store.delivery import user_table  # noqa: PLC0415

        names = [f.name for f in query.plan.columns]
        with self._lock, self.engine.streams.removals.reading():
            seen = self._results_seen.get(query.name, 0)
            fresh = [s for s in self.engine.ledger.segments(query.stream, seen + 1) if s.rows]
            for segment in fresh:
                self._results_seen[query.name] = segment.last
                if segment.size > RESULT_BYTES_MAX:
                    self.latest.add(query.name, (), (), segment.rows)
                    continue
                stored = self.engine.store.read(segment)
                kept = stored.slice(max(0, stored.num_rows - ROWS_KEPT))
                table = user_table(kept, names, changes=query.plan.relation)
                rows = [tuple(row.values()) for row in table.to_pylist()]
                self.latest.add(
                    query.name, table.column_names, rows, stored.num_rows - kept.num_rows
                )

    def _noticed(self, text: str) -> None:
        self.decisions.add("notice", text)

    def _note_queries(self, queries: list["Query"]) -> None:
        """Admissions, failures and the end of queries, as decisions."""
        for query in queries:
            before, state = self._known.get(query.name), query.state
            if before == state:
                continue
            self._known[query.name] = state
            subject = ("query", query.name)
            if before is None:
                shared = self._shared_part(query)
                self.decisions.add(
                    "admission", f"query {query.name} was taken", reason=shared, subject=subject
                )
            if state == "failed":
                self.decisions.add(
                    "failure", f"query {query.name} failed", reason=query.reason, subject=subject
                )
            elif before is not None:
                self.decisions.add(
                    "notice", f"query {query.name} is {state}", reason=query.reason,
                    subject=subject,
                )  # fmt: skip
        for name in sorted(set(self._known) - {q.name for q in queries}):
            del self._known[name]
            self._plans.pop(name, None)
            self.latest.forget(name)
            self.decisions.add("drop", f"query {name} was dropped", subject=("query", name))

    def _shared_part(self, query: "Query") -> str:
        shared = sum(
            1
            for o in query.operators
            if sum(o in q.operators for q in self.engine.queries.values()) > 1
        )
        total = len(query.operators)
        return f"one processor takes every query; {shared} of its {total} operators are shared"

    # -- what there is --------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        with self._lock:
            if not self._closed:
                self._last = self._take()
            assert self._last is not None
            return self._last

    def _take(self) -> Snapshot:
        from millstream.engine.costs import query_costs  # noqa: PLC0415

        now, engine = time.time(), self.engine
        figures = figures_of(engine)
        self._rates.note(now, figures.counters)
        queries = list(engine.queries.values())
        self._note_queries(queries)
        self.watch.look(self._loop)
        operators = operator_snapshots(
            engine, figures, self._rates, self.watch.groups, self.processor, now
        )
        streams = stream_snapshots(engine, figures, self._rates, self.processor)
        edges = edge_snapshots(engine, figures, self._rates, now)
        goals = goals_by_query(self._loop)
        goals_cost = goals_costs(self._loop, now)
        by_id = {o.id: o for o in operators}
        costs = query_costs(engine)
        seen = tuple(
            replace(
                self._query(q, figures, by_id, goals.get(q.name, ()), costs.get(q.name)),
                goals_cost=goals_cost.get(q.name, 0.0),
            )
            for q in queries
        )
        processor = processor_snapshot(
            engine, figures, self._rates, self._loop, self.watch, goals.get(None, ()),
            self.processor, now,
        )  # fmt: skip
        taken = Snapshot(
            now,
            self._overview(figures, seen, edges),
            INTERVAL_S,
            streams,
            seen,
            operators,
            edges,
            (processor,),
            self.decisions.latest(),
        )
        return self._book.dated(judged(taken))

    def _overview(
        self,
        figures: Figures,
        queries: tuple[QuerySnapshot, ...],
        edges: tuple[EdgeSnapshot, ...],
    ) -> Overview:
        loop = self._loop
        state = "starting" if loop is None else "failed" if loop.failure else "running"
        if loop is not None and state == "running" and loop.finished.is_set():
            state = "finished"
        saved = self.engine.savings.saved()
        return Overview(
            self.title,
            state,
            self._started,
            rows_in=figures.rows_in,
            rows_out=sum(q.rows for q in queries),
            rows_in_per_s=self._rates.of("rows in"),
            rows_out_per_s=sum(q.rows_per_s for q in queries),
            backlog_rows=sum(e.queue_rows for e in edges),
            backlog_bytes=sum(e.queue_bytes for e in edges),
            watermark_lag_s=watermark_lag_s(self.engine, figures),
            steps=loop.steps if loop is not None else 0,
            actions=self._actions,
            jobs_alone=saved.jobs_alone,
            saved_s=round(saved.saved_s, 2),
            saved_part=round(saved.part, 3),
        )

    def _query(
        self,
        query: "Query",
        figures: Figures,
        operators: Mapping[str, OperatorSnapshot],
        goals: tuple[GoalSnapshot, ...],
        cost: "Cost | None",
    ) -> QuerySnapshot:
        needed = [operators[o] for o in query.operators if o in operators]
        waits = [o.waiting_s for o in needed if o.waiting_s is not None]
        _, _, load_own, load_shared = costs_of(query.name, needed)
        cause = cause_of(needed)
        head = figures.streams.get(query.stream)
        served = self.engine.path_times.ratios().get(query.name)
        return QuerySnapshot(
            query.name,
            query.cql,
            self._plan_text(query),
            query.state,
            query.reason,
            registered=figures.registered.get(query.name, 0.0),
            start=event_time(query.start),
            relation=query.plan.relation,
            columns=tuple((f.name, f.type) for f in query.plan.columns),
            rows=head["rows"] if head else 0,
            rows_per_s=self._rates.of(("stream", query.stream)),
            watermark=event_time(head["watermark"]) if head else None,
            delay_s=round(max(waits), 2) if waits else 0.0,
            cost_s_own=round(cost.own_s, 3) if cost is not None else 0.0,
            cost_s_shared=round(cost.shared_s, 3) if cost is not None else 0.0,
            ratio=round(served.ratio, 2) if served is not None else None,
            ratio_communication=round(served.communication, 2) if served is not None else None,
            load_own=load_own,
            load_shared=load_shared,
            result=query.stream,
            operators=query.operators,
            reads=reads_of(query.cql),
            goals=goals,
            error=error_of(query),
            restartable=query.restartable,
            droppable=self._edits is None or self._edits.droppable(query.name),
            cause=cause.sentence if cause else "",
            cause_operator=cause.operator if cause else "",
        )

    def _plan_text(self, query: "Query") -> str:
        known = self._plans.get(query.name)
        if known is None or known[0] != query.cql:
            known = self._plans[query.name] = (query.cql, explain(query.plan))
        return known[1]

    # -- questions ------------------------------------------------------------------------------

    def explain(self, cql: str) -> Explanation:
        self._refuse_when_closed()
        plan = self.engine.plan(cql)
        change = self.engine.foretell(cql)
        matches = self.engine.matches(plan)
        needed = tuple(
            PlannedOperator(
                m.operator.id,
                m.operator.kind,
                m.operator.label,
                tuple(sorted(m.queries)),
                m.how == "same",
                m.words,
            )
            for m in matches
        )
        known = sum(m.how == "same" for m in matches)
        joined = sum(m.how == "together" for m in matches)
        more = f", {joined} join a job that runs already" if joined else ""
        return Explanation(
            explain(plan),
            plan.relation,
            tuple((f.name, f.type) for f in plan.columns),
            needed,
            tuple(warnings(plan)),
            Admission(
                True,
                f"would be taken: one processor takes every query; {known} of its {len(needed)} "
                f"operators run already{more}"
                if change is None
                else "\n".join(change.lines()),
                self.processor,
            ),
        )

    def preview(self, cql: str, rows_max: int = 20) -> Results:
        self._refuse_when_closed()
        return preview_rows(self.engine, cql, rows_max)

    def register(self, name: str, cql: str) -> DecisionSnapshot:
        self._refuse_when_closed()
        if not name.strip():
            raise UsageError("a query needs a name")
        if self._edits is not None:
            self._edits.register(name, cql)
        else:
            self.engine.add_query(name, cql, from_beginning=True)
            self._registered.add(name)
        if self._loop is not None:
            self._loop.wake()
        with self._lock:
            self._note_queries(list(self.engine.queries.values()))
        if self.engine.replacements.candidate_of(name):
            sentence = f"query {name} continues with its new text when that has caught up"
            self.decisions.add("admission", sentence, subject=("query", name))
        found = [d for d in self.decisions.latest() if d.subject == name and d.kind == "admission"]
        return found[-1]

    def drop(self, name: str) -> None:
        self._refuse_when_closed()
        if self._edits is not None:
            self._edits.drop(name)
        else:
            self.engine.drop_query(name)
            self._registered.discard(name)
        if self._loop is not None:
            self._loop.wake()

    def act(self, action: str, name: str, to: str = "") -> str:
        self._refuse_when_closed()
        if action not in self._actions:
            raise UsageError(f"one engine alone cannot {action}", hint=", ".join(self._actions))
        if name not in self.engine.queries:
            raise UsageError(f"there is no query {name}")
        pausing = action == "pause"
        if self._edits is not None:
            self._edits.pause(name, pausing)
        else:
            self.engine.pause_query(name, pausing, "a user requested it")
        if self._loop is not None:
            self._loop.wake()
        return f"query {name} {'is paused' if pausing else 'continues'}"

    def restart(self, name: str) -> None:
        self._refuse_when_closed()
        self.engine.restart_query(name)
        if self._loop is not None:
            self._loop.wake()

    def results(self, query: str, after: int = 0) -> Results:
        if stream := self._rejects.stream_of(query):
            if not self._closed:
                self._keep(stream)
        elif query not in self._known and query not in self.engine.queries:
            raise UsageError(f"there is no query {query}")
        return self.latest.after(query, after)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StateError(f"the run has {self._closed}", hint="start it again to ask more")
