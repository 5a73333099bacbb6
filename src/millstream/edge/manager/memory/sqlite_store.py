"""What a manager remembers, in one SQLite file: written before anything it decided is said.

Records are JSON by kind and key; a save writes those that differ from the state before, in one
transaction. Opening raises the manager's epoch first, so that messages of its former life are
refused, and gives this life a lineage: processors tell by it who gave them what they have. The file
has a seal as a ledger has: what is damaged, or has lost commits, is refused. Decides nothing.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from millstream.control.manager.state import ManagerState, Settings
from millstream.core.errors import ResourceError, StateError
from millstream.edge.manager.memory.records import begun, between, read
from millstream.store.integrity.seal import (
    SEAL,
    STORE,
    STORE_VERSION,
    Seal,
    broken,
    check_pages,
    damaged,
    tables_of,
)

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE records (kind TEXT, key TEXT, value TEXT, PRIMARY KEY (kind, key)) WITHOUT ROWID;
"""
VERSION = STORE_VERSION
# From each version to the next, by its number: SQL over `meta` and `records`, from the oldest that
# is still opened. A field that was added with a default needs no step.
STEPS: Mapping[int, str] = {2: SEAL}
SEALED_SINCE = 3


class ManagerStore:
    """One file; one manager has it open at a time (its folder is locked)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._seal = Seal(self._db, path, STORE)
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self.close()
            if broken(error, opening=True):
                raise damaged(path, str(error), STORE) from None
            raise ResourceError(
                f"{path} cannot be opened",
                detail=str(error),
                hint="see that its folder can be written and that its disk has space",
            ) from None
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        if not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
            self._seal.check_age(0)
            first = f"INSERT INTO meta VALUES ('version', '{VERSION}');"
            self._db.executescript("BEGIN;" + SCHEMA + SEAL + first)  # all or nothing
            self._seal.start(tables_of(self._db))
            self._db.execute("COMMIT")
        check_pages(self._db, self._path, STORE)
        self._upgrade()
        tables = tables_of(self._db)
        self._seal.check(tables)
        self._seal.follow(tables)

    def _upgrade(self) -> None:
        """Brings the records of an older version to this one: all steps, or none of them."""
        known = self._meta("version", str(VERSION))
        if known == str(VERSION):
            return
        if not known.isdigit() or int(known) not in STEPS:
            raise StateError(
                f"{self._path} has format {known}, this version reads "
                f"{min(STEPS, default=VERSION)} to {VERSION}",
                hint="use the version of Millstream that wrote it, or start with an empty folder",
            )
        if int(known) >= SEALED_SINCE:
            self._seal.check(tables_of(self._db))
        steps = "".join(STEPS[version] + ";" for version in range(int(known), VERSION))
        try:
            self._db.executescript("BEGIN IMMEDIATE;" + steps)
            self._set_meta("version", str(VERSION))
            self._seal.renew(tables_of(self._db))
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _write(self) -> Iterator[None]:
        """One transaction, with what the seal says of it."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._seal.begin()
            try:
                yield
                self._seal.write()
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._seal.committed()
        except sqlite3.DatabaseError as error:
            if broken(error):
                raise damaged(self._path, str(error), STORE) from None
            raise ResourceError(
                f"{self._path} cannot be written", detail=str(error),
                hint="free some space, or see that the disk works",
            ) from error  # fmt: skip

    def close(self) -> None:
        self._db.close()
        self._seal.close()

    def load(self, settings: Settings) -> ManagerState:
        """The durable half as it was, under an epoch that was never used."""
        with self._write():
            self._set_meta("version", str(VERSION))
            for key, value in begun(self._words()).items():
                self._set_meta(key, value)
        rows = self._db.execute("SELECT kind, key, value FROM records")
        hint = f"{STORE.kept}, {STORE.otherwise}"
        return read(self._words(), rows, settings, place=str(self._path), hint=hint)

    def save(self, before: ManagerState, after: ManagerState) -> None:
        """Writes what has changed between two states."""
        changes = between(before, after)
        if changes is None:
            return
        with self._write():
            for kind, key, record in changes.records:
                if record is None:
                    self._db.execute("DELETE FROM records WHERE kind = ? AND key = ?", (kind, key))
                else:
                    self._db.execute(
                        "INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (kind, key, record)
                    )
            for word, value in changes.words.items():
                self._set_meta(word, value)

    def _words(self) -> dict[str, str]:
        return {str(key): str(value) for key, value in self._db.execute("SELECT * FROM meta")}

    def _meta(self, key: str, otherwise: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else otherwise

    def _set_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
