"""Reads files into a base stream, batch by batch, resumably.

The position is (file, row): a crash repeats nothing and passes over nothing. With `rate`, rows are
replayed at that many a second; with `follow`, a folder is watched for new files and never ends.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from millstream.cql.catalog import StreamDefinition
from millstream.engine.appending import ROW, Appended, Appender
from millstream.engine.file_source import (
    GROUP_BYTES_MAX,
    STAGE_BYTES_MIN,
    FileParser,
    format_of,
    identity,
    list_files,
    verify_unchanged,
)

POLL_SECONDS = 0.5
SETTLE_SECONDS = 1.0  # a file of a watched folder is read when it has not changed for this long


class FileIngest:
    """One stream's files. `advance` adds the next batch; `ended` tells when there is none."""

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        spark: SparkSession,
        staging: Path,
        batch_rows: int,
    ) -> None:
        self.definition, self.appender = definition, appender
        self.staging, self.batch_rows = staging, batch_rows
        self.follow = bool(definition.source.get("follow", False))
        self.rate = definition.source.get("rate")
        self._ledger = appender.ledger
        files = list_files(definition)
        self._parser = FileParser(definition, spark, format_of(definition, files))
        verify_unchanged(definition.name, self._ledger.source_files(appender.stream))
        self._pieces: Iterator[pa.Table] | None = None
        self._buffer: pa.Table | None = None
        self._next_poll = 0.0
        self._replay_from: tuple[float, int] | None = None
        position = self._ledger.ingest_position(appender.stream)
        self.ended = bool(position.get("ended"))
        self.rows = int(position.get("pos", 0))

    def ready(self) -> bool:
        """Whether `advance` would do something now."""
        if self.ended:
            return False
        if self.rate is not None and self._allowance() < 1:
            return False
        return not (self._buffer is None and self._pieces is None and time.time() < self._next_poll)

    def advance(self, rows_max: int | None = None) -> Appended | None:
        """Adds one batch; None where nothing was there to add."""
        limit = min(rows_max or self.batch_rows, self.batch_rows)
        if self.rate is not None:
            limit = min(limit, self._allowance())
        batch = self._take(limit)
        if batch is None:
            if not self.follow:
                self.appender.finish()
                self.ended = True
                shutil.rmtree(self.staging, ignore_errors=True)
            self._next_poll = time.time() + POLL_SECONDS
            return None
        last = batch.num_rows - 1
        position = {
            "file": batch["_number"][last].as_py(),
            "row": batch[ROW][last].as_py() + 1,
        }
        appended = self.appender.append(batch, position)
        self.rows += batch.num_rows
        return appended

    def _allowance(self) -> int:
        """Rows that a replay at a given rate may add by now."""
        if self._replay_from is None:
            self._replay_from = (time.time(), self.rows)
        started, rows = self._replay_from
        return int(float(self.rate or 0) * (time.time() - started)) - (self.rows - rows)

    def _take(self, limit: int) -> pa.Table | None:
        """The next rows, at most so many; parses further files as needed."""
        gathered: list[pa.Table] = []
        have = 0
        while have < limit:
            if self._buffer is None or self._buffer.num_rows == 0:
                self._buffer = self._next_piece()
                if self._buffer is None:
                    break
            part = self._buffer.slice(0, limit - have)
            self._buffer = self._buffer.slice(part.num_rows)
            if part.num_rows:
                gathered.append(part)
                have += part.num_rows
        return pa.concat_tables(gathered) if gathered else None

    def _next_piece(self) -> pa.Table | None:
        while True:
            if self._pieces is None:
                self._pieces = self._open_next()
                if self._pieces is None:
                    return None
            piece = next(self._pieces, None)
            if piece is not None:
                return piece
            self._pieces = None

    def _open_next(self) -> Iterator[pa.Table] | None:
        """Parses the files after the position; None at the end of them."""
        stream = self.appender.stream
        opened = getattr(self, "_opened", None)
        position = self._ledger.ingest_position(stream)
        if opened is None:
            first, row = int(position.get("file", 0)), int(position.get("row", 0))
        else:
            first, row = opened, 0
        recorded = self._ledger.source_files(stream)
        if first >= len(recorded):
            recorded = self._discover(recorded)
        if first >= len(recorded):
            return None
        chosen: list[tuple[int, Path]] = []
        size = 0
        for number in range(first, len(recorded)):
            path = Path(recorded[number][0])
            size += path.stat().st_size
            if chosen and size > GROUP_BYTES_MAX:
                break
            chosen.append((number, path))
        self._opened = chosen[-1][0] + 1
        number, path = chosen[0]
        if len(chosen) == 1 and path.stat().st_size >= STAGE_BYTES_MIN:
            pieces = self._parser.stage(path, number, self.staging / str(number))
        else:
            pieces = iter([self._parser.parse([p for _, p in chosen], [n for n, _ in chosen])])
        return (_after(piece, first, row) for piece in pieces)

    def _discover(self, recorded: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Records files that were not there before, in order of name."""
        known = {path for path, _ in recorded}
        if known and not self.follow:
            return recorded
        quiet = time.time() - SETTLE_SECONDS if self.follow else float("inf")
        fresh = [
            (str(p), identity(p))
            for p in list_files(self.definition)
            if str(p) not in known and p.stat().st_mtime <= quiet
        ]
        if fresh:
            with self._ledger.transaction() as ledger:
                ledger.add_source_files(self.appender.stream, fresh)
        return recorded + fresh


def _after(piece: pa.Table, number: int, row: int) -> pa.Table:
    """Rows at or after a position."""
    if row == 0:
        return piece
    later = pc.or_(
        pc.greater(piece["_number"], number),
        pc.and_(pc.equal(piece["_number"], number), pc.greater_equal(piece[ROW], row)),
    )
    return piece.filter(later)
