"""The seal of a ledger or a manager's store: SQLite finds broken pages, this finds changed rows and
lost commits.

Every commit counts and carries the sum of the digests of all rows in all tables. Opening the file
adds the rows up again: a bit that has changed in a row is found whatever it means. The count of the
last commit also lies in a small file beside it, written without a sync: one that has lost commits,
because its log was damaged or an old copy was put in its place, is older than that file says. After
a loss of power the small file may be the older one, which is harmless.
"""

import os
import sqlite3
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.core.errors import DamageError

SEAL = "CREATE TABLE seal (changes INTEGER NOT NULL, rows_sum INTEGER NOT NULL);"
MODULUS = 1 << 62
PRIMARY_CODE = 0xFF  # of SQLite's error codes, without what says more


@dataclass(frozen=True, slots=True)
class Sealed:
    """A kind of file that has a seal, and what to do where it is damaged."""

    name: str
    kept: str
    otherwise: str
    price: str  # of going on from an older state


LEDGER = Sealed(
    "ledger",
    "keep the folder as it is, and put a copy of ledger.db and segments from one moment in place",
    "or start with an empty folder: delivered files stay as they are",
    "at the price of results that may repeat",
)
STORE_VERSION = 3  # of a manager's store
STORE = Sealed(
    "manager's store",
    "keep the folder as it is, and put a copy of manager.db in place",
    "or start with an empty folder: processors report to a new manager what they run",
    "which processors then complete",
)


class Seal:
    """Follows every change of the rows of one connection. Used under its owner's lock."""

    def __init__(self, db: sqlite3.Connection, path: Path, kind: Sealed = LEDGER) -> None:
        self._db, self._path, self._kind = db, path, kind
        self._water = Water(Path(f"{path}-water"))
        self._sum = self.changes = 0  # as committed
        self._delta, self._noted = 0, False  # of the transaction under way

    def follow(self, tables: dict[str, list[str]]) -> None:
        """From now on every change of a row is noted; the triggers are this connection's own."""
        self._db.create_function("millstream_added", -1, self._added)
        self._db.create_function("millstream_gone", -1, self._gone)
        self._db.create_function("millstream_changed", -1, self._changed)
        self._db.execute("PRAGMA recursive_triggers=ON")  # else REPLACE removes rows unseen
        for table, columns in tables.items():
            new, old = (", ".join(f"{side}.{c}" for c in columns) for side in ("NEW", "OLD"))
            for event, call in (
                ("INSERT", f"millstream_added('{table}', {new})"),
                ("DELETE", f"millstream_gone('{table}', {old})"),
                ("UPDATE", f"millstream_changed('{table}', {old}, '{table}', {new})"),
            ):
                self._db.execute(
                    f"CREATE TEMP TRIGGER seal_{table}_{event} AFTER {event} ON main.{table} "
                    f"BEGIN SELECT {call}; END"
                )

    def _added(self, *row: Any) -> None:
        self._delta += row_digest(row)
        self._noted = True

    def _gone(self, *row: Any) -> None:
        self._delta -= row_digest(row)
        self._noted = True

    def _changed(self, *rows: Any) -> None:
        """The row as it was, and as it is."""
        half = len(rows) // 2
        self._delta += row_digest(rows[half:]) - row_digest(rows[:half])
        self._noted = True

    def begin(self) -> None:
        self._delta, self._noted = 0, False

    def write(self) -> None:
        """The last statement of a transaction that has changed anything."""
        if self._noted:
            after = (self._sum + self._delta) % MODULUS
            self._db.execute("UPDATE seal SET changes = ?, rows_sum = ?", (self.changes + 1, after))

    def committed(self) -> bool:
        """Says whether anything was changed."""
        if self._noted:
            self._sum = (self._sum + self._delta) % MODULUS
            self.changes += 1
            self._water.rise(self.changes)
        return self._noted

    @property
    def rows_sum(self) -> int:
        return self._sum

    @property
    def following(self) -> int:
        """The digest of all rows with what the transaction under way has changed so far."""
        return (self._sum + self._delta) % MODULUS

    def repeated(self, changes: int) -> None:
        """The transaction, which is committed, was that of another file up to its last commit."""
        self._sum, self.changes, self._delta = self.following, changes, 0
        self._water.rise(changes)

    def resume(self, changes: int, rows_sum: int) -> None:
        """Goes on from a seal that has just been checked."""
        self.changes, self._sum = changes, rows_sum

    def start(self, tables: dict[str, list[str]]) -> None:
        """Seals a ledger that has no seal yet (inside a transaction)."""
        self._db.execute("INSERT INTO seal VALUES (0, ?)", (self._added_up(tables),))

    def renew(self, tables: dict[str, list[str]]) -> None:
        """Seals a ledger whose tables have changed (inside a transaction); the count goes on."""
        changes = self._db.execute("SELECT coalesce(max(changes), 0) FROM seal").fetchone()[0]
        self._db.execute("DELETE FROM seal")
        self._db.execute("INSERT INTO seal VALUES (?, ?)", (changes, self._added_up(tables)))

    def check(self, tables: dict[str, list[str]], water: int | None = None) -> None:
        """Takes over the seal; refuses rows that are not those it was made for."""
        found = self._db.execute("SELECT changes, rows_sum FROM seal").fetchall()
        if len(found) != 1 or self._added_up(tables) != found[0][1]:
            raise damaged(self._path, "its rows are not those that were committed", self._kind)
        self.changes, self._sum = int(found[0][0]), int(found[0][1])
        self.check_age(self.changes, water)

    def water_level(self) -> int:
        """How many commits there were, as the file beside the ledger says."""
        return self._water.level()

    def check_age(self, changes: int, water: int | None = None) -> None:
        water = self.water_level() if water is None else water
        if water > changes:
            raise DamageError(
                f"{self._kind.name} {self._path} is older than the files beside it",
                file=str(self._path),
                detail=f"it holds {changes} commits, there were {water}; nothing was removed",
                hint=f"{self._kind.kept}; to continue from the older state, {self._kind.price}, "
                f"remove {self._path}-water",
            )

    def _added_up(self, tables: dict[str, list[str]]) -> int:
        total = 0
        for table, columns in tables.items():
            rows = self._db.execute(f"SELECT {', '.join(columns)} FROM main.{table}")
            total += sum(row_digest((table, *row)) for row in rows)
        return total % MODULUS

    def close(self) -> None:
        self._water.close()


