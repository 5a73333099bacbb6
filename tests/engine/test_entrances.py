"""Base streams that move: rows enter elsewhere, and none is lost or counted twice.

A producer posts numbered batches, and repeats what was answered, while its stream moves back and
forth among processors that crash; files are read on from the row where the former owner stood. The
protocol is that of operators; rows, parsers and operators are in plain Python.
"""

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processors_together import Cluster, Crash
from test_moves_without_spark import Crashes, PureCluster, expected, pure  # noqa: F401  (a fixture)

from millstream.control.protocol.commands import Prepare
from millstream.core.errors import MillstreamError, MovedError, StateError
from millstream.engine.processor import Processor
from millstream.engine.sources.entrances import definition_of
from millstream.engine.sources.push_source import PushSource
from millstream.store import faults
from millstream.store.moves.records import Place
from millstream.store.moves.transfer import RefusedError

TABLE: dict[str, Any] = {
    "name": "a", "source": "push", "columns": {"c0": "bigint"},
    "time": "timestamp_micros(c0)",
}  # fmt: skip
Pair = tuple[int, int]


class Entered(PureCluster):
    """Processors p0, p1, ... with one declared stream, which enters at p0 first."""

    def __init__(self, folder: Path, count: int, table: dict[str, Any] = TABLE) -> None:
        self.table = table
        super().__init__(folder, count)
        for name, processor in self.alive.items():
            first = name == "p0"
            processor.hosting.declare(definition_of(table, ingest=first), ingest=first)
        self.alive["p0"].hosting.start_stream("a")
        self.where["s:a"], self.inputs["s:a"] = "p0", ()
        self.sent = 0
        self.pending: list[list[Pair]] = []

    def make(self, name: str) -> Processor:
        return Cluster.make(self, name)

    def request(self, operators: Sequence[str], to: str) -> Prepare:
        streams = (self.table,) if "s:a" in operators else ()
        return replace(super().request(operators, to), streams=streams)

    def door(self, name: str) -> PushSource | None:
        found = self.alive[name].engine.sources.get("a") if name in self.alive else None
        return found if isinstance(found, PushSource) else None

    def post(self, rows: list[Pair], number: int) -> bool:
        """Sends a batch to everybody in turn until one has taken it; gives whether one has."""
        given = [{"ts": ts, "c0": value} for ts, value in rows]
        for name in self.names:
            door = self.door(name)
            if door is None:
                continue
            try:
                door.push("producer", number, given)
            except Crash:
                self.kill(name)
            except MillstreamError:
                continue
            else:
                return True
        return False

    def produce(self, chance: random.Random) -> None:
        """The next batch, if it is taken; one that was taken before is sent once more."""
        if self.pending and self.post(self.pending[0], self.sent + 1):
            self.sent += 1
            again = self.pending.pop(0)
            if chance.random() < 0.5:
                self.post(again, self.sent)


def moved(cluster: Entered, to: str, what: Sequence[str] = ("s:a",)) -> bool:
    return cluster.move(what, to, lambda: cluster.exchange() and None)


def life(folder: Path, seed: int, crashes: Crashes | None = None) -> int:
    """Rows, moves of the stream and of its readers, crashes, lost messages; the answer is the same.
    Gives how often the stream has moved."""
    chance = random.Random(seed)
    cluster = Entered(folder, 3)
    for query in ("sums", "pairs", "plain"):
        cluster.deploy(query, query, lambda _: chance.choice(cluster.names))
    rows: list[Pair] = [(10 * i, chance.randrange(9)) for i in range(60)]
    cluster.pending = [rows[i : i + 3] for i in range(0, 60, 3)]
    if chance.random() < 0.5:
        cluster.losing = random.Random(seed)

    def meanwhile() -> None:
        cluster.produce(chance)
        cluster.exchange()
        cluster.steps(chance)
        if chance.random() < 0.3:
            cluster.compact()

    entered = 0
    for _ in range(7):
        if crashes is not None:
            crashes.arm()
        operators = sorted(o for o, at in cluster.where.items() if o != "s:a" and at)
        what = "s:a" if chance.random() < 0.7 else chance.choice(operators)
        target = chance.choice([n for n in cluster.names if n != cluster.where[what]])
        undo_at = chance.choice([None, None, None, "preparing", "ready"])
        done = cluster.move((what,), target, meanwhile, undo_at=undo_at)
        entered += done and what == "s:a"
    faults.set_hook(None)
    cluster.losing = None
    cluster.revive()
    while cluster.pending:
        cluster.produce(chance)
    cluster.alive[cluster.where["s:a"]].engine.sources["a"].finish()  # type: ignore[attr-defined]
    cluster.settle()
    cluster.settle()
    cluster.check_numbers()
    for query in ("sums", "pairs", "plain"):
        assert cluster.values(query) == expected(rows, query), (seed, query)
    entering = [n for n, p in cluster.alive.items() if p.hosting.enters("s:a")]
    assert entering == [cluster.where["s:a"]]
    left = {n: p.engine.ledger.consumers_of("move") for n, p in cluster.alive.items()}
    assert not any(left.values()), "nothing is held for a move that has ended"
    cluster.close()
    return entered


