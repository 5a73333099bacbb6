"""The protocol of copies and moves with operators in plain Python: many seeds in seconds.

Each kind of operator depends on what a move carries over: pairs within a window on the tail, a
running sum on the state, distinct values on the operator's own output. Results are the same however
steps, moves, crashes and lost messages fall.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from processors_together import FIRST, Cluster, CrashPlan, LocalPeer
from test_moves import Disturbance

from millstream.engine.ports import CompiledQuery, Step
from millstream.engine.processor import Processor
from millstream.engine.settings import EngineSettings
from millstream.language.plan.nodes import Plan, Source
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import FOREVER
from millstream.language.share.dataflow import Operator
from millstream.store import faults
from millstream.store.consumers import remote
from millstream.store.moves.ownership import Handed
from millstream.store.moves.records import Place
from millstream.store.moves.transfer import Page
from plain_plane import COLUMNS, PlainPlane, Read, Rows, reaching, read, write

WINDOW = 40
BASE = Source("a", (Field("c0", "bigint"),))
SETTINGS = EngineSettings(step_rows_max=6)
KINDS: Any = {"double": "map", "pairs": "join", "sum": "interval", "distinct": "distinct"}
# query: its operators, producers first, each (what it does, what it reads)
QUERIES = {
    "pairs": [("double", "s:a"), ("pairs", 0)],
    "sums": [("double", "s:a"), ("sum", 0)],
    "distinct": [("pairs", "s:a"), ("distinct", 0)],
    "plain": [("double", "s:a")],
    "late": [("sum", "s:a"), ("pairs", 0), ("double", 1)],
}


def compiled(cql: str) -> CompiledQuery:
    """Texts are names of queries; equal parts have equal ids."""
    found: list[Operator] = []
    for what, reads in QUERIES[cql]:
        source = reads if isinstance(reads, str) else found[reads].id
        found.append(Operator(f"o:{what}({source})", KINDS[what], BASE, None, (source,)))
    plan = Plan(BASE, BASE.columns, relation=False)
    return CompiledQuery(plan, tuple(found), found[-1].id)


def compute(step: Step, read: Read) -> tuple[Rows, Rows | None]:
    """New rows, reachable tail, state or own output in; rows and a new state out."""
    (source,) = step.inputs.values()
    rows, what = read(source.new), step.operator.id.removeprefix("o:").partition("(")[0]
    result: Rows = []
    if what == "double":
        return [(ts, 2 * v) for ts, v in rows], None
    if what == "pairs":
        known = read(source.tail)
        for ts, v in rows:
            result += [(ts, v * 1000 + w) for at, w in known if abs(at - ts) <= WINDOW]
            known.append((ts, v))
        return result, None
    if what == "sum":
        kept = read(step.states[0])
        total = kept[0][1] if kept else 0
        for ts, v in rows:
            total += v
            result.append((ts, total))
        return result, [(0, total)]
    seen = {v for _, v in read(step.own)}
    for ts, v in rows:
        if v not in seen:
            seen.add(v)
            result.append((ts, v))
    return result, None


class PureCluster(Cluster):
    """Processors that compute in Python."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(PlainPlane(compiled, compute), folder, count, SETTINGS)

    def make(self, name: str) -> Processor:
        made = super().make(name)
        with made.engine.ledger.transaction() as ledger:
            ledger.add_stream("s:a", "base")
            ledger.set_columns("s:a", COLUMNS)
            if name == FIRST:
                made.ownership.own("s:a", 1, 1)
        return made

    def bases(self, plan: Any) -> list[str]:
        return ["s:a"]

    def feed(self, rows: Rows) -> None:
        """Rows (time, value) into the base stream, in order."""
        engine, mark = self.alive[FIRST].engine, rows[-1][0] if rows else FOREVER
        with engine.ledger.transaction() as ledger:
            ledger.publish("s:a", [write(engine.store, rows)], mark)

    def values(self, query: str) -> Counter[tuple[int, int]]:
        stream = self.texts[query].operators[-1]
        engine = self.alive[self.where[stream]].engine
        return Counter(read(engine.store, engine.ledger.segments(stream)))