def row_digest(row: tuple[Any, ...]) -> int:
    """A number that says what is in a row.

    >>> row_digest(("cursors", 4)) == row_digest(("cursors", 5))
    False
    """
    data = repr(row).encode()
    return zlib.crc32(data) << 32 | zlib.adler32(data)


def check_pages(db: sqlite3.Connection, path: Path, kind: Sealed = LEDGER) -> None:
    """Refuses a file whose pages or indexes SQLite finds broken."""
    first = str(db.execute("PRAGMA integrity_check(1)").fetchone()[0])
    if first != "ok":
        raise damaged(path, " ".join(first.split()), kind)


def damaged(path: Path, problem: str, kind: Sealed = LEDGER) -> DamageError:
    return DamageError(
        f"{kind.name} {path} is damaged",
        file=str(path),
        detail=f"{problem}; nothing was removed",
        hint=f"{kind.kept}, {kind.otherwise}",
    )


def broken(error: sqlite3.DatabaseError, *, opening: bool = False) -> bool:
    """Whether SQLite says that the file itself is no good; when it is opened, also where it does
    not know our tables or columns: a name may have changed like any other byte."""
    code = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
    unknown = opening and code == sqlite3.SQLITE_ERROR
    return unknown or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def tables_of(db: sqlite3.Connection) -> dict[str, list[str]]:
    """The tables of a file and their columns, without the seal itself."""
    found = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'seal'")
    names = sorted(row[0] for row in found.fetchall())
    return {n: [c[1] for c in db.execute(f"PRAGMA table_info({n})")] for n in names}


class Water:
    """A number that only rises, in a file of its own; not synced, and checked when it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def level(self) -> int:
        """The number; 0 where the file is missing or cannot be believed."""
        try:
            text, check = self._path.read_text(encoding="ascii").split()
            return int(text) if int(check) == zlib.crc32(text.encode()) else 0
        except (OSError, ValueError):
            return 0

    def rise(self, number: int) -> None:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        text = f"{number:020d}"
        os.pwrite(self._file, f"{text} {zlib.crc32(text.encode()):010d}\n".encode(), 0)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
