"""Results to where people want them.

A query's result is a stream; whoever reads it has a cursor in the ledger. Subscribers and file
sinks get every row exactly once, by (query, sequence number): a file's name is its numbers, and it
appears under that name whole or not at all. A sink that keeps the number beside the rows, in one
transaction with them, says how far it is, and gets each batch once as well (`ResumingSink`). Other
sinks get each batch at least once, with the number as batch id, so that an idempotent sink makes it
exactly once.
"""

import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from millstream.core.errors import MillstreamError, UsageError
from millstream.language.plan.schema import Schema
from millstream.store import faults
from millstream.store.consumers import Consumer
from millstream.store.file_formats import write_file
from millstream.store.integrity.delivered import make_folder, older_ledger
from millstream.store.ledger import Ledger
from millstream.store.machine_failures import first_line
from millstream.store.segments import Segment, SegmentStore
from millstream.store.sinks.result_line import Former, formers_of

ASIDE = ".uncommitted"  # files of a sink that a crash has left without a commit
ASIDE_ENDING = ".aside"  # so that who looks for files by their ending does not meet them
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


class TargetError(Exception):
    """A target refuses rows, or is away: what, detail and hint; it is tried again later."""

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        told = f"{message}: {detail}" if detail else message
        super().__init__(f"{told}; hint: {hint}" if hint else told)


@runtime_checkable
class ResumingSink(Protocol):
    """A sink that knows by itself what it has taken, whoever was killed when."""

    def following(self, result: Result, delivery: str) -> int:
        """The next number that the target has not taken of this delivery; raises while the target
        is away."""
        ...

    def close(self) -> None: ...


class FileSink:
    """A folder of files, one for each batch; parquet, csv or json."""

    def __init__(self, folder: Path, kind: str) -> None:
        if kind not in FILE_FORMATS:
            raise UsageError(
                f"unknown output format {kind!r}", hint=f"one of {', '.join(FILE_FORMATS)}"
            )
        self.folder, self.kind = folder, kind

    @property
    def dataset(self) -> tuple[str, str]:
        """Where its rows lie, for whoever draws lineage: a namespace and a name."""
        return "file", str(self.folder.absolute())

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
                shutil.move(file, self._aside / f"{file.name}{ASIDE_ENDING}")

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
            numbers = numbers_of(file.name.removesuffix(ASIDE_ENDING))
            if numbers is not None and numbers[1] <= last:
                file.unlink(missing_ok=True)
        if not any(self._aside.iterdir()):
            self._aside.rmdir()

    @property
    def _aside(self) -> Path:
        """Beside the folder: who reads all of its files does not meet them."""
        return self.folder.parent / f".{self.folder.name}{ASIDE}"


def numbers_of(name: str) -> tuple[int, int] | None:
    """The sequence numbers of a delivered file.

    >>> numbers_of("part-0000000003-0000000007.csv"), numbers_of("part-none.csv")
    ((3, 7), None)
    """
    found = re.fullmatch(r"part-(\d+)-(\d+)\.\w+", name)
    return None if found is None else (int(found[1]), int(found[2]))


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

    stream: str
    following: int
    watermark: int
    rows: int


