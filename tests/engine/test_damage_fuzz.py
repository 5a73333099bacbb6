"""Random flips and truncations anywhere in a home: nothing wrong is believed, nothing delivered
is destroyed, and every message is one of ours. A failure prints its seed.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from damaged_homes import all_there, delivered, expected, gone_on, half_done

from millstream.control.manager.events import DeclareStream, Event, Joined, Submit
from millstream.control.manager.manager import step
from millstream.control.manager.state import ManagerState, Settings
from millstream.control.protocol.commands import Join
from millstream.core.errors import MillstreamError
from millstream.edge.manager.memory.sqlite_store import ManagerStore
from millstream.store.integrity.scrub import scrub

HOMES = 8
TRIALS = 25  # damages of each home
MEMORY = "/dev/shm"


def files_of_run(out: Path) -> tuple[list[Path], ...]:
    return (
        list((out / ".millstream").glob("ledger.db*")),
        list((out / ".millstream" / "segments").glob("*.parquet")),
        list(out.glob("*/part-*.parquet")),
        list(out.glob(".*.digests")),
    )


def damage(kinds: tuple[list[Path], ...], chance: random.Random) -> Path:
    """Flips a bit of a file, or cuts it short; gives the file."""
    chosen = sorted(chance.choice([k for k in kinds if k]))
    path = chance.choice([p for p in chosen if not p.name.endswith("-shm")])
    data = bytearray(path.read_bytes())
    if not data or chance.random() < 0.25:
        path.write_bytes(data[: chance.randrange(len(data) + 1)])
    else:
        for _ in range(chance.choice((1, 1, 1, 8))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    return path


def readable(folder: Path, changed: Path) -> bool:
    """Whether the damage is not in what was delivered here."""
    return folder not in changed.parents


def one_trial(whole: Path, out: Path, chance: random.Random) -> None:
    """Damages a copy of a home, goes on with it, and looks at what was said and what is there."""
    shutil.copytree(whole, out)
    changed = damage(files_of_run(out), chance)
    same = changed.read_bytes() == (whole / changed.relative_to(out)).read_bytes()
    if changed.name.startswith("part-") and not same:  # a delivered file: only a check can tell
        assert str(changed) in {f.file for f in scrub(out).findings}
    outcome = gone_on(out)
    if outcome.said is not None:
        assert isinstance(outcome.said, MillstreamError)
        assert outcome.said.detail
        assert outcome.said.hint
    for query in ("one", "two"):
        if not readable(out / query, changed):
            continue
        found, wanted = delivered(out / query), expected(query)
        assert all_there(whole / query) <= all_there(out / query), "delivered rows are gone"
        assert found <= wanted, "rows that are wrong, or twice"
        if outcome.said is None:
            assert found == wanted, "rows are missing and nobody said so"


def many(tmp_path: Path, homes: int, trials: int, seed: int) -> None:
    for number in range(homes):
        chance = random.Random(f"{seed}.{number}")
        folder = tmp_path / str(number)
        folder.mkdir()
        whole = half_done(folder, chance)
        shutil.copytree(whole, folder / "same")
        assert gone_on(folder / "same").said is None, "without damage all is well"
        for trial in range(trials):
            place = folder / str(trial)
            try:
                one_trial(whole, place, random.Random(f"{seed}.{number}.{trial}"))
            except BaseException as error:
                error.add_note(f"seed {seed}, home {number}, trial {trial}")
                raise
            shutil.rmtree(place)


def half_written(folder: Path, chance: random.Random) -> tuple[Path, list[ManagerState]]:
    """The home of a manager that was killed, and the states that it has had."""
    home = folder / "manager"
    home.mkdir()
    store = ManagerStore(home / "manager.db")
    states = [store.load(Settings())]
    joined = Joined(Join("p1", "http://x", 1, {"cpu": 2}))
    events: list[Event] = [joined, DeclareStream({"name": "a", "columns": {"x": "int"}})]
    events += [Submit(f"q{n}", f"SELECT {n}") for n in range(chance.randrange(1, 30))]
    for event in events:
        after, _ = step(states[-1], event, 1.0)
        store.save(states[-1], after)
        states.append(after)
        if chance.random() < 0.1:
            store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copytree(home, folder / "killed")
    store.close()
    return folder / "killed", states


def damaged_store(whole: Path, home: Path, last: ManagerState, chance: random.Random) -> None:
    """A manager over a damaged store says so, or remembers all."""
    shutil.copytree(whole, home)
    changed = damage((list(home.glob("manager.db*")),), chance)
    found = {f.file for f in scrub(home).findings}
    said: MillstreamError | None = None
    try:
        store = ManagerStore(home / "manager.db")
    except MillstreamError as error:
        said = error
    if said is not None:
        assert str(home / "manager.db") in said.message
        assert said.detail
        assert said.hint
        assert found, "a check says so as well"
        return
    again = store.load(Settings())
    store.close()
    assert not found, changed
    for part in ("processors", "streams", "queries", "decisions"):
        assert getattr(again, part) == getattr(last, part), (part, changed)


def many_stores(tmp_path: Path, stores: int, trials: int, seed: int) -> None:
    for number in range(stores):
        folder = tmp_path / f"store{number}"
        folder.mkdir()
        whole, states = half_written(folder, random.Random(f"{seed}.{number}"))
        for trial in range(trials):
            try:
                chance = random.Random(f"{seed}.{number}.{trial}")
                damaged_store(whole, folder / "trial", states[-1], chance)
            except BaseException as error:
                error.add_note(f"seed {seed}, store {number}, trial {trial}")
                raise
            shutil.rmtree(folder / "trial")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """In memory, where there is such a file system: SQLite waits for a disk at every commit."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="millstream-test-") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power stays on here."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def test_damage_is_never_believed(place: Path) -> None:
    many(place, HOMES, TRIALS, 1)


def test_a_damaged_manager_is_never_believed(place: Path) -> None:
    many_stores(place, 4, 50, 1)


@pytest.mark.soak
def test_damage_is_never_believed_however_often(place: Path) -> None:
    """`MILLSTREAM_DAMAGES` says how often: four of five damages are those of a home."""
    seed = int(os.environ.get("MILLSTREAM_SEED", random.randrange(1 << 30)))
    times = int(os.environ.get("MILLSTREAM_DAMAGES", "10000"))
    homes, stores = max(1, times // 125), max(1, times // 500)
    many(place, homes, 100, seed)
    many_stores(place, stores, 100, seed)
    print(f"seed {seed}: {100 * homes:,} damages of homes, {100 * stores:,} of managers' stores")
