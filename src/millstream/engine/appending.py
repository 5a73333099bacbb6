"""Rows into a base stream: position, lateness, rejection, one commit a batch.

What arrives is a table with the declared columns (c0..), a time in microseconds that may be null,
and a reason where the row is malformed. Lateness is decided row by row in arrival order, whatever
the batches. The commit records how far the source was read, so that a crash repeats nothing.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    LongType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_string,
)

from millstream.cql.catalog import StreamDefinition
from millstream.engine import faults
from millstream.engine.dataflow import base_stream, late_stream, rejected_stream
from millstream.engine.ledger import Ledger
from millstream.engine.segments import SegmentStore
from millstream.plan.windows import BEGINNING, FOREVER

REASON, RECORD, FILE, ROW = "_reason", "_record", "_file", "_row"
REJECTED = StructType(
    [StructField("_ts", LongType())]
    + [StructField(f"c{i}", t) for i, t in enumerate((StringType(), StringType(), StringType()))]
    + [StructField("c3", LongType())]
)
REJECTED_NAMES = ("reason", "record", "file", "row")


@dataclass(frozen=True, slots=True)
class Appended:
    rows: int
    late: int
    rejected: int
    seconds: float


class Appender:
    """The one writer of a base stream."""

    def __init__(self, definition: StreamDefinition, ledger: Ledger, store: SegmentStore) -> None:
        self.definition, self.ledger, self.store = definition, ledger, store
        self.stream = base_stream(definition.name)
        self.late = late_stream(definition.name)
        self.rejected = rejected_stream(definition.name)

    def install(self) -> None:
        """Makes the stream known to the ledger (inside a transaction)."""
        columns = self.columns().json()
        for stream, kind, text in (
            (self.stream, "base", columns),
            (self.late, "late", columns),
            (self.rejected, "rejected", REJECTED.json()),
        ):
            self.ledger.add_stream(stream, kind)
            self.ledger.set_columns(stream, text)

    def columns(self) -> StructType:
        fields = [StructField("_ts", LongType()), StructField("_pos", LongType())]
        for index, field in enumerate(self.definition.columns):
            fields.append(StructField(f"c{index}", _parse_datatype_string(field.type)))
        return StructType(fields)

    def append(self, table: pa.Table, position: Mapping[str, Any]) -> Appended:
        """Adds rows and records where the source stands, in one transaction."""
        clock = time.perf_counter()
        before = self.ledger.ingest_position(self.stream)
        start = int(before.get("pos", 0))
        highest = int(before.get("highest", BEGINNING))
        floor = int(before.get("floor", BEGINNING))
        good, late, bad, highest = self._classify(table, start, highest, floor)
        written = self.store.write(good)
        written_late = self.store.write(late)
        written_bad = self.store.write(bad)
        faults.reach("ingest.written")
        after = dict(before) | dict(position)
        after |= {"pos": start + table.num_rows, "highest": highest, "floor": floor}
        with self.ledger.transaction() as ledger:
            ledger.publish(self.stream, [written], self._watermark(highest, floor))
            ledger.publish(self.late, [written_late], BEGINNING)
            ledger.publish(self.rejected, [written_bad], BEGINNING)
            ledger.set_ingest_position(self.stream, after)
            ledger.count(f"late:{self.definition.name}", late.num_rows)
            ledger.count(f"rejected:{self.definition.name}", bad.num_rows)
        faults.reach("ingest.committed")
        return Appended(good.num_rows, late.num_rows, bad.num_rows, time.perf_counter() - clock)

    def finish(self) -> None:
        """No more rows will come: every window can be decided."""
        position = self.ledger.ingest_position(self.stream)
        if position.get("ended"):
            return
        with self.ledger.transaction() as ledger:
            for stream in (self.stream, self.late, self.rejected):
                ledger.publish(stream, (), FOREVER)
            ledger.set_ingest_position(self.stream, position | {"ended": True})

    def follow(self, watermark: int) -> bool:
        """Lets a silent stream's watermark follow others; rows before it are late from now on."""
        row = self.ledger.stream(self.stream)
        if row is None or watermark <= row["watermark"] or watermark in (BEGINNING, FOREVER):
            return False
        position = self.ledger.ingest_position(self.stream)
        with self.ledger.transaction() as ledger:
            ledger.publish(self.stream, (), watermark)
            ledger.set_ingest_position(self.stream, position | {"floor": watermark})
        return True

    def _watermark(self, highest: int, floor: int) -> int:
        if highest == BEGINNING:
            return floor
        return max(floor, highest - self.definition.lateness_us)

    def _classify(
        self, table: pa.Table, start: int, highest: int, floor: int
    ) -> tuple[pa.Table, pa.Table, pa.Table, int]:
        """Good rows, late rows, rejected rows, and the greatest time so far."""
        count = table.num_rows
        names = [f"c{i}" for i in range(len(self.definition.columns))]
        times = table["_ts"].combine_chunks()
        known = np.asarray(pc.is_valid(times))
        ts = np.asarray(pc.fill_null(times, 0)).astype(np.int64, copy=False)
        reasons = table[REASON].combine_chunks()
        malformed = np.asarray(pc.is_valid(reasons))
        ahead = np.zeros(count, bool)
        if self.definition.max_ahead_us is not None:
            ahead = ts > int(time.time() * 1e6) + self.definition.max_ahead_us
        accepted = known & ~malformed & ~ahead
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
        return (
            rows.filter(pa.array(good)),
            rows.filter(pa.array(late)),
            self._rejected_rows(table, ~accepted, known, malformed, ahead),
            int(running[-1]),
        )

    def _rejected_rows(
        self,
        table: pa.Table,
        chosen: np.ndarray[Any, Any],
        known: np.ndarray[Any, Any],
        malformed: np.ndarray[Any, Any],
        ahead: np.ndarray[Any, Any],
    ) -> pa.Table:
        reasons: list[str] = []
        indices = np.flatnonzero(chosen)
        for index in indices:
            if malformed[index]:
                reasons.append(str(table[REASON][int(index)].as_py()))
            elif not known[index]:
                reasons.append("the time is null")
            else:
                reasons.append("the time is too far in the future")
        picked = table.take(pa.array(indices))
        zeros = pa.array(np.zeros(len(indices), np.int64))
        columns = [zeros, pa.array(reasons, pa.string())]
        columns += [picked[RECORD].cast(pa.string()), picked[FILE].cast(pa.string())]
        columns.append(picked[ROW].cast(pa.int64()))
        return pa.table(columns, ["_ts", "c0", "c1", "c2", "c3"])
