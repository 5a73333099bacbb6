"""Segments: the immutable Parquet files that streams are made of.

A segment is a run of rows of one stream under one or more sequence numbers. Files have a name
unique to the attempt that wrote them and are synced before anybody hears of them; only the ledger
says which exist. A file may hold rows of several streams, told apart by bits; a segment's tag is
then the number of the layout that says which bit and which columns are whose.
"""

import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.core.errors import DamageError, StateError
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.shared_plan import Place
from millstream.store.integrity.digests import CheckedFiles, digest_of, digest_of_file
from millstream.store.machine_failures import disk_full

RECENT_BYTES = 256 << 20  # of files with rows of many streams, and small ones, kept at hand
SMALL_BYTES = 1 << 20  # a small step reads files of up to this size from memory
PIECE_ROWS = 65_536
ROW_GROUP_ROWS = 65_536  # small enough for a window scan to skip what it cannot reach


@dataclass(frozen=True, slots=True)
class Written:
    """One part of a file that was written and synced, not yet published."""

    file: str | None
    tag: int | None
    rows: int
    size: int
    ts_min: int
    ts_max: int
    until_max: int
    digest: str = ""  # of the whole file


EMPTY = Written(None, None, 0, 0, BEGINNING, BEGINNING, BEGINNING)


@dataclass(frozen=True, slots=True)
class Segment:
    """What the ledger knows of a segment; `file` is None where it only carries a watermark."""

    stream: str
    first: int  # sequence numbers, both inclusive; more than one after compaction
    last: int
    file: str | None
    tag: int | None
    rows: int
    size: int
    ts_min: int
    ts_max: int
    until_max: int
    watermark: int
    arrived: float
    digest: str = ""  # of the whole file, which others may share

    @staticmethod
    def of(stream: str, number: int, w: Written, watermark: int, arrived: float) -> "Segment":
        """What was written, as a stream's segment under one number."""
        return Segment(
            stream, number, number, w.file, w.tag, w.rows, w.size, w.ts_min, w.ts_max, w.until_max,
            watermark, arrived, w.digest,
        )  # fmt: skip

    def holding(self, written: Written) -> "Segment":
        """The same place in its stream with other rows."""
        other = Segment.of(self.stream, self.first, written, self.watermark, self.arrived)
        return replace(other, last=self.last)


