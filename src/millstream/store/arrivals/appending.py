"""Rows into a base stream: position, lateness, rejection, one commit a batch.

What arrives is a table with the declared columns (c0..), a time in microseconds that may be null,
and a reason where the row is malformed. Lateness is decided row by row in arrival order, whatever
the batches. The commit records how far the source was read, so that a crash repeats nothing.
"""

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.core.errors import MovedError, StateError
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.change_data import KNOWN, change_data_of, op_column
from millstream.language.plan.windows import BEGINNING, FOREVER
from millstream.language.share.dataflow import base_stream, late_stream, rejected_stream
from millstream.store import faults
from millstream.store.columns import columns_text
from millstream.store.ledger import Ledger
from millstream.store.segments import SegmentStore, Written

Row = Mapping[str, Any]
Rows = Sequence[Row] | pa.Table  # as somebody brings them, by declared name
REASON, RECORD, FILE, ROW = "_reason", "_record", "_file", "_row"
REJECTED = columns_text(
    {"_ts": "long", "c0": "string", "c1": "string", "c2": "string", "c3": "long"}
)
TIME_MIN, TIME_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999
REASONS_MAX = 100  # told to whoever brought a batch; all of them are in the stream
UNKNOWN_OP = ", which is not a change of a table: c, r, u or d, or a word for it"
TOO_FAR_AHEAD = "the time is too far in the future"


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of a batch, after its commit."""

    rows: int
    late: int
    rejected: int
    seconds: float
    reasons: tuple[tuple[int, str], ...] = ()  # of the first rejected rows: row, why
    repeated: bool = False  # it had been committed before, nothing was done now


class Appender:
    """The one writer of a base stream."""

    def __init__(
        self, definition: StreamDefinition, columns: str, ledger: Ledger, store: SegmentStore
    ) -> None:
        self.definition, self.ledger, self.store = definition, ledger, store
        self.columns = columns  # hidden ones included, as the ledger keeps them
        self.stream = base_stream(definition.name)
        self.late = late_stream(definition.name)
        self.rejected = rejected_stream(definition.name)
        self.arrived = time.monotonic()  # when rows last came; silence counts from the start
        self.lock = threading.RLock()  # one batch at a time, whoever brings it
        self._op = op_column(change_data_of(definition.source), definition.columns)
        self.moved_to = ""  # the processor that has the stream by now; this writer is done

    def install(self) -> None:
        """Makes the stream known to the ledger (inside a transaction)."""
        known = self.ledger.columns(self.stream)
        if known and known != self.columns:
            raise StateError(
                f"stream {self.definition.name} was declared with other columns before",
                hint="choose another name, or an empty folder for a new run",
            )
        for stream, kind, text in (
            (self.stream, "base", self.columns),
            (self.late, "late", self.columns),
            (self.rejected, "rejected", REJECTED),
        ):
            self.ledger.add_stream(stream, kind)
            self.ledger.set_columns(stream, text)

    def append(
        self,
        table: pa.Table,
        position: Mapping[str, Any],
        others: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Appended:
        """Adds rows and records where the source stands, in one transaction.

        `others` are positions under names of their own, such as those of producers.
        """
        return self.append_all([table], position, others)

    def append_all(
        self,
        pieces: Iterable[pa.Table],
        position: Mapping[str, Any],
        others: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Appended:
        """The same for rows that come in pieces, one of which is in memory at a time."""
        clock = time.perf_counter()
        with self.lock:
            batch = self._begin()
            reasons: list[tuple[int, str]] = []
            for table in pieces:
                reasons += _told(self._write(table, batch).rejected)
            self._commit(batch, position, others or {})
        seconds = time.perf_counter() - clock
        return Appended(
            _rows(batch.good),
            _rows(batch.late),
            _rows(batch.rejected),
            seconds,
            tuple(reasons[:REASONS_MAX]),
        )

    def append_together(
        self, tables: Sequence[pa.Table], others: Mapping[str, Mapping[str, Any]]
    ) -> list[Appended]:
        """Batches of several producers, in this order, as one segment and one transaction.

        Each is told what became of its own rows.
        """
        clock = time.perf_counter()
        with self.lock:
            batch = self._begin()
            whole = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
            made = self._write(whole, batch)
            self._commit(batch, {}, others)
        seconds = time.perf_counter() - clock
        ends = np.cumsum([0, *(t.num_rows for t in tables)])
        return [made.part(a, b, seconds) for a, b in pairwise(ends)]

    def _begin(self) -> "_Batch":
        before = self.ledger.ingest_position(self.stream)
        return _Batch(
            before,
            pos=int(before.get("pos", 0)),
            highest=int(before.get("highest", BEGINNING)),
            floor=int(before.get("floor", BEGINNING)),
        )

    def _write(self, table: pa.Table, batch: "_Batch") -> "_Sorted":
        made = self._classify(table, batch.pos, batch.highest, batch.floor)
        batch.highest = made.highest
        batch.pos += table.num_rows
        good = made.rows if made.good.all() else made.rows.filter(pa.array(made.good))
        batch.good.append(self.store.write(good))
        if made.late.any():
            batch.late.append(self.store.write(made.rows.filter(pa.array(made.late))))
        if made.rejected is not None:
            batch.rejected.append(self.store.write(made.rejected))
        return made

    def _commit(
        self,
        batch: "_Batch",
        position: Mapping[str, Any],
        others: Mapping[str, Mapping[str, Any]],
    ) -> None:
        faults.reach("ingest.written")
        after = dict(batch.before) | dict(position)
        after |= {"pos": batch.pos, "highest": batch.highest, "floor": batch.floor}
        with self.ledger.transaction() as ledger:
            self._refuse_moved()
            watermark = self._watermark(batch.highest, batch.floor)
            ledger.publish(self.stream, batch.good, watermark)
            if batch.late:
                ledger.publish(self.late, batch.late, BEGINNING)
            if batch.rejected:
                ledger.publish(self.rejected, batch.rejected, BEGINNING)
            ledger.set_ingest_position(self.stream, after)
            for name, where in others.items():
                ledger.set_ingest_position(name, where)
            ledger.count(f"late:{self.definition.name}", _rows(batch.late))
            ledger.count(f"rejected:{self.definition.name}", _rows(batch.rejected))
        faults.reach("ingest.committed")
        self.arrived = time.monotonic()

    def _refuse_moved(self) -> None:
        """The ledger refuses rows of a stream that was handed on; this one may have come back since
        the batch was begun, with rows that it knows nothing of."""
        if self.moved_to:
            raise MovedError(self.definition.name, self.moved_to)

    def finish(self) -> None:
        """No more rows will come: every window can be decided."""
        with self.lock, self.ledger.transaction() as ledger:
            self._refuse_moved()
            position = ledger.ingest_position(self.stream)
            if position.get("ended"):
                return
            for stream in (self.stream, self.late, self.rejected):
                ledger.publish(stream, (), FOREVER)
            ledger.set_ingest_position(self.stream, position | {"ended": True})

    def follow(self, watermark: int) -> bool:
        """Lets a silent stream's watermark follow others; rows before it are late from now on."""
        with self.lock, self.ledger.transaction() as ledger:
            if self.moved_to:
                return False
            row = ledger.stream(self.stream)
            if row is None or watermark <= row["watermark"] or watermark in (BEGINNING, FOREVER):
                return False
            position = ledger.ingest_position(self.stream)
            ledger.publish(self.stream, (), watermark)
            ledger.set_ingest_position(self.stream, position | {"floor": watermark})
        return True

    def _watermark(self, highest: int, floor: int) -> int:
        if highest == BEGINNING:
            return floor
        return max(floor, highest - self.definition.lateness_us)

    def _classify(self, table: pa.Table, start: int, highest: int, floor: int) -> "_Sorted":
        """Which rows are good and late, those that are rejected, the greatest time so far."""
        count = table.num_rows
        names = [f"c{i}" for i in range(len(self.definition.columns))]
        times = table["_ts"].combine_chunks()
        known = np.asarray(pc.is_valid(times))
        ts = np.asarray(pc.fill_null(times, 0)).astype(np.int64, copy=False)
        table = self._without_unknown(table)
        reasons = table[REASON].combine_chunks()
        malformed = np.asarray(pc.is_valid(reasons))
        ahead = np.zeros(count, bool)
        if self.definition.max_ahead_us is not None:
            ahead = ts > int(time.time() * 1e6) + self.definition.max_ahead_us
        outside = known & ((ts < TIME_MIN) | (ts > TIME_MAX))
        accepted = known & ~malformed & ~ahead & ~outside
        seen = np.where(accepted, ts, BEGINNING)
        # the greatest time before each row, whatever batch it came in
        running = np.maximum.accumulate(np.concatenate(([highest], seen)))
        before = running[:-1]
        lateness = self.definition.lateness_us
        bound = np.where(before == BEGINNING, BEGINNING, before - lateness)
        late = accepted & (ts < np.maximum(bound, floor))
        good = accepted & ~late
        pos = pa.array(np.arange(start, start + count, dtype=np.int64))
        rows = pa.table([pa.array(ts), pos, *(table[n] for n in names)], ["_ts", "_pos", *names])
        rejected = None
        if not accepted.all():
            reasons_told = _reasons(table, known, malformed, outside)
            rejected = self._rejected_rows(table, ~accepted, reasons_told)
        return _Sorted(rows, good, late, accepted, rejected, int(running[-1]))

    def _without_unknown(self, table: pa.Table) -> pa.Table:
        """The rows, with a reason for those that change a table in a way that nobody knows."""
        if self._op is None:
            return table
        words = table[f"c{self._op}"].cast(pa.string()).combine_chunks()
        known = pc.is_in(pc.utf8_lower(pc.fill_null(words, "")), pa.array(sorted(KNOWN)))
        if pc.all(known).as_py() is not False:
            return table
        name = self.definition.columns[self._op].name
        told = pc.binary_join_element_wise(f"{name} says ", words, UNKNOWN_OP, "")
        reasons = table[REASON].combine_chunks().cast(pa.string())
        chosen = pc.coalesce(reasons, pc.if_else(known, pa.scalar(None, pa.string()), told))
        return table.set_column(table.column_names.index(REASON), REASON, chosen)

    def _rejected_rows(
        self, table: pa.Table, chosen: np.ndarray[Any, Any], reasons: list[str | None]
    ) -> pa.Table:
        indices = np.flatnonzero(chosen)
        picked = table.take(pa.array(indices, pa.int64()))
        names = [f.name for f in self.definition.columns]
        values = picked.select([f"c{i}" for i in range(len(names))])
        records = [
            given if given is not None else _as_json(values, row, names)
            for row, given in enumerate(picked[RECORD].to_pylist())
        ]
        columns = [
            pa.array(np.zeros(len(indices), np.int64)),
            pa.array([reasons[i] or TOO_FAR_AHEAD for i in indices], pa.string()),
            pa.array(records, pa.string()),
            picked[FILE].cast(pa.string()),
            picked[ROW].cast(pa.int64()),
        ]
        return pa.table(columns, ["_ts", "c0", "c1", "c2", "c3"])


