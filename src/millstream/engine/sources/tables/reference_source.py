"""A reference table: a file or a table elsewhere, whose versions become changes of a table here.

The first version counts from the beginning. A later one counts from one instant after the greatest
time that has come on the streams it is read with: rows that have come keep the version that they
had, whenever they are computed. What differs between two versions is kept in segments, with that
time, so that a replay and a restart see the same. A version that cannot be read, or tells two rows
by one key, changes nothing.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from millstream.core.errors import MillstreamError, UsageError
from millstream.engine.dataflow import Dataflow
from millstream.engine.ports import RowParser, SourceSetting
from millstream.engine.sources.tables.reference_rows import Origin, origin_of
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.change_data import VERSION_COLUMNS, is_reference_table, values_of
from millstream.language.plan.nodes import sources_of
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import base_stream
from millstream.store.arrivals.appending import REASON, TIME_MIN, Appender
from millstream.store.consumers import keeper

OP, SINCE = (field.name for field in VERSION_COLUMNS)
TICK_S = 0.1
ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # until the rows are given theirs
ADDED, CHANGED, GONE = "c", "u", "d"
Key = tuple[Any, ...]


class ReferenceSource:
    """Follows one file or table. It ends with the streams that it is read with."""

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        parse: RowParser,
        flow: Dataflow,
        setting: SourceSetting,
    ) -> None:
        self.definition, self.appender = definition, appender
        self.failure: BaseException | None = None
        self._parse, self._flow, self._setting = parse, flow, setting
        self._origin: Origin = origin_of(definition)
        names = [f.name for f in values_of(definition.columns)]
        self._columns = [f"c{i}" for i in range(len(names))]
        self._key = [f"c{names.index(name)}" for name in definition.source["key"]]
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._told = ""  # the last trouble, which is said once
        with appender.ledger.transaction() as ledger:  # queries to come need every row
            ledger.set_cursor(keeper(definition.name), appender.stream, 1, BEGINNING)

    # -- as a source of the loop ----------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return bool(self.appender.ledger.ingest_position(self.appender.stream).get("ended"))

    def silent_since(self) -> float:
        """Silent by nature: the watermark is always that of the streams it is read with."""
        return 0.0

    def start(self) -> None:
        """The first version is there before the first row of others; without it nobody reads on."""
        if self._thread is not None or self.ended:
            return
        self._stop.clear()
        try:
            if not self._begun:
                self.look()
        except MillstreamError as error:
            self.failure = error  # told by the loop, which tries again
            return
        name = f"millstream-{self.definition.name}"
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def _work(self) -> None:
        waited = self._origin.look_s
        try:
            while not self._stop.wait(TICK_S):
                waited += TICK_S
                if waited >= self._origin.look_s:
                    waited = 0.0
                    self._look_again()
                if self._others_ended():
                    self._look_again()
                    self.appender.finish()
                    self._setting.arrived(self.definition.name)
                    return
        except BaseException as error:  # told by the loop
            self.failure = error

    def _look_again(self) -> None:
        """One that cannot be read changes nothing, and is told once."""
        try:
            self.look()
            self._told = ""
        except MillstreamError as error:
            words = f"{error.message}{f': {error.detail}' if error.detail else ''}"
            if words != self._told:
                self._told = words
                self._setting.say(f"table {self.definition.name} stays as it is: {words}")

    @property
    def _begun(self) -> bool:
        return bool(self.appender.ledger.ingest_position(self.appender.stream).get("begun"))

    # -- versions -------------------------------------------------------------------------------

    def look(self) -> None:
        """Makes the table what the origin holds now."""
        if self._begun and not self._origin.changed():
            return
        wanted = self._read(self._origin.rows())
        with self._flow.lock, ExitStack() as held:
            # nothing comes on the streams between the look at their times and the commit
            streams = self._read_with()
            for name in streams:
                if (appender := self._flow.appenders.get(name)) is not None:
                    held.enter_context(appender.lock)
            changes = self._changes(self.present(), wanted, self._since(streams))
            if changes.num_rows or not self._begun:
                self.appender.append(changes, {"begun": True})
        self._setting.arrived(self.definition.name)

    def _read(self, rows: Sequence[dict[str, Any]]) -> pa.Table:
        """A version as an appender takes it; refused as a whole where a row is wrong."""
        given = [{**row, OP: ADDED, SINCE: ANY_TIME} for row in rows]
        table = self._parse(given, self.definition.name)
        wrong = [reason for reason in table[REASON].to_pylist() if reason is not None]
        if wrong:
            raise UsageError(
                f"a row of table {self.definition.name} does not fit its columns", detail=wrong[0],
                hint="correct it: a version counts as a whole or not at all",
            )  # fmt: skip
        keys = self._keys(table)
        if len(set(keys)) < len(keys):
            ((twice, _),) = Counter(keys).most_common(1)
            named = ", ".join(self.definition.source["key"])
            raise UsageError(
                f"table {self.definition.name} has two rows with one key",
                detail=f"{named} = {', '.join(map(str, twice))}",
                hint="name all columns in key that identify a row",
            )
        return table

    def _keys(self, table: pa.Table) -> list[Key]:
        return list(zip(*(table[name].to_pylist() for name in self._key), strict=True))

    def present(self) -> pa.Table | None:
        """The rows that hold now; None before the first."""
        ledger, store = self.appender.ledger, self.appender.store
        tables = [store.read(s) for s in ledger.segments(self.appender.stream) if s.rows]
        if not tables:
            return None
        whole = pa.concat_tables(tables, promote_options="permissive")
        whole = whole.sort_by([("_ts", "ascending"), ("_pos", "ascending")])
        last = {key: place for place, key in enumerate(self._keys(whole))}
        kept = whole.take(pa.array(sorted(last.values()), pa.int64()))
        ops = kept[f"c{len(self._columns)}"].to_pylist()
        return kept.filter(pa.array([op != GONE for op in ops], pa.bool_()))

    def _changes(self, before: pa.Table | None, wanted: pa.Table, since: int) -> pa.Table:
        """The rows that make one version of another, from an instant on."""
        old = (
            {}
            if before is None
            else dict(zip(self._keys(before), self._values(before), strict=True))
        )
        new = list(zip(self._keys(wanted), self._values(wanted), strict=True))
        places = [i for i, (key, row) in enumerate(new) if key not in old or old[key] != row]
        ops = [CHANGED if new[i][0] in old else ADDED for i in places]
        parts = [self._stamped(wanted.take(pa.array(places, pa.int64())), ops, since)]
        listed = {key for key, _ in new}
        gone = [i for i, key in enumerate(old) if key not in listed]
        if before is not None and gone:
            rows = _like(before.take(pa.array(gone, pa.int64())), wanted.schema)
            parts.insert(0, self._stamped(rows, [GONE] * len(gone), since))
        return pa.concat_tables(parts)

    def _values(self, table: pa.Table) -> list[Key]:
        return list(zip(*(table[name].to_pylist() for name in self._columns), strict=True))

    def _stamped(self, table: pa.Table, ops: list[str], since: int) -> pa.Table:
        count, first = table.num_rows, len(self._columns)
        times = pa.repeat(pa.scalar(since, pa.int64()), count)
        put = {
            f"c{first}": pa.array(ops, table.schema.field(f"c{first}").type),
            f"c{first + 1}": times.cast(table.schema.field(f"c{first + 1}").type),
            "_ts": times,
        }
        for name, values in put.items():
            table = table.set_column(table.column_names.index(name), name, values)
        return table

    # -- times ----------------------------------------------------------------------------------

    def _read_with(self) -> list[str]:
        """The streams that some query reads together with this table."""
        found: set[str] = set()
        for query in list(self._flow.queries.values()):
            names = {source.stream for source in sources_of(query.plan.root)}
            found |= names if self.definition.name in names else set()
        return sorted(n for n in found if not self._is_table(n))

    def _is_table(self, name: str) -> bool:
        appender = self._flow.appenders.get(name)
        return appender is not None and is_reference_table(appender.definition.source)

    def _since(self, streams: Sequence[str]) -> int:
        ledger = self.appender.ledger
        position = ledger.ingest_position(self.appender.stream)
        before = max(int(position.get(k, TIME_MIN)) for k in ("highest", "floor"))
        if not self._begun:
            return max(TIME_MIN, before)
        heads = (ledger.stream(base_stream(name)) for name in streams)
        times = [int(head["ts_max"]) + 1 for head in heads if head is not None]
        return max(TIME_MIN, before, *times)

    def _others_ended(self) -> bool:
        streams = self._read_with()
        ledger = self.appender.ledger
        return bool(streams) and all(
            ledger.ingest_position(base_stream(name)).get("ended") for name in streams
        )


def _like(stored: pa.Table, schema: pa.Schema) -> pa.Table:
    """Stored rows as an appender takes them."""
    there = set(stored.column_names)
    columns = [
        stored[f.name].cast(f.type) if f.name in there else pa.nulls(stored.num_rows, f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)
