"""Results to where people want them.

A query's result is a stream; whoever reads it has a cursor in the ledger. Subscribers and file
sinks get every row exactly once, by (query, sequence number): a file's name is its numbers, and it
appears under that name whole or not at all. Other sinks get each batch at least once, with the
number as batch id, so that an idempotent sink makes it exactly once.
"""

import json
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from millstream.engine import faults
from millstream.engine.ledger import Ledger
from millstream.engine.segments import Segment, SegmentStore
from millstream.errors import UsageError
from millstream.plan.schema import Schema

FILE_FORMATS = ("parquet", "csv", "json")


@dataclass(frozen=True, slots=True)
class Result:
    """What a sink needs to know of a query's result."""

    query: str
    stream: str
    columns: Schema
    changes: bool = False  # rows are changes of a relation
    timed: bool = True  # rows have a time: malformed input has none


def user_table(
    table: pa.Table, columns: Sequence[str], *, changes: bool = False, timed: bool = True
) -> pa.Table:
    """Stored rows as users see them: their own column names, ts, and op for changes."""
    arrays = [table[f"c{i}"] for i in range(len(columns))]
    names = list(columns)
    if timed:
        arrays.append(pc.cast(table["_ts"], pa.timestamp("us", tz="UTC")))
        names.append("ts")
    if changes:
        signs = pc.if_else(pc.greater(table["_op"], 0), "+", "-")
        arrays.append(signs)
        names.append("op")
    return pa.table(arrays, names)


class Sink(Protocol):
    """Takes a result's batches in order."""

    def recover(self, following: int) -> None:
        """Called at the start: batches from this number on will come (again)."""
        ...

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None: ...


class FileSink:
    """A folder of files, one for each batch; parquet, csv or json."""

    def __init__(self, folder: Path, kind: str) -> None:
        if kind not in FILE_FORMATS:
            raise UsageError(
                f"unknown output format {kind!r}", hint=f"one of {', '.join(FILE_FORMATS)}"
            )
        self.folder, self.kind = folder, kind

    def recover(self, following: int) -> None:
        """Takes back files whose delivery was not committed: they are written anew."""
        if not self.folder.is_dir():
            return
        for file in self.folder.iterdir():
            number = file.name.removeprefix("part-").split("-")[0]
            if file.name.startswith(".") or (number.isdigit() and int(number) >= following):
                file.unlink(missing_ok=True)

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self.folder / f"part-{first:010d}-{last:010d}.{self.kind}"
        write_file(table, target, self.kind)


def write_file(table: pa.Table, target: Path, kind: str) -> None:
    """Writes a file that appears whole or not at all."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    if kind == "parquet":
        pq.write_table(table, draft, compression="zstd")
    elif kind == "csv":
        pa_csv.write_csv(_flat(table), draft)
    else:
        with draft.open("w", encoding="utf-8") as file:
            for row in table.to_pylist():
                file.write(json.dumps(row, default=str, ensure_ascii=False) + "\n")
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(draft, target)


def _flat(table: pa.Table) -> pa.Table:
    """CSV knows no nested values: they become JSON text. Times are ISO 8601."""
    columns = []
    for field in table.schema:
        column = table[field.name]
        if pa.types.is_nested(field.type):
            texts = [None if v is None else json.dumps(v, default=str) for v in column.to_pylist()]
            column = pa.array(texts, pa.string())
        elif pa.types.is_timestamp(field.type):
            plain = pc.cast(column, pa.timestamp("us"))
            column = pc.strftime(plain, format="%Y-%m-%d %H:%M:%S")
        columns.append(column)
    return pa.table(columns, table.schema.names)


class CallbackSink:
    """A Python function that gets each batch as an Arrow table, with its batch id."""

    def __init__(self, function: Callable[[pa.Table, int], Any]) -> None:
        self._function = function

    def recover(self, following: int) -> None:
        return None

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        if table.num_rows:
            self._function(table, last)


class ConsoleSink:
    """Prints rows as they appear."""

    def __init__(self, write: Callable[[str], Any], rows_max: int = 20) -> None:
        self._write, self._rows_max = write, rows_max

    def recover(self, following: int) -> None:
        return None

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        for row in table.slice(0, self._rows_max).to_pylist():
            cells = ", ".join(f"{k}={v}" for k, v in row.items())
            self._write(f"{result.query}: {cells}")
        if table.num_rows > self._rows_max:
            self._write(f"{result.query}: ... and {table.num_rows - self._rows_max} rows more")


class Delivery:
    """One sink on one result: a cursor that moves as batches are taken."""

    def __init__(
        self, consumer: str, result: Result, sink: Sink, ledger: Ledger, store: SegmentStore
    ) -> None:
        self.consumer, self.result, self.sink = consumer, result, sink
        self._ledger, self._store = ledger, store
        self.rows = 0

    def install(self) -> None:
        """Holds the stream for this consumer from here on (inside a transaction)."""
        following, watermark = self._ledger.cursor(self.consumer, self.result.stream)
        self._ledger.set_cursor(self.consumer, self.result.stream, following, watermark)
        self.sink.recover(following)

    def pending(self) -> list[Segment]:
        following, _ = self._ledger.cursor(self.consumer, self.result.stream)
        return self._ledger.segments(self.result.stream, following)

    def advance(self) -> int:
        """Delivers what is new; gives the number of rows."""
        pending = self.pending()
        if not pending:
            return 0
        tables = [self._store.read(s) for s in pending if s.rows]
        names = [f.name for f in self.result.columns]
        rows = 0
        if tables:
            merged = pa.concat_tables(tables, promote_options="permissive")
            result = self.result
            shown = user_table(merged, names, changes=result.changes, timed=result.timed)
            rows = shown.num_rows
            self.sink.deliver(self.result, pending[0].first, pending[-1].last, shown)
            faults.reach("delivery.written")
        with self._ledger.transaction() as ledger:
            ledger.set_cursor(
                self.consumer, self.result.stream, pending[-1].last + 1, pending[-1].watermark
            )
            ledger.count(f"delivered:{self.consumer}", rows)
        faults.reach("delivery.committed")
        self.rows += rows
        return rows
