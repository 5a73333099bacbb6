"""An engine in this process as `System`, driven by a loop in the background.

Importing this module brings Spark: whoever may do without imports it when an engine is wanted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.client.system import (
    Figures,
    ReaderFailedError,
    RegisteredQuery,
    ResultPage,
    Submission,
)
from millstream.control.definitions.replicas import needs_a_cluster
from millstream.control.snapshot.model import Snapshot
from millstream.core.errors import UsageError
from millstream.decide.schedule.quality import Specification
from millstream.edge.telemetry.watched_engine import WatchedEngine
from millstream.edge.views.processor_view import ProcessorView
from millstream.engine.costs import explained
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.query import Query
from millstream.engine.scheduling.figures import scheduling_figures
from millstream.engine.scheduling.goals import change_goals
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.push_source import PushSource
from millstream.engine.sources.rule_source import RuleSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.rule_tables import TABLE_HINT
from millstream.language.plan.nodes import sources_of
from millstream.language.plan.windows import BEGINNING
from millstream.spark.attached import attached_session, inside, plane_of
from millstream.spark.collecting import local
from millstream.spark.session import is_ours, running, session
from millstream.store.arrivals.appending import Rows
from millstream.store.consumers import Consumer, Cursor, subscriber
from millstream.store.delivery import Result, Sink
from millstream.store.reach import SELF_READING
from millstream.store.segments import Segment
from millstream.store.sinks.result_line import Former, formers_of

LOOK_S = 0.05  # between two looks at a result


def shared_spark(master: str = "local[2]") -> Callable[[], None] | None:
    """Starts a Spark that all systems of this process share; gives what ends it. None where one
    runs already: it is shared, and its owner's to end."""
    return None if running() is not None else session(master).stop


