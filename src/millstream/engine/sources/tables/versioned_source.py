"""A Delta or Iceberg table as a stream: the rows of one version, then what each later one changes.

A version is one commit here: its rows and its number are in the ledger together, so that a kill
repeats and loses nothing. Without a key the table can only gain rows; with one, the stream is the
table's changes. Where a column says when rows were, those of a version come in order of it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from millstream.core.errors import MillstreamError
from millstream.core.secrets import without_secrets
from millstream.engine.sources.broker_source import CONGESTED_S
from millstream.engine.sources.tables.table_source import TableSource
from millstream.store.arrivals.time_order import in_order_of_time
from millstream.store.versioned.opening import VERSIONED
from millstream.store.versioned.versions import (
    Version,
    VersionedTable,
    added_rows,
    changed_rows,
    refuse_missing,
)

POLL_S = 1.0
READ = "r"


class VersionedSource(TableSource):
    """One table with versions as a stream."""

    of_message = ("op", "committed")

    def _read(self, options: Mapping[str, Any]) -> None:
        source = self.definition.source
        table = VERSIONED.get(self.kind)(source, self._options, options)
        try:
            self._follow(table)
        except MillstreamError as error:
            detail = without_secrets(error.detail or "", self._options, options)
            raise type(error)(error.message, detail=detail, hint=error.hint) from None

    def _follow(self, table: VersionedTable) -> None:
        self._look(table)
        until = table.newest()
        while not self._stopped.is_set():
            if self._setting.congested():
                self._stopped.wait(CONGESTED_S)
            elif self._taken(until):
                self.appender.finish()
                self._setting.arrived(self.definition.name)
                return
            elif not self._take_next(table):
                self._stopped.wait(POLL_S)
                self._look(table)

    def _look(self, table: VersionedTable) -> None:
        """Sees what is there; another table in the place of the one that was read is refused."""
        identity = table.look()
        noted = self._position().get("table")
        if noted is None:
            self._note({"table": identity})
        elif noted != identity:
            raise MillstreamError(
                f"stream {self.definition.name}: {table.place} is another table than before",
                detail="it was removed and made anew",
                hint="begin in a new folder",
            )

    def _taken(self, until: Version | None) -> bool:
        """Whether a stream that has an end is through."""
        if not self._finite:
            return False
        if until is None:
            return True
        named = self.definition.source.get("version")
        last = until.number if named is None else int(named)
        return self._position().get("version") == last

    def _take_next(self, table: VersionedTable) -> bool:
        noted = self._position().get("version")
        if noted is None:
            return self._take_first(table)
        version = table.after(int(noted))
        if version is None:
            return False
        self._check(table, version)
        if version.moved:
            self._note({"version": version.number})
            return True
        self._take(version, self._changes(table, int(noted), version))
        return True

    def _take_first(self, table: VersionedTable) -> bool:
        named = self.definition.source.get("version")
        version = table.newest() if named is None else table.version(int(named))
        if version is None:
            return False  # a table of Iceberg that nobody has written to
        self._check(table, version)
        self._say_hidden(table.column_names(version))
        rows = table.rows(version, self._own_columns)
        self._take(version, ((READ, piece) for piece in rows))
        return True

    def _check(self, table: VersionedTable, version: Version) -> None:
        refuse_missing(table, version, self._own_columns)
        self._gained.look(table.column_names(version))

    # -- rows -----------------------------------------------------------------------------------

    def _changes(
        self, table: VersionedTable, noted: int, version: Version
    ) -> Iterator[tuple[str, pa.Table]]:
        if self._key:
            return changed_rows(table, noted, version, self._own_columns, self._key)
        return (("c", piece) for piece in added_rows(table, noted, version, self._own_columns))

    def _take(self, version: Version, changes: Iterator[tuple[str, pa.Table]]) -> None:
        position: dict[str, Any] = {"version": version.number}
        with self.appender.lock:
            moment = max(version.moment_us, self._not_before())

            def parsed() -> Iterator[pa.Table]:
                position["committed"] = moment
                for op, piece in changes:
                    for begun in range(0, piece.num_rows, self._setting.batch_rows):
                        rows = piece.slice(begun, self._setting.batch_rows)
                        yield self._parsed(self._with_own(rows, op, moment))

            if self.definition.time == "committed":
                self.appender.append_all(parsed(), position)
            else:
                ordered = in_order_of_time(parsed(), self._setting.home)
                self.appender.append_all(ordered, position)
        self._setting.arrived(self.definition.name)

    def _with_own(self, rows: pa.Table, op: str, moment: int) -> pa.Table:
        own = {"op": op, "committed": self._moment(moment)}
        if self._types.get("committed", "").startswith("timestamp"):
            own["committed"] = pa.scalar(moment, pa.timestamp("us", "UTC"))
        for name, value in own.items():
            if name in self._types:
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        return rows


class DeltaSource(VersionedSource):
    """A Delta table."""

    kind = "delta"
    place = "path"


class IcebergSource(VersionedSource):
    """An Iceberg table."""

    kind = "iceberg"
