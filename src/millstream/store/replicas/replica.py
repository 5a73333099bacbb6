"""A copy of another processor's home, in a folder: its ledger as of some commit, and all files that
this names.

It is a home at every moment: a page of commits is carried out in one transaction after the files
that it names are there, and a whole ledger takes the place of the former one at once. The ledger's
seal, a digest of all rows, travels with each commit, and is compared with the rows that are here: a
copy that is not what its owner has is taken anew. A whole ledger is checked before it takes the
place of anything, and refused where it is older. Once the copy is fenced it changes no more, and
its owner hears nothing from it.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from millstream.core.errors import DamageError, RefusedError, StateError
from millstream.core.json_files import read_sealed, write_sealed
from millstream.store import faults
from millstream.store.integrity.digests import LENGTH, CheckedFiles, damaged_file
from millstream.store.integrity.scrub import check_ledger
from millstream.store.integrity.seal import Seal, broken
from millstream.store.ledger import Ledger
from millstream.store.ledger_file import LIVES, sealed_tables
from millstream.store.replicas.lives import LEAP, Standing, objection
from millstream.store.replicas.records import (
    ADOPTED,
    FENCED,
    FOLLOWING,
    Commit,
    HomeSource,
    Note,
)
from millstream.store.segments import disk_errors, sync

SWEEP_TURNS = 40
CHECK_TURNS = 400  # until all rows are added up anew, those that nothing has changed as well
NAMING = "INSERT INTO segments"
FILE, STREAM, DIGEST = 3, 0, 12  # of what it is given
NAMED = "SELECT DISTINCT file FROM segments WHERE file IS NOT NULL"
Named = tuple[str, str, str]  # a file, its digest, and a stream whose rows are in it


class DivergedError(StateError):
    """A copy is not what its owner has."""


class Replica:
    """What one follower has of one home."""

    def __init__(
        self,
        folder: Path,
        me: str,
        note: Note | None = None,
        say: Callable[[str], None] = lambda text: None,  # noqa: ARG005
    ) -> None:
        self.folder, self._me, self._say = folder, me, say
        self._ledger, self._note = folder / "ledger.db", folder / "replica.json"
        self._segments = folder / "segments"
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._seal: Seal | None = None
        self._checked = CheckedFiles()
        self._turns = 0
        if note is not None:
            self._segments.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(note)
        self.note = Note(**(read_sealed(self._note, "follow the home anew") or {}))
        self.number, self.rows_sum = self._sealed() if self.note.state != ADOPTED else (0, 0)

    def file(self, name: str) -> Path:
        return self._segments / name

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
        db = self._connection()
        check_ledger(db, self._ledger)  # else one would find out when it is needed
        found = db.execute("SELECT changes, rows_sum FROM seal").fetchone()
        number, rows_sum = int(found[0]), int(found[1])
        self._seal = Seal(db, self._ledger)
        self._seal.resume(number, rows_sum)
        self._seal.follow(sealed_tables())
        return number, rows_sum

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
            if self._seal is not None:
                self._seal.close()
            self._db = self._seal = None

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
        """From now on it stays as it is; nothing more is acknowledged to its owner. One that is
        damaged is no copy: whoever chooses an heir hears so before, not after."""
        with self._lock:
            if self.note.state == FOLLOWING:
                if self.number:
                    check_ledger(self._connection(), self._ledger)
                self._write(replace(self.note, state=FENCED))

    def adopt(self, beyond: int = 0) -> None:
        """It is the home itself from now on, under an epoch that the lost one never had; others
        may know of one that was adopted before, from another copy."""
        with self._lock:
            if self.note.state == ADOPTED:
                return
            if self.note.state != FENCED or not self.number:
                raise RefusedError("busy", f"the copy of {self.note.processor} is not ready")
            self.close()
            home = Ledger(self._ledger)  # checks every row against the seal
            try:
                home.leap(max(LEAP, beyond + LEAP - home.epoch))
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
            try:
                self._take(note, page.commits, source)
            except DivergedError as error:
                self._say(f"{error.message}: it is copied anew")
                return self._take_whole(note, source, page.floor)
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
        page = [(sql, args) for c in commits for sql, args in json.loads(c.statements)]
        named = {a[FILE]: (a[FILE], a[DIGEST], a[STREAM]) for sql, a in page if _names(sql, a)}
        for file in named.values():  # before anybody waits: an owner may go away meanwhile
            with suppress(RefusedError):  # one that is gone by now was removed by a later commit
                self._fetch(file, source)
        with self._lock:
            self._unchanged(note)
            db, seal = self._connection(), self._seal
            assert seal is not None
            db.execute("BEGIN IMMEDIATE")
            try:
                seal.begin()
                self._repeat(db, page)
                last = (commits[-1].number, commits[-1].rows_sum)
                told = db.execute("SELECT changes, rows_sum FROM seal").fetchone()
                # what its owner has written there proves nothing: the rows here are added up
                if tuple(told) != last or seal.following != last[1]:
                    raise self._diverged()
                for file in named:
                    if not (self._segments / file).exists() and _named(db, file):
                        raise RefusedError("unknown", f"file {file} is there no more")
                faults.reach("replica.written")
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            seal.repeated(last[0])
            self.number, self.rows_sum = last
            self._turns += 1
            if self._turns % SWEEP_TURNS == 0:
                self._sweep()
            if self._turns % CHECK_TURNS == 0:
                self._check()
        faults.reach("replica.committed")

    def _repeat(self, db: sqlite3.Connection, page: Sequence[tuple[str, Sequence[Any]]]) -> None:
        try:
            for sql, args in page:
                db.execute(sql, args)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.IntegrityError) or broken(error):
                raise self._diverged() from error
            raise

    def _check(self) -> None:
        try:
            check_ledger(self._connection(), self._ledger)
        except DamageError as damage:
            raise self._diverged() from damage

    def _diverged(self) -> DivergedError:
        return DivergedError(f"the copy of {self.note.processor} is not what its owner has")

    def _take_whole(self, note: Note, source: HomeSource, floor: int) -> int:
        draft = self.folder / "ledger.new"
        draft.unlink(missing_ok=True)
        store_file(draft, source.ledger())
        with closing(sqlite3.connect(draft, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=DELETE")
            named = check_ledger(db, draft)
            arrived = _standing(db)
        self._demand_later(arrived)
        for file in named:
            self._keep_whole(file, source)
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

    def _demand_later(self, arrived: Standing) -> None:
        """Refuses a home that was put back to an earlier state: what came later is here alone."""
        if not self.number:
            return
        try:
            present = _standing(self._connection())
        except sqlite3.DatabaseError:
            return  # nothing of it can be believed
        why = objection(arrived, present)
        if why:
            name = self.note.processor
            raise StateError(
                f"the home of {name} is older than the copy of it in {self.folder}",
                detail=why,
                hint=f"stop {name}, then millstream remove --lost {name}: the copy goes on in its "
                f"place; or, to lose what came later, remove that folder while {self._me} is "
                "stopped",
            )

    def _keep_whole(self, file: Named, source: HomeSource) -> None:
        """Fetches a file unless it lies here as it should. One that is damaged at its owner is done
        without: it is as bad there, and whoever reads it hears so."""
        path = self._segments / file[0]
        try:
            if path.exists():
                self._checked.check(str(path), file[1], file[2])
        except DamageError as damage:
            self._say(f"{damage.message}; it is fetched anew")
            path.unlink(missing_ok=True)
        try:
            self._fetch(file, source)
        except DamageError as damage:
            self._say(f"{damage.message}: {damage.detail}")

    def _fetch(self, file: Named, source: HomeSource) -> None:
        """A file, if it is not here: as the ledger says, not as whoever sends it has it now."""
        name, digest, stream = file
        path = self._segments / name
        if path.exists():
            return
        draft = path.with_suffix(".draft")
        found = store_file(draft, source.file(name))
        if digest and found != digest:
            draft.unlink(missing_ok=True)
            problem = f"its digest at {self.note.processor} is {found}, written was {digest}"
            raise damaged_file(str(path), stream, problem)
        os.replace(draft, path)
        sync(str(path))
        self._checked.written(str(path))

    def _sweep(self) -> None:
        """Files that nobody names any more."""
        named = {row[0] for row in self._connection().execute(NAMED)}
        for path in self._segments.iterdir():
            if path.name not in named:
                with suppress(FileNotFoundError):
                    path.unlink()


def _names(sql: str, args: Sequence[Any]) -> bool:
    """Whether a statement names a file of a segment."""
    return sql.startswith(NAMING) and bool(args[FILE])


def _named(db: sqlite3.Connection, file: str) -> bool:
    found = db.execute("SELECT 1 FROM segments WHERE file = ? LIMIT 1", (file,))
    return found.fetchone() is not None


def _standing(db: sqlite3.Connection) -> Standing:
    kept = dict(db.execute("SELECT key, value FROM meta WHERE key IN ('epoch', ?)", (LIVES,)))
    (commit,) = db.execute("SELECT changes FROM seal").fetchone()
    lives = tuple((int(e), int(after)) for e, after in json.loads(kept.get(LIVES, "[]")))
    return Standing(int(kept["epoch"]), int(commit), lives)


def store_file(path: Path, chunks: Iterable[bytes]) -> str:
    """Writes a file whose digest follows its last byte; gives that."""
    held, digest = b"", hashlib.sha256()
    with disk_errors():
        with path.open("wb") as file:
            for chunk in chunks:
                held += chunk
                data, held = held[:-LENGTH], held[-LENGTH:]
                file.write(data)
                digest.update(data)
        sync(str(path))
    found = digest.hexdigest()[:LENGTH]
    if held != found.encode():
        path.unlink(missing_ok=True)
        raise RefusedError("broken", f"{path.name} came incomplete")
    return found