class LocalSystem:
    """One engine and its loop; nothing runs before `start` or `work`."""

    url = ""
    shared = False

    def __init__(
        self,
        home: Path,
        master: str,
        *,
        settings: Mapping[str, Any],
        spark: Mapping[str, str],
        say: Callable[[str], None] = lambda _: None,
        attach_to: Any = None,  # a user's Spark session
        lineage: str | None = None,  # where events of OpenLineage go: a URL or a file
    ) -> None:
        user = running() if attach_to is None else attach_to
        self.own_spark, self._attached = user is None, False
        if user is None:
            say(f"starting Spark ({master})")
            own = {"spark.sql.warehouse.dir": local(home / "warehouse"), **spark}
            self.spark = session(master, own, log=home / "spark.log")
        else:
            self._attached = not is_ours(user)
            self.spark = attached_session(user) if self._attached else user
        plane = plane_of(self.spark, attached=self._attached)
        self.engine = Engine(home, plane, EngineSettings(**dict(settings)))
        self.loop = Loop(self.engine)
        self._watched = WatchedEngine(self.engine, lineage, say)
        self._view = ProcessorView("session", self.engine, lambda: self.loop)
        self.working = self._closed = False

    def close(self) -> None:
        """Finishes the steps in hand and ends; Spark goes on."""
        if not self._closed:
            self._closed = True
            if self.working:
                self.loop.stop()
            self._watched.close(complete=self.loop.finished.is_set() and not self.loop.failure)
            self.engine.close()

    def inside(self) -> AbstractContextManager[None]:
        """A block in which Spark takes this thread's calls for those of our session."""
        return inside(self.spark) if self._attached else nullcontext()

    def start(self) -> None:
        """Begins to work, or makes the loop look for something new."""
        if self._closed:
            raise UsageError("the session is closed")
        self.check()
        if self.working:
            self.loop.wake()
        else:
            self.working = True
            self.loop.start()

    def _changed(self) -> None:
        if self.working:
            self.loop.wake()

    def check(self) -> None:
        """Raises what stopped the loop, if anything did."""
        trouble = self.loop.failure or self.loop.trouble
        if trouble is not None:
            raise trouble

    def work(self, tick: Callable[[], None]) -> None:
        self.working = True
        try:
            self.loop.run(tick)
        finally:
            self.working = False

    def wait(self, timeout_s: float | None = None) -> bool:
        settled = self._settle(timeout_s)
        for delivery in list(self.engine.deliveries):
            if delivery.problem:
                raise ReaderFailedError(
                    f"the reader of query {delivery.result.query} has failed",
                    detail=delivery.problem,
                    hint="its rows are kept, and it is tried again",
                )
        return settled

    def _settle(self, timeout_s: float | None = None) -> bool:
        self.start()
        settled = self.loop.settled.wait(timeout_s)
        self.check()
        return settled

    def caught_up(self, name: str) -> Callable[[], bool]:
        return self._settle

    # -- streams --------------------------------------------------------------------------------

    def declare(self, stream: StreamDefinition) -> None:
        if stream.replicas > 1:
            raise needs_a_cluster(f"stream {stream.name}", stream.replicas)
        self.engine.add_stream(stream)
        source = self.engine.sources.get(stream.name)
        if self.working and source is not None:
            source.start()
        self._changed()

    def definition(self, stream: str) -> StreamDefinition:
        return self._pushed(stream).definition

    def push(
        self, stream: str, rows: Rows, producer: str, number: int | None = None
    ) -> Mapping[str, Any]:
        answer = self._pushed(stream).push(producer, number, rows)
        return {"rows": answer.rows, "late": answer.late, "rejected": answer.rejected,
                "repeated": answer.repeated, "reasons": answer.reasons}  # fmt: skip

    def finish(self, stream: str) -> None:
        self._pushed(stream).finish()

    def _pushed(self, stream: str) -> PushSource:
        name = self.engine.catalog.stream(stream).name
        source = self.engine.sources.get(name)
        if not isinstance(source, PushSource):
            raise UsageError(
                f"stream {name} has a source of its own",
                hint='declare it with source="push" to push rows',
            )
        return source

    def rules(self, table: str) -> list[dict[str, Any]]:
        """The rules of a table that hold now."""
        source = self._pushed(table)
        if not isinstance(source, RuleSource):
            raise UsageError(f"stream {table} is not a rule table", hint=TABLE_HINT)
        return list(source.present().values())

    def forget(self, stream: str) -> None:
        """Streams end with the engine."""

    # -- queries --------------------------------------------------------------------------------

    def free_name(self) -> str:
        number = 1
        while f"q{number}" in self.engine.queries:
            number += 1
        return f"q{number}"

    def submit(self, query: Submission) -> RegisteredQuery:
        if query.replicas > 1:
            raise needs_a_cluster(f"query {query.name}", query.replicas)
        made = self.engine.add_query(
            query.name, query.cql, from_beginning=query.from_beginning, replace=query.replace
        )
        if made.plan.relation:
            self._hold_table(made)
        if self.working:
            self.loop.wake(at_once=False)  # a thousand of them may come one after the other
        return self.query(query.name)

    def _hold_table(self, query: Query) -> None:
        """A table needs the whole changelog where the operator does not keep it for itself."""
        operator = self.engine.operators.get(query.stream)
        if operator is None or operator.kind in SELF_READING:
            return
        with self.engine.ledger.transaction() as ledger:
            following, watermark = ledger.cursor(Consumer("table", query.name), query.stream)
            ledger.set_cursor(Consumer("table", query.name), query.stream, following, watermark)

    def explain(self, cql: str) -> str:
        """A query's plan, what it would share with running queries, and what that costs."""
        told = explained(self.engine, self.engine.plan(cql))
        change = self.engine.foretell(cql)
        return told if change is None else "\n".join([told, "replacing", *change.lines()])

    def query(self, name: str) -> RegisteredQuery:
        known = self.engine.queries.get(name)
        if known is None:
            raise UsageError(f"query {name} was dropped")
        return RegisteredQuery(
            name,
            known.cql,
            known.plan.columns,
            known.plan.relation,
            known.stream,
            known.state,
            known.reason,
            None if known.start == BEGINNING else known.start,
            tuple(source.stream for source in sources_of(known.plan.root)),
            known.plan,
        )

    def queries(self) -> Sequence[str]:
        return [n for n in self.engine.queries if not self.engine.replacements.is_candidate(n)]

    def recorded(self) -> Mapping[str, str]:
        ledger, waiting = self.engine.ledger, self.engine.replacements
        names = [str(row["name"]) for row in ledger.queries()]
        return {n: waiting.wanted_text(n) for n in names if not waiting.is_candidate(n)}

    def forget_leftovers(self) -> None:
        """Queries that nobody has declared again would hold streams for nobody."""
        for name, cql in self.recorded().items():
            if name not in self.engine.queries:
                self.engine.add_query(name, cql)
                self.drop(name)

    def pause(self, name: str, wanted: bool, why: str = "") -> None:
        self.engine.pause_query(name, wanted, why)
        self._changed()

    def restart(self, name: str) -> None:
        self.engine.restart_query(name)
        self._changed()

    def drop(self, name: str) -> None:
        with self.engine.lock:
            self.engine.drop_query(name)
            with self.engine.ledger.transaction() as ledger:
                ledger.drop_consumer(Consumer("table", name))
        if self.working:  # whoever delivers its rows just now comes to an end
            self.loop.quiesce(frozenset({str(subscriber(name))}))
        self._changed()

    # -- results --------------------------------------------------------------------------------

    def reader(self, name: str) -> "LedgerReader":
        return LedgerReader(self, self.query(name))

    def latest(self, name: str, rows_max: int) -> list[dict[str, Any]]:
        """The last rows that are retained, oldest first; reads no more files than it must."""
        engine, result = self.engine, self.query(name).result
        found: list[dict[str, Any]] = []
        with engine.streams.removals.reading():
            for segment in reversed(engine.ledger.segments(result.stream)):
                if len(found) >= rows_max:
                    break
                if segment.rows:
                    stored = engine.store.read(segment)
                    kept = stored.slice(max(0, stored.num_rows - rows_max + len(found)))
                    found = result.shown(kept).to_pylist() + found
        return found

    def table_pieces(
        self, name: str, enough: Callable[[], bool] = lambda: True
    ) -> Iterator[pa.Table]:
        enough()
        self.query(name).raise_if_failed()
        return self.engine.table_pieces(name)

    def deliver(self, name: str, sink: Sink) -> None:
        """The first sink moves the query's own cursor, so that nothing is kept for nobody."""
        others = sum(d.result.query == name for d in self.engine.deliveries)
        consumer = Consumer("sink", f"{name}:{others}") if others else None
        self.engine.deliver(name, sink, consumer=consumer)

    def deliver_rejects(self, stream: StreamDefinition, late: Sink, rejected: Sink) -> None:
        self.engine.deliver_rejects(stream.name, late, rejected)

    def serve_sinks(self, name: str) -> None:
        self.start()

    # -- figures and goals ----------------------------------------------------------------------

    @property
    def steps(self) -> int:
        return self.loop.steps

    def status(self) -> Mapping[str, Any]:
        return self.engine.status()

    def snapshot(self) -> Snapshot:
        return self._view.snapshot()

    def figures(self) -> Figures:
        return self.engine.status()

    def set_quality(
        self, goals: Specification | None, query: str | None, weight: float | None
    ) -> None:
        change_goals(self.engine, goals, query, weight)

    def quality(self) -> Mapping[str, Any]:
        """Goals beside what is measured, the algorithm in charge, what choosing costs."""
        self.start()
        return scheduling_figures(self.loop)


