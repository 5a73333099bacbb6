"""Segments: the immutable Parquet files that streams are made of.

A segment is a run of rows of one stream under one or more sequence numbers. Files have a name
unique to the attempt that wrote them and are synced before anybody hears of them; only the ledger
says which exist. A file may hold rows of several streams, told apart by a tag column.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.errors import ResourceError
from millstream.plan.windows import BEGINNING

TAG = "_tag"
PIECE_ROWS = 262_144
ROW_GROUP_ROWS = 65_536  # small enough for a window scan to skip what it cannot reach


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


EMPTY = Written(None, None, 0, 0, BEGINNING, BEGINNING, BEGINNING)


class SegmentStore:
    """The folder of a processor's segment files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, file: str) -> str:
        return str(self.folder / file)

    def new_name(self) -> str:
        return f"{uuid.uuid4().hex}.parquet"

    def write(self, table: pa.Table) -> Written:
        """Writes one stream's rows as one file."""
        if table.num_rows == 0:
            return EMPTY
        name = self._write_synced(table)
        size = os.path.getsize(self.path(name))
        return describe(table, name, None, size)

    def write_tagged(self, parts: dict[int, pa.Table]) -> dict[int, Written]:
        """Writes rows of several streams with equal columns as one file, a row group or more each.

        Row groups hold one tag each, so that Spark's statistics skip what a reader does not want.
        """
        filled = {tag: table for tag, table in parts.items() if table.num_rows}
        if not filled:
            return dict.fromkeys(parts, EMPTY)
        name = self.new_name()
        path = self.path(name)
        tagged = {
            tag: table.append_column(TAG, pa.array(np.full(table.num_rows, tag, np.int32)))
            for tag, table in filled.items()
        }
        schema = next(iter(tagged.values())).schema
        with disk_errors():
            with pq.ParquetWriter(
                path, schema, compression="zstd", write_statistics=_counted(schema)
            ) as writer:
                for table in tagged.values():
                    writer.write_table(table.cast(schema), row_group_size=ROW_GROUP_ROWS)
            sync(path)
        size, rows = os.path.getsize(path), sum(t.num_rows for t in filled.values())
        return {
            tag: describe(table, name, tag, size * table.num_rows // rows)
            if table.num_rows
            else EMPTY
            for tag, table in parts.items()
        }

    def _write_synced(self, table: pa.Table) -> str:
        name = self.new_name()
        path = self.path(name)
        with disk_errors():
            pq.write_table(
                table,
                path,
                compression="zstd",
                row_group_size=ROW_GROUP_ROWS,
                write_statistics=_counted(table.schema),
            )
            sync(path)
        return name

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
                found.append(
                    Written(
                        name,
                        None,
                        facts["rows"],
                        os.path.getsize(self.path(name)),
                        facts["ts_min"],
                        facts["ts_max"],
                        facts["until_max"],
                    )
                )
        shutil.rmtree(folder, ignore_errors=True)
        return found

    def read(self, segment: Segment) -> pa.Table:
        """A segment's rows as Arrow, for delivery and compaction; operators read through Spark."""
        if segment.file is None:
            raise ValueError("a segment without a file has no rows to read")
        table = pq.read_table(self.path(segment.file))
        if segment.tag is not None:
            table = table.filter(pc.equal(table[TAG], segment.tag)).drop_columns([TAG])
        return table

    def remove(self, file: str) -> None:
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


def describe(table: pa.Table, name: str, tag: int | None, size: int) -> Written:
    """Statistics of a table that has just been written."""
    span = pc.min_max(table["_ts"]).as_py()
    until = pc.max(table["_until"]).as_py() if "_until" in table.column_names else span["max"]
    return Written(name, tag, table.num_rows, size, span["min"], span["max"], until)


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
        if isinstance(error, OSError) and error.errno in (28, 122):  # ENOSPC, EDQUOT
            raise ResourceError(
                "the disk is full",
                detail=str(error),
                hint="free some space and run the same command again: nothing is lost",
            ) from error