@dataclass(slots=True)
class _Batch:
    """How far a batch has come, and what of it was written."""

    before: Mapping[str, Any]  # where the source stood
    pos: int
    highest: int
    floor: int
    good: list[Written] = field(default_factory=list)
    late: list[Written] = field(default_factory=list)
    rejected: list[Written] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Rows, told apart."""

    rows: pa.Table
    good: np.ndarray[Any, Any]
    late: np.ndarray[Any, Any]
    accepted: np.ndarray[Any, Any]  # good or late
    rejected: pa.Table | None  # the others, as they go aside; None where there are none
    highest: int

    def part(self, begin: int, end: int, seconds: float) -> Appended:
        """What became of some neighbours among the rows."""
        good, late, accepted = (
            int(np.count_nonzero(flags[begin:end]))
            for flags in (self.good, self.late, self.accepted)
        )
        rejected = int(end - begin) - accepted
        told: list[tuple[int, str]] = []
        if self.rejected is not None:
            before = int(np.count_nonzero(~self.accepted[:begin]))
            told = _told(self.rejected.slice(before, rejected))
        return Appended(good, late, rejected, seconds, tuple(told))


def _told(rejected: pa.Table | None) -> list[tuple[int, str]]:
    """Of the first rejected rows: which, and why."""
    if rejected is None:
        return []
    told = rejected.slice(0, REASONS_MAX)
    return list(zip(told["c3"].to_pylist(), told["c0"].to_pylist(), strict=True))


def _rows(written: Iterable[Written]) -> int:
    return sum(w.rows for w in written)


def _reasons(
    table: pa.Table,
    known: np.ndarray[Any, Any],
    malformed: np.ndarray[Any, Any],
    outside: np.ndarray[Any, Any],
) -> list[str | None]:
    """Why each row is rejected, where that is not for being ahead of the clock."""
    reasons: list[str | None] = [None] * table.num_rows
    for index in np.flatnonzero(~known):
        reasons[index] = "the time is null"
    for index in np.flatnonzero(outside):
        reasons[index] = "the time is not between the years 1 and 9999"
    for index in np.flatnonzero(malformed):
        reasons[index] = str(table[REASON][int(index)].as_py())
    return reasons


def _as_json(values: pa.Table, row: int, names: list[str]) -> str | None:
    """A row that was read but not accepted, for people to look at."""
    cells = {name: values[i][row] for i, name in enumerate(names) if values[i][row].is_valid}
    if not cells:
        return None
    shown = {name: _plain(value) for name, value in cells.items()}
    return json.dumps(shown, ensure_ascii=False, default=str)


def _plain(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):  # a time that Python has no word for
        return str(value)
