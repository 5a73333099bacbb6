"""The ledger's file: its tables, its transactions, and the process that may write it.

Every transaction checks the epoch, so that a processor whose home was adopted by another can commit
nothing more. What the tables mean is the ledger's matter and that of modules with own tables here.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol, Self

from millstream.core.errors import ResourceError, StateError
from millstream.store.integrity.seal import (
    PRIMARY_CODE,
    SEAL,
    Seal,
    broken,
    check_pages,
    damaged,
    tables_of,
)

VERSION = 3
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE streams (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, next INTEGER NOT NULL, watermark INTEGER NOT NULL,
  ts_max INTEGER NOT NULL, rows INTEGER NOT NULL, retained_from INTEGER NOT NULL,
  columns TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE segments (
  stream TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, file TEXT, tag INTEGER,
  rows INTEGER NOT NULL, size INTEGER NOT NULL, ts_min INTEGER NOT NULL, ts_max INTEGER NOT NULL,
  until_max INTEGER NOT NULL, watermark INTEGER NOT NULL, arrived REAL NOT NULL,
  digest TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (stream, first)) WITHOUT ROWID;
CREATE INDEX segments_by_file ON segments (file);
CREATE TABLE operators (
  id TEXT PRIMARY KEY, progress TEXT NOT NULL, rows_in INTEGER NOT NULL, rows_out INTEGER NOT NULL,
  steps INTEGER NOT NULL, seconds REAL NOT NULL, shared REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE cursors (
  kind TEXT NOT NULL, consumer TEXT NOT NULL, stream TEXT NOT NULL, next INTEGER NOT NULL,
  watermark INTEGER NOT NULL, PRIMARY KEY (kind, consumer, stream)) WITHOUT ROWID;
CREATE TABLE queries (
  name TEXT PRIMARY KEY, cql TEXT NOT NULL, start INTEGER NOT NULL, stream TEXT NOT NULL,
  state TEXT NOT NULL, reason TEXT NOT NULL, registered REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE ingests (stream TEXT PRIMARY KEY, position TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE source_files (
  stream TEXT NOT NULL, number INTEGER NOT NULL, path TEXT NOT NULL, identity TEXT NOT NULL,
  PRIMARY KEY (stream, number)) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE layouts (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE INDEX layouts_by_text ON layouts (text);
CREATE TABLE declared (
  name TEXT PRIMARY KEY, definition TEXT NOT NULL, ingest INTEGER NOT NULL,
  started INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE hosted (
  query TEXT NOT NULL, operator TEXT NOT NULL, PRIMARY KEY (query, operator)) WITHOUT ROWID;
CREATE TABLE kept_results (query TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE owned (
  stream TEXT PRIMARY KEY, epoch INTEGER NOT NULL, since INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE handed (
  stream TEXT NOT NULL, next INTEGER NOT NULL, epoch INTEGER NOT NULL, processor TEXT NOT NULL,
  url TEXT NOT NULL, PRIMARY KEY (stream, next)) WITHOUT ROWID;
CREATE TABLE copies (
  stream TEXT PRIMARY KEY, processor TEXT NOT NULL, url TEXT NOT NULL, epoch INTEGER NOT NULL,
  home_epoch INTEGER NOT NULL, next INTEGER, kept INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE farewells (
  stream TEXT NOT NULL, processor TEXT NOT NULL, url TEXT NOT NULL,
  PRIMARY KEY (stream, processor)) WITHOUT ROWID;
CREATE TABLE last_rows (stream TEXT PRIMARY KEY, ts_max INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE moves (
  move TEXT PRIMARY KEY, role TEXT NOT NULL, phase TEXT NOT NULL, record TEXT NOT NULL)
  WITHOUT ROWID;
"""


# From each format to the next, by its number, from the oldest that is still opened. Format 3 came
# with digests, which segments get from their files (`streams.py`), and with the seal.
STEPS = {
    2: "ALTER TABLE segments ADD COLUMN digest TEXT NOT NULL DEFAULT ''; " + SEAL,
}
SEALED_SINCE = 3


class HomeTakenOverError(StateError):
    """Another process has opened this home since: this one can commit nothing more."""


