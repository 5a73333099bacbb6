"""What older versions have written opens: homes and stores as they lay on disk, step by step.

`tests/data/homes` holds what a release wrote. A format that changes gets a step and a new folder
beside the old ones, which stay: `make golden` writes what is not there yet.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_hosting import fed, opened, values

from millstream.control.manager.events import DeclareStream, Joined, Submit
from millstream.control.manager.manager import step
from millstream.control.manager.state import Move, OperatorRecord, Settings
from millstream.control.moves.table import Phase, Story
from millstream.control.protocol.commands import Join
from millstream.core.errors import DamageError, StateError
from millstream.edge.manager.memory import sqlite_store as manager_store
from millstream.edge.manager.memory.sqlite_store import ManagerStore
from millstream.store import ledger_file
from millstream.store.ledger import Ledger

HOMES = Path(__file__).parents[1] / "data" / "homes"
LEDGERS = sorted(HOMES.glob("ledger-*"))
MANAGERS = sorted(HOMES.glob("manager-*.db"))


def write_home(home: Path) -> None:
    """A home in today's format."""
    engine = opened(home)
    engine.add_query("one", "1", from_beginning=True)
    engine.add_query("two", "1+2", from_beginning=True)
    fed(engine, [(1, 10), (2, 20)])
    engine.close()


def write_store(path: Path) -> None:
    """A manager's store in today's format."""
    store = ManagerStore(path)
    empty = store.load(Settings())
    state, _ = step(empty, Joined(Join("p1", "http://x", 1, {"cpu": 2})), 1.0)
    state, _ = step(state, DeclareStream({"name": "a", "columns": {"x": "int"}}), 2.0)
    state, _ = step(state, Submit("q2", "SELECT 2"), 3.0)
    state, _ = step(state, Submit("q1", "SELECT 1", from_beginning=True), 3.0)
    operator = OperatorRecord("o:1", "map", "x", ("s:a",), 8, {"w": 1.5}, "p1", 2)
    move = Move("m1-9", ("o:1",), "p1", "p2", "why", Story().through(Phase.SEALED, "p1", 0.5), 1.0)
    state = replace(state, operators={"o:1": operator}, moves={move.id: move})
    store.save(empty, state)
    store._db.execute("PRAGMA journal_mode=DELETE")
    store.close()
    Path(f"{path}-water").unlink()


def copied(kept: Path, target: Path) -> Path:
    return Path(shutil.copytree(kept, target) if kept.is_dir() else shutil.copy(kept, target))


@pytest.mark.parametrize("kept", LEDGERS, ids=lambda path: path.name)
def test_a_home_of_a_release_goes_on(kept: Path, tmp_path: Path) -> None:
    engine = opened(copied(kept, tmp_path / "home"))
    engine.add_query("one", "1", from_beginning=True)
    engine.add_query("two", "1+2", from_beginning=True)
    assert values(engine, "two") == [13, 23]
    fed(engine, [(3, 30)])
    assert values(engine, "one") == [11, 21, 31]
    assert values(engine, "two") == [13, 23, 33]
    engine.close()


@pytest.mark.parametrize("kept", MANAGERS, ids=lambda path: path.name)
def test_a_manager_of_a_release_remembers(kept: Path, tmp_path: Path) -> None:
    store = ManagerStore(copied(kept, tmp_path / "manager.db"))
    state = store.load(Settings())
    store.close()
    assert list(state.queries) == ["q2", "q1"]
    assert state.operators["o:1"].inputs == ("s:a",)
    assert state.moves["m1-9"].story.phase == "sealed"


def test_golden_homes_of_today_are_kept() -> None:
    home = HOMES / f"ledger-{ledger_file.VERSION}"
    store = HOMES / f"manager-{manager_store.VERSION}.db"
    for path, write in ((home, write_home), (store, write_store)):
        if os.environ.get("MILLSTREAM_GOLDEN") == "write" and not path.exists():
            write(path)
    assert home.exists()
    assert store.exists()