class LedgerReader:
    """A result in this process, from the query's own cursor on.

    Where a query has taken another's place, first come the rows that the other one has given.
    """

    def __init__(self, system: LocalSystem, query: RegisteredQuery) -> None:
        self._system, self._name = system, query.name
        self._ledger = system.engine.ledger
        self._consumer = subscriber(query.name)
        self.following, self._watermark = self._ledger.cursor(self._consumer, query.stream)
        for former, place in self._formers():
            if former.segments(self._ledger, place.next):
                self.following = min(self.following, place.next)
        self.ended = self.idle = False

    def _formers(self) -> Iterator[tuple[Former, Cursor]]:
        """Streams that the result was made of before and that are not read to their end."""
        for former in formers_of(self._ledger, self._name):
            place = self._ledger.consumers(former.stream).get(self._consumer)
            if place is not None:
                yield former, place

    def _waiting(self) -> tuple[Result, list[Segment]]:
        """What is next."""
        result = self._system.query(self._name).result
        for former, _ in self._formers():
            if found := former.segments(self._ledger, self.following):
                return replace(result, stream=former.stream, columns=former.columns), found
        begin = self._ledger.cursor(self._consumer, result.stream).next
        return result, self._ledger.segments(result.stream, max(begin, self.following))

    def pages(self, wait_s: float = 0.0) -> Iterator[ResultPage]:
        """All that has come, as one page."""
        engine, loop = self._system.engine, self._system.loop
        self.ended = loop.finished.is_set()  # asked first: what comes later is not yet looked at
        result, segments = self._waiting()
        self.idle = not segments
        if not segments:
            self._system.check()
            if not self.ended:
                loop.finished.wait(min(wait_s, LOOK_S))
            return
        self.ended = False
        self.following, self._watermark = segments[-1].last + 1, segments[-1].watermark
        tables = [engine.store.read(s) for s in segments if s.rows]
        shown = None
        if tables:
            merged = pa.concat_tables(tables, promote_options="permissive")
            shown = result.shown(merged)
        yield ResultPage(segments[0].first, segments[-1].last, shown)

    def acknowledge(self) -> None:
        engine, stream = self._system.engine, self._system.query(self._name).stream
        with self._ledger.transaction() as ledger:
            for former, _ in self._formers():
                ledger.set_cursor(self._consumer, former.stream, self.following, self._watermark)
            if self.following > ledger.cursor(self._consumer, stream).next:
                ledger.set_cursor(self._consumer, stream, self.following, self._watermark)
        engine.maintenance.retain([stream])