LIVES = "lives"  # where it keeps the epochs of its last lives, and after which commit each began
LIVES_KEPT = 100
READING = ("SELECT", "PRAGMA", "BEGIN", "COMMIT", "ROLLBACK")


class Connection(sqlite3.Connection):
    """Notes the statements that change something, while somebody wants to repeat them."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.noted: list[tuple[str, Any]] = []

    def record(self, *, on: bool) -> None:
        """Its own methods stand in the way of nobody while it is off."""
        self.noted.clear()
        for name, method in (("execute", self._one), ("executemany", self._many)):
            if on:
                self.__dict__[name] = method
            else:
                self.__dict__.pop(name, None)

    def _one(self, sql: str, args: Sequence[Any] = ()) -> sqlite3.Cursor:
        if not sql.startswith(READING):
            self.noted.append((sql, list(args)))
        return super().execute(sql, args)

    def _many(self, sql: str, rows: Sequence[Sequence[Any]]) -> sqlite3.Cursor:
        self.noted += [(sql, list(row)) for row in rows]
        return super().executemany(sql, rows)


class Safety(Protocol):
    """Who knows whether others have what was committed."""

    def demand(self) -> None:
        """Returns when all of it is as safe as is wanted; raises where that takes too long."""
        ...


class LedgerFile:
    """One connection, used under a lock: SQLite serialises writers anyway."""

    def __init__(self, path: Path, *, local_disk: bool = True) -> None:
        self._lock = threading.RLock()
        self._forget()
        self._published: set[str] = set()
        self.on_drop: list[Callable[[str], None]] = []  # told inside the transaction
        self.on_publish: list[Callable[[frozenset[str]], None]] = []  # told after each commit
        self.safety: Safety | None = None  # of a home that may be kept at several processors
        self.on_commit: Callable[[list[tuple[str, Any]]], None] | None = None  # told how, in order
        self._db = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, factory=Connection
        )
        self._db.row_factory = sqlite3.Row
        self._seal = Seal(self._db, path)
        self.path = path
        try:
            self._open(local_disk=local_disk)
        except sqlite3.DatabaseError as error:
            self.close()
            if broken(error, opening=True):
                raise damaged(path, str(error)) from error
            raise
        except BaseException:
            self.close()
            raise

    def _open(self, *, local_disk: bool) -> None:
        # WAL needs shared memory, which network file systems lack.
        self._db.execute(f"PRAGMA journal_mode={'WAL' if local_disk else 'DELETE'}")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA busy_timeout=10000")
        self._db.execute("PRAGMA wal_autocheckpoint=1000")
        tables = sealed_tables()
        with self._lock:
            if not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
                self._seal.check_age(0)
                first = f"INSERT INTO meta VALUES ('version', '{VERSION}'), ('epoch', '0');"
                self._db.executescript("BEGIN;" + SCHEMA + SEAL + first)  # all or nothing
                self._seal.start(tables)
                self._db.execute("COMMIT")
            check_pages(self._db, self.path)
            self._upgrade(tables)
        self._seal.follow(tables)
        with self._write(self._seal.check, tables):
            self._begin_life(int(self.meta("epoch") or 0) + 1)

    def _begin_life(self, epoch: int) -> None:
        """From here on its commits are those of an epoch; noted for whoever has an older copy."""
        self.epoch = epoch
        lives = [*json.loads(self.meta(LIVES) or "[]"), [epoch, self._seal.changes]]
        self._db.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (str(epoch),))
        self.set_meta(LIVES, json.dumps(lives[-LIVES_KEPT:]))

    def _upgrade(self, tables: dict[str, list[str]]) -> None:
        """Brings a ledger of an older format to this one: all steps, or none of them."""
        found = self.meta("version") or ""
        if found == str(VERSION):
            return
        if not found.isdigit() or int(found) not in STEPS:
            raise StateError(
                f"ledger {self.path} has format {found}, this version reads "
                f"{min(STEPS)} to {VERSION}",
                hint="use the version of Millstream that wrote it, or start with an empty folder",
            )
        if int(found) >= SEALED_SINCE:
            self._seal.check(tables_of(self._db))
        steps = "".join(STEPS[version] + ";" for version in range(int(found), VERSION))
        try:
            self._db.executescript("BEGIN IMMEDIATE;" + steps)
            self._db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (str(VERSION),))
            self._seal.renew(tables)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        with self._lock:
            self._db.close()
            self._seal.close()

    def _forget(self) -> None:
        """Called first, and whenever a change was taken back: nothing kept in memory is true."""

    @property
    def changes(self) -> int:
        """How many commits have changed something."""
        return self._seal.changes

    @property
    def sealed(self) -> tuple[int, int]:
        """The number of the last commit, and the digest of all rows after it."""
        return self._seal.changes, self._seal.rows_sum

    def record(self, *, on: bool) -> None:
        """Whether statements that change something are noted for `on_commit`."""
        self._db.record(on=on)

    def copy_to(self, path: Path) -> None:
        """All of it as it is now, into another file."""
        with self._lock, closing(sqlite3.connect(path)) as copy:
            self._db.backup(copy)

    def leap(self, step: int) -> None:
        """Takes an epoch that no process of another copy of this home will come to."""
        with self.transaction():
            self._begin_life(self.epoch + step)

    # -- transactions ---------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """One atomic change; refused when another process has taken over this home."""
        with self._write():
            held = self.meta("epoch")
            if held != str(self.epoch):
                raise HomeTakenOverError(
                    "another process has taken over this home",
                    detail=f"its epoch is {held}, ours is {self.epoch}",
                )
            yield self

    @contextmanager
    def _write(self, first: Callable[..., None] | None = None, *args: Any) -> Iterator[None]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._published = set()
                self._db.noted.clear()
                self._seal.begin()
                try:
                    if first is not None:
                        first(*args)
                    yield
                    self._seal.write()
                    self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:  # on a full disk SQLite has rolled back itself
                        self._db.execute("ROLLBACK")
                    self._forget()
                    raise
                changed = self._seal.committed()
                if changed and self.on_commit is not None:
                    self.on_commit(list(self._db.noted))
            except sqlite3.DatabaseError as error:
                if broken(error):
                    raise damaged(self.path, str(error)) from error
                code = error.sqlite_errorcode & PRIMARY_CODE
                if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                    full = code == sqlite3.SQLITE_FULL
                    raise ResourceError(
                        "the disk is full" if full else "the disk has failed",
                        detail=f"the ledger could not be written: {error}",
                        hint="free some space and run the same command again: nothing is lost",
                    ) from error
                raise
            published = frozenset(self._published)
        if published:
            for listener in self.on_publish:
                listener(published)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else reads or writes meanwhile; not a transaction."""
        with self._lock:
            yield

    def rows(self, sql: str, args: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """For modules that keep tables of their own here."""
        return self._rows(sql, args)

    def change(self, sql: str, args: Sequence[Any] = ()) -> None:
        """The same, inside a transaction."""
        self._db.execute(sql, args)

    def _rows(self, sql: str, args: Sequence[Any] = ()) -> list[sqlite3.Row]:
        with self._lock:
            try:
                return self._db.execute(sql, args).fetchall()
            except sqlite3.DatabaseError as error:
                if broken(error):
                    raise damaged(self.path, str(error)) from error
                raise

    def size_bytes(self) -> int:
        """Bytes of all pages in use, whether they lie in the file or still in its log."""
        (pages,), (free,), (size,) = (
            self._rows(f"PRAGMA {name}")[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (int(pages) - int(free)) * int(size)

    # -- meta -----------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        rows = self._rows("SELECT value FROM meta WHERE key = ?", (key,))
        return str(rows[0]["value"]) if rows else None

    def set_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def drop_meta(self, key: str) -> None:
        self._db.execute("DELETE FROM meta WHERE key = ?", (key,))

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a durable counter."""
        if by:
            self._db.execute(
                "INSERT INTO counters VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
                (name, by),
            )

    def counters(self) -> dict[str, int]:
        return {r["name"]: r["value"] for r in self._rows("SELECT * FROM counters")}


@cache
def sealed_tables() -> dict[str, list[str]]:
    """The ledger's own tables and their columns."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        return tables_of(db)
