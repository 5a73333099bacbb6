"""A copy of another processor's home, in a folder: its ledger as of some commit, and all files that
this names.

It is a home at every moment: a page of commits is carried out in one transaction after the files
that it names are there, and a whole ledger takes the place of the former one at once. The ledger's
seal, a digest of all rows, travels with each commit, so that opening the copy shows whether it is
what the owner had. Once it is fenced it changes no more, and its owner hears nothing from it.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path

from millstream.core.errors import RefusedError, StateError
from millstream.core.json_files import read_sealed, write_sealed
from millstream.store import faults
from millstream.store.integrity.digests import LENGTH
from millstream.store.integrity.scrub import check_ledger
from millstream.store.ledger import Ledger
from millstream.store.replicas.records import (
    ADOPTED,
    FENCED,
    FOLLOWING,
    Commit,
    HomeSource,
    Note,
)
from millstream.store.segments import disk_errors, sync

LEAP = 1000  # an adopted home's epoch is beyond those of processes that have the lost one
SWEEP_TURNS = 40
NAMING = "INSERT INTO segments"
NAMED = "SELECT DISTINCT file FROM segments WHERE file IS NOT NULL"


class Replica:
    """What one follower has of one home."""

    def __init__(self, folder: Path, me: str, note: Note | None = None) -> None:
        self.folder, self._me = folder, me
        self._ledger, self._note = folder / "ledger.db", folder / "replica.json"
        self._segments = folder / "segments"
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._turns = 0
        if note is not None:
            self._segments.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(note)
        self.note = Note(**(read_sealed(self._note, "follow the home anew") or {}))
        self.number, self.rows_sum = self._sealed() if self.note.state != ADOPTED else (0, 0)

    def _write(self, note: Note) -> None:
        write_sealed(self._note, asdict(note))
        self.note = note

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = sqlite3.connect(self._ledger, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
        return self._db

    def _sealed(self) -> tuple[int, int]:
        """The number of the last commit that is here, and the digest of all rows."""
        if not self._ledger.exists():
            return 0, 0
        check_ledger(self._connection(), self._ledger)  # else one would find out when it is needed
        found = self._connection().execute("SELECT changes, rows_sum FROM seal").fetchone()
        return int(found[0]), int(found[1])

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    # -- what a manager says --------------------------------------------------------------------

    def follow(self, url: str, number: int) -> None:
        """Follows under a configuration; a later one than it was fenced under frees it again."""
        with self._lock:
            note = self.note
            if note.state == ADOPTED or number < note.number:
                return
            if note.state == FENCED and number == note.number:
                return
            wanted = replace(note, url=url, number=number, state=FOLLOWING)
            if wanted != note:
                self._write(wanted)

    def fence(self) -> None:
        """From now on it stays as it is; nothing more is acknowledged to its owner."""
        with self._lock:
            if self.note.state == FOLLOWING:
                self._write(replace(self.note, state=FENCED))

    def adopt(self) -> None:
        """It is the home itself from now on, under an epoch that the lost one never had."""
        with self._lock:
            if self.note.state == ADOPTED:
                return
            if self.note.state != FENCED or not self.number:
                raise RefusedError("busy", f"the copy of {self.note.processor} is not ready")
            self.close()
            home = Ledger(self._ledger)  # checks every row against the seal
            try:
                home.leap(LEAP)
            finally:
                home.close()
            faults.reach("replica.leapt")
            self._write(replace(self.note, state=ADOPTED))

    def forget(self) -> None:
        """Nothing of it stays; of a home that was adopted, once nobody runs it."""
        with self._lock:
            self.close()
            self._note.unlink(missing_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- following ------------------------------------------------------------------------------

    def turn(self, source: HomeSource, wait: float = 0.0) -> int:
        """Takes over what is new; gives the number of commits. Each question is an answer, too:
        everything before it lies here."""
        note, number, rows_sum = self.note, self.number, self.rows_sum
        if note.state != FOLLOWING:
            return 0
        page = source.commits(number, rows_sum, self._me, note.number, wait)
        if page.whole:
            return self._take_whole(note, source, page.floor)
        if page.commits:
            self._take(note, page.commits, source)
        if self.number >= page.floor:
            self._completed(note)
        return len(page.commits)

    def _completed(self, note: Note) -> None:
        """All that was told before this configuration is here: noted before anything more is."""
        with self._lock:
            present = self.note
            same = (present.number, present.state) == (note.number, FOLLOWING)
            if same and present.complete < note.number:
                self._write(replace(present, complete=note.number))

    def _unchanged(self, note: Note) -> None:
        if (self.note.number, self.note.state) != (note.number, FOLLOWING):
            raise RefusedError("busy", f"the copy of {note.processor} is followed otherwise by now")

    def _take(self, note: Note, commits: Sequence[Commit], source: HomeSource) -> None:
        with self._lock:
            self._unchanged(note)
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            fresh: set[str] = set()
            try:
                for commit in commits:
                    for sql, args in json.loads(commit.statements):
                        db.execute(sql, args)
                        if sql.startswith(NAMING) and args[3]:
                            fresh.add(args[3])
                found = db.execute("SELECT changes, rows_sum FROM seal").fetchone()
                if tuple(found) != (commits[-1].number, commits[-1].rows_sum):
                    raise StateError(f"the copy of {note.processor} is not what its owner has")
                still = {f for f in fresh if _named(db, f)}
                self._fetch(still, source)
                faults.reach("replica.written")
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            self.number, self.rows_sum = commits[-1].number, commits[-1].rows_sum
            self._turns += 1
            if self._turns % SWEEP_TURNS == 0:
                self._sweep()
        faults.reach("replica.committed")

    def _take_whole(self, note: Note, source: HomeSource, floor: int) -> int:
        draft = self.folder / "ledger.new"
        draft.unlink(missing_ok=True)
        _store(draft, source.ledger())
        with closing(sqlite3.connect(draft, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=DELETE")
            named = [row[0] for row in db.execute(NAMED)]
        self._fetch(named, source)
        with self._lock:
            self._unchanged(note)
            self.close()
            for rest in ("ledger.db-wal", "ledger.db-shm", "ledger.db-journal", "ledger.db-water"):
                (self.folder / rest).unlink(missing_ok=True)
            os.replace(draft, self._ledger)
            sync(str(self._ledger))
            self.number, self.rows_sum = self._sealed()
            self._sweep()
        if self.number >= floor:
            self._completed(note)
        faults.reach("replica.whole")
        return 1

    def _fetch(self, names: Iterable[str], source: HomeSource) -> None:
        for name in names:
            path = self._segments / name
            if not path.exists():
                draft = path.with_suffix(".draft")
                _store(draft, source.file(name))
                os.replace(draft, path)
                sync(str(path))

    def _sweep(self) -> None:
        """Files that nobody names any more."""
        named = {row[0] for row in self._connection().execute(NAMED)}
        for path in self._segments.iterdir():
            if path.name not in named:
                with suppress(FileNotFoundError):
                    path.unlink()


def _named(db: sqlite3.Connection, file: str) -> bool:
    return (
        db.execute("SELECT 1 FROM segments WHERE file = ? LIMIT 1", (file,)).fetchone() is not None
    )


def _store(path: Path, chunks: Iterable[bytes]) -> None:
    """Writes a file whose digest follows its last byte."""
    held, digest = b"", hashlib.sha256()
    with disk_errors():
        with path.open("wb") as file:
            for chunk in chunks:
                held += chunk
                data, held = held[:-LENGTH], held[-LENGTH:]
                file.write(data)
                digest.update(data)
        sync(str(path))
    if held != digest.hexdigest()[:LENGTH].encode():
        path.unlink(missing_ok=True)
        raise RefusedError("broken", f"{path.name} came incomplete")
