"""Base streams that come to a processor, or leave it: their sources, as moves ask for them.

The old owner lets a source rest, gives it away in the transaction of the seal and forgets it; the
new one sees before anything else whether it can read the same, takes the position in the
transaction that makes it the owner, and opens the source. Posted rows are taken until the very
seal; what comes later is refused as moved, and whoever serves the door sends it on. Decides nothing
about what moves where.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from millstream.control.definitions.stream_table import StreamReader
from millstream.core.errors import MillstreamError, StateError, UsageError
from millstream.core.secrets import resolved
from millstream.engine.declarations import Declarations
from millstream.engine.sources.file_ingest import FileIngest
from millstream.engine.sources.kinds import kind_of
from millstream.engine.sources.push_source import PushSource, position_key
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.share.dataflow import base_stream, late_stream, rejected_stream
from millstream.store.arrivals.file_source import list_files, verify_complete, verify_unchanged
from millstream.store.ledger import Ledger
from millstream.store.moves.records import Place, SourceRecord, StateRecord, as_sent
from millstream.store.moves.transfer import RefusedError

TABLE = "table:"  # where the ledger keeps each declaration as it was told
SOURCE_KEYS = (
    "path", "format", "options", "rate", "follow", "trigger", "topic", "start", "table", "version",
)  # fmt: skip
STAY = {  # kinds of sources that cannot move, and what keeps them
    "spark": "the checkpoint of its Spark source lies there",
    "system": "it describes that processor itself",
}


def definition_of(table: Mapping[str, Any], *, ingest: bool) -> StreamDefinition:
    """The stream of a declaration; where rows do not enter, its source does not matter."""
    told = dict(table)
    name = told.pop("name", None)
    if not isinstance(name, str) or not name:
        raise UsageError("a declared stream needs a name")
    if not ingest:
        told = {key: value for key, value in told.items() if key not in SOURCE_KEYS}
        told["source"] = "push"
    reader = StreamReader(name, told, Path("/"))
    definition = reader.definition()
    if definition is None:
        first = reader.mistakes[0]
        raise UsageError(f"stream {name}: {first.message}", hint=first.hint)
    return definition


def keep_table(ledger: Ledger, table: Mapping[str, Any], *, ingest: bool) -> None:
    """A declaration as it was told, for a manager that has lost its memory; the source only where
    it is (in a transaction)."""
    told = {k: v for k, v in table.items() if ingest or k not in SOURCE_KEYS}
    key, text = f"{TABLE}{table['name']}", json.dumps(told, sort_keys=True)
    if ledger.meta(key) != text:
        ledger.set_meta(key, text)


def name_of(stream: str) -> str:
    """The name of a base stream, from its id."""
    return stream.removeprefix("s:")


class Entrances(Declarations):
    """The base streams of one engine, which may come and go."""

    # -- leaving --------------------------------------------------------------------------------

    def enters(self, stream: str) -> bool:
        """Whether rows of a base stream enter here."""
        declared = self.ownership.declared().get(name_of(stream))
        owned = self.ownership.owned(stream) is not None
        return owned and declared is not None and declared.ingest

    def refuse_to_move(self, stream: str) -> None:
        """Refuses where the kind of a source keeps it where it is."""
        name = name_of(stream)
        kind = kind_of(self.ownership.declared()[name].definition)
        if kind in STAY:
            raise RefusedError(
                "stays", f"stream {name} cannot move", detail=STAY[kind],
                hint="end the stream first, or leave it where it is",
            )  # fmt: skip

    def rest_source(self, stream: str) -> None:
        """Lets no more rows come by themselves; posted ones are taken until the seal."""
        name = name_of(stream)
        with self.engine.lock:
            source = self.engine.sources.get(name)
            if isinstance(source, PushSource):
                return
            self._set_aside(name)
        if source is not None and self.running:
            source.stop()  # it may be in the middle of a commit: without the lock

    def wake_source(self, stream: str) -> None:
        """Lets rows come again, where the stream was not handed over after all."""
        name = name_of(stream)
        with self.engine.lock:
            if not self.enters(stream):
                return
            if (appender := self.engine.appenders.get(name)) is not None:
                appender.moved_to = ""
            opened = self._waiting.get(name)
            declared = self.ownership.declared()[name]
            if opened is None or not declared.started:
                return
            del self._waiting[name]
            if isinstance(opened, FileIngest):
                self.engine.ingests[name] = opened
            else:  # one that was stopped does not start again: a new one goes on from the ledger
                self._open(declared.definition)

    def source_record(self, stream: str) -> SourceRecord:
        """Where a source stands."""
        name = name_of(stream)
        rows = self.ledger.rows(
            "SELECT stream, position FROM ingests WHERE stream = ? OR substr(stream, 1, ?) = ?",
            (stream, len(position_key(stream, "")), position_key(stream, "")),
        )
        head, counts = self.ledger.stream(stream), self.ledger.counters()
        assert head is not None
        return SourceRecord(
            self.ownership.declared()[name].started,
            tuple(self.ledger.source_files(stream)),
            {row["stream"]: json.loads(row["position"]) for row in rows},
            {key: counts[key] for key in _counters(name) if key in counts},
            int(head["retained_from"]),
        )

    def rejects(self, stream: str) -> dict[str, StateRecord]:
        """The rows of a base stream that went aside."""
        found: dict[str, StateRecord] = {}
        for part in _aside(stream):
            head = self.ledger.stream(part)
            if head is not None:
                segments = tuple(as_sent(s) for s in self.ledger.segments(part))
                places = self.ledger.consumers(part).items()
                readers = {who.name: at for who, at in places if who.kind == "processor"}
                found[part] = StateRecord(head["columns"], int(head["next"]), segments, readers)
        return found

    def give_source(self, stream: str, to: Place) -> None:
        """Rows enter elsewhere from now on (in the transaction of the seal)."""
        name = name_of(stream)
        table = json.loads(self.ledger.meta(TABLE + name) or json.dumps({"name": name}))
        keep_table(self.ledger, table, ingest=False)
        definition = _without_source(self.ownership.declared()[name].definition)
        self.ownership.declare(definition, ingest=False, started=False)
        self._forget_position(stream)
        if (appender := self.engine.appenders.get(name)) is not None:
            appender.moved_to = to.processor  # inside: no batch falls between this and the seal

    def _forget_position(self, stream: str) -> None:
        """Where the source stood is another's business (in a transaction)."""
        producers = position_key(stream, "")
        self.ledger.change(
            "DELETE FROM ingests WHERE stream = ? OR substr(stream, 1, ?) = ?",
            (stream, len(producers), producers),
        )
        self.ledger.change("DELETE FROM source_files WHERE stream = ?", (stream,))
        for counter in _counters(name_of(stream)):
            self.ledger.change("DELETE FROM counters WHERE name = ?", (counter,))

    def let_go(self, stream: str) -> None:
        """What this process had of a source whose stream was handed over."""
        name = name_of(stream)
        with self.engine.lock:
            self.engine.ingests.pop(name, None)
            self.engine.sources.pop(name, None)
            self.engine.appenders.pop(name, None)
            self._waiting.pop(name, None)
            self.engine.stopped.pop(name, None)
            self._know(_without_source(self.engine.catalog.stream(name)))

    def drop_rejects(self, stream: str) -> list[str]:
        """Rows that went aside and are elsewhere by now (in a transaction); gives files to go."""
        gone: list[str] = []
        for part in _aside(stream):
            for consumer in self.ledger.consumers(part):
                self.ledger.drop_cursor(consumer, part)
            gone += self.ledger.drop_stream(part)
        return gone

    # -- coming ---------------------------------------------------------------------------------

    def expect_source(self, tables: Sequence[Mapping[str, Any]]) -> None:
        """Refuses streams that are not known here yet, or are declared with a mistake."""
        declared = self.ownership.declared()
        for table in tables:
            definition_of(table, ingest=True)
            if table["name"] not in declared:
                raise RefusedError("busy", f"stream {table['name']} is not declared here yet")

    def try_source(self, table: Mapping[str, Any], known: SourceRecord) -> None:
        """Refuses a source that could not go on here; says what is missing."""
        definition = definition_of(table, ingest=True)
        name, kind = definition.name, kind_of(definition)
        if known.ended(base_stream(name)):
            return  # nothing will be read
        self._plane.compiler.check(definition)
        resolved(f"stream {name}", dict(definition.source.get("options", {})))
        if kind == "file":
            present = list_files(definition)
            verify_unchanged(name, known.files)
            if not definition.source.get("follow"):
                verify_complete(name, known.files, present)

    def take_source(self, table: Mapping[str, Any], known: SourceRecord) -> None:
        """Rows enter here, from where the former owner stood (in the transaction that makes this
        processor the owner)."""
        definition = definition_of(table, ingest=True)
        stream = base_stream(definition.name)
        self._forget_position(stream)
        for key, position in known.positions.items():
            self.ledger.set_ingest_position(key, position)
        self.ledger.add_source_files(stream, known.files)
        for counter, count in known.counts.items():
            self.ledger.count(counter, count)
        self.ledger.retained_from(stream, known.retained_from)
        self.ownership.declare(definition, ingest=True, started=known.started)
        keep_table(self.ledger, table, ingest=True)

    def open_taken(self, stream: str) -> None:
        """Opens a source that has come; one that cannot be opened is tried again later."""
        name = name_of(stream)
        with self.engine.lock:
            declared = self.ownership.declared()[name]
            self._know(declared.definition)
            self._open(declared.definition, started=declared.started)

    def _open(self, definition: StreamDefinition, *, started: bool = True) -> None:
        name = definition.name
        try:
            self.open_source(definition)
        except Exception as error:  # the stream is ours, whatever is wrong with its source
            told = error if isinstance(error, MillstreamError) else StateError(
                f"the source of stream {name} cannot be opened", detail=str(error)[:300],
                hint="put right what it says: it is tried again",
            )  # fmt: skip
            self.engine.stopped[name] = told
            self.engine.notice(f"error: stream {name} is stopped: {told.message}")
            return
        source = self.engine.sources.get(definition.name)
        if not started:
            self._set_aside(definition.name)
        elif source is not None and self.running:
            source.start()
        for listener in self.engine.on_arrival if started else ():
            listener()


def _without_source(definition: StreamDefinition) -> StreamDefinition:
    """A declaration as those know it where its rows do not enter."""
    return replace(definition, source={"source": "push"})


def _counters(name: str) -> tuple[str, str]:
    return f"late:{name}", f"rejected:{name}"


def _aside(stream: str) -> tuple[str, str]:
    return late_stream(name_of(stream)), rejected_stream(name_of(stream))
