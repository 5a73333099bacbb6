"""Reads files into a base stream, batch by batch, resumably.

The position is (file, row): a crash repeats nothing and passes over nothing. With `rate`, rows are
replayed at that many a second; with `follow`, a folder is watched for new files and never ends.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from millstream.core.errors import UsageError
from millstream.core.steady_clock import SteadyClock
from millstream.engine.ports import DataPlane, SourceSetting
from millstream.engine.sources.gained_columns import GainedColumns
from millstream.engine.troubles.unread import Unread
from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.appending import ROW, Appended, Appender
from millstream.store.arrivals.file_source import (
    NUMBER,
    expanded_size,
    format_of,
    gone,
    identity,
    list_files,
    look,
    verify_complete,
    verify_unchanged,
)

POLL_SECONDS = 0.5
SETTLE_SECONDS = 1.0  # a file of a watched folder is read when it has not changed for this long
REPLAY_SECONDS = 0.2  # a replay adds about this much time's rows at once
GROUP_BYTES_MAX = 16 << 20  # small files are parsed together up to this size
BATCH_BYTES_MAX = 64 << 20  # a batch ends early where rows are large


class FileIngest:
    """One stream's files. `advance` adds the next batch; `ended` tells when there is none."""

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        plane: DataPlane,
        setting: SourceSetting,
    ) -> None:
        self.definition, self.appender = definition, appender
        self.staging = setting.home / "staging" / quote(definition.name, safe="")
        self.batch_rows = setting.batch_rows
        self.follow = bool(definition.source.get("follow", False))
        self.rate = _rate(definition)
        self.caught_up = False  # of a watched folder: all that is there has been read
        self._ledger = appender.ledger
        files = list_files(definition)
        if self.follow and Path(str(definition.source["path"])).is_file():
            raise UsageError(
                f"stream {definition.name}: follow needs a folder, not a file",
                hint="new rows come as new files of the folder",
            )
        self._kind = format_of(definition, files)
        self._gained = GainedColumns(definition, setting.say)
        self._unread = Unread(definition, appender.ledger, plane.machine, setting.step_seconds_max)
        self._unread.refuse()
        self._parser = plane.file_parser(definition, self._kind, self.staging)
        position = self._ledger.ingest_position(appender.stream)
        self.ended = bool(position.get("ended"))
        recorded = self._ledger.source_files(appender.stream)
        self._seen = {path: look(Path(path)) for path, _ in recorded}
        if not self.ended:  # else all its rows are here, whatever becomes of the files
            verify_unchanged(definition.name, recorded)
            if not self.follow:
                verify_complete(definition.name, recorded, files)
        self._parser.check(files)
        self._pieces: Iterator[pa.Table] | None = None
        self._buffer: pa.Table | None = None
        self._opened: int | None = None  # the file to open next; None before the first
        self._next_poll = 0.0
        self._clock = SteadyClock()
        self._unsettled: dict[Path, tuple[tuple[int, int], float]] = {}  # how it looked, since when
        self._replay_from: tuple[float, int] | None = None
        self.rows = int(position.get("pos", 0))

    def ready(self) -> bool:
        """Whether `advance` would do something now."""
        if self.ended:
            return False
        if self.rate is not None and self._allowance() < max(1, self.rate * REPLAY_SECONDS):
            return False
        return not (
            self._buffer is None and self._pieces is None and time.monotonic() < self._next_poll
        )

    def advance(self, rows_max: int | None = None) -> Appended | None:
        """Adds one batch; None where nothing was there to add."""
        limit = min(rows_max or self.batch_rows, self.batch_rows)
        if self.rate is not None:
            limit = min(limit, self._allowance())
        batch = self._take(limit)
        self.caught_up = batch is None
        if batch is None:
            if not self.follow:
                self.appender.finish()
                self.ended = True
                shutil.rmtree(self.staging, ignore_errors=True)
            self._next_poll = time.monotonic() + POLL_SECONDS
            return None
        last = batch.num_rows - 1
        position = {
            "file": batch[NUMBER][last].as_py(),
            "row": batch[ROW][last].as_py() + 1,
        }
        appended = self.appender.append(batch, position)
        self.rows += batch.num_rows
        return appended

    def silent_since(self) -> float:
        """Since when no row has come and none waits; files that are there are never silent."""
        return self.appender.arrived if self.follow and self.caught_up else time.monotonic()

    def _allowance(self) -> int:
        """Rows that a replay at a given rate may add by now."""
        if self._replay_from is None:
            self._replay_from = (time.monotonic(), self.rows)
        started, rows = self._replay_from
        return int((self.rate or 0) * (time.monotonic() - started)) - (self.rows - rows)

    def _take(self, limit: int) -> pa.Table | None:
        """The next rows, at most so many; parses further files as needed."""
        gathered: list[pa.Table] = []
        have = size = 0
        while have < limit and size < BATCH_BYTES_MAX:
            if self._buffer is None or self._buffer.num_rows == 0:
                self._buffer = self._next_piece()
                if self._buffer is None:
                    break
            part = self._buffer.slice(0, _rows_within(self._buffer, limit - have, size))
            self._buffer = self._buffer.slice(part.num_rows)
            if part.num_rows:
                gathered.append(part)
                have += part.num_rows
                size += part.nbytes
        return pa.concat_tables(gathered) if gathered else None

    def _next_piece(self) -> pa.Table | None:
        while True:
            if self._pieces is None:
                self._pieces = self._open_next()
                if self._pieces is None:
                    return None
            with self._unread.reading(by_task=True):
                piece = next(self._pieces, None)
            if piece is not None:
                return piece
            self._pieces = None

    def _open_next(self) -> Iterator[pa.Table] | None:
        """Parses the files after the position; None at the end of them."""
        stream = self.appender.stream
        if self._opened is None:
            position = self._ledger.ingest_position(stream)
            first, row = int(position.get("file", 0)), int(position.get("row", 0))
        else:
            first, row = self._opened, 0
        recorded = self._ledger.source_files(stream)
        if first >= len(recorded):
            recorded = self._discover(recorded)
        if first >= len(recorded):
            return None
        chosen: list[tuple[int, Path]] = []
        size = 0
        for number in range(first, len(recorded)):
            path = Path(recorded[number][0])
            try:
                size += expanded_size(path)
            except FileNotFoundError:
                raise gone(self.definition.name, str(path)) from None
            if chosen and size > GROUP_BYTES_MAX:
                break
            chosen.append((number, path))
        self._opened = chosen[-1][0] + 1
        read = [recorded[number] for number, _ in chosen]
        self._verify_same(read)
        for _, path in chosen:
            self._gained.look_at_file(path, self._kind)
        pieces = self._parser.pieces([p for _, p in chosen], [n for n, _ in chosen])
        return (_after(piece, first, row) for piece in self._checked(pieces, read))

    def _checked(
        self, pieces: Iterator[pa.Table], read: list[tuple[str, str]]
    ) -> Iterator[pa.Table]:
        """The same pieces; before the last of them, whether the files are still those recorded."""
        held = next(pieces, None)
        for piece in pieces:
            assert held is not None
            yield held
            held = piece
        self._verify_same(read)
        if held is not None:
            yield held

    def _verify_same(self, read: list[tuple[str, str]]) -> None:
        """Refuses files that somebody has replaced since they were recorded."""
        changed = [(p, i) for p, i in read if look(Path(p)) != self._seen.get(p)]
        verify_unchanged(self.definition.name, changed)
        self._seen |= {path: look(Path(path)) for path, _ in changed}

    def _settled(self, path: Path) -> bool:
        """Whether a file has not changed for a while: by its own time, where no clock has been set
        since this began; else by what was seen of it, however the clocks stand."""
        told = path.stat()
        quiet = min(time.time(), self._clock()) - SETTLE_SECONDS
        if told.st_mtime <= quiet:
            self._unsettled.pop(path, None)
            return True
        now, look_of = time.monotonic(), (told.st_size, told.st_mtime_ns)
        seen, since = self._unsettled.get(path, (None, now))
        if seen != look_of:
            self._unsettled[path] = (look_of, now)
            return SETTLE_SECONDS <= 0
        if now - since < SETTLE_SECONDS:
            return False
        del self._unsettled[path]
        return True

    def _discover(self, recorded: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Records files that were not there before, in order of name."""
        known = {path for path, _ in recorded}
        if known and not self.follow:
            return recorded
        new = [p for p in list_files(self.definition) if str(p) not in known]
        found = [p for p in new if self._settled(p)] if self.follow else new
        self._seen |= {str(p): look(p) for p in found}  # first: what comes later is seen
        fresh = [(str(p), identity(p)) for p in found]
        if fresh:
            with self._ledger.transaction() as ledger:
                ledger.add_source_files(self.appender.stream, fresh)
        return recorded + fresh


def _rate(definition: StreamDefinition) -> float | None:
    given = definition.source.get("rate")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
        raise UsageError(
            f"stream {definition.name}: the rate {given!r} is not a number of rows a second",
            hint="rate = 1000",
        )
    return float(given)


def _rows_within(table: pa.Table, rows_max: int, size: int) -> int:
    """How many rows of a table still fit a batch of `size` bytes; one at least."""
    if table.num_rows <= 1 or size + table.nbytes <= BATCH_BYTES_MAX:
        return rows_max
    average = max(1, int(table.nbytes) // int(table.num_rows))
    return max(1, min(rows_max, (BATCH_BYTES_MAX - size) // average))


def _after(piece: pa.Table, number: int, row: int) -> pa.Table:
    """Rows at or after a position."""
    if row == 0:
        return piece
    later = pc.or_(
        pc.greater(piece[NUMBER], number),
        pc.and_(pc.equal(piece[NUMBER], number), pc.greater_equal(piece[ROW], row)),
    )
    return piece.filter(later)
