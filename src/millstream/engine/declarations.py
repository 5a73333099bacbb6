"""The base streams of one processor: what brings their rows, and whether these may come yet.

A stream is added with its source, so that mistakes in a declaration show at once. Where a manager
declares it, the declaration is durable, and the source waits until the manager says that rows may
come: those who read them must have begun before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from millstream.core.errors import DamageError, StateError, UsageError
from millstream.engine.dataflow import Dataflow
from millstream.engine.ports import DataPlane, LiveSource, SourceSetting
from millstream.engine.sources.file_ingest import FileIngest
from millstream.engine.sources.kinds import SOURCES, Opening, kind_of
from millstream.engine.sources.push_source import position_key
from millstream.engine.troubles.unanswered import Unanswered
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.change_data import is_reference_table
from millstream.language.cql.histories import KEY as HISTORY
from millstream.language.cql.rule_tables import is_rule_table
from millstream.language.share.dataflow import base_stream
from millstream.store.arrivals.appending import Appender
from millstream.store.consumers import Consumer
from millstream.store.moves.ownership import Declared, Ownership, definition_text
from millstream.store.moves.transfer import RefusedError

FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True)
class Marks:
    """How far a base stream is."""

    watermark: int
    retained_from: int
    ts_max: int


def _same(known: Declared, definition: StreamDefinition) -> bool:
    """Whether two declarations mean the same stream; where its rows did not enter, its source was
    not told."""
    if not known.ingest:
        definition = replace(definition, source=known.definition.source)
    return definition_text(known.definition) == definition_text(definition)


class Declarations:
    """The base streams of one engine. `arrived` is called after rows have come by themselves."""

    def __init__(
        self, flow: Dataflow, plane: DataPlane, ownership: Ownership, arrived: Callable[[str], None]
    ) -> None:
        self.engine, self.ownership, self.ledger = flow, ownership, flow.ledger
        self.running = False  # whether the loop runs: sources then start at once
        self._plane, self._arrived = plane, arrived
        self.unanswered = Unanswered(self.ledger, plane.machine)
        self._waiting: dict[str, FileIngest | LiveSource] = {}  # opened, not started

    def restore_streams(self) -> None:
        """Everything that was declared again; a source that cannot be opened stops its readers."""
        for name, declared in self.ownership.declared().items():
            try:
                self._add_stream(
                    declared.definition, ingest=declared.ingest, started=declared.started
                )
            except (UsageError, StateError) as error:
                if isinstance(error, DamageError):
                    raise
                self.add_stream(declared.definition, ingest=False)
                self.engine.stopped[name] = error

    def add_stream(self, definition: StreamDefinition, *, ingest: bool = True) -> None:
        """Declares a base stream; its source is opened at once, so that mistakes show.

        Without `ingest` its rows enter elsewhere and come as a copy.
        """
        with self.engine.lock:
            self.check(definition)
            catalog = self.engine.catalog.with_stream(definition)
            if ingest:
                self.open_source(definition)
            else:
                stream = base_stream(definition.name)
                with self.ledger.transaction() as ledger:
                    ledger.add_stream(stream, "base")
                    ledger.set_columns(stream, self._plane.compiler.columns(definition))
            self.engine.catalog = catalog

    def check(self, definition: StreamDefinition) -> None:
        """Refuses a stream whose time cannot be computed."""
        text = f"{definition.time} of {definition.columns}"
        with self.unanswered.asking(text, lambda: definition.name in self.ownership.declared()):
            self._plane.compiler.check(definition)

    def open_source(self, definition: StreamDefinition) -> None:
        """Opens what brings a declared stream's rows."""
        flow = self.engine
        columns = self._plane.compiler.columns(definition)
        appender = Appender(definition, columns, self.ledger, flow.store)
        if definition.retain_us:
            flow.streams.retains[base_stream(definition.name)] = definition.retain_us
        with self.ledger.transaction():
            appender.install()
        setting = SourceSetting(
            flow.home,
            flow.settings.batch_rows,
            self._arrived,
            flow.congested,
            flow.notice,
            flow.settings.step_seconds_max,
        )
        if self._read_elsewhere(definition):
            flow.appenders[definition.name] = appender
            return
        opening = Opening(definition, appender, flow, self._plane, setting)
        opened = SOURCES.get(kind_of(definition))(opening)
        if isinstance(opened, FileIngest):
            flow.ingests[definition.name] = opened
        else:
            flow.sources[definition.name] = opened
        flow.appenders[definition.name] = appender

    def _read_elsewhere(self, definition: StreamDefinition) -> bool:
        """Whether a stream has come here when its files were read to their end: perhaps only its
        former owner can see them."""
        stream = base_stream(definition.name)
        owned = self.ownership.owned(stream) if kind_of(definition) == "file" else None
        moved = owned is not None and owned.epoch > FIRST_EPOCH
        return moved and bool(self.ledger.ingest_position(stream).get("ended"))

    def declare(self, definition: StreamDefinition, *, ingest: bool) -> None:
        """Makes a base stream known; with `ingest` its source is opened here and waits."""
        if is_rule_table(definition.source):
            raise UsageError(
                f"stream {definition.name} is a rule table, which a cluster does not have",
                hint="register a query for each rule, or use an engine of its own",
            )
        if is_reference_table(definition.source):
            raise UsageError(
                f"stream {definition.name} is a reference table, which a cluster does not have",
                hint="use an engine of its own, or push the table's changes",
            )
        if HISTORY in definition.source:
            raise UsageError(
                f"stream {definition.name} has a history, which a cluster does not have",
                hint="use an engine of its own, or keep rows with retain",
            )
        with self.engine.lock:
            known = self.ownership.declared().get(definition.name)
            if known is not None:
                if ingest and not _same(known, definition):
                    raise UsageError(f"stream {definition.name} is declared otherwise here")
                if known.ingest or not ingest:
                    return
                self.open_source(definition)
                self._know(definition)
                self._set_aside(definition.name)
            else:
                self._add_stream(definition, ingest=ingest, started=False)
            with self.ledger.transaction():
                self.ownership.declare(definition, ingest=ingest, started=False)
                if ingest:
                    self._own(base_stream(definition.name))

    def _know(self, definition: StreamDefinition) -> None:
        """A declaration in the place of the one that was known here, with another source."""
        before = self.engine.catalog
        if before.stream(definition.name) != definition:
            self.engine.catalog = before.without_stream(definition.name).with_stream(definition)

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
        self.add_stream(definition, ingest=ingest)
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
            self.engine.stopped.pop(name, None)
            self.engine.appenders.pop(name, None)
            self.engine.streams.retains.pop(stream, None)
            self.engine.catalog = self.engine.catalog.without_stream(name)
            gone: list[str] = []
            with self.ledger.transaction() as ledger:
                self.ownership.forget_declared(name)
                self.ownership.disown(stream)
                self.ownership.drop_copy(stream)
                ledger.change("DELETE FROM ingests WHERE stream = ?", (stream,))
                producers = position_key(stream, "")
                ledger.change(
                    "DELETE FROM ingests WHERE substr(stream, 1, ?) = ?",
                    (len(producers), producers),
                )
                ledger.change("DELETE FROM source_files WHERE stream = ?", (stream,))
                for part in (stream, f"l:{name}", f"r:{name}"):
                    for consumer in ledger.consumers(part):
                        ledger.drop_cursor(consumer, part)
                    gone += ledger.drop_stream(part)
        self.engine.streams.remove(gone)

    def hold(self, query: str, streams: Sequence[str]) -> dict[str, Marks]:
        """Keeps what base streams have from now on, for a query that is about to be deployed."""
        found: dict[str, Marks] = {}
        with self.ledger.transaction() as ledger:
            for stream in streams:
                head = ledger.stream(stream)
                if head is None:
                    raise RefusedError("unknown", f"stream {stream} is not known here")
                self.engine.streams.hold(Consumer("deployment", query), stream)
                found[stream] = Marks(head["watermark"], head["retained_from"], head["ts_max"])
        return found

    def release(self, query: str, streams: Sequence[str]) -> None:
        with self.ledger.transaction() as ledger:
            for stream in streams:
                ledger.drop_cursor(Consumer("deployment", query), stream)
