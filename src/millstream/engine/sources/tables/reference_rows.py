"""What a reference table holds now: the rows of a file, of a table of PostgreSQL, Delta or Iceberg.

A version is read whole or not at all. Nothing here knows which rows were there before.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from millstream.core.errors import UsageError
from millstream.core.secrets import resolved
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.change_data import values_of
from millstream.store.arrivals.postgres.table_log import TableLog
from millstream.store.arrivals.postgres.values import value_of
from millstream.store.versioned.opening import VERSIONED
from millstream.store.versioned.versions import refuse_missing

ROWS_MAX = 1_000_000  # a table is compared in memory
FILE_LOOK_S, TABLE_LOOK_S = 1.0, 10.0


class Origin(Protocol):
    """Where the rows are."""

    look_s: float  # between two looks

    def changed(self) -> bool:
        """Whether it may be another one than at the last reading."""
        ...

    def rows(self) -> list[dict[str, Any]]:
        """All rows now, by declared column."""
        ...


def origin_of(definition: StreamDefinition) -> Origin:
    if definition.source.get("format") in VERSIONED.names():
        return VersionRows(definition)
    return FileRows(definition) if "path" in definition.source else TableRows(definition)


class FileRows:
    """One file: CSV with a header, JSON lines or Parquet."""

    look_s = FILE_LOOK_S

    def __init__(self, definition: StreamDefinition) -> None:
        self._path = Path(str(definition.source["path"]))
        self._format = str(definition.source["format"])
        self._types = {f.name: f.type for f in values_of(definition.columns)}
        self._seen: tuple[int, int, int] | None = None

    def changed(self) -> bool:
        return self._state() != self._seen

    def _state(self) -> tuple[int, int, int]:
        try:
            state = self._path.stat()
        except OSError as error:
            raise UsageError(f"cannot read {self._path}", detail=str(error.strerror)) from None
        return state.st_mtime_ns, state.st_size, state.st_ino

    def rows(self) -> list[dict[str, Any]]:
        seen = self._state()
        try:
            found = self._read()
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise UsageError(f"cannot read {self._path}", detail=str(error)) from None
        if self._state() != seen:
            raise UsageError(f"{self._path} changes while it is read", hint="it is looked at again")
        self._seen = seen
        return _limited(found, str(self._path))

    def _read(self) -> list[dict[str, Any]]:
        if self._format == "json":
            with self._path.open(encoding="utf-8") as file:
                found = [json.loads(line) for line in file if line.strip()]
            if not all(isinstance(row, dict) for row in found):
                raise ValueError("a line is not a JSON object")
            return [{n: row.get(n) for n in self._types} for row in found]
        table = self._texts() if self._format == "csv" else pq.read_table(self._path)
        for name in self._types:
            if name not in table.column_names:
                listed = ", ".join(table.column_names)
                raise ValueError(f"it has no column {name}, but {listed}")
        rows: list[dict[str, Any]] = table.select(list(self._types)).to_pylist()
        if self._format == "csv":
            rows = [{n: value_of(self._types[n], v) for n, v in row.items()} for row in rows]
        return rows

    def _texts(self) -> pa.Table:
        """Cells as they are written: 007 is no number where a text is declared."""
        options = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(self._types, pa.string()),
            null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
        )  # fmt: skip
        return pa_csv.read_csv(self._path, convert_options=options)


class VersionRows:
    """A table with versions: the newest, read whole where it is another than before."""

    look_s = FILE_LOOK_S

    def __init__(self, definition: StreamDefinition) -> None:
        name, source = definition.name, definition.source
        written: Mapping[str, Any] = source.get("options", {})
        self._names = [f.name for f in values_of(definition.columns)]
        used = resolved(f"stream {name}", written)
        self._table = VERSIONED.get(str(source["format"]))(source, written, used)
        self._seen: tuple[str, int] | None = None

    def changed(self) -> bool:
        identity, version = self._table.look(), self._table.newest()
        return self._seen != (identity, -1 if version is None else version.number)

    def rows(self) -> list[dict[str, Any]]:
        identity, version = self._table.look(), self._table.newest()
        found: list[dict[str, Any]] = []
        if version is not None:
            refuse_missing(self._table, version, self._names)
            for piece in self._table.rows(version, self._names):
                found += piece.to_pylist()
                _limited(found, self._table.place)
        self._seen = identity, -1 if version is None else version.number
        return found


class TableRows:
    """One table of PostgreSQL, read whole at each look."""

    look_s = TABLE_LOOK_S

    def __init__(self, definition: StreamDefinition) -> None:
        self._definition = definition
        self._types = {f.name: f.type for f in values_of(definition.columns)}

    def changed(self) -> bool:
        return True

    def rows(self) -> list[dict[str, Any]]:
        name, source = self._definition.name, self._definition.source
        written: Mapping[str, Any] = source.get("options", {})
        log = TableLog(name, resolved(f"stream {name}", written), str(source["table"]))
        try:
            log.check([*self._types], (), followed=False)
            found: list[dict[str, Any]] = []
            for page in log.snapshot([*self._types]):
                found += [{n: value_of(self._types[n], v) for n, v in row.items()} for row in page]
                _limited(found, log.table)
        finally:
            log.close()
        return found


def _limited(rows: list[dict[str, Any]], where: str) -> list[dict[str, Any]]:
    if len(rows) > ROWS_MAX:
        raise UsageError(
            f"{where} has more than {ROWS_MAX} rows", detail="a reference table is held in memory",
            hint='for a table of PostgreSQL use source = "postgres", which follows its changes',
        )  # fmt: skip
    return rows