class SegmentStore:
    """The folder of a processor's segment files."""

    def __init__(self, folder: Path, layouts: Callable[[int], Mapping[str, Place]] | None = None):
        self.folder = folder
        self.layouts = layouts or _no_layouts
        self._recent: dict[str, pa.Table] = {}  # by file, those read last at the end
        self._recent_bytes = 0
        self._lock = threading.Lock()
        self._checked = CheckedFiles()
        self.mend: Callable[[Segment, DamageError], bool] | None = None  # may put a file right
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, file: str) -> str:
        return os.path.join(self.folder, file)

    def new_name(self) -> str:
        return f"{uuid.uuid4().hex}.parquet"

    def write(self, table: pa.Table) -> Written:
        """Writes one stream's rows as one file."""
        if table.num_rows == 0:
            return EMPTY
        written = self._write_synced(table)
        if table.nbytes <= SMALL_BYTES:
            self._remember(written.name, table)
        return describe(table, written)

    def write_wide(self, table: pa.Table, places: Mapping[str, Place]) -> dict[str, Written]:
        """Writes rows of several streams as one file; says which of them are whose."""
        if table.num_rows == 0:
            return dict.fromkeys(places, EMPTY)
        file = self._write_synced(table)
        self._remember(file.name, table)
        return describe_wide(table, file, places)

    def adopt_wide(self, folder: str, places: Mapping[str, Place]) -> dict[str, list[Written]]:
        """The same for files that Spark's executors wrote."""
        found: dict[str, list[Written]] = {stream: [] for stream in places}
        for part in self.adopt_spark_output(folder):
            assert part.file is not None
            table = self.decoded(part.file)
            file = WholeFile(part.file, part.size, part.digest)
            for stream, written in describe_wide(table, file, places).items():
                if written.rows:
                    found[stream].append(written)
        return found

    def _write_synced(self, table: pa.Table) -> "WholeFile":
        name = self.new_name()
        path = self.path(name)
        with disk_errors():
            data = self.encoded(table)
            with open(path, "wb") as file:
                file.write(data)
            sync(path)
        self._checked.written(path)
        return WholeFile(name, len(data), digest_of(data))

    def encoded(self, table: pa.Table) -> memoryview:
        """Rows as the content of a file."""
        content = pa.BufferOutputStream()
        pq.write_table(
            table,
            content,
            compression="zstd",
            row_group_size=ROW_GROUP_ROWS,
            use_dictionary=repeating(table.schema),
            write_statistics=_counted(table.schema),
        )
        return memoryview(content.getvalue())

    def decoded(self, file: str) -> pa.Table:
        """The rows of a file."""
        return pq.read_table(self.path(file))

    def rows_in(self, file: str) -> int:
        """How many they are; -1 where it is no such file."""
        try:
            return int(pq.read_metadata(self.path(file)).num_rows)
        except (pa.ArrowInvalid, OSError):
            return -1

    def adopt_spark_output(self, folder: str) -> list[Written]:
        """Takes the files that Spark's executors wrote into a folder of this store."""
        found: list[Written] = []
        with disk_errors():
            for part in sorted(Path(folder).glob("part-*.parquet")):
                facts = _footer(part)
                if facts["rows"] == 0:
                    continue
                name = self.new_name()
                os.replace(part, self.path(name))
                sync(self.path(name))
                self._checked.written(self.path(name))
                found.append(
                    Written(
                        name,
                        None,
                        facts["rows"],
                        os.path.getsize(self.path(name)),
                        facts["ts_min"],
                        facts["ts_max"],
                        facts["until_max"],
                        digest_of_file(self.path(name)),
                    )
                )
        shutil.rmtree(folder, ignore_errors=True)
        return found

    def check(self, segments: Iterable[Segment]) -> None:
        """Refuses segments whose files do not hold what was written, before anybody reads them."""
        for segment in segments:
            if segment.file is not None:
                self._check(self.path(segment.file), segment)

    def _check(self, path: str, segment: Segment) -> None:
        try:
            self._checked.check(path, segment.digest, segment.stream)
        except DamageError as damage:
            if not segment.digest or self.mend is None or not self.mend(segment, damage):
                raise
            self._checked.check(path, segment.digest, segment.stream)

    def read(self, segment: Segment) -> pa.Table:
        """A segment's rows as Arrow, for delivery and compaction; operators read through Spark."""
        if segment.file is None:
            raise ValueError("a segment without a file has no rows to read")
        if segment.tag is None:
            table = self._recently(segment.file)
            if table is not None:
                return table
            self.check([segment])
            return self.decoded(segment.file)
        return rows_of(self.read_wide(segment), self.layouts(segment.tag)[segment.stream])

    def read_wide(self, segment: Segment) -> pa.Table:
        """A segment's file of many streams: each of them reads it, one after the other."""
        file = segment.file
        assert file is not None
        table = self._recently(file)
        if table is None:
            self.check([segment])
            table = self.decoded(file)
            self._remember(file, table)
        return table

    def _recently(self, file: str) -> pa.Table | None:
        with self._lock:
            table = self._recent.pop(file, None)
            if table is not None:
                self._recent[file] = table
            return table

    def _remember(self, file: str, table: pa.Table) -> None:
        with self._lock:
            self._forget(file)
            self._recent[file] = table
            self._recent_bytes += table.nbytes
            while len(self._recent) > 1 and self._recent_bytes > RECENT_BYTES:
                self._forget(next(iter(self._recent)))

    def _forget(self, file: str) -> None:
        table = self._recent.pop(file, None)
        if table is not None:
            self._recent_bytes -= table.nbytes

    def remove(self, file: str) -> None:
        with self._lock:
            self._forget(file)
        self._checked.forget(self.path(file))
        Path(self.path(file)).unlink(missing_ok=True)

    def remove_drafts(self) -> None:
        """Folders of jobs that never came to an end."""
        for entry in os.scandir(self.folder):
            if entry.is_dir() and entry.name.endswith(".writing"):
                shutil.rmtree(entry.path, ignore_errors=True)

    def files(self) -> list[str]:
        return [entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".parquet")]