def test_a_stream_moves_while_rows_are_posted(tmp_path: Path) -> None:
    entered = [life(tmp_path / str(seed), seed) for seed in range(12)]
    assert sum(entered) > 20


def test_crashes_at_every_point_of_a_stream_s_move(tmp_path: Path) -> None:
    """Whoever is at a point when it is reached dies there, and comes back."""
    crashes = Crashes(3)
    seed = 500
    points = {p for p in faults.MOVE_POINTS if p != "pull.followed"}
    while not set(+crashes.seen) >= points:
        assert seed < 560, f"never reached: {points - set(+crashes.seen)}"
        faults.set_hook(crashes)
        life(tmp_path / str(seed), seed, crashes)
        seed += 1


def test_what_a_stream_takes_along(tmp_path: Path) -> None:
    """Producers' numbers, rows that went aside, counts, the declaration: all of it goes."""
    cluster = Entered(tmp_path, 2)
    old, new = cluster.alive["p0"], cluster.alive["p1"]
    assert cluster.post([(10, 1), (20, -5), (30, 2)], 1)
    before = old.engine.ledger.counters()["rejected:a"]
    assert moved(cluster, "p1")
    ledger = new.engine.ledger
    assert ledger.ingest_position("s:a@producer") == {"number": 1}
    assert ledger.ingest_position("s:a")["pos"] == 3
    assert ledger.counters()["rejected:a"] == before == 1
    assert sum(s.rows for s in ledger.segments("r:a")) == 1
    assert new.ownership.declared()["a"].started
    assert not old.engine.ledger.ingest_position("s:a@producer")
    assert old.engine.ledger.segments("r:a") == []
    assert not old.ownership.declared()["a"].ingest
    door = cluster.door("p1")
    assert door is not None
    assert door.push("producer", 1, [{"ts": 10, "c0": 1}]).repeated
    assert cluster.door("p0") is None
    cluster.close()


def test_a_batch_that_a_move_overtakes_is_refused_as_moved(tmp_path: Path) -> None:
    """Its rows were written and not committed when the stream was sealed; even if it has come back
    since, what was looked up before no longer holds."""
    cluster = Entered(tmp_path, 2)
    assert cluster.post([(10, 1)], 1)
    door = cluster.door("p0")
    assert door is not None
    there_and_back: list[str] = []

    def hook(point: str) -> None:
        if point == "ingest.written" and not there_and_back:
            there_and_back.append(point)
            assert moved(cluster, "p1")
            assert cluster.post([(20, 2)], 2)
            assert moved(cluster, "p0")

    faults.set_hook(hook)
    with pytest.raises(MovedError, match="processor p1"):
        door.push("producer", 2, [{"ts": 20, "c0": 2}])
    faults.set_hook(None)
    back = cluster.door("p0")
    assert back is not None
    assert back is not door
    assert back.expected("producer") == 3
    cluster.close()


def test_a_seal_that_fails_leaves_the_door_open(tmp_path: Path) -> None:
    cluster = Entered(tmp_path, 2)
    old, new = cluster.alive["p0"], cluster.alive["p1"]
    request = cluster.request(("s:a",), "p1")
    new.new_owner.prepare(request)
    while new.ownership.move(request.move).phase != "ready":  # type: ignore[union-attr]
        new.new_owner.advance(request.move)

    def hook(point: str) -> None:
        if point == "seal.resting":
            raise StateError("the disk is full")

    faults.set_hook(hook)
    with pytest.raises(StateError, match="disk"):
        old.old_owner.seal(request.move, ("s:a",), Place("p1"))
    faults.set_hook(None)
    assert cluster.post([(10, 1)], 1)
    assert old.old_owner.seal(request.move, ("s:a",), Place("p1")).extent.sources["s:a"].started
    cluster.close()


# -- files ----------------------------------------------------------------------------------------


def file_table(path: Path, **more: Any) -> dict[str, Any]:
    return {**TABLE, "source": "file", "path": str(path), "format": "csv", **more}


def read_some(cluster: Entered, rows: int) -> None:
    """Rows from the files, at whoever reads them."""
    for processor in cluster.alive.values():
        ingest = processor.engine.ingests.get("a")
        if ingest is not None and not ingest.ended:
            ingest.advance(rows)


