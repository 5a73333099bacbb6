"""The ledger: what a processor knows to be true, in one SQLite file.

Segments, cursors, operators' progress, queries, deliveries. A step publishes its outputs, advances
its cursors and records its statistics in one transaction. Nothing else in the engine is durable.
"""

import json
import sqlite3
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from millstream.core.errors import StateError
from millstream.language.plan.windows import BEGINNING
from millstream.store.consumers import Consumer, Cursor, Kind, consumer_of
from millstream.store.ledger_file import LedgerFile
from millstream.store.segments import EMPTY, Segment, Written

_last_of = attrgetter("last")
AS_ROW = attrgetter(*(f.name for f in fields(Segment)))
STATISTICS = ("rows_in", "rows_out", "steps", "seconds", "shared")  # of an operator
FIRST = Cursor(1, BEGINNING)
NO_NOTES = "{}"
# A stream that was handed over and has not come back: nothing is published here any more.
FENCED = (
    "SELECT 1 FROM handed h WHERE h.stream = ? "
    "AND NOT EXISTS (SELECT 1 FROM owned o WHERE o.stream = h.stream) LIMIT 1"
)


Head = Mapping[str, Any]  # a row of the table of streams


class Ledger(LedgerFile):
    """What is asked and said of streams, consumers, operators and queries.

    `moves_seen` rises whenever a cursor moves or segments come or go, except those of base streams
    alone: whoever looks at all cursors need not look again while it stays.
    """

    def _forget(self) -> None:
        """Empties the copies in memory of what is asked at every choice; they fill on demand."""
        self.moves_seen = getattr(self, "moves_seen", 0) + 1
        self._segments: dict[str, list[Segment]] = {}
        self._heads: dict[str, Head | None] = {}
        self._columns: dict[str, str] = {}
        self._progress: dict[str, str] = {}  # of operators
        self._last_rows: dict[str, int] | None = None
        self._any_handed: bool | None = None
        self._cursors: dict[str, dict[Consumer, Cursor]] | None = None  # by stream

    # -- streams and segments -------------------------------------------------------------------

    def add_stream(self, stream: str, kind: str) -> None:
        self._heads.pop(stream, None)
        self._db.execute(
            "INSERT OR IGNORE INTO streams VALUES (?, ?, 1, ?, ?, 0, ?, '')",
            (stream, kind, BEGINNING, BEGINNING, BEGINNING),
        )

    def set_columns(self, stream: str, columns: str) -> None:
        """Records a stream's columns, hidden ones included, as Spark's JSON schema."""
        self._heads.pop(stream, None)
        self._columns.pop(stream, None)
        self._db.execute("UPDATE streams SET columns = ? WHERE id = ?", (columns, stream))

    def columns(self, stream: str) -> str:
        """The same; empty where they are not known yet."""
        with self._lock:
            known = self._columns.get(stream)
            if known is None:
                row = self.stream(stream)
                known = str(row["columns"]) if row else ""
                if known:
                    self._columns[stream] = known
            return known

    def drop_stream(self, stream: str) -> list[str]:
        """Forgets a stream; gives the files that nobody names any more."""
        files = [
            r["file"]
            for r in self._rows(
                "SELECT DISTINCT file FROM segments WHERE stream = ? AND file IS NOT NULL",
                (stream,),
            )
        ]
        self.moves_seen += 1
        self._segments.pop(stream, None)
        self._heads.pop(stream, None)
        self._columns.pop(stream, None)
        self._db.execute("DELETE FROM segments WHERE stream = ?", (stream,))
        self._db.execute("DELETE FROM streams WHERE id = ?", (stream,))
        for listener in self.on_drop:
            listener(stream)
        return self._unnamed(files)

    def stream(self, stream: str) -> Head | None:
        with self._lock:
            if stream not in self._heads:
                rows = self._rows("SELECT * FROM streams WHERE id = ?", (stream,))
                self._heads[stream] = dict(rows[0]) if rows else None
            return self._heads[stream]

    def streams(self) -> list[sqlite3.Row]:
        return self._rows("SELECT * FROM streams")

    def publish(
        self,
        stream: str,
        written: Sequence[Written],
        watermark: int,
        arrived: float | None = None,
    ) -> None:
        """Appends segments to a stream; without rows, a segment that only carries the watermark.

        `arrived` is when the oldest rows behind them entered the system; now, if not given.
        """
        head = self.stream(stream)
        if head is None:
            raise StateError(f"stream {stream} is not in the ledger")
        if self._fenced(stream):
            raise StateError(f"stream {stream} was handed to another processor")
        if head["kind"] != "base":
            self.moves_seen += 1
        full = [w for w in written if w.rows]
        number, rows, ts_max = head["next"], head["rows"], head["ts_max"]
        now = time.time() if arrived is None else arrived
        if not full:
            if watermark <= head["watermark"]:
                return
            self._insert(Segment.of(stream, number, EMPTY, watermark, now))
            number += 1
        for position, part in enumerate(full):
            # only the last one may promise: the others precede rows of the same step
            promise = watermark if position == len(full) - 1 else head["watermark"]
            self._insert(Segment.of(stream, number, part, promise, now))
            number, rows, ts_max = number + 1, rows + part.rows, max(ts_max, part.ts_max)
        promised = max(head["watermark"], watermark)
        self._db.execute(
            "UPDATE streams SET next = ?, watermark = ?, ts_max = ?, rows = ? WHERE id = ?",
            (number, promised, ts_max, rows, stream),
        )
        # known again at once: hundreds of streams may be published in one transaction
        after = {"next": number, "watermark": promised, "ts_max": ts_max, "rows": rows}
        self._heads[stream] = {**head, **after}

    def _fenced(self, stream: str) -> bool:
        """Whether a stream was handed over and has not come back; most ledgers know of none."""
        if self._any_handed is None:
            self._any_handed = bool(self._rows("SELECT 1 FROM handed LIMIT 1"))
        return self._any_handed and bool(self._rows(FENCED, (stream,)))

    def change(self, sql: str, args: Sequence[Any] = ()) -> None:
        if "handed" in sql:
            self._any_handed = None
        elif "last_rows" in sql:
            self._last_rows = None
        elif "streams" in sql:
            self._heads.clear()
        super().change(sql, args)

    def adopt(self, segments: Sequence[Segment], *, past: bool = False) -> None:
        """Adds segments of a stream that is made elsewhere, under the numbers they have there.

        What is `past` lies before the stream's head, which stays as it is.
        """
        self.moves_seen += 1
        for segment in segments:
            self._insert(segment)
            if past:
                continue
            self._heads.pop(segment.stream, None)
            self._db.execute(
                "UPDATE streams SET next = max(next, ?), watermark = max(watermark, ?), "
                "ts_max = max(ts_max, ?), rows = rows + ? WHERE id = ?",
                (
                    segment.last + 1,
                    segment.watermark,
                    segment.ts_max,
                    segment.rows,
                    segment.stream,
                ),
            )

    def set_head(self, stream: str, following: int, watermark: int, ts_max: int, rows: int) -> None:
        """Lets a stream go on where another processor left it."""
        self._heads.pop(stream, None)
        self._db.execute(
            "UPDATE streams SET next = ?, watermark = ?, ts_max = ?, rows = ? WHERE id = ?",
            (following, watermark, ts_max, rows, stream),
        )

    def skip_to(self, stream: str, number: int) -> None:
        """Lets a stream go on with a number, where it is not as far: those between hold nothing."""
        head = self.stream(stream)
        if head is None or head["next"] >= number:
            return
        self._heads.pop(stream, None)
        nothing = Segment.of(stream, head["next"], EMPTY, head["watermark"], time.time())
        self._insert(replace(nothing, last=number - 1))
        self._db.execute("UPDATE streams SET next = ? WHERE id = ?", (number, stream))

    def last_row(self, base: str) -> int:
        """The greatest time of a row in a base stream, as far as it is known here."""
        head = self.stream(base)
        here = int(head["ts_max"]) if head else BEGINNING
        with self._lock:
            if self._last_rows is None:
                rows = self._rows("SELECT * FROM last_rows")
                self._last_rows = {r["stream"]: int(r["ts_max"]) for r in rows}
            return max(here, self._last_rows.get(base, BEGINNING))

    def note_last_row(self, base: str, ts_max: int) -> None:
        """What another processor says of a base stream that is not read here."""
        self._last_rows = None
        self._db.execute(
            "INSERT INTO last_rows VALUES (?, ?) ON CONFLICT (stream) DO UPDATE SET "
            "ts_max = max(ts_max, excluded.ts_max)",
            (base, ts_max),
        )

    def _insert(self, s: Segment) -> None:
        self._published.add(s.stream)
        known = self._segments.get(s.stream)
        if known is not None and (not known or known[-1].last < s.first):
            known.append(s)  # reading all of them again would cost more with each that comes
        else:
            self._segments.pop(s.stream, None)
        self._db.execute("INSERT INTO segments VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", AS_ROW(s))

    def segments(self, stream: str, since: int = 0) -> list[Segment]:
        """A stream's segments in order, from a sequence number on."""
        with self._lock:
            if stream not in self._segments:
                rows = self._rows(
                    "SELECT * FROM segments WHERE stream = ? ORDER BY first", (stream,)
                )
                self._segments[stream] = [Segment(*row) for row in rows]
            found = self._segments[stream]
            if not found or found[0].last >= since:
                return found.copy()
            # most ask for what is new: it stands at the end
            return found[bisect_left(found, since, key=_last_of) :]

    def segment_count(self, stream: str) -> int:
        with self._lock:
            known = self._segments.get(stream)
            return len(self.segments(stream)) if known is None else len(known)

    def replace(self, old: Sequence[Segment], new: Segment | None) -> list[str]:
        """Swaps neighbours for one with the same rows, or for nothing; gives unnamed files."""
        self.moves_seen += 1
        for segment in old:
            self._segments.pop(segment.stream, None)
        self._db.executemany(
            "DELETE FROM segments WHERE stream = ? AND first = ?",
            [(s.stream, s.first) for s in old],
        )
        if new is not None:
            self._insert(new)
        return self._unnamed([s.file for s in old if s.file])

    def retained_from(self, stream: str, ts: int) -> None:
        """Remembers that rows before `ts` are no longer all there."""
        head = self.stream(stream)
        if head is None or head["retained_from"] >= ts:
            return
        self._heads[stream] = {**head, "retained_from": ts}
        self._db.execute("UPDATE streams SET retained_from = ? WHERE id = ?", (ts, stream))

    def without_digest(self) -> list[str]:
        """Files whose digest is not known."""
        found = "SELECT DISTINCT file FROM segments WHERE file IS NOT NULL AND digest = ''"
        return [str(r["file"]) for r in self._rows(found)]

    def set_digest(self, file: str, digest: str) -> None:
        self._segments.clear()
        self._db.execute("UPDATE segments SET digest = ? WHERE file = ?", (digest, file))

    def _unnamed(self, files: Sequence[str]) -> list[str]:
        return [
            file
            for file in set(files)
            if not self._rows("SELECT 1 FROM segments WHERE file = ? LIMIT 1", (file,))
        ]

    def named_files(self) -> set[str]:
        return {
            r["file"]
            for r in self._rows("SELECT DISTINCT file FROM segments WHERE file IS NOT NULL")
        }

    # -- consumers ------------------------------------------------------------------------------

    def cursor(self, reader: Consumer | str, stream: str) -> Cursor:
        """How far a consumer is; one that has not begun is at the first number."""
        with self._lock:
            found = self._all_cursors().get(stream)
            return FIRST if found is None else found.get(consumer_of(reader), FIRST)

    def consumers(self, stream: str) -> dict[Consumer, Cursor]:
        """Who reads a stream, and how far each is."""
        with self._lock:
            return dict(self._all_cursors().get(stream, {}))

    def _all_cursors(self) -> dict[str, dict[Consumer, Cursor]]:
        if self._cursors is None:
            self._cursors = {}
            for row in self._rows("SELECT * FROM cursors"):
                consumer = Consumer(row["kind"], row["consumer"])
                place = Cursor(row["next"], row["watermark"])
                self._cursors.setdefault(row["stream"], {})[consumer] = place
        return self._cursors

    def consumers_of(self, kind: Kind) -> dict[str, list[str]]:
        """The names of all consumers of a kind, and the streams that each reads."""
        found: dict[str, list[str]] = {}
        rows = self._rows(
            "SELECT consumer, stream FROM cursors WHERE kind = ? ORDER BY consumer, stream", (kind,)
        )
        for row in rows:
            found.setdefault(row["consumer"], []).append(row["stream"])
        return found

    def set_cursor(
        self, reader: Consumer | str, stream: str, following: int, watermark: int
    ) -> None:
        consumer = consumer_of(reader)
        self.moves_seen += 1
        self._all_cursors().setdefault(stream, {})[consumer] = Cursor(following, watermark)
        self._db.execute(
            "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?, ?, ?)",
            (*consumer, stream, following, watermark),
        )

    def stored_bytes(self) -> int:
        """Bytes of all segments; no consumer holds more of any stream."""
        (row,) = self._rows("SELECT coalesce(sum(size), 0) AS size FROM segments")
        return int(row["size"])

    def held(self) -> dict[tuple[Consumer, str], int]:
        """Bytes of segments that each consumer has yet to take, by (consumer, stream)."""
        rows = self._rows(
            "SELECT c.kind, c.consumer, c.stream, sum(s.size) AS size FROM cursors c "
            "JOIN segments s ON s.stream = c.stream AND s.last >= c.next "
            "GROUP BY c.kind, c.consumer, c.stream"
        )
        return {(Consumer(r["kind"], r["consumer"]), r["stream"]): r["size"] for r in rows}

    def drop_consumer(self, reader: Consumer | str) -> None:
        """Forgets a consumer's cursors; of an operator also its notes and counts."""
        consumer = consumer_of(reader)
        self.moves_seen += 1
        for places in self._all_cursors().values():  # reading them all again would take longer
            places.pop(consumer, None)
        self._db.execute("DELETE FROM cursors WHERE kind = ? AND consumer = ?", consumer)
        if consumer.kind == "operator":
            self._progress.pop(consumer.name, None)
            self._db.execute("DELETE FROM operators WHERE id = ?", (consumer.name,))

    def drop_cursor(self, reader: Consumer | str, stream: str) -> None:
        self.moves_seen += 1
        self._all_cursors().get(stream, {}).pop(consumer_of(reader), None)
        self._db.execute(
            "DELETE FROM cursors WHERE kind = ? AND consumer = ? AND stream = ?",
            (*consumer_of(reader), stream),
        )

    def cursors(self, reader: Consumer | str) -> dict[str, Cursor]:
        """All that one consumer reads."""
        rows = self._rows(
            "SELECT * FROM cursors WHERE kind = ? AND consumer = ?", consumer_of(reader)
        )
        return {r["stream"]: Cursor(int(r["next"]), int(r["watermark"])) for r in rows}

    def drop_holds(self) -> None:
        """Forgets holds of registrations that a crash has cut short."""
        self.moves_seen += 1
        self._cursors = None
        self._db.execute("DELETE FROM cursors WHERE kind = 'registration'")

    # -- operators ------------------------------------------------------------------------------

    def progress(self, operator: str) -> dict[str, Any]:
        with self._lock:
            known = self._progress.get(operator)
            if known is None:
                rows = self._rows("SELECT progress FROM operators WHERE id = ?", (operator,))
                known = self._progress[operator] = rows[0]["progress"] if rows else NO_NOTES
        return {} if known == NO_NOTES else dict(json.loads(known))

    def record_step(
        self,
        operator: str,
        progress: Mapping[str, Any],
        rows_in: int,
        rows_out: int,
        seconds: float,
        *,
        shared: bool = False,
    ) -> None:
        """Counts a step; `seconds` are the operator's part of a job that it shared."""
        notes = self._progress[operator] = json.dumps(progress) if progress else NO_NOTES
        self._db.execute(
            "INSERT INTO operators VALUES (?, ?, ?, ?, 1, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "progress = excluded.progress, rows_in = rows_in + excluded.rows_in, "
            "rows_out = rows_out + excluded.rows_out, steps = steps + 1, "
            "seconds = seconds + excluded.seconds, shared = shared + excluded.shared",
            (operator, notes, rows_in, rows_out, seconds, seconds * shared),
        )

    def set_statistics(
        self, operator: str, progress: Mapping[str, Any], figures: Mapping[str, float]
    ) -> None:
        """Lets an operator go on with the notes and counts it had elsewhere."""
        self._progress.pop(operator, None)
        counts = [figures.get(k, 0) for k in STATISTICS]
        self._db.execute(
            "INSERT OR REPLACE INTO operators VALUES (?, ?, ?, ?, ?, ?, ?)",
            (operator, json.dumps(progress), *counts),
        )

    def operator_statistics(self) -> dict[str, sqlite3.Row]:
        return {r["id"]: r for r in self._rows("SELECT * FROM operators")}

    # -- queries --------------------------------------------------------------------------------

    def add_query(self, name: str, cql: str, start: int, stream: str) -> None:
        self._db.execute(
            "INSERT INTO queries VALUES (?, ?, ?, ?, 'running', '', ?)",
            (name, cql, start, stream, time.time()),
        )

    def set_query_state(self, name: str, state: str, reason: str = "") -> None:
        self._db.execute(
            "UPDATE queries SET state = ?, reason = ? WHERE name = ?", (state, reason, name)
        )

    def change_query(self, name: str, cql: str, stream: str) -> None:
        """Another text under the same name."""
        self._db.execute(
            "UPDATE queries SET cql = ?, stream = ? WHERE name = ?", (cql, stream, name)
        )

    def drop_query(self, name: str) -> None:
        self._db.execute("DELETE FROM queries WHERE name = ?", (name,))

    def query(self, name: str) -> sqlite3.Row | None:
        rows = self._rows("SELECT * FROM queries WHERE name = ?", (name,))
        return rows[0] if rows else None

    def queries(self) -> list[sqlite3.Row]:
        return self._rows("SELECT * FROM queries ORDER BY registered, name")

    # -- ingest ---------------------------------------------------------------------------------

    def ingest_position(self, stream: str) -> dict[str, Any]:
        rows = self._rows("SELECT position FROM ingests WHERE stream = ?", (stream,))
        return dict(json.loads(rows[0]["position"])) if rows else {}

    def set_ingest_position(self, stream: str, position: Mapping[str, Any]) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO ingests VALUES (?, ?)", (stream, json.dumps(position))
        )

    def source_files(self, stream: str) -> list[tuple[str, str]]:
        rows = self._rows(
            "SELECT path, identity FROM source_files WHERE stream = ? ORDER BY number", (stream,)
        )
        return [(r["path"], r["identity"]) for r in rows]

    def add_source_files(self, stream: str, files: Sequence[tuple[str, str]]) -> None:
        have = len(self.source_files(stream))
        self._db.executemany(
            "INSERT INTO source_files VALUES (?, ?, ?, ?)",
            [(stream, have + i, path, identity) for i, (path, identity) in enumerate(files)],
        )
