"""Single operators of queries on one processor: declared streams, hosted operators, holds.

A processor compiles a query's text itself and runs those of its operators that it was told to; the
others' streams are copies, pulled under the same numbers, so that everything else in the engine
works as if it were alone. All of it lies in the ledger: `restore` needs nothing else. Never decides
what is hosted where.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.control.commands import Host
from millstream.cql.catalog import StreamDefinition
from millstream.engine.consumers import Consumer, subscriber
from millstream.engine.engine import LIVE, Engine, Query, culprits_of
from millstream.engine.file_ingest import FileIngest
from millstream.engine.sources import LiveSource
from millstream.errors import UsageError
from millstream.plan.nodes import Plan
from millstream.plan.windows import BEGINNING
from millstream.share.dataflow import (
    Operator,
    base_stream,
    compile_plan,
    result_stream,
    state_stream,
)
from millstream.store.ownership import Ownership, definition_text
from millstream.store.transfer import RefusedError

FIRST_EPOCH = 1
POINTERS_KEPT = 100  # to later owners of a stream: who was away for long may still ask


@dataclass(frozen=True, slots=True)
class Marks:
    """How far a base stream is."""

    watermark: int
    retained_from: int
    ts_max: int


class Hosting:
    """Declarations and hosted operators of one engine."""

    def __init__(self, engine: Engine, ownership: Ownership) -> None:
        self.engine, self.ownership, self.ledger = engine, ownership, engine.ledger
        self.running = False  # whether the loop runs: sources then start at once
        self._waiting: dict[str, FileIngest | LiveSource] = {}  # opened, not started
        self._compiled: dict[tuple[str, int], tuple[Plan, tuple[Operator, ...]]] = {}

    def restore(self) -> None:
        """Everything again as the ledger has it."""
        for declared in self.ownership.declared().values():
            self._add_stream(declared.definition, ingest=declared.ingest, started=declared.started)
        for text in self.texts().values():
            self.run(text)

    # -- streams --------------------------------------------------------------------------------

    def declare(self, definition: StreamDefinition, *, ingest: bool) -> None:
        """Makes a base stream known; with `ingest` its source is opened here and waits."""
        with self.engine.lock:
            known = self.ownership.declared().get(definition.name)
            if known is not None:
                if ingest and definition_text(known.definition) != definition_text(definition):
                    raise UsageError(f"stream {definition.name} is declared otherwise here")
                if known.ingest or not ingest:
                    return
                self.engine.open_source(definition)
                self._set_aside(definition.name)
            else:
                self._add_stream(definition, ingest=ingest, started=False)
            with self.ledger.transaction():
                self.ownership.declare(definition, ingest=ingest, started=False)
                if ingest:
                    self._own(base_stream(definition.name))

    def _own(self, stream: str) -> None:
        """This processor makes a stream, from its next number on (inside a transaction)."""
        if self.ownership.owned(stream) is not None:
            return
        head = self.ledger.stream(stream)
        self.ownership.drop_copy(stream)
        self.ownership.own(
            stream, self.ownership.epoch(stream) + FIRST_EPOCH, int(head["next"]) if head else 1
        )

    def _add_stream(self, definition: StreamDefinition, *, ingest: bool, started: bool) -> None:
        self.engine.add_stream(definition, ingest=ingest)
        if ingest and not started:
            self._set_aside(definition.name)

    def _set_aside(self, name: str) -> None:
        """Takes an opened source from the loop until it is started."""
        opened = self.engine.ingests.pop(name, None) or self.engine.sources.pop(name, None)
        if opened is not None:
            self._waiting[name] = opened

    def start_stream(self, name: str) -> None:
        """Rows may come now."""
        with self.engine.lock:
            declared = self.ownership.declared().get(name)
            if declared is None or not declared.ingest:
                raise RefusedError("unknown", f"rows of stream {name} do not enter here")
            with self.ledger.transaction():
                self.ownership.declare(declared.definition, ingest=True, started=True)
            opened = self._waiting.pop(name, None)
            if isinstance(opened, FileIngest):
                self.engine.ingests[name] = opened
            elif opened is not None:
                self.engine.sources[name] = opened
                if self.running:
                    opened.start()

    def forget(self, name: str) -> None:
        """A base stream that nothing reads is declared no more."""
        stream = base_stream(name)
        with self.engine.lock:
            if any(stream in o.inputs for o in self.engine.operators.values()):
                raise RefusedError("busy", f"stream {name} is still read here")
            source = self.engine.sources.pop(name, None)
            if source is not None and self.running:
                source.stop()
            self.engine.ingests.pop(name, None)
            self._waiting.pop(name, None)
            self.engine.appenders.pop(name, None)
            self.engine.catalog = self.engine.catalog.without_stream(name)
            gone: list[str] = []
            with self.ledger.transaction() as ledger:
                self.ownership.forget_declared(name)
                self.ownership.disown(stream)
                self.ownership.drop_copy(stream)
                ledger.change("DELETE FROM ingests WHERE stream = ?", (stream,))
                ledger.change("DELETE FROM source_files WHERE stream = ?", (stream,))
                for part in (stream, f"l:{name}", f"r:{name}"):
                    for consumer in ledger.consumers(part):
                        ledger.drop_cursor(consumer, part)
                    gone += ledger.drop_stream(part)
                    self.engine.runner.reader.forget(part)
        self.remove(gone)

    def hold(self, query: str, streams: Sequence[str]) -> dict[str, Marks]:
        """Keeps what base streams have from now on, for a query that is about to be deployed."""
        found: dict[str, Marks] = {}
        with self.ledger.transaction() as ledger:
            for stream in streams:
                head = ledger.stream(stream)
                if head is None:
                    raise RefusedError("unknown", f"stream {stream} is not known here")
                self.engine.hold(Consumer("deployment", query), stream)
                found[stream] = Marks(head["watermark"], head["retained_from"], head["ts_max"])
        return found

    def release(self, query: str, streams: Sequence[str]) -> None:
        with self.ledger.transaction() as ledger:
            for stream in streams:
                ledger.drop_cursor(Consumer("deployment", query), stream)

    # -- operators ------------------------------------------------------------------------------

    def compile(self, cql: str, start: int | None) -> tuple[Plan, tuple[Operator, ...]]:
        """A query's plan and operators, producers first; ids are the same everywhere."""
        key = (cql, BEGINNING if start is None else start)
        with self.engine.lock:
            if key not in self._compiled:
                plan = self.engine.plan(cql, key[1])
                if len(self._compiled) > 1000:
                    self._compiled.clear()
                self._compiled[key] = (plan, compile_plan(plan))
            return self._compiled[key]

    def chosen(self, text: Host) -> tuple[Operator, ...]:
        """The operators that a text means."""
        _, operators = self.compile(text.cql, text.start)
        known = {o.id: o for o in operators}
        missing = [o for o in text.operators if o not in known]
        if missing:
            raise UsageError(
                f"query {text.query} has no operator {missing[0]}",
                detail=f"its operators are {', '.join(known)}",
            )
        return tuple(known[o] for o in known if o in text.operators)

    def install(self, text: Host) -> None:
        """Makes the columns of all the query's streams known (inside a transaction)."""
        plan, operators = self.compile(text.cql, text.start)
        for operator in operators:
            self.engine.runner.install(operator)
        if text.query not in {row["name"] for row in self.ledger.queries()}:
            self.ledger.add_query(text.query, text.cql, text.start, result_stream(plan))

    def host(self, text: Host) -> None:
        """Runs operators of a query here, from the first rows that their inputs still have."""
        with self.engine.lock:
            operators = self.chosen(text)
            self._check_text(text)
            self._check_inputs(operators)
            with self.ledger.transaction():
                self.install(text)
                for operator in operators:
                    for stream in operator.inputs:
                        self.engine.hold(operator.id, stream)
                    self._own(operator.id)
                self.register(text)
            self.run(text)

    def register(self, text: Host) -> None:
        """Notes which operators of a query are here (inside a transaction)."""
        plan, _ = self.compile(text.cql, text.start)
        for operator in text.operators:
            self.ownership.host(text.query, operator)
        stream, name = result_stream(plan), subscriber(text.query)
        if text.result:
            self.ownership.keep_result(text.query)
            if name not in self.ledger.consumers(stream):
                self.engine.hold(name, stream)

    def run(self, text: Host) -> None:
        """Lets the loop see the operators of a query that the ledger says are here."""
        plan, _ = self.compile(text.cql, text.start)
        here = tuple(
            o.id
            for o in self.compile(text.cql, text.start)[1]
            if o.id in self.ownership.hosted().get(text.query, ())
        )
        row = next(r for r in self.ledger.queries() if r["name"] == text.query)
        query = Query(text.query, text.cql, plan, text.start, result_stream(plan), here)
        query.state, query.reason = row["state"], row["reason"]
        with self.engine.lock:
            if query.state in LIVE:
                for operator in self.chosen(Host(text.query, text.cql, text.start, here)):
                    self.engine.operators.setdefault(operator.id, operator)
            self.engine.queries[text.query] = query
            self.engine.pause_operators()

    def _check_text(self, text: Host) -> None:
        for row in self.ledger.queries():
            if row["name"] == text.query and (row["cql"], row["start"]) != (text.cql, text.start):
                raise UsageError(
                    f"query {text.query} is hosted here with another text or start",
                    detail=row["cql"],
                    hint="drop it first, or choose another name",
                )

    def _check_inputs(self, operators: Sequence[Operator]) -> None:
        here = {o.id for o in operators}
        for operator in operators:
            if operator.id in self.engine.operators:
                continue
            for stream in operator.inputs:
                if stream not in here and self.left_behind(stream):
                    raise _waiting_for_others(stream)

    def left_behind(self, stream: str) -> bool:
        """Whether all that is here of a stream is what others have yet to fetch from the time when
        it was made here.

        A new reader must not begin with that: it is as much as the slowest of them lacks, and not
        what the present owner has kept.
        """
        return (
            self.ownership.owned(stream) is None
            and bool(self.ownership.handed(stream))
            and self.ownership.copy(stream) is None
            and bool(self.ledger.segments(stream))
            and not any(stream in o.inputs for o in list(self.engine.operators.values()))
        )

    def may_copy(self, stream: str) -> None:
        """Refuses a copy of a stream for as long as others fetch what was left behind of it."""
        if self.left_behind(stream):
            raise _waiting_for_others(stream)

    def unhost(self, query: str, operators: Sequence[str]) -> None:
        """A query uses operators here no more; those that no query uses are forgotten."""
        gone: list[str] = []
        with self.engine.lock:
            with self.ledger.transaction():
                mine = self.ownership.hosted().get(query, ())
                for operator in (o for o in operators if o in mine):
                    self.ownership.unhost(query, operator)
                    if not self.ownership.users(operator):
                        self.engine.operators.pop(operator, None)
                        self.ownership.disown(operator)
                        gone += self.drop_operator(operator)
                        gone += self._forget_output(operator)
                arriving = self.ownership.arriving()
                for operator in (o for o in operators if o not in mine):
                    former = bool(self.ownership.handed(operator)) and operator not in arriving
                    used = self.ownership.users(operator) or self.ownership.owned(operator)
                    if former and not used:
                        gone += self._forget_output(operator)
                self.leave(query)
            self.refresh(query)
        self.remove(gone)

    def _forget_output(self, operator: str) -> list[str]:
        """Forgets what an operator made here and where it went (inside a transaction)."""
        self.ownership.forget_handed(operator)
        if self.ownership.copy(operator) is not None:
            return []
        for consumer in self.ledger.consumers(operator):
            self.ledger.drop_cursor(consumer, operator)
        self.engine.runner.reader.forget(operator)
        return list(self.ledger.drop_stream(operator))

    def drop_operator(self, operator: str) -> list[str]:
        """Forgets an operator's cursors and states (inside a transaction); gives files to go."""
        gone: list[str] = []
        self.ledger.drop_consumer(operator)
        part = 0
        while self.ledger.stream(state_stream(operator, part)) is not None:
            gone += self.ledger.drop_stream(state_stream(operator, part))
            self.engine.runner.reader.forget(state_stream(operator, part))
            part += 1
        return gone

    def leave(self, query: str) -> None:
        """Forgets a query of which nothing is left here (inside a transaction)."""
        if self.ownership.hosted().get(query):
            return
        self.ledger.drop_query(query)
        self.ledger.drop_meta(culprits_of(query))
        self.ownership.drop_result(query)
        self.ledger.drop_consumer(subscriber(query))

    def refresh(self, query: str) -> None:
        """Brings what the loop sees of a query in line with the ledger."""
        known = self.engine.queries.get(query)
        here = self.ownership.hosted().get(query, ())
        with self.engine.lock:
            if known is not None and here:
                known.operators = tuple(o for o in known.operators if o in here)
            else:
                self.engine.queries.pop(query, None)
            self.engine.pause_operators()

    def reset_stream(self, stream: str) -> list[str]:
        """Forgets the rows of a stream that is no more copied here (inside a transaction).

        Its columns stay; its head does not, so that a later copy begins anew.
        """
        head = self.ledger.stream(stream)
        if head is None:
            return []
        kind, columns = head["kind"], head["columns"]
        gone = self.ledger.drop_stream(stream)
        self.ledger.add_stream(stream, kind)
        self.ledger.set_columns(stream, columns)
        return gone

    def tidy(self, stream: str) -> None:
        """Forgets a stream that was handed over, or copied for an operator that has left, once
        nobody reads it from this ledger any more."""
        gone: list[str] = []
        with self.engine.lock, self.ledger.transaction():
            if self.ownership.owned(stream) is None and self.unread(stream):
                self.ownership.drop_copy(stream)
                gone = self.reset_stream(stream)
            self.ownership.forget_old_pointers(stream, POINTERS_KEPT)
        self.remove(gone)

    def unread(self, stream: str) -> bool:
        """Whether nobody, here or elsewhere, reads a stream from this ledger."""
        return not self.ledger.consumers(stream)

    def texts(self) -> dict[str, Host]:
        """What runs here, by query."""
        rows = {row["name"]: (row["cql"], row["start"]) for row in self.ledger.queries()}
        kept = self.ownership.kept_results()
        return {
            query: Host(query, *rows[query], operators, query in kept)
            for query, operators in self.ownership.hosted().items()
        }

    def remove(self, files: Sequence[str]) -> None:
        self.engine.runner.removals.add(files)
        self.engine.maintenance.remove_files()


def _waiting_for_others(stream: str) -> RefusedError:
    return RefusedError(
        "busy",
        f"what was made here of stream {stream} is still being fetched by others",
        hint="asked again when they have it, this begins anew",
    )
