"""Results to where people want them.

A query's result is a stream; whoever reads it has a cursor in the ledger. Subscribers and file
sinks get every row exactly once, by (query, sequence number): a file's name is its numbers, and it
appears under that name whole or not at all. Other sinks get each batch at least once, with the
number as batch id, so that an idempotent sink makes it exactly once.
"""

import base64
import json
import math
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from millstream.core.errors import MillstreamError, UsageError
from millstream.language.plan.schema import Schema
from millstream.store import faults
from millstream.store.consumers import Consumer
from millstream.store.integrity.delivered import make_folder, note_digest, older_ledger
from millstream.store.integrity.digests import digest_of_file
from millstream.store.ledger import Ledger
from millstream.store.machine_failures import first_line
from millstream.store.segments import Segment, SegmentStore, disk_errors, repeating, sync

ASIDE = ".uncommitted"  # files of a sink that a crash has left without a commit
FILE_FORMATS = ("parquet", "csv", "json")
RETRY_SECONDS_MAX = 60.0
BATCH_ROWS_MAX = 500_000  # of a delivery
BATCH_BYTES_MAX = 64 << 20  # of its segments


@dataclass(frozen=True, slots=True)
class Result:
    """What a sink needs to know of a query's result."""

    query: str
    stream: str
    columns: Schema
    changes: bool = False  # rows are changes of a relation
    timed: bool = True  # rows have a time: malformed input has none

    def shown(self, stored: pa.Table) -> pa.Table:
        """Stored rows as users see them."""
        names = [f.name for f in self.columns]
        return user_table(stored, names, changes=self.changes, timed=self.timed)


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


class SinkError(Exception):
    """A sink could not take a batch; it is tried again later."""


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
        """Puts files aside whose delivery was not committed: they are written anew.

        They go for good once what they hold has been written again (`deliver`), not before.
        """
        if not self.folder.is_dir():
            return
        for file in list(self.folder.iterdir()):
            if file.name.startswith(".part-"):
                file.unlink(missing_ok=True)  # a draft
            elif (numbers := numbers_of(file.name)) is not None and numbers[0] >= following:
                self._aside.mkdir(exist_ok=True)
                os.replace(file, self._aside / file.name)

    def newest(self) -> int:
        """The greatest sequence number that was ever delivered here; 0 for none."""
        names = [f.name for f in self.folder.iterdir()] if self.folder.is_dir() else []
        return max((n[1] for n in map(numbers_of, names) if n is not None), default=0)

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        if table.num_rows:
            make_folder(self.folder)
            target = self.folder / f"part-{first:010d}-{last:010d}.{self.kind}"
            write_file(table, target, self.kind)
        if self._aside.is_dir():
            self._forget_aside(last)

    def _forget_aside(self, last: int) -> None:
        """Removes files that were put aside and whose numbers have all been delivered again."""
        for file in list(self._aside.iterdir()):
            numbers = numbers_of(file.name)
            if numbers is not None and numbers[1] <= last:
                file.unlink(missing_ok=True)
        if not any(self._aside.iterdir()):
            self._aside.rmdir()

    @property
    def _aside(self) -> Path:
        return self.folder / ASIDE


def numbers_of(name: str) -> tuple[int, int] | None:
    """The sequence numbers of a delivered file.

    >>> numbers_of("part-0000000003-0000000007.csv"), numbers_of("part-none.csv")
    ((3, 7), None)
    """
    found = re.fullmatch(r"part-(\d+)-(\d+)\.\w+", name)
    return None if found is None else (int(found[1]), int(found[2]))


