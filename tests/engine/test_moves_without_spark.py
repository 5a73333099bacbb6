"""The protocol of copies and moves with operators in plain Python: many seeds in seconds.

Each kind of operator depends on what a move carries over: pairs within a window on the tail, a
running sum on the state, distinct values on the operator's own output. Results are the same however
steps, moves, crashes and lost messages fall.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from processors_together import FIRST, Cluster, CrashPlan, LocalPeer
from pyspark.sql.types import LongType, StructField, StructType
from test_moves import Disturbance

from millstream.engine import hosting
from millstream.engine.consumers import remote
from millstream.engine.move_records import Place
from millstream.engine.processor import Processor
from millstream.plan.windows import BEGINNING, FOREVER
from millstream.share.dataflow import Operator, state_stream
from millstream.spark.operators import LOGIC, SELF_READING
from millstream.store import faults
from millstream.store.ownership import Handed
from millstream.store.segments import EMPTY, Segment
from millstream.store.transfer import Page

WINDOW = 40
COLUMNS = StructType([StructField(n, LongType()) for n in ("_ts", "c0")]).json()
KINDS: Any = {"double": "map", "pairs": "join", "sum": "interval", "distinct": "distinct"}
# query: its operators, producers first, each (what it does, what it reads)
QUERIES = {
    "pairs": [("double", "s:a"), ("pairs", 0)],
    "sums": [("double", "s:a"), ("sum", 0)],
    "distinct": [("pairs", "s:a"), ("distinct", 0)],
    "plain": [("double", "s:a")],
    "late": [("sum", "s:a"), ("pairs", 0), ("double", 1)],
}


@dataclass(frozen=True)
class PureOperator:
    """Looks like an operator to everything but a step."""

    id: str
    kind: Any
    what: str
    inputs: tuple[str, ...]
    core: Any = None
    node: Any = None


class PureLogic:
    def __init__(self, reach: int) -> None:
        self.reach = reach

    def reachable(self, operator: Operator, segment: Segment, marks: Mapping[str, int]) -> bool:
        return segment.ts_max + self.reach >= min(marks.values())


def compiled(cql: str, start: int | None) -> tuple[Any, tuple[Any, ...]]:
    """Texts are names of queries; equal parts have equal ids."""
    found: list[PureOperator] = []
    for what, reads in QUERIES[cql]:
        source = reads if isinstance(reads, str) else found[reads].id
        found.append(PureOperator(f"o:{what}({source})", KINDS[what], what, (source,)))
    plan = SimpleNamespace(result=found[-1].id, relation=False)
    return plan, tuple(found)


class PureCluster(Cluster):
    """Processors that compute in Python."""

    def make(self, name: str) -> Processor:
        made = super().make(name)
        made.hosting.compile = compiled  # type: ignore[method-assign,assignment]

        def install(operator: Any) -> None:
            ledger = made.engine.ledger
            streams = [operator.id]
            if operator.kind == "interval":
                streams.append(state_stream(operator.id))
            for stream in streams:
                ledger.add_stream(stream, "state" if "#" in stream else operator.kind)
                ledger.set_columns(stream, COLUMNS)

        made.engine.runner.install = install  # type: ignore[method-assign]
        with made.engine.ledger.transaction() as ledger:
            ledger.add_stream("s:a", "base")
            ledger.set_columns("s:a", COLUMNS)
            if name == FIRST:
                made.ownership.own("s:a", 1, 1)
        return made

    def bases(self, plan: Any) -> list[str]:
        return ["s:a"]

    def feed(self, rows: list[tuple[int, int]]) -> None:
        """Rows (time, value) into the base stream, in order."""
        self.publish(self.alive[FIRST], "s:a", rows, rows[-1][0] if rows else FOREVER)

    def publish(
        self, processor: Processor, stream: str, rows: list[tuple[int, int]], mark: int
    ) -> None:
        with processor.engine.ledger.transaction() as ledger:
            ledger.publish(stream, [self.written(processor, rows)] if rows else [], mark)

    def written(self, processor: Processor, rows: list[tuple[int, int]]) -> Any:
        if not rows:
            return EMPTY
        table = pa.table({"_ts": [r[0] for r in rows], "c0": [r[1] for r in rows]})
        return processor.engine.store.write(table)

    def read(self, processor: Processor, segments: list[Segment]) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for segment in segments:
            if segment.rows:
                table = processor.engine.store.read(segment)
                found += zip(table["_ts"].to_pylist(), table["c0"].to_pylist(), strict=True)
        return found

    def step(self, processor: Processor, operator: Any) -> bool:
        """One step: new rows, reachable tail, state or own output in; one transaction out."""
        engine, ledger = processor.engine, processor.engine.ledger
        (source,) = operator.inputs
        following, before = ledger.cursor(operator.id, source)
        segments = ledger.segments(source)
        new = [s for s in segments if s.last >= following][:3]
        if not new:
            return False
        marks = {source: before}
        logic = LOGIC[operator.kind]
        tail = [s for s in segments if s.last < following and logic.reachable(operator, s, marks)]
        rows = self.read(processor, new)
        after = max(before, new[-1].watermark)
        state: list[tuple[int, int]] | None = None
        if operator.what == "double":
            result = [(ts, 2 * v) for ts, v in rows]
        elif operator.what == "pairs":
            known = self.read(processor, tail)
            result = []
            for ts, v in rows:
                result += [(ts, v * 1000 + w) for at, w in known if abs(at - ts) <= WINDOW]
                known.append((ts, v))
        elif operator.what == "sum":
            kept = self.read(processor, ledger.segments(state_stream(operator.id)))
            total = kept[0][1] if kept else 0
            result = []
            for ts, v in rows:
                total += v
                result.append((ts, total))
            state = [(0, total)]
        else:
            seen = {v for _, v in self.read(processor, ledger.segments(operator.id))}
            result = []
            for ts, v in rows:
                if v not in seen:
                    seen.add(v)
                    result.append((ts, v))
        written = self.written(processor, result)
        kept_state = None if state is None else self.written(processor, state)
        faults.reach("step.written")
        with ledger.transaction():
            gone: list[str] = []
            if kept_state is not None:
                name = state_stream(operator.id)
                gone = ledger.replace(ledger.segments(name), None)
                ledger.publish(name, [kept_state], BEGINNING)
            ledger.publish(operator.id, [written], after)
            ledger.set_cursor(operator.id, source, new[-1].last + 1, after)
            ledger.record_step(operator.id, {}, len(rows), len(result), 0.0)
        engine.runner.removals.add(gone)
        return True

    def values(self, query: str) -> Counter[tuple[int, int]]:
        where = self.alive[self.where[self.texts[query].operators[-1]]]
        stream = self.texts[query].operators[-1]
        return Counter(self.read(where, where.engine.ledger.segments(stream)))


@pytest.fixture(autouse=True)
def pure(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kinds of operators without Spark, for as long as a test lasts."""
    for kind in ("map", "interval", "distinct"):
        monkeypatch.setitem(LOGIC, kind, PureLogic(-FOREVER))
    monkeypatch.setitem(LOGIC, "join", PureLogic(WINDOW))
    monkeypatch.setattr(hosting, "result_stream", lambda plan: plan.result)
    assert "distinct" in SELF_READING
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
    cluster = PureCluster(None, folder, 3)
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
    cluster = PureCluster(None, tmp_path, 2)
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
    cluster = PureCluster(None, tmp_path, 3)
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