def test_steps_have_no_gap() -> None:
    for version, steps in (
        (ledger_file.VERSION, ledger_file.STEPS),
        (manager_store.VERSION, manager_store.STEPS),
    ):
        assert list(steps) == list(range(version - len(steps), version))


@pytest.fixture
def next_format(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A version to come, with a column more."""
    added = "ALTER TABLE queries ADD COLUMN owner TEXT NOT NULL DEFAULT 'all'"
    schema = ledger_file.SCHEMA.replace("registered REAL NOT NULL)", "registered REAL NOT NULL,"
                                        " owner TEXT NOT NULL DEFAULT 'all')")  # fmt: skip
    monkeypatch.setattr(ledger_file, "VERSION", ledger_file.VERSION + 1)
    monkeypatch.setattr(ledger_file, "STEPS", {**ledger_file.STEPS, ledger_file.VERSION - 1: added})
    monkeypatch.setattr(ledger_file, "SCHEMA", schema)
    ledger_file.sealed_tables.cache_clear()
    yield
    ledger_file.sealed_tables.cache_clear()


def test_a_format_to_come_keeps_seal_and_rows(next_format: None, tmp_path: Path) -> None:
    path = copied(LEDGERS[-1], tmp_path / "home") / "ledger.db"
    for _ in range(2):  # the second time there is nothing to do
        ledger = Ledger(path)
        assert ledger.meta("version") == str(ledger_file.VERSION)
        rows = ledger._db.execute("SELECT name, owner FROM queries ORDER BY name").fetchall()
        assert [tuple(row) for row in rows] == [("one", "all"), ("two", "all")]
        ledger.close()


def test_a_damaged_home_is_not_sealed_anew(next_format: None, tmp_path: Path) -> None:
    path = copied(LEDGERS[-1], tmp_path / "home") / "ledger.db"
    with sqlite3.connect(path) as db:
        db.execute("UPDATE streams SET next = next + 1")
    db.close()
    with pytest.raises(DamageError):
        Ledger(path)


def test_the_oldest_format_gets_digests_and_a_seal(tmp_path: Path) -> None:
    """Format 2, as it was: without both."""
    home = copied(HOMES / "ledger-3", tmp_path / "home")
    with sqlite3.connect(home / "ledger.db") as db:
        db.executescript(
            "DROP TABLE seal; ALTER TABLE segments DROP COLUMN digest;"
            "UPDATE meta SET value = '2' WHERE key = 'version'"
        )
    db.close()
    (home / "ledger.db-water").unlink(missing_ok=True)
    engine = opened(home)
    assert engine.ledger.meta("version") == str(ledger_file.VERSION)
    assert not engine.ledger.without_digest()
    engine.close()


@pytest.mark.parametrize("version", ["1", "999", "new"])
def test_other_formats_are_told(version: str, tmp_path: Path) -> None:
    home = copied(LEDGERS[-1], tmp_path / "home")
    manager = copied(MANAGERS[-1], tmp_path / "manager.db")
    for path in (home / "ledger.db", manager):
        with sqlite3.connect(path) as db:
            db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
        db.close()
    with pytest.raises(StateError, match=f"has format {version}, this version reads"):
        Ledger(home / "ledger.db")
    with pytest.raises(StateError, match=f"has format {version}, this version reads"):
        ManagerStore(manager)


def test_a_store_of_an_older_manager_takes_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = "UPDATE records SET key = 'q9' WHERE kind = 'queries' AND key = 'q1'"
    monkeypatch.setattr(manager_store, "VERSION", manager_store.VERSION + 1)
    monkeypatch.setattr(manager_store, "STEPS", {manager_store.VERSION - 1: renamed})
    path = copied(MANAGERS[-1], tmp_path / "manager.db")
    for _ in range(2):
        store = ManagerStore(path)
        assert set(store.load(Settings()).queries) == {"q2", "q9"}
        store.close()