def test_files_are_read_on_from_the_row_where_the_former_owner_stood(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    rows = [(10 * i, i) for i in range(20)]
    for part in range(4):
        text = "\n".join(f"{ts},{v}" for ts, v in rows[5 * part : 5 * part + 5])
        (folder / f"{part}.csv").write_text(text)
    cluster = Entered(tmp_path / "homes", 2, file_table(folder))
    cluster.deploy("sums", "sums", lambda _: "p0")
    for turn in range(6):
        read_some(cluster, 3)
        assert moved(cluster, f"p{(turn + 1) % 2}")
        cluster.settle()
    for _ in range(4):
        read_some(cluster, 3)
    assert moved(cluster, "p1" if cluster.where["s:a"] == "p0" else "p0"), "also at its end"
    cluster.settle()
    assert cluster.values("sums") == expected(rows, "sums")
    cluster.kill(cluster.where["s:a"])
    for path in folder.iterdir():
        path.unlink()
    cluster.revive()
    assert "a" not in cluster.alive[cluster.where["s:a"]].engine.stopped, "it has read all of them"
    cluster.close()


def in_preparation(folder: Path) -> tuple[Path, Entered, Processor, Prepare]:
    """A file of three rows, of which two are read, and a move of its stream that has begun."""
    path = folder / "rows.csv"
    path.write_text("10,1\n20,2\n30,3")
    cluster = Entered(folder / "homes", 2, file_table(path))
    read_some(cluster, 2)
    new = cluster.alive["p1"]
    request = cluster.request(("s:a",), "p1")
    new.new_owner.prepare(request)
    return path, cluster, new, request


def test_files_that_the_new_processor_cannot_see_are_named(tmp_path: Path) -> None:
    path, cluster, new, request = in_preparation(tmp_path)
    path.rename(tmp_path / "elsewhere.csv")
    with pytest.raises(MillstreamError, match=r"rows\.csv"):
        new.new_owner.advance(request.move)
    assert new.ownership.move(request.move).phase == "preparing"  # type: ignore[union-attr]
    (tmp_path / "elsewhere.csv").rename(path)
    new.new_owner.undo(request.move)
    read_some(cluster, 2)
    position = cluster.alive["p0"].engine.ledger.ingest_position("s:a")
    assert (position["file"], position["row"]) == (0, 3)
    cluster.close()


def test_files_that_are_others_at_the_new_processor_are_named(tmp_path: Path) -> None:
    path, cluster, new, request = in_preparation(tmp_path)
    path.write_text("10,1\n20,2\n30,4")
    with pytest.raises(MillstreamError, match="has changed"):
        new.new_owner.advance(request.move)
    cluster.close()


def test_a_seal_that_fails_lets_files_be_read_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("10,1\n20,2\n30,3")
    cluster = Entered(tmp_path / "homes", 2, file_table(path))
    read_some(cluster, 1)
    old, new = cluster.alive["p0"], cluster.alive["p1"]
    request = cluster.request(("s:a",), "p1")
    new.new_owner.prepare(request)
    while new.ownership.move(request.move).phase != "ready":  # type: ignore[union-attr]
        new.new_owner.advance(request.move)
    resting: list[bool] = []

    def hook(point: str) -> None:
        if point == "seal.resting":
            resting.append("a" not in old.engine.ingests)
            raise StateError("the disk is full")

    faults.set_hook(hook)
    with pytest.raises(StateError, match="disk"):
        old.old_owner.seal(request.move, ("s:a",), Place("p1"))
    faults.set_hook(None)
    assert resting == [True], "nothing is read while it is sealed"
    read_some(cluster, 5)
    assert old.engine.ledger.ingest_position("s:a")["row"] == 3
    cluster.close()


def test_a_spark_source_stays_and_says_why(tmp_path: Path) -> None:
    cluster = Entered(tmp_path, 2)
    old = cluster.alive["p0"]
    declared = old.ownership.declared()["a"]
    spark = replace(declared.definition, source={"source": "spark", "format": "rate"})
    with old.engine.ledger.transaction():
        old.ownership.declare(spark, ingest=True, started=True)
    with pytest.raises(RefusedError, match="cannot move") as told:
        old.old_owner.needs("m1", ("s:a",), Place("p1"))
    assert "checkpoint" in told.value.detail
    cluster.close()


def test_readers_count_each_row_once(tmp_path: Path) -> None:
    """Readers at the old owner, at the new one and elsewhere, while the stream goes round."""
    cluster = Entered(tmp_path, 3)
    for query, place in (("sums", "p0"), ("pairs", "p1"), ("plain", "p2")):
        cluster.deploy(query, query, lambda _, place=place: place)  # type: ignore[misc]
    rows = [(10 * i, i % 7) for i in range(30)]
    for turn in range(10):
        assert cluster.post(rows[3 * turn : 3 * turn + 3], turn + 1)
        assert moved(cluster, f"p{(turn + 1) % 3}")
        with suppress(MillstreamError):
            cluster.exchange()
        cluster.steps()
    cluster.settle()
    cluster.settle()
    for query in ("sums", "pairs", "plain"):
        found = cluster.values(query)
        assert found == expected(rows, query), Counter(found) - expected(rows, query)
    cluster.check_numbers()
    cluster.close()
