"""Reads everything that a home holds and says what is not as it was written. Changes nothing.

A home may be in use meanwhile: the ledger is only read, and a file that has gone because nobody
needs it any more is not missed. Decides nothing about what to do: every finding has its remedy.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from millstream.core.errors import DamageError, StateError, UsageError
from millstream.core.json_files import read_sealed
from millstream.store.integrity.delivered import differences, folders_in, without_digest
from millstream.store.integrity.digests import REMEDY, CheckedFiles
from millstream.store.integrity.mended import Mended, mended_in
from millstream.store.integrity.seal import (
    LEDGER,
    STORE,
    STORE_VERSION,
    Seal,
    Sealed,
    check_pages,
    damaged,
    tables_of,
)
from millstream.store.integrity.set_aside import FOLDER as SET_ASIDE
from millstream.store.ledger_file import VERSION, sealed_tables

STATE = ".millstream"  # the home inside the folder of a run
NOTE_REMEDY = "put the file back from a copy"
DELIVERED_REMEDY = (
    "put the file back from a copy; or run the job again into an empty --out folder: the same "
    "input gives the same rows"
)
Tell = Callable[[int, int], None]  # files that are done, files that there are


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written."""

    file: str
    problem: str
    remedy: str


@dataclass(slots=True)
class Report:
    home: str
    kind: str = LEDGER.name  # what `ledger` is about
    ledger: str = "ok"
    segments: int = 0  # files of segments that were read
    delivered: int = 0  # delivered files that were read
    unchecked: int = 0  # files without a digest
    set_aside: int = 0  # files that no ledger names, kept for a while
    findings: list[Finding] = field(default_factory=list)
    mended: list[Mended] = field(default_factory=list)  # what was damaged and is right again


def home_of(place: Path) -> Path:
    """The home that a place is, or that the run in it has."""
    for home in (place, place / STATE):
        if (home / "ledger.db").exists() or (home / "ledger.db-water").exists():
            return home
    raise UsageError(
        f"{place} is not a home",
        hint="the --home of a processor or a manager, or the --out folder of a run",
    )


def scrub(place: Path, tell: Tell = lambda done, total: None) -> Report:  # noqa: ARG005
    """Checks the ledger, then every segment that it names, then what was delivered beside it; of a
    manager, its store."""
    store = place / "manager.db"
    if store.exists() or Path(f"{store}-water").exists():
        return _scrubbed_store(store)
    home = home_of(place)
    report = Report(str(home))
    folders = folders_in(place) if home != place else []
    aside = home / SET_ASIDE
    report.set_aside = sum(1 for p in aside.rglob("*") if p.is_file()) if aside.is_dir() else 0
    ledger = home / "ledger.db"
    try:
        with closing(sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True)) as db:
            named = check_ledger(db, ledger)
            _check_segments(db, named, home, report, tell)
    except DamageError as error:
        _found_in_ledger(report, error)
    except sqlite3.DatabaseError as error:
        _found_in_ledger(report, damaged(ledger, str(error)))
    _check_notes(home, report)
    report.mended = mended_in(home)
    for folder in folders:
        report.unchecked += len(without_digest(folder))
        for path, problem in differences(folder):
            report.delivered += 1
            if problem:
                report.findings.append(Finding(str(path), problem, DELIVERED_REMEDY))
    return report


def _check_notes(home: Path, report: Report) -> None:
    """Small files beside the ledger."""
    for path in sorted(home.glob("*.json")):
        try:
            read_sealed(path, NOTE_REMEDY)
        except DamageError as error:
            report.findings.append(Finding(error.file, error.detail, error.hint))
        except StateError as error:
            report.findings.append(Finding(str(path), f"{error}", NOTE_REMEDY))


def _scrubbed_store(path: Path) -> Report:
    report = Report(str(path.parent), STORE.name)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            seal = Seal(db, path, STORE)
            water = seal.water_level()  # first: the manager may go on meanwhile
            db.execute("BEGIN")
            check_pages(db, path, STORE)
            _check_format(db, path, STORE, STORE_VERSION)
            seal.check(tables_of(db), water)
    except DamageError as error:
        _found_in_ledger(report, error)
    except sqlite3.DatabaseError as error:
        _found_in_ledger(report, damaged(path, str(error), STORE))
    return report


def _check_format(db: sqlite3.Connection, path: Path, kind: Sealed, version: int) -> None:
    (found,) = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone() or ("",)
    if found != str(version):
        raise UsageError(
            f"{kind.name} {path} has format {found}, this version checks {version}",
            hint="open the home once with this version: it adds what is missing",
        )


def _found_in_ledger(report: Report, error: DamageError) -> None:
    report.ledger = "damaged"
    problem = f"{error.message}: {error.detail}"
    report.findings.append(Finding(error.file, problem, error.hint))


def check_ledger(db: sqlite3.Connection, path: Path) -> list[tuple[str, str, str]]:
    """Refuses a ledger that is damaged or has lost commits; gives file, digest and a stream."""
    seal = Seal(db, path)
    water = seal.water_level()  # first: the ledger may go on meanwhile
    db.execute("BEGIN")
    check_pages(db, path)
    if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
        seal.check_age(0, water)
        return []
    _check_format(db, path, LEDGER, VERSION)
    seal.check(sealed_tables(), water)
    found = db.execute(
        "SELECT file, max(digest), min(stream) FROM segments WHERE file IS NOT NULL "
        "GROUP BY file ORDER BY file"
    ).fetchall()
    db.execute("COMMIT")
    return found


def _check_segments(
    db: sqlite3.Connection,
    named: list[tuple[str, str, str]],
    home: Path,
    report: Report,
    tell: Tell,
) -> None:
    checked = CheckedFiles()
    for done, (file, digest, stream) in enumerate(named):
        tell(done, len(named))
        report.unchecked += not digest
        try:
            checked.check(str(home / "segments" / file), digest, stream)
            report.segments += 1
        except DamageError as error:
            if _still_named(db, file):
                problem = f"{error.message}: {error.detail}"
                report.findings.append(Finding(error.file, problem, REMEDY))
    tell(len(named), len(named))


def _still_named(db: sqlite3.Connection, file: str) -> bool:
    rows: Iterator[tuple[int]] = db.execute("SELECT 1 FROM segments WHERE file = ?", (file,))
    return next(rows, None) is not None
