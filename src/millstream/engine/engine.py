"""The engine of one processor: streams, queries and their operators over one ledger.

It registers and drops queries, knows which operators they need, and runs single pieces of work:
ingest a batch, run a step, deliver, tidy up. Which piece comes next is the loop's business.
"""

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from millstream.cql.binder import bind
from millstream.cql.catalog import Catalog, StreamDefinition
from millstream.cql.parser import parse_query
from millstream.engine.consumers import Consumer, hold_of, subscriber
from millstream.engine.culprits import Culprit, dumped, with_culprits
from millstream.engine.file_ingest import FileIngest
from millstream.engine.maintenance import Maintenance
from millstream.engine.path_times import PathTimes
from millstream.engine.sources import SOURCES, LiveSource, kind_of
from millstream.engine.steps import COLLECT_BYTES_MAX, StepReport, StepRunner
from millstream.engine.system_source import open_used
from millstream.engine.train_steps import TrainRunner
from millstream.errors import UsageError
from millstream.plan.nodes import Plan, sources_of
from millstream.plan.rewrite import read_by
from millstream.plan.schema import Field
from millstream.plan.windows import BEGINNING
from millstream.schedule.measures import OperatorStatistic, PlanStatistic
from millstream.schedule.quality import DEFAULT as DEFAULT_QUALITY
from millstream.schedule.quality import Quality
from millstream.schedule.settings import ScheduleSettings
from millstream.share.dataflow import (
    Operator,
    base_stream,
    compile_plan,
    late_stream,
    rejected_stream,
    result_stream,
    state_stream,
)
from millstream.share.matching import DEFAULT as DEFAULT_SHARING
from millstream.share.matching import MATCHINGS, Match, Running, match_all
from millstream.spark.analyzer import SparkAnalyzer
from millstream.spark.collecting import collected
from millstream.spark.frames import Frame
from millstream.spark.operators.running import table as relation_table
from millstream.store.appending import REJECTED_NAMES, Appender
from millstream.store.delivery import Delivery, Result, Sink, user_table
from millstream.store.layouts import Layouts
from millstream.store.ledger import Ledger
from millstream.store.segments import SegmentStore, parquet_pieces

# Without goals of the user's own, one algorithm that makes the most of each step.
# Admission counts on a turn for everybody within a cycle (docs/design/0006-planning-with-reuse.md).
PATIENCE_S = 5.0
BATCHES = ScheduleSettings(candidates=("cost_aware",), selector="fixed", patience_s=PATIENCE_S)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    batch_rows: int = 50_000  # rows of an ingested batch
    step_rows_max: int = 500_000  # new rows a step takes at most
    backlog_rows_max: int = 2_000_000  # ingest waits while an operator is this far behind
    collect_bytes_max: int = COLLECT_BYTES_MAX
    quota_bytes: int = 4 << 30  # results that a query's consumer may leave lying
    slots: int = 2  # pieces of work in flight at once
    pace_s: float = 0.0  # between two steps of an operator, while no row waits for longer
    sharing: str = DEFAULT_SHARING  # none, exact or subsuming
    schedule: ScheduleSettings = BATCHES
    quality: Quality = DEFAULT_QUALITY
    local_disk: bool = True  # False for a home on shared storage


@dataclass(slots=True)
class Query:
    """A registered query and what it needs."""

    name: str
    cql: str
    plan: Plan
    start: int
    stream: str
    operators: tuple[str, ...]
    state: str = "running"
    reason: str = ""
    culprits: list[dict[str, Any]] = field(default_factory=list)  # the rows behind a failure
    deliveries: list[Delivery] = field(default_factory=list)


LIVE = ("running", "parked")  # states of queries whose operators are kept


def culprits_of(query: str) -> str:
    """Where the ledger keeps the rows that broke a query."""
    return f"culprits:{query}"


