"""The engine of one processor: streams, queries and their operators over one ledger.

It registers and drops queries, knows which operators they need, and runs single pieces of work:
ingest a batch, run a step, deliver, tidy up. Which piece comes next is the loop's business; how
rows are computed is that of the data plane behind `ports`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.control.protocol.commands import Host
from millstream.control.protocol.records import PAUSED
from millstream.core.beginning import beginning_gone
from millstream.core.errors import UsageError
from millstream.engine.changes.births import Births, pasts_of
from millstream.engine.changes.flow import ChangingFlow
from millstream.engine.changes.foretelling import Foretold, foretold
from millstream.engine.changes.history import Histories, note_history
from millstream.engine.changes.replacing import Replacements
from millstream.engine.culprits import Culprit, dumped, with_culprits
from millstream.engine.hosting import Hosting
from millstream.engine.maintenance import Maintenance
from millstream.engine.ports import CompiledQuery, DataPlane, StreamRows
from millstream.engine.query import (
    Query,
    alone_of,
    culprits_of,
    pauses,
    pauses_of,
    replaced_by,
    restarts_of,
    state_in_force,
)
from millstream.engine.settings import EngineSettings
from millstream.engine.status import status
from millstream.engine.steps.bounds import bounded, check_estimate
from millstream.engine.steps.runner import StepRunner
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.change_data import is_reference_table
from millstream.language.cql.system_streams import PREFIX
from millstream.language.cql.views import name_of, replacing, whole_text
from millstream.language.plan.nodes import Plan, sources_of
from millstream.language.plan.schema import Field
from millstream.language.plan.walks import rule_tables_of
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import (
    REJECTED_NAMES,
    base_stream,
    late_stream,
    rejected_stream,
)
from millstream.store.consumers import Consumer, hold_of, subscriber
from millstream.store.delivery import Delivery, Result, Sink, user_table
from millstream.store.moves.ownership import Ownership
from millstream.store.streams import Streams


class Engine(ChangingFlow):
    """All state that is not durable can be rebuilt from the ledger and the declarations."""

    def __init__(
        self, home: Path, plane: DataPlane, settings: EngineSettings | None = None
    ) -> None:
        settings = settings or EngineSettings()
        streams = Streams(home, local_disk=settings.local_disk, files=plane.files)
        super().__init__(streams, settings)
        self.plane, self.compiler = plane, plane.compiler
        self.evaluator = plane.evaluator(self.store)
        self.runner = StepRunner(
            self.streams,
            self.compiler,
            self.evaluator,
            settings.collect_bytes_max,
            lambda job: bounded(job, self.settings.pairs_max, self.settings.step_seconds_max),
            self.shedding.together,
        )
        self.maintenance = Maintenance(self.streams, self.operators, self.evaluator)
        ownership = Ownership(self.ledger)
        self.histories = Histories(self)
        self.hosting = Hosting(self, plane, self.runner, ownership, self.arrived)
        self.replacements = Replacements(self)
        self.births = Births(self)

    def close(self) -> None:
        for delivery in self.deliveries:
            delivery.close()
        self.streams.close()

    def add_stream(self, definition: StreamDefinition) -> None:
        """Declares a base stream; its source is opened at once, so that mistakes show."""
        self.hosting.add_stream(definition)

    # -- queries --------------------------------------------------------------------------------

    def plan(self, cql: str, start: int = BEGINNING) -> Plan:
        """What a query means."""
        return self.compiler.compile(self.whole_text(cql), self.catalog, start).plan

    def whole_text(self, cql: str, name: str = "") -> str:
        """A text with the definitions of the registered queries that it reads by name."""
        streams = {s.name for s in self.catalog.streams}

        def find(read: str) -> str | None:
            row = None if read in streams or read == name else self.ledger.query(read)
            return None if row is None else str(row["cql"])

        return whole_text(cql, find)

    def add_query(
        self, name: str, cql: str, *, from_beginning: bool = False, replace: bool = False
    ) -> Query:
        """Registers a query and hosts all of it; its start is durable and the same when it is
        registered again. `replace`, or CREATE OR REPLACE in its text: a query of this name goes on
        with the new text as soon as that has caught up."""
        text = replacing(cql)
        if text is not None or replace:
            return self._replace(name, text or cql, from_beginning)
        with self.lock:
            if name in self.queries:
                raise UsageError(
                    f"query {name} exists already",
                    hint=f"drop it first, or CREATE OR REPLACE QUERY {name} AS ...",
                )
            cql = self.whole_text(cql, name)
            known = self.ledger.query(name)
            if known is not None and self.ledger.meta(replaced_by(name)) == cql:
                cql = known["cql"]  # it goes on with the new text when that has caught up
            cql = self.births.decided(name, cql, None if known is None else str(known["cql"]))
            if known is not None and known["cql"] != cql:
                raise UsageError(
                    f"query {name} is registered with another text",
                    detail=known["cql"],
                    hint="drop it first, or choose another name",
                )
            meant = self.hosting.compile(cql, None, name)
            plan = meant.plan
            if known is None:
                self.check_new(meant)
            self._open_system_streams(plan)
            self.births.open(plan)
            start = self._start(name, plan, from_beginning) if known is None else known["start"]
            if known is None and (from_beginning or pasts_of(plan)):
                self._part_from_used_up(name, cql, start)
            compiled = self.hosting.compile(cql, start, name)
            if known is not None and known["stream"] != compiled.stream:
                raise UsageError(
                    f"query {name} was registered with another setting of sharing",
                    hint="use that setting, or drop the query first",
                )
            operators = tuple(o.id for o in compiled.operators)
            if known is None:
                self._take_over(name, operators)
            self.hosting.host(Host(name, cql, start, operators, result=True))
            self.births.start(plan)
            if known is None and from_beginning and (gone := beginning_gone(start)):
                for listener in self.on_notice:
                    listener(f"query {name}: {gone}")
            with self.ledger.transaction() as ledger:
                ledger.drop_consumer(hold_of(name))
                if known is None and (from_beginning or pasts_of(plan)):
                    note_history(
                        ledger, name, [base_stream(s.stream) for s in sources_of(plan.root)]
                    )
            self.tell("registered" if known is None else "taken up", self.queries[name])
            self.replacements.take_up(name)
            return self.queries[name]

    def _replace(self, name: str, cql: str, from_beginning: bool) -> Query:
        """Lets a query go on with another text, or registers it where there is none."""
        with self.lock:
            known = self.ledger.query(name)
            if known is None:
                return self.add_query(name, cql, from_beginning=from_beginning)
            if name not in self.queries:  # a former process had it
                self.add_query(name, known["cql"])
            cql = self.whole_text(cql, name)
            if self.ledger.meta(replaced_by(name)) != cql:
                self.replacements.begin(name, cql)
            return self.queries[name]

    def foretell(self, cql: str, query: str = "") -> Foretold | None:
        """What CREATE OR REPLACE would do, or another text for a query; None for other texts."""
        text, name = (cql, query) if query else (replacing(cql), name_of(cql))
        with self.lock:
            old = None if text is None else self.queries.get(name)
            if old is None or text is None:
                return None
            new = self.hosting.compile(self.whole_text(text, name), old.start, name)
            self.replacements.check(old, new)
            return foretold(self, old, new)

    def check_new(self, compiled: CompiledQuery) -> None:
        """Refuses what would combine too many rows, unless its text says that this is meant."""
        if compiled.refusal is not None:
            raise compiled.refusal
        if not compiled.crossed:
            check_estimate(compiled.plan, self.ledger, self.settings.pairs_max)

    def _take_over(self, name: str, operators: Sequence[str]) -> None:
        """A new query begins with operators of its own: those that rest for failed queries alone
        stand before what broke them, and would break the new one as well."""
        needed = self.paused_operators.intersection(operators)
        for query in [q for q in self.queries.values() if q.restartable]:
            if needed.intersection(query.operators) and not self._lives_beside(query, needed):
                self.hosting.stop(query)
                self.notice(
                    f"query {query.name} cannot be restarted any more: query {name} has the same "
                    "operators"
                )

    def _lives_beside(self, failed: Query, operators: frozenset[str]) -> bool:
        """Whether a parked query keeps the operators of a failed one: the new one shares them."""
        mine = operators.intersection(failed.operators)
        return any(q.state == "parked" and mine & {*q.operators} for q in self.queries.values())

    def _start(self, name: str, plan: Plan, from_beginning: bool) -> int:
        """One event time: the greatest watermark of the base streams, or the least from which all
        of them are wholly retained. First the streams are held, so that what lies after it stays
        until the query's operators hold it themselves."""
        streams = {base_stream(s.stream) for s in sources_of(plan.root)}
        timed = streams - {base_stream(s.stream) for s in rule_tables_of(plan.root)}
        timed -= {base_stream(s.stream) for s in sources_of(plan.root) if self._lasts(s.stream)}
        with self.ledger.transaction() as ledger:
            for stream in streams:
                self.streams.hold(hold_of(name), stream)
            if pasts_of(plan):
                return BEGINNING  # the instant up to which history counts stands in the text
            rows = [row for s in timed if (row := ledger.stream(s)) is not None]
        column = "retained_from" if from_beginning else "watermark"
        start = max((int(row[column]) for row in rows), default=BEGINNING)
        finite = [int(row["ts_max"]) + 1 for row in rows]
        return min(start, max(finite, default=BEGINNING))

    def backfilling(self) -> frozenset[str]:
        return self.histories.backfilling()

    def _part_from_used_up(self, name: str, cql: str, start: int) -> None:
        """A query that begins in the past needs all that its operators have given since: where one
        runs already and some of that is gone, it gets operators of its own."""
        compiled = self.hosting.compile(cql, start, name)
        with self.ledger.transaction() as ledger:
            there = {o.id: row for o in compiled.operators if (row := ledger.stream(o.id))}
            for stream in there:
                self.streams.hold(hold_of(name), stream)
            if any(int(row["retained_from"]) > BEGINNING for row in there.values()):
                ledger.set_meta(alone_of(name), "")

    def _lasts(self, stream: str) -> bool:
        """Whether all rows of a stream count for every query, whenever it begins."""
        appender = self.appenders.get(stream)
        return appender is not None and is_reference_table(appender.definition.source)

    def _open_system_streams(self, plan: Plan) -> None:
        """Opens the streams about the system that a plan reads and that are not open yet."""
        for name in sorted({s.stream for s in sources_of(plan.root)}):
            if name.startswith(PREFIX) and name not in self.sources:
                self.add_stream(self.catalog.stream(name))
                if self.on_arrival:  # a loop runs already
                    self.sources[name].start()

    def deliver(self, name: str, sink: Sink, *, consumer: Consumer | None = None) -> Delivery:
        """Attaches a sink to a query's result; it takes the place of the query's own cursor."""
        query = self.queries[name]
        result = Result(name, query.stream, query.plan.columns, query.plan.relation)
        return self._attach(
            Delivery(consumer or subscriber(name), result, sink, self.ledger, self.store)
        )

    def deliver_rejects(self, stream: str, late: Sink, rejected: Sink) -> None:
        """Attaches sinks to the rows of a stream that came too late or were malformed."""
        columns = self.catalog.stream(stream).columns
        names = tuple(Field(n, "string") for n in REJECTED_NAMES)
        for target, fields, sink in (
            (late_stream(stream), columns, late),
            (rejected_stream(stream), names, rejected),
        ):
            result = Result(target, target, fields, timed=fields is columns)
            self._attach(Delivery(Consumer("sink", target), result, sink, self.ledger, self.store))

    def _attach(self, delivery: Delivery) -> Delivery:
        with self.lock:
            with self.ledger.transaction():
                delivery.install()
            self.deliveries.append(delivery)
            if (query := self.queries.get(delivery.result.query)) is not None:
                self.tell("delivered", query)
            return delivery

    def drop_query(self, name: str) -> None:
        """Forgets a query and every operator that nobody else uses."""
        with self.lock:
            query = self.queries.get(name)
            if query is None:
                raise UsageError(f"there is no query {name}")
            self.replacements.forget(name)
            dropped = [d for d in self.deliveries if d.result.query == name]
            self.deliveries = [d for d in self.deliveries if d.result.query != name]
            self.hosting.unhost(name, query.operators)
            self.histories.forget(name)
            self.births.forget(query.plan)
            with self.ledger.transaction() as ledger:
                for delivery in dropped:
                    ledger.drop_consumer(delivery.consumer)
                    delivery.close()
            self.tell("dropped", query)

    def fail_query(self, name: str, reason: str, culprits: Sequence[Culprit] = ()) -> None:
        """Stops a query that cannot go on, loudly; its results so far stay, and its operators
        keep their places, so that it can be restarted."""
        reason = with_culprits(reason, culprits)
        with self.lock:
            query = self.queries[name]
            query.state, query.reason = "failed", reason
            query.culprits = [culprit.table() for culprit in culprits]
            with self.ledger.transaction() as ledger:
                ledger.set_query_state(name, "failed", reason)
                ledger.set_meta(culprits_of(name), dumped(culprits))
            self.pause_operators()
            self.tell("failed", query)

    def restart_query(self, name: str) -> None:
        """Lets a failed query go on where it failed: the step that broke it is tried again."""
        with self.lock:
            query = self.queries.get(name)
            if query is None:
                raise UsageError(f"there is no query {name}")
            if query.state != "failed":
                raise UsageError(f"query {name} has not failed", detail=f"it is {query.state}")
            if query.given_up:
                raise UsageError(
                    f"query {name} cannot continue where it failed",
                    detail=f"its unread input is no longer kept; it failed: {query.reason}",
                    hint="drop it and register it again",
                )
            query.culprits = []
            with self.ledger.transaction() as ledger:
                ledger.drop_meta(culprits_of(name))
                ledger.drop_meta(restarts_of(name))
            self.set_query_state(name, "running")
            self.tell("restarted", query)
        for listener in list(self.on_arrival):
            listener()

    def set_query_state(self, name: str, state: str, reason: str = "") -> None:
        """Parks a query, or lets it go on, unless somebody wants it to rest."""
        with self.lock:
            query = self.queries[name]
            with self.ledger.transaction() as ledger:
                if state == "running":
                    state, reason = state_in_force(ledger, name, state, reason)
                ledger.set_query_state(name, state, reason)
            query.state, query.reason = state, reason
            self.pause_operators()

    def pause_query(self, name: str, wanted: bool, why: str) -> None:
        """Lets a running query rest, or one that rests go on; its rows are kept meanwhile."""
        with self.lock:
            query = self.queries[name]
            with self.ledger.transaction() as ledger:
                told = pauses(ledger, name)
                if wanted != (told % 2 == 1):
                    ledger.set_meta(pauses_of(name), str(told + 1))
            if wanted and query.state == "running":
                self.set_query_state(name, "parked", f"{PAUSED}{why}")
            elif not wanted and query.paused:
                self.set_query_state(name, "running")

    def arrived(self, name: str) -> None:
        """Called by a source that brings rows by itself, after each commit."""
        stream = self.appenders[name].stream
        if not any(stream in o.inputs for o in list(self.operators.values())):
            self.maintenance.retain([stream])  # where somebody reads it, his steps see to that
        for listener in self.on_arrival:
            listener()

    # -- results --------------------------------------------------------------------------------

    def result(self, name: str) -> pa.Table:
        """All retained rows of a query's result, as users see them."""
        query = self.queries[name]
        names = [f.name for f in query.plan.columns]
        with self.streams.removals.reading():
            tables = [self.store.read(s) for s in self.ledger.segments(query.stream) if s.rows]
        if not tables:
            tables = [self.evaluator.nothing(self.ledger.columns(query.stream))]
        merged = pa.concat_tables(tables, promote_options="permissive")
        return user_table(merged, names, changes=query.plan.relation)

    def table(self, name: str) -> pa.Table:
        """A relation's present table."""
        return pa.concat_tables(self.table_pieces(name), promote_options="permissive")

    def table_pieces(self, name: str) -> Iterator[pa.Table]:
        """The same, one piece in memory at a time: a large table is staged by the executors."""
        query = self.queries[name]
        names = [f.name for f in query.plan.columns]
        for piece in self.stored_table(query.stream):
            yield user_table(piece, names)

    def stored_table(self, stream: str) -> Iterator[pa.Table]:
        """The present table of a stream of changes, as it is stored."""
        with self.streams.removals.reading():
            segments = tuple(s for s in self.ledger.segments(stream) if s.rows)
            self.store.check(segments)
            columns, layouts = self.ledger.columns(stream), self.streams.layouts_of(segments)
            return self.evaluator.table(
                StreamRows(stream, segments, columns, layouts),
                self.home / "staging" / f"table-{stream[:40]}",
                collect=sum(s.size for s in segments) <= self.settings.collect_bytes_max,
            )

    def status(self) -> Mapping[str, Any]:
        """What a display shows: streams, operators and queries with their figures."""
        return status(self, self.histories)