class Delivery:
    """One sink on one result: a cursor that moves as batches are taken."""

    def __init__(
        self, consumer: Consumer, result: Result, sink: Sink, ledger: Ledger, store: SegmentStore
    ) -> None:
        self.consumer, self.result, self.sink = consumer, result, sink
        self.formers: tuple[Former, ...] = ()  # what the result was made of before
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
        self.formers = formers_of(self._ledger, self.result.query)
        if isinstance(self.sink, ResumingSink) and self._ledger.meta(self._identity_key) is None:
            self._ledger.set_meta(self._identity_key, uuid.uuid4().hex)
        if following > 1:  # else nothing was delivered from here: the files are another's
            self._refuse_older_ledger()
        _, waiting = self._part()
        self.sink.recover(min([following, *(s.first for s in waiting[:1])]))

    def _refuse_older_ledger(self) -> None:
        """What was delivered had been published before: a ledger that does not know it is older."""
        newest = getattr(self.sink, "newest", None)
        head = self._ledger.stream(self.result.stream)
        delivered = newest() if newest is not None else 0
        if delivered and delivered >= (int(head["next"]) if head is not None else 1):
            raise older_ledger(self._ledger.path, self.result.query, delivered)

    def close(self) -> None:
        """Lets go of the target; nothing is noted."""
        if isinstance(self.sink, ResumingSink):
            self.sink.close()

    def pending(self) -> list[Segment]:
        return self._part()[1]

    def _part(self) -> tuple[Result, list[Segment]]:
        """What comes next: first what is left of queries that this result was made by before."""
        for former in self.formers:
            place = self._ledger.consumers(former.stream).get(self.consumer)
            if place is not None and (left := former.segments(self._ledger, place.next)):
                return _as_it_was(self.result, former), left
        following, _ = self._ledger.cursor(self.consumer, self.result.stream)
        return self.result, self._ledger.segments(self.result.stream, following)

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
        result, pending = self._part()
        if pending and isinstance(self.sink, ResumingSink):
            taken = self._taken(self.sink, pending)
            if taken:  # before a crash that came between its commit and ours
                rows = sum(s.rows for s in taken)
                return Handed(result.stream, taken[-1].last + 1, taken[-1].watermark, rows)
        pending = _a_batch_of(pending)
        if not pending:
            return None
        tables = [self._store.read(s) for s in pending if s.rows]
        rows = 0
        if tables:
            merged = pa.concat_tables(tables, promote_options="permissive")
            shown = result.shown(merged)
            rows = shown.num_rows
            self._hand_over(result, pending, shown)
            faults.reach("delivery.written")
        return Handed(result.stream, pending[-1].last + 1, pending[-1].watermark, rows)

    def note(self, handed: "Handed") -> None:
        """Moves the cursor behind what was handed over (inside a transaction)."""
        self._ledger.set_cursor(self.consumer, handed.stream, handed.following, handed.watermark)
        self._ledger.count(f"delivered:{self.consumer}", handed.rows)
        self.rows += handed.rows

    def _hand_over(self, result: Result, pending: Sequence[Segment], shown: pa.Table) -> None:
        """Gives a batch to the sink; what goes wrong there is the sink's own trouble."""
        if self._ledger.safety is not None:
            self._ledger.safety.demand()  # what nobody else has might come otherwise yet
        with self._sink_trouble():
            self.sink.deliver(result, pending[0].first, pending[-1].last, shown)
        self.retry.succeeded()

    def _taken(self, sink: ResumingSink, pending: Sequence[Segment]) -> list[Segment]:
        """Those of the segments that the sink has taken already."""
        with self._sink_trouble():
            following = sink.following(self.result, self.identity)
        taken = [s for s in pending if s.last < following]
        rest = pending[len(taken) :]
        if following > (rest[0].first if rest else pending[-1].last + 1):
            raise older_ledger(self._ledger.path, self.result.query, following - 1)
        return taken

    @property
    def identity(self) -> str:
        """This delivery's name in a target, which no other one ever has, in any home."""
        return f"{self._ledger.meta(self._identity_key)} {self.consumer}"

    @property
    def _identity_key(self) -> str:
        return identity_of(self.result.query)

    @contextmanager
    def _sink_trouble(self) -> Iterator[None]:
        try:
            yield
        except MillstreamError:
            raise
        except Exception as error:
            text = str(error)
            if not isinstance(error, TargetError):
                text = f"{type(error).__name__}: {first_line(error)}"
            self.retry.failed(text)
            raise SinkError(text) from error


def _as_it_was(result: Result, former: Former) -> Result:
    """A result as the query gave it that was replaced."""
    return replace(result, stream=former.stream, columns=former.columns)


def identity_of(query: str) -> str:
    """Where a ledger keeps the name of a query's deliveries; goes with the query."""
    return f"delivery:{query}"


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
