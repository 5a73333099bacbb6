"""What a manager remembers, in one SQLite file: written before anything it decided is said.

Records are JSON by kind and key; a save writes those that differ from the state before, in one
transaction. Opening raises the manager's epoch first, so that messages of its former life are
refused, and gives this life a lineage: processors tell by it who gave them what they have. The file
has a seal as a ledger has: what is damaged, or has lost commits, is refused. Decides nothing.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_type_hints
from uuid import uuid4

from millstream.control.manager.state import (
    DURABLE,
    LIVES_KEPT,
    Decision,
    ManagerState,
    Settings,
)
from millstream.core.codec import from_json, to_json
from millstream.core.errors import ResourceError, StateError, UsageError
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

# What each durable table of the state holds.
KINDS: Mapping[str, type[Any]] = {
    kind: get_args(table)[1]
    for kind, table in get_type_hints(ManagerState).items()
    if kind in DURABLE
}
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
        epoch = int(self._meta("epoch", "0")) + 1
        lives = (*json.loads(self._meta("lives", "[]")), self._meta("lineage", ""))
        lives = tuple(life for life in lives if life)[-LIVES_KEPT:]
        lineage, revision = uuid4().hex, int(self._meta("revision", "0"))
        with self._write():
            self._set_meta("version", str(VERSION))
            self._set_meta("epoch", str(epoch))
            self._set_meta("lineage", lineage)
            self._set_meta("lives", json.dumps(lives))
        tables: dict[str, Any] = {kind: {} for kind in KINDS}
        decisions: list[Decision] = []
        for kind, key, value in self._db.execute("SELECT kind, key, value FROM records"):
            try:
                if kind == "decisions":
                    decisions.append(from_json(Decision, json.loads(value)))
                elif kind in KINDS:
                    tables[kind][key] = from_json(KINDS[kind], json.loads(value))
            except (UsageError, ValueError) as error:
                raise StateError(
                    f"{self._path} has a broken record: {kind} {key}",
                    detail=str(error),
                    hint=f"{STORE.kept}, {STORE.otherwise}",
                ) from None
        order = json.loads(self._meta("order", "{}"))
        for kind, keys in order.items():  # the order of arrival is part of the meaning
            known = tables[kind]
            tables[kind] = {k: known[k] for k in [*keys, *known] if k in known}
        decisions.sort(key=lambda d: d.number)
        counter = max([int(self._meta("counter", "0")), *(d.number for d in decisions)])
        return ManagerState(
            epoch=epoch,
            lineage=lineage,
            lives=lives,
            revision=revision,
            loaded=revision,
            settings=settings,
            **tables,
            decisions=tuple(decisions),
            counter=counter,
        )

    def save(self, before: ManagerState, after: ManagerState) -> None:
        """Writes what has changed between two states."""
        changes: list[tuple[str, str, Any]] = []
        for kind in DURABLE:
            changes += _changes(kind, getattr(before, kind), getattr(after, kind))
        if after.decisions is not before.decisions:
            old = {str(d.number): d for d in before.decisions}
            new = {str(d.number): d for d in after.decisions}
            changes += _changes("decisions", old, new)
        life = (after.epoch, after.lineage)
        taken = life != (before.epoch, before.lineage)
        if not changes and after.counter == before.counter and not taken:
            return
        with self._write():
            for kind, key, record in changes:
                if record is None:
                    self._db.execute("DELETE FROM records WHERE kind = ? AND key = ?", (kind, key))
                else:
                    self._db.execute(
                        "INSERT OR REPLACE INTO records VALUES (?, ?, ?)",
                        (kind, key, json.dumps(to_json(record))),
                    )
            if taken:
                self._set_meta("epoch", str(after.epoch))
                self._set_meta("lineage", after.lineage)
                self._set_meta("lives", json.dumps(after.lives))
            if after.revision != before.revision:
                self._set_meta("revision", str(after.revision))
            if after.counter != before.counter:
                self._set_meta("counter", str(after.counter))
            if {kind for kind, _, _ in changes} & {"queries", "moves"}:
                order = {"queries": list(after.queries), "moves": list(after.moves)}
                self._set_meta("order", json.dumps(order))

    def _meta(self, key: str, otherwise: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else otherwise

    def _set_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def _changes(
    kind: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[tuple[str, str, Any]]:
    if before is after:
        return []
    found = [(kind, k, v) for k, v in after.items() if before.get(k) is not v]
    return found + [(kind, k, None) for k in before if k not in after]
