"""A copy of a home: the same at every commit, whatever cuts it off; a home itself when adopted."""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.control.protocol.commands import Home, KeepReplicas
from millstream.control.protocol.records import Peer
from millstream.core.errors import AwayError, DamageError, MillstreamError, StateError
from millstream.engine.processor import Processor
from millstream.sim.managed.direct_peer import DirectHome
from millstream.sim.managed.plain_plane import PlainPlane
from millstream.store import faults
from millstream.store.integrity.digests import digest_of_file
from millstream.store.ledger import Ledger
from millstream.store.replicas import commit_log, replica
from millstream.store.replicas.keeper import ReplicaKeeper
from millstream.store.replicas.lives import LEAP
from millstream.store.replicas.records import Commits, Configuration, Note
from millstream.store.replicas.replica import Replica


class Cut(BaseException):
    """The process ends here."""


@pytest.fixture
def owner(tmp_path: Path) -> Any:
    found = Processor("p1", tmp_path / "p1", PlainPlane(), lambda place: None)  # type: ignore[arg-type, return-value]
    with found.engine.ledger.transaction() as ledger:
        ledger.add_stream("s:a", "base")
    found.log.configure(Configuration(1, 1, ("p2",)))
    found.log.hasten = lambda _: None
    yield found
    found.close()


def publish(owner: Processor, number: int) -> None:
    written = owner.engine.store.write(pa.table({"_ts": [number], "c0": [number]}))
    with owner.engine.ledger.transaction() as ledger:
        ledger.publish("s:a", [written], number)


def follower(owner: Processor, folder: Path, *, number: int = 1) -> Replica:
    known = folder / "replica.json"
    return Replica(folder, "p2", None if known.exists() else Note("p1", "", number))


def source(owner: Processor) -> DirectHome:
    return DirectHome(lambda question: question(owner))


def same(owner: Processor, folder: Path) -> None:
    """The copy opens as a ledger, which checks every row, and has every file that it names."""
    there = {s.first: s.digest for s in owner.engine.ledger.segments("s:a")}
    ledger = Ledger(folder / "ledger.db")
    try:
        assert {s.first: s.digest for s in ledger.segments("s:a")} == there
        assert all((folder / "segments" / f).exists() for f in ledger.named_files())
    finally:
        ledger.close()


def test_nothing_is_safe_before_the_follower_has_it(owner: Processor, tmp_path: Path) -> None:
    copy = follower(owner, tmp_path / "copy")
    with pytest.raises(AwayError, match="too few others"):
        owner.log.demand()
    publish(owner, 1)
    while copy.turn(source(owner)):
        pass
    owner.log.demand()
    publish(owner, 2)
    with pytest.raises(AwayError):
        owner.log.demand()
    copy.turn(source(owner))
    copy.turn(source(owner))
    owner.log.demand()
    copy.close()
    same(owner, tmp_path / "copy")


@pytest.mark.parametrize("point", ["replica.written", "replica.committed", "replica.whole"])
def test_a_follower_that_is_cut_off_goes_on(owner: Processor, tmp_path: Path, point: str) -> None:
    folder, cut = tmp_path / "copy", 0
    for number in range(1, 6):
        publish(owner, number)
        copy = follower(owner, folder)
        faults.set_hook(raising(point))
        try:
            while copy.turn(source(owner)):
                pass
        except Cut:
            cut += 1
        finally:
            faults.set_hook(None)
            copy.close()
    assert cut
    copy = follower(owner, folder)
    while copy.turn(source(owner)):
        pass
    copy.close()
    same(owner, folder)


def raising(wanted: str) -> Callable[[str], None]:
    def hook(point: str) -> None:
        if point == wanted:
            raise Cut

    return hook


def test_a_fenced_copy_stays_as_it_is_and_is_adopted_once(owner: Processor, tmp_path: Path) -> None:
    copy = follower(owner, tmp_path / "copy")
    publish(owner, 1)
    while copy.turn(source(owner)):
        pass
    epoch = owner.engine.ledger.epoch
    with pytest.raises(MillstreamError):
        copy.adopt()  # not before it is fenced
    copy.fence()
    publish(owner, 2)
    assert copy.turn(source(owner)) == 0
    faults.set_hook(raising("replica.leapt"))
    with pytest.raises(Cut):
        copy.adopt()
    faults.set_hook(None)
    copy.adopt()
    copy.adopt()
    heir = Processor("p1", tmp_path / "copy", PlainPlane(), lambda place: None)  # type: ignore[arg-type, return-value]
    try:
        assert heir.engine.ledger.epoch > epoch + LEAP
        assert [s.first for s in heir.engine.ledger.segments("s:a")] == [1]
        assert heir.log.configuration.wanted == 1, "and it tells nobody before it is followed"
    finally:
        heir.close()