@pytest.fixture(autouse=True)
def pure(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kinds of operators without plans, for as long as a test lasts."""
    with reaching(monkeypatch, map=None, interval=None, distinct=None, join=WINDOW):
        yield
    faults.set_hook(None)


def expected(rows: list[tuple[int, int]], query: str) -> Counter[tuple[int, int]]:
    """The answer over all rows at once."""
    found: list[list[tuple[int, int]]] = []
    for what, reads in QUERIES[query]:
        given = rows if isinstance(reads, str) else found[reads]
        if what == "double":
            found.append([(ts, 2 * v) for ts, v in given])
        elif what == "pairs":
            found.append(
                [
                    (ts, v * 1000 + w)
                    for i, (ts, v) in enumerate(given)
                    for at, w in given[:i]
                    if abs(at - ts) <= WINDOW
                ]
            )
        elif what == "sum":
            total, sums = 0, []
            for ts, v in given:
                total += v
                sums.append((ts, total))
            found.append(sums)
        else:
            first: dict[int, int] = {}
            for ts, v in given:
                first.setdefault(v, ts)
            found.append([(ts, v) for v, ts in first.items()])
    return Counter(found[-1])


def scenario(
    folder: Path, seed: int, rounds: int, moves: int, arm: Callable[[], None] = lambda: None
) -> Disturbance:
    """Rows, steps, moves, crashes and lost messages in an order that the seed gives."""
    chance = random.Random(seed)
    cluster = PureCluster(folder, 3)
    if chance.random() < 0.5:
        cluster.losing = random.Random(seed)
    for query in QUERIES:
        cluster.deploy(query, query, lambda _: chance.choice(cluster.names))
    rows: list[tuple[int, int]] = []
    disturbance = Disturbance(moves)
    for _ in range(rounds):
        start = len(rows)
        rows += [(10 * (start + i), chance.randrange(9)) for i in range(chance.randrange(1, 5))]
        cluster.revive()
        cluster.feed(rows[start:])
        for _ in range(moves):
            arm()
            disturbance.one(cluster, chance)
        cluster.steps(chance)
        cluster.compact()
    faults.set_hook(None)
    cluster.losing = None
    cluster.revive()
    cluster.feed([])
    cluster.settle()
    cluster.settle()
    cluster.check_numbers()
    for query in QUERIES:
        assert cluster.values(query) == expected(rows, query), (seed, query)
    left = {n: p.engine.ledger.consumers_of("move") for n, p in cluster.alive.items()}
    assert not any(left.values()), "nothing is held for a move that has ended"
    cluster.close()
    return disturbance


@pytest.mark.parametrize("seed", range(4))
def test_moves_and_lost_messages(seed: int, tmp_path: Path) -> None:
    found = scenario(tmp_path, seed, rounds=8, moves=3)
    assert found.done > 10


class Crashes:
    """Crashes at the points that were met least often so far."""

    def __init__(self, seed: int) -> None:
        self.plan, self.seen = CrashPlan(), Counter[str]()
        self._chance = random.Random(seed)
        faults.set_hook(self)

    def arm(self) -> None:
        rarest = sorted(faults.MOVE_POINTS, key=lambda p: self.seen[p])[:4]
        self.plan.arm(self._chance.choice(rarest))

    def __call__(self, point: str) -> None:
        self.seen[point] += point == self.plan.wanted
        self.plan(point)


def test_crashes_at_every_point(tmp_path: Path) -> None:
    """Whoever is at a point when it is reached dies there, and comes back."""
    crashes = Crashes(1)
    seed = 100
    while set(+crashes.seen) != set(faults.MOVE_POINTS):
        assert seed < 120, f"never reached: {set(faults.MOVE_POINTS) - set(crashes.seen)}"
        faults.set_hook(crashes)
        scenario(tmp_path / str(seed), seed, 8, 3, crashes.arm)
        seed += 1


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_many_seeds(seed: int, tmp_path: Path) -> None:
    scenario(tmp_path, seed, 12, 3, Crashes(seed).arm if seed % 2 else lambda: None)


class Pointing(LocalPeer):
    """A manager that the processors of are asked through: it says who has a stream, and hands
    other words on to that one."""

    def page(self, stream: str, after: int, consumer: str, epoch: int, wait: float) -> Page:
        return Page(stream, 1, 0, moved=Handed(stream, after, 1, Place(self._name, "")))


def test_who_follows_a_manager_s_pointer_stays_known_to_the_owner(tmp_path: Path) -> None:
    """The owner keeps rows until the copy has them: a farewell to the manager would reach it."""
    cluster = PureCluster(tmp_path, 2)
    receiver = cluster.alive["p1"].receiver
    ask = receiver.peers
    receiver.peers = lambda place: (
        Pointing(cluster, Place(FIRST, "")) if place.processor == "m1" else ask(place)
    )
    receiver.connect("s:a", Place("m1", ""), 0)
    for i in range(3):
        cluster.feed([(10 * i, i)])
        receiver.pull("s:a")
    owner = cluster.alive[FIRST].engine.ledger
    assert receiver.ownership.copy("s:a").source.processor == FIRST  # type: ignore[union-attr]
    assert remote("p1") in owner.consumers("s:a")
    receiver.disconnect("s:a")
    assert remote("p1") not in owner.consumers("s:a")
    cluster.close()


def test_a_copy_that_has_not_begun_begins_where_its_reader_wants(tmp_path: Path) -> None:
    """An operator arrives with the tail of a stream that another one here is yet to read."""
    cluster = PureCluster(tmp_path, 3)
    cluster.deploy("distinct", "distinct", lambda _: "p1")
    cluster.deploy("late", "late", lambda _: "p2")  # told to pull, and has not yet
    rows = [(10 * i, i) for i in range(8)]
    for row in rows[:6]:
        cluster.feed([row])
        cluster.alive["p1"].exchange()
        cluster.steps()
    assert cluster.alive["p2"].ownership.copy("s:a").next is None  # type: ignore[union-attr]
    moving = cluster.alive["p2"].new_owner
    assert cluster.move(["o:pairs(s:a)"], "p2", lambda: cast("None", moving.advance("m0001")))
    cluster.feed(rows[6:])
    cluster.feed([])
    cluster.settle()
    cluster.check_numbers()
    for query in ("distinct", "late"):
        assert cluster.values(query) == expected(rows, query)
    cluster.close()