def write_file(table: pa.Table, target: Path, kind: str) -> None:
    """Writes a file that appears whole or not at all, and stays; notes its digest beside it."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    with disk_errors():
        if kind == "parquet":
            pq.write_table(table, draft, compression="zstd", use_dictionary=repeating(table.schema))
        elif kind == "csv":
            pa_csv.write_csv(_flat(table), draft)
        else:
            _write_json(table, draft)
        sync(str(draft))
        note_digest(target.parent, target.name, digest_of_file(draft))
        os.replace(draft, target)
        sync(str(target))


def _write_json(table: pa.Table, target: Path) -> None:
    with target.open("w", encoding="utf-8") as file:
        for line in json_lines(table):
            file.write(line + "\n")


def json_lines(table: pa.Table) -> Iterator[str]:
    """A row a line; times as ISO 8601, bytes as base64, NaN and infinities as text."""
    for batch in _readable(table).to_batches(max_chunksize=10_000):
        for row in _rows(batch):
            yield json.dumps(_plain(row), default=_json_value, ensure_ascii=False)


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError:
        columns = [_valid(c) if pa.types.is_string(c.type) else c for c in batch.columns]
        return list(pa.table(columns, batch.schema.names).to_pylist())


def _plain(value: Any) -> Any:
    """JSON has no word for numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _json_value(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _readable(table: pa.Table) -> pa.Table:
    """Times as text: Arrow can spell years that Python cannot."""
    columns = [
        _spelt(table[f.name]) if pa.types.is_timestamp(f.type) else table[f.name]
        for f in table.schema
    ]
    return pa.table(columns, table.schema.names)


def _spelt(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.strftime(pc.cast(times, pa.timestamp("us")), format="%Y-%m-%d %H:%M:%S")


def _valid(texts: pa.ChunkedArray) -> pa.Array:
    """Text that holds bytes of no character, with marks in their place."""
    found = pc.cast(texts, pa.binary()).to_pylist()
    return pa.array([None if b is None else b.decode(errors="replace") for b in found], pa.string())


def _flat(table: pa.Table) -> pa.Table:
    """CSV knows no nested values: they become JSON text. Times are ISO 8601."""
    columns = []
    for field in table.schema:
        column = table[field.name]
        if pa.types.is_nested(field.type):
            texts = [
                None if v is None else json.dumps(_plain(v), default=_json_value)
                for v in column.to_pylist()
            ]
            column = pa.array(texts, pa.string())
        elif pa.types.is_binary(field.type):
            texts = [None if v is None else _json_value(v) for v in column.to_pylist()]
            column = pa.array(texts, pa.string())
        elif pa.types.is_timestamp(field.type):
            column = _spelt(column)
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


class Retry:
    """When a sink that has failed is tried again: after 1, 2, 4, ... seconds."""

    def __init__(self) -> None:
        self.problem, self._after, self._pause = "", 0.0, 1.0

    def failed(self, problem: str) -> None:
        self.problem = problem
        self._after = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, RETRY_SECONDS_MAX)

    def succeeded(self) -> None:
        self.problem, self._after, self._pause = "", 0.0, 1.0

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._after


@dataclass(frozen=True, slots=True)
class Handed:
    """How far a sink has got with one batch."""

    following: int
    watermark: int
    rows: int


class Delivery:
    """One sink on one result: a cursor that moves as batches are taken."""

    def __init__(
        self, consumer: Consumer, result: Result, sink: Sink, ledger: Ledger, store: SegmentStore
    ) -> None:
        self.consumer, self.result, self.sink = consumer, result, sink
        self._ledger, self._store = ledger, store
        self.rows = 0
        self.retry = Retry()

    @property
    def problem(self) -> str:
        """Why the sink could not take the last batch; empty where it did."""
        return self.retry.problem

    def install(self) -> None:
        """Holds the stream for this consumer from here on (inside a transaction)."""
        following, watermark = self._ledger.cursor(self.consumer, self.result.stream)
        self._ledger.set_cursor(self.consumer, self.result.stream, following, watermark)
        if following > 1:  # else nothing was delivered from here: the files are another's
            self._refuse_older_ledger()
        self.sink.recover(following)

    def _refuse_older_ledger(self) -> None:
        """What was delivered had been published before: a ledger that does not know it is older."""
        newest = getattr(self.sink, "newest", None)
        head = self._ledger.stream(self.result.stream)
        delivered = newest() if newest is not None else 0
        if delivered and delivered >= (int(head["next"]) if head is not None else 1):
            raise older_ledger(self._ledger.path, self.result.query, delivered)

    def pending(self) -> list[Segment]:
        following, _ = self._ledger.cursor(self.consumer, self.result.stream)
        return self._ledger.segments(self.result.stream, following)

    def advance(self) -> int:
        """Delivers what is new, as much of it as fits a batch; gives the number of rows."""
        handed = self.hand_over()
        if handed is None:
            return 0
        with self._ledger.transaction():
            self.note(handed)
        faults.reach("delivery.committed")
        return handed.rows

    def hand_over(self) -> "Handed | None":
        """Gives what is new to the sink; whoever calls notes it in a transaction then."""
        pending = _a_batch_of(self.pending())
        if not pending:
            return None
        tables = [self._store.read(s) for s in pending if s.rows]
        rows = 0
        if tables:
            merged = pa.concat_tables(tables, promote_options="permissive")
            shown = self.result.shown(merged)
            rows = shown.num_rows
            self._hand_over(pending, shown)
            faults.reach("delivery.written")
        return Handed(pending[-1].last + 1, pending[-1].watermark, rows)

    def note(self, handed: "Handed") -> None:
        """Moves the cursor behind what was handed over (inside a transaction)."""
        stream = self.result.stream
        self._ledger.set_cursor(self.consumer, stream, handed.following, handed.watermark)
        self._ledger.count(f"delivered:{self.consumer}", handed.rows)
        self.rows += handed.rows

    def _hand_over(self, pending: Sequence[Segment], shown: pa.Table) -> None:
        """Gives a batch to the sink; what goes wrong there is the sink's own trouble."""
        try:
            self.sink.deliver(self.result, pending[0].first, pending[-1].last, shown)
        except MillstreamError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {first_line(error)}"
            self.retry.failed(text)
            raise SinkError(text) from error
        self.retry.succeeded()


def _a_batch_of(pending: Sequence[Segment]) -> list[Segment]:
    """The first segments, one at least, that are not too much for memory together."""
    taken: list[Segment] = []
    rows = size = 0
    for segment in pending:
        rows, size = rows + segment.rows, size + segment.size
        if taken and (rows > BATCH_ROWS_MAX or size > BATCH_BYTES_MAX):
            break
        taken.append(segment)
    return taken