def parquet_pieces(folder: Path) -> Iterator[pa.Table]:
    """What Spark wrote into a folder, one piece in memory at a time; an empty one if nothing."""
    found = False
    for part in sorted(folder.glob("part-*.parquet")):
        file = pq.ParquetFile(part)
        for batch in file.iter_batches(batch_size=PIECE_ROWS):
            found = True
            yield pa.Table.from_batches([batch])
        if not found:
            found = True
            yield file.schema_arrow.empty_table()


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file that was written, whoever's rows it holds."""

    name: str
    size: int
    digest: str


def describe(table: pa.Table, file: WholeFile) -> Written:
    """Statistics of a table that has just been written."""
    span = pc.min_max(table["_ts"]).as_py()
    until = pc.max(table["_until"]).as_py() if "_until" in table.column_names else span["max"]
    return Written(
        file.name, None, table.num_rows, file.size, span["min"], span["max"], until, file.digest
    )


def describe_wide(
    table: pa.Table, file: WholeFile, places: Mapping[str, Place]
) -> dict[str, Written]:
    """Statistics of each stream's rows in a table that was written; sizes in proportion."""
    words: dict[int, Any] = {}
    times = {c: table[c].to_numpy() for c in table.column_names if c in ("_ts", "_until")}
    found: dict[str, Written] = {}
    known: dict[tuple[int, int, str], tuple[int, int, int, int]] = {}
    for stream, place in places.items():
        end = place.columns.get("_until", "_until")
        key = (place.word, place.bit, end)
        if key not in known:
            if place.word not in words:
                words[place.word] = table[f"c{place.word}"].to_numpy()
            chosen = (words[place.word] & place.bit) != 0
            rows = int(np.count_nonzero(chosen))
            if end not in times and end in table.column_names:
                times[end] = table[end].to_numpy()
            ts = times["_ts"][chosen]
            until = times[end][chosen] if end in times else ts
            known[key] = (
                (rows, int(ts.min()), int(ts.max()), int(until.max())) if rows else (0, 0, 0, 0)
            )
        rows, low, high, last = known[key]
        found[stream] = (
            Written(file.name, None, rows, 0, low, high, last, file.digest) if rows else EMPTY
        )
    total = sum(w.rows for w in found.values()) or 1
    return {s: replace(w, size=file.size * w.rows // total) for s, w in found.items()}


def rows_of(table: pa.Table, place: Place) -> pa.Table:
    """One stream's rows of a table that holds many, under its own column names."""
    hidden = [n for n in table.column_names if n.startswith("_") and n not in place.columns]
    chosen = (table[f"c{place.word}"].to_numpy() & place.bit) != 0
    names = [*hidden, *place.columns]
    own = table.select([*hidden, *place.columns.values()]).rename_columns(names)
    return own.filter(pa.array(chosen))


def _no_layouts(number: int) -> Mapping[str, Place]:
    raise StateError(f"layout {number} is not known here")


def _footer(path: Path) -> dict[str, Any]:
    """Row count and time span of a file from its footer alone."""
    meta = pq.read_metadata(path)
    names = [meta.schema.column(i).name for i in range(meta.num_columns)]
    spans: dict[str, tuple[int, int]] = {}
    for name in ("_ts", "_until"):
        if name in names and meta.num_rows:
            column = names.index(name)
            stats = [
                meta.row_group(g).column(column).statistics for g in range(meta.num_row_groups)
            ]
            spans[name] = (min(s.min for s in stats), max(s.max for s in stats))
    ts_min, ts_max = spans.get("_ts", (BEGINNING, BEGINNING))
    return {
        "rows": meta.num_rows,
        "ts_min": ts_min,
        "ts_max": ts_max,
        "until_max": spans.get("_until", (ts_min, ts_max))[1],
    }


def _counted(schema: pa.Schema) -> list[str]:
    """Columns with statistics in the file: hidden ones alone.

    Arrow leaves NaN out of minimum and maximum, while to Spark it is the greatest number: with
    statistics on users' columns Spark would skip row groups that hold wanted rows.
    """
    return [name for name in schema.names if name.startswith("_")]


def repeating(schema: pa.Schema) -> list[str]:
    """Columns worth a dictionary. Numbers and times are not: it costs more than all the rest."""
    return [
        f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)
    ]


def sync(path: str) -> None:
    """Makes a file and its name durable."""
    for target in (path, os.path.dirname(path)):
        handle = os.open(target, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class disk_errors:  # noqa: N801  (reads as a statement)
    """A full disk is told as such; what was half written is an orphan and swept later."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and (full := disk_full(error)) is not None:
            raise full from error