def test_a_copy_that_is_on_its_way_counts_for_nothing(
    owner: Processor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks for an heir passes over a copy that was not complete: to that nothing was
    told, or it would be lost."""
    monkeypatch.setattr(commit_log, "PAGE_CHARACTERS", 0)  # one commit a page
    copy = follower(owner, tmp_path / "copy")
    while copy.turn(source(owner)):
        pass
    for number in range(1, 6):
        publish(owner, number)
    owner.log.configure(Configuration(2, 1, ("p2",)))
    copy.follow("", 2)
    seen = []
    for number in range(6, 14):
        publish(owner, number)  # it is never at the end
        copy.turn(source(owner))
        seen.append((owner.log.safe > 0, copy.note.complete == 2))
    assert all(complete for safe, complete in seen if safe)
    assert seen[-1] == (True, True), "and it need not come to the end for it"
    copy.close()


@pytest.mark.parametrize("change", ["UPDATE streams SET rows = 99", "DELETE FROM segments"])
def test_a_copy_that_differs_is_found_and_taken_anew(
    owner: Processor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Whether the next commit touches what is different or not."""
    monkeypatch.setattr(replica, "CHECK_TURNS", 1)
    told: list[str] = []
    copy = follower(owner, tmp_path / "copy")
    copy = Replica(copy.folder, "p2", say=told.append)
    for number in (1, 2):
        publish(owner, number)
        while copy.turn(source(owner)):
            pass
    with closing(sqlite3.connect(tmp_path / "copy" / "ledger.db")) as db:
        db.execute(change)
        db.commit()
    publish(owner, 3)
    while copy.turn(source(owner)):
        pass
    assert "is not what its owner has: it is copied anew" in told[0]
    copy.close()
    same(owner, tmp_path / "copy")


@pytest.mark.parametrize("worked", [0, 1, 30])
def test_a_home_that_was_put_back_does_not_replace_a_later_copy(
    owner: Processor, tmp_path: Path, worked: int
) -> None:
    """However much it has done since: what was acknowledged before that is in the copy alone."""
    copy = follower(owner, tmp_path / "copy")
    publish(owner, 1)
    owner.engine.ledger.copy_to(tmp_path / "backup.db")
    for number in range(2, 12):
        publish(owner, number)
    while copy.turn(source(owner)):
        pass
    owner.log.demand()
    owner.close()
    for file in (tmp_path / "p1").glob("ledger.db*"):
        file.unlink()
    (tmp_path / "backup.db").rename(tmp_path / "p1" / "ledger.db")
    back = Processor("p1", tmp_path / "p1", PlainPlane(), lambda place: None)  # type: ignore[arg-type, return-value]
    back.log.hasten = lambda _: None
    for number in range(worked):
        publish(back, 100 + number)
    for _ in range(2):
        with pytest.raises(StateError, match="older than the copy of it"):
            copy.turn(source(back))
    with pytest.raises(AwayError):
        back.log.demand()
    back.close()
    copy.fence()
    copy.adopt()
    heir = Ledger(tmp_path / "copy" / "ledger.db")
    assert [s.first for s in heir.segments("s:a")] == list(range(1, 12))
    heir.close()


def test_a_home_that_goes_on_elsewhere_replaces_a_copy_that_was_further(
    owner: Processor, tmp_path: Path
) -> None:
    """Of two followers the one with less may be the heir: the rest was told to nobody."""
    less, more = (follower(owner, tmp_path / name) for name in ("less", "more"))
    publish(owner, 1)
    for copy in (less, more):
        while copy.turn(source(owner)):
            pass
    for number in range(2, 9):
        publish(owner, number)
    while more.turn(source(owner)):
        pass
    less.fence()
    less.adopt()
    heir = Processor("p1", tmp_path / "less", PlainPlane(), lambda place: None)  # type: ignore[arg-type, return-value]
    heir.log.hasten = lambda _: None
    heir.log.configure(Configuration(2, 1, ("p2",)))
    publish(heir, 2)
    more.follow("", 2)
    while more.turn(source(heir)):
        pass
    heir.log.demand()
    more.close()
    same(heir, tmp_path / "more")
    heir.close()


def test_a_damaged_draft_replaces_nothing(owner: Processor, tmp_path: Path) -> None:
    copy = follower(owner, tmp_path / "copy")
    publish(owner, 1)
    while copy.turn(source(owner)):
        pass
    owner.log.configure(Configuration(2, 1, ("p2",)))
    damaged = tmp_path / "damaged.db"
    owner.engine.ledger.copy_to(damaged)
    with closing(sqlite3.connect(damaged)) as db:
        db.execute("UPDATE streams SET next = next + 1")
        db.commit()

    class Damaged(DirectHome):
        def commits(self, *asked: Any) -> Commits:
            return Commits(0, whole=True)

        def ledger(self) -> Iterator[bytes]:
            yield damaged.read_bytes()
            yield digest_of_file(damaged).encode()

    copy.follow("", 2)
    with pytest.raises(DamageError):
        copy.turn(Damaged(lambda question: question(owner)))
    while copy.turn(source(owner)):
        pass
    copy.close()
    same(owner, tmp_path / "copy")


def test_a_file_that_is_damaged_at_its_owner_is_not_taken_for_right(
    owner: Processor, tmp_path: Path
) -> None:
    publish(owner, 1)
    publish(owner, 2)
    (first, second) = owner.engine.ledger.segments("s:a")
    flip(Path(owner.engine.store.path(str(first.file))))
    told: list[str] = []
    Replica(tmp_path / "copy", "p2", Note("p1", "", 1)).close()
    copy = Replica(tmp_path / "copy", "p2", say=told.append)
    while copy.turn(source(owner)):
        pass
    owner.log.demand()  # one old file stops nobody
    assert not (tmp_path / "copy" / "segments" / str(first.file)).exists()
    assert (tmp_path / "copy" / "segments" / str(second.file)).exists()
    assert "its digest at p1 is" in told[0]
    copy.close()


def test_a_file_stays_until_its_follower_has_passed_it(owner: Processor, tmp_path: Path) -> None:
    """Else each page that names one which is gone by now would have to wait for the next."""
    copy, streams = follower(owner, tmp_path / "copy"), owner.engine.streams
    while copy.turn(source(owner)):
        pass
    publish(owner, 1)
    page = owner.log.page(copy.number, copy.rows_sum, "p2", 1)
    (there,) = owner.engine.ledger.segments("s:a")
    with owner.engine.ledger.transaction() as ledger:
        gone = ledger.replace([there], None)
    streams.remove(gone)

    class Slow(DirectHome):
        def commits(self, *asked: Any) -> Commits:
            return page

    assert copy.turn(Slow(lambda question: question(owner))) == 1
    assert Path(owner.engine.store.path(gone[0])).exists()
    while copy.turn(source(owner)):
        pass
    assert not Path(owner.engine.store.path(gone[0])).exists()
    copy.close()


def test_a_damaged_copy_is_told_when_it_is_fenced(owner: Processor, tmp_path: Path) -> None:
    keeper = ReplicaKeeper("p2", tmp_path / "p2", owner.log, lambda _: source(owner))
    said: list[str] = []
    keeper.say = said.append
    at = Peer("p1", "http://p1")
    keeper.keep(KeepReplicas(homes=(Home(at, 1, "follow"),)))
    publish(owner, 1)
    while keeper.turn("p1"):
        pass
    with closing(sqlite3.connect(tmp_path / "p2" / "replicas" / "p1" / "ledger.db")) as db:
        db.execute("DELETE FROM segments")
        db.commit()
    told = keeper.keep(KeepReplicas(homes=(Home(at, 1, "fence"),))).homes["p1"]
    assert (told.state, told.complete, told.had) == ("damaged", 0, 1)
    assert "is of no use" in said[0]
    told = keeper.keep(KeepReplicas(homes=(Home(at, 2, "follow"),))).homes["p1"]
    assert (told.state, told.complete, told.had) == ("following", 0, 1), "it is remembered"
    keeper.close()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_an_older_configuration_acknowledges_nothing(owner: Processor, tmp_path: Path) -> None:
    copy = follower(owner, tmp_path / "copy")
    while copy.turn(source(owner)):
        pass
    owner.log.demand()
    owner.log.configure(Configuration(2, 1, ("p3",)))
    with pytest.raises(AwayError):
        copy.turn(source(owner))
    with pytest.raises(AwayError):
        owner.log.demand()
    copy.close()


def test_a_damaged_copy_is_put_beside_and_begun_anew(owner: Processor, tmp_path: Path) -> None:
    """Found when the process begins, and not when the copy is needed."""
    home, name = tmp_path / "p2", "p1"
    copy = Replica(home / "replicas" / name, "p2", Note(name, "", 1))
    for number in range(1, 30):
        publish(owner, number)
    while copy.turn(source(owner)):
        pass
    copy.close()
    found = 0
    for trial in range(60):
        chance, place = random.Random(trial), tmp_path / str(trial)
        shutil.copytree(home, place)
        folder = place / "replicas" / name
        file = chance.choice([folder / "replica.json", folder / "ledger.db"])
        data = bytearray(file.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data[: chance.choice((None, chance.randrange(len(data))))])
        keeper = ReplicaKeeper("p2", place, owner.log, lambda _: source(owner))
        found += len(keeper.damaged)
        if name not in keeper.replicas:
            (told,) = keeper.damaged
            assert str(folder) in told
            assert list((place / "replicas-damaged").iterdir())
            keeper.replicas[name] = Replica(folder, "p2", Note(name, "", 1))
        while keeper.turn(name):
            pass
        keeper.close()
        same(owner, folder)
    assert found > 30


def test_a_home_that_was_adopted_stays_where_it_is(owner: Processor, tmp_path: Path) -> None:
    folder = tmp_path / "p2" / "replicas" / "p1"
    Replica(folder, "p2", Note("p1", "", 1, state="adopted")).close()
    note = folder / "replica.json"
    note.write_text(note.read_text().replace("p1", "p7"))
    keeper = ReplicaKeeper("p2", tmp_path / "p2", owner.log, lambda _: source(owner))
    assert folder.is_dir()
    assert str(folder) in keeper.damaged[0]