class Engine:
    """All state that is not durable can be rebuilt from the ledger and the declarations."""

    def __init__(
        self, home: Path, spark: SparkSession, settings: EngineSettings | None = None
    ) -> None:
        self.home = home
        self.settings = settings or EngineSettings()
        home.mkdir(parents=True, exist_ok=True)
        self.spark = spark
        self.ledger = Ledger(home / "ledger.db", local_disk=self.settings.local_disk)
        self.layouts = Layouts(self.ledger)
        self.store = SegmentStore(home / "segments", self.layouts.places)
        self.runner = StepRunner(spark, self.ledger, self.store, self.settings.collect_bytes_max)
        self.train_runner = TrainRunner(self.runner, self.layouts)
        self.analyzer = SparkAnalyzer(spark)
        self.catalog = Catalog()
        self.operators: dict[str, Operator] = {}
        self.queries: dict[str, Query] = {}
        self.appenders: dict[str, Appender] = {}
        self.ingests: dict[str, FileIngest] = {}
        self.sources: dict[str, LiveSource] = {}  # those that bring rows by themselves
        self.deliveries: list[Delivery] = []
        self.paused_operators: frozenset[str] = frozenset()
        self.overdue = False  # whether another processor has left too much of a base stream lying
        self.resting: set[str] = set()  # operators that are about to be handed over
        self.maintenance = Maintenance(self.runner, self.operators)
        self.lock = threading.RLock()
        self.on_step: list[Callable[[StepReport], None]] = []
        self.on_delivery: list[Callable[[str], None]] = []  # a stream, before it is handed over
        self.on_arrival: list[Callable[[], None]] = []
        self.on_notice: list[Callable[[str], None]] = []  # what an operator should hear of
        self.own_statistics: list[OperatorStatistic | PlanStatistic] = []  # of the user's
        self.path_times = PathTimes(self)
        self._sweep_orphans()

    def close(self) -> None:
        self.ledger.close()

    def _sweep_orphans(self) -> None:
        """Files of attempts that never committed, and of removals that did not finish."""
        named = self.ledger.named_files()
        for file in self.store.files():
            if file not in named:
                self.store.remove(file)
        self.store.remove_drafts()
        with self.ledger.transaction() as ledger:
            ledger.drop_holds()
            self.layouts.forget_unused()

    # -- streams --------------------------------------------------------------------------------

    def add_stream(self, definition: StreamDefinition, *, ingest: bool = True) -> None:
        """Declares a base stream; its source is opened at once, so that mistakes show.

        Without `ingest` its rows enter elsewhere and come as a copy.
        """
        with self.lock:
            self.analyzer.check_time(definition)
            catalog = self.catalog.with_stream(definition)
            if ingest:
                self.open_source(definition)
            else:
                with self.ledger.transaction() as ledger:
                    appender = Appender(definition, self.ledger, self.store)
                    ledger.add_stream(appender.stream, "base")
                    ledger.set_columns(appender.stream, appender.columns().json())
            self.catalog = catalog

    def open_source(self, definition: StreamDefinition) -> None:
        """Opens what brings a declared stream's rows."""
        appender = Appender(definition, self.ledger, self.store)
        with self.ledger.transaction():
            appender.install()
        opened = SOURCES.get(kind_of(definition))(self, definition, appender)
        if isinstance(opened, FileIngest):
            self.ingests[definition.name] = opened
        else:
            self.sources[definition.name] = opened
        self.appenders[definition.name] = appender

    # -- queries --------------------------------------------------------------------------------

    def plan(self, cql: str, start: int = BEGINNING, *, reader: str = "") -> Plan:
        """What a query means; `reader` keeps every part of it from being another's as well."""
        plan = self._bound(cql, start)
        return plan if not reader else replace(plan, root=read_by(plan.root, reader))

    def _bound(self, cql: str, start: int) -> Plan:
        return bind(parse_query(cql), self.catalog, self.analyzer, start=start)

    def add_query(self, name: str, cql: str, *, from_beginning: bool = False) -> Query:
        """Registers a query; its start is durable and the same when it is registered again."""
        with self.lock:
            if name in self.queries:
                raise UsageError(f"query {name} exists already", hint="drop it first")
            known = {r["name"]: r for r in self.ledger.queries()}.get(name)
            if known is not None and known["cql"] != cql:
                raise UsageError(
                    f"query {name} is registered with another text",
                    detail=known["cql"],
                    hint="drop it first, or choose another name",
                )
            reader = "" if MATCHINGS.get(self.settings.sharing).equal else name
            plan = self.plan(cql, reader=reader)
            open_used(self, plan)
            start = known["start"] if known is not None else self._start(name, plan, from_beginning)
            if start != BEGINNING:
                plan = self.plan(cql, start, reader=reader)
            if known is not None and known["stream"] != result_stream(plan):
                raise UsageError(
                    f"query {name} was registered with another setting of sharing",
                    hint="use that setting, or drop the query first",
                )
            operators = compile_plan(plan)
            query = Query(
                name, cql, plan, start, result_stream(plan), tuple(o.id for o in operators)
            )
            if known is not None:
                query.state, query.reason = known["state"], known["reason"]
                query.culprits = json.loads(self.ledger.meta(culprits_of(name)) or "[]")
            with self.ledger.transaction() as ledger:
                for operator in operators:
                    self.runner.install(operator)
                    for stream in operator.inputs:
                        self.hold(operator.id, stream)
                if known is None:
                    ledger.add_query(name, cql, start, query.stream)
                following, _ = ledger.cursor(subscriber(name), query.stream)
                ledger.set_cursor(subscriber(name), query.stream, following, BEGINNING)
                ledger.drop_consumer(hold_of(name))
            if query.state in LIVE:
                for operator in operators:
                    self.operators.setdefault(operator.id, operator)
            self.queries[name] = query
            self.pause_operators()
            return query

    def _start(self, name: str, plan: Plan, from_beginning: bool) -> int:
        """One event time: the greatest watermark of the base streams, or the least from which all
        of them are wholly retained. First the streams are held, so that what lies after it stays
        until the query's operators hold it themselves."""
        streams = {base_stream(s.stream) for s in sources_of(plan.root)}
        with self.ledger.transaction() as ledger:
            for stream in streams:
                self.hold(hold_of(name), stream)
            rows = [row for s in streams if (row := ledger.stream(s)) is not None]
        column = "retained_from" if from_beginning else "watermark"
        start = max((int(row[column]) for row in rows), default=BEGINNING)
        finite = [int(row["ts_max"]) + 1 for row in rows]
        return min(start, max(finite, default=BEGINNING))

    def hold(self, consumer: Consumer | str, stream: str) -> None:
        """A new reader begins with the first segment that is still there."""
        following, watermark = self.ledger.cursor(consumer, stream)
        if (following, watermark) == (1, BEGINNING):
            segments = self.ledger.segments(stream)
            row = self.ledger.stream(stream)
            following = segments[0].first if segments else int(row["next"]) if row else 1
        self.ledger.set_cursor(consumer, stream, following, watermark)

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
            return delivery

    def matches(self, plan: Plan) -> list[Match]:
        """What a query would reuse of what runs, and what is new."""
        with self.lock:
            running = {
                o.id: Running(o, tuple(q.name for q in self.queries_of(o.id)))
                for o in self.operators.values()
            }
        return match_all(compile_plan(plan), running, MATCHINGS.get(self.settings.sharing))

    def drop_query(self, name: str) -> None:
        """Forgets a query and every operator that nobody else uses."""
        with self.lock:
            query = self.queries.pop(name, None)
            if query is None:
                raise UsageError(f"there is no query {name}")
            self._retire(query)
            with self.ledger.transaction() as ledger:
                ledger.drop_query(name)
                ledger.drop_meta(culprits_of(name))

    def fail_query(self, name: str, reason: str, culprits: Sequence[Culprit] = ()) -> None:
        """Stops a query that cannot go on, loudly; its results so far stay."""
        reason = with_culprits(reason, culprits)
        with self.lock:
            query = self.queries[name]
            query.state, query.reason = "failed", reason
            query.culprits = [culprit.table() for culprit in culprits]
            with self.ledger.transaction() as ledger:
                ledger.set_query_state(name, "failed", reason)
                ledger.set_meta(culprits_of(name), dumped(culprits))
            self._retire(query, keep_result=True)

    def set_query_state(self, name: str, state: str, reason: str = "") -> None:
        """Parks a query, or lets it go on."""
        with self.lock:
            query = self.queries[name]
            query.state, query.reason = state, reason
            with self.ledger.transaction() as ledger:
                ledger.set_query_state(name, state, reason)
            self.pause_operators()

    def pause_operators(self) -> None:
        """Operators that only parked queries use rest; their inputs and tails stay."""
        running = {op for q in self.queries.values() if q.state == "running" for op in q.operators}
        parked = {op for q in self.queries.values() if q.state == "parked" for op in q.operators}
        self.paused_operators = frozenset((parked - running) | self.resting)

    def _retire(self, query: Query, *, keep_result: bool = False) -> None:
        used = {
            op for q in self.queries.values() if q is not query and q.state in LIVE
            for op in q.operators
        }  # fmt: skip
        results = {q.stream for q in self.queries.values() if q is not query}
        gone: list[str] = []
        with self.ledger.transaction() as ledger:
            for operator in query.operators:
                if operator in used:
                    continue
                self.operators.pop(operator, None)
                ledger.drop_consumer(operator)
                part = 0
                while ledger.stream(state_stream(operator, part)) is not None:
                    gone += ledger.drop_stream(state_stream(operator, part))
                    part += 1
                if operator not in results and not (keep_result and operator == query.stream):
                    gone += ledger.drop_stream(operator)
                    self.runner.reader.forget(operator)
            if not keep_result:
                ledger.drop_consumer(subscriber(query.name))
                self.deliveries = [d for d in self.deliveries if d.result.query != query.name]
            self.layouts.forget_unused()
            self.pause_operators()
        self.runner.removals.add(gone)
        self.maintenance.remove_files()

    def live_sources(self) -> bool:
        """Whether rows may still come from sources that are not files."""
        return any(not source.ended for source in self.sources.values())

    def arrived(self, name: str) -> None:
        """Called by a source that brings rows by itself, after each commit."""
        self.maintenance.retain([self.appenders[name].stream])
        for listener in self.on_arrival:
            listener()

    def congested(self) -> bool:
        """Whether an operator, or another processor, is so far behind that ingest should wait."""
        if self.overdue:
            return True
        limit = self.settings.backlog_rows_max
        with self.lock:
            operators = [o for o in self.operators.values() if o.id not in self.paused_operators]
        return any(
            sum(s.rows for found in self.runner.pending(o).values() for s in found) > limit
            for o in operators
        )

    def queries_of(self, operator: str) -> Iterator[Query]:
        return (q for q in self.queries.values() if operator in q.operators)

    # -- results --------------------------------------------------------------------------------

    def result(self, name: str) -> pa.Table:
        """All retained rows of a query's result, as users see them."""
        query = self.queries[name]
        names = [f.name for f in query.plan.columns]
        with self.runner.removals.reading():
            tables = [self.store.read(s) for s in self.ledger.segments(query.stream) if s.rows]
        if not tables:
            frame = self.runner.reader.frame(query.stream, [])
            tables = [frame.data.toArrow()]
        merged = pa.concat_tables(tables, promote_options="permissive")
        return user_table(merged, names, changes=query.plan.relation)

    def table(self, name: str) -> pa.Table:
        """A relation's present table."""
        return pa.concat_tables(self.table_pieces(name), promote_options="permissive")

    def table_pieces(self, name: str) -> Iterator[pa.Table]:
        """The same, one piece in memory at a time: a large table is staged by the executors."""
        query = self.queries[name]
        names = [f.name for f in query.plan.columns]
        with self.runner.removals.reading():
            segments = [s for s in self.ledger.segments(query.stream) if s.rows]
            frame = self.runner.reader.frame(query.stream, segments)
            rows = relation_table(Frame(frame.data, frame.hidden, frame.width))
            if sum(s.size for s in segments) <= self.settings.collect_bytes_max:
                whole = collected(rows)
                if whole is not None:
                    yield user_table(whole, names)
                    return
            folder = self.home / "staging" / f"table-{query.stream[:40]}"
            rows.write.mode("overwrite").parquet(str(folder))
        for piece in parquet_pieces(folder):
            yield user_table(piece, names)
        shutil.rmtree(folder, ignore_errors=True)

    def settings_changed(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)

    def status(self) -> Mapping[str, Any]:
        """What a display shows: streams, operators and queries with their figures."""
        from millstream.engine.status import status  # noqa: PLC0415

        return status(self)
