"""Operators that move under load: alone = moved = crashed, equal to DuckDB."""

import random
from pathlib import Path
from typing import Any

import pytest
from engine_runner import arrived
from processors_together import FIRST, Cluster, ClusterRunner, CrashPlan

from millstream.engine.steps.warming import try_out
from millstream.spark.plane import SparkPlane
from millstream.store import faults
from millstream.store.moves.records import Place
from millstream.store.moves.transfer import RefusedError
from oracle.harness import Example, cut, files_of, judge
from oracle.model import (
    SECOND,
    Column,
    Emit,
    Item,
    Range,
    Row,
    Rows,
    Select,
    Source,
    Stream,
    Sub,
    agg,
    expr,
    item,
)

pytestmark = pytest.mark.spark

COUNT = Item(agg("count(*)"), "c")
SUM = Item(agg("sum(n)"), "s")
NAME = expr("name")
FIVE = Range(5 * SECOND)
JOINED = Select(
    (item("x.name"), item("x.n"), item("y.n", "m")),
    (Source("a", "x", FIVE), Source("b", "y", FIVE)),
    where=expr("x.name = y.name"),
)
QUERIES = (
    Select((item("name"), item("n")), (Source("a"),), where=expr("n % 3 = 0")),
    JOINED,
    Select(
        (item("name"), COUNT, SUM),
        (Source("a", window=Range(20 * SECOND, 10 * SECOND)),),
        keys=(NAME,),
    ),
    Select(
        (item("name"), Item(agg("max(n)"), "m")),
        (Source("a", window=Rows(3, ("name",))),),
        keys=(NAME,),
    ),
    Select((item("name"), COUNT, SUM), (Source("b"),), keys=(NAME,)),
    Select((item("name"), Item(expr("n % 5"), "r")), (Source("b"),), distinct=True),
    Emit("DSTREAM", Select((item("n"),), (Source("a", window=Range(7 * SECOND)),))),
    Select(
        (item("name"), COUNT),
        (Sub(JOINED, "j", Range(10 * SECOND, 5 * SECOND)),),
        keys=(NAME,),
    ),
)


def made_up(rows: int, seed: int) -> tuple[Stream, ...]:
    """Two streams out of order, with late rows."""
    chance = random.Random(seed)
    columns = (Column("name", "string"), Column("n", "int"))
    streams = []
    for name in ("a", "b"):
        found = []
        for i in range(rows):
            at = i // 3 + chance.choice((0, 0, 0, 1, 2, -1, -2, -9))
            values = (chance.choice("uvwxyz"), chance.randrange(100))
            found.append(Row(max(at, 0) * SECOND, values))
        streams.append(Stream(name, columns, tuple(found), 3 * SECOND))
    return tuple(streams)


def fragment(cluster: Cluster, chance: random.Random) -> list[str]:
    """One operator, or several that lie together: with its producers, or all of a query."""
    start = chance.choice(sorted(cluster.where))
    here = {o for o, where in cluster.where.items() if where == cluster.where[start]}
    size = chance.choice((1, 1, 2, 4))
    found = [start]
    while len(found) < size:
        near = {s for o in found for s in cluster.inputs[o]}
        near |= {o for o in here if set(cluster.inputs[o]) & set(found)}
        more = sorted((near & here) - set(found))
        if not more:
            break
        found.append(chance.choice(more))
    return found


class Disturbance:
    """Random moves between rounds; counts them."""

    def __init__(self, moves: int) -> None:
        self.moves = moves
        self.done = self.undone = 0

    def __call__(self, cluster: Cluster, chance: random.Random) -> None:
        for _ in range(self.moves):
            self.one(cluster, chance)

    def one(self, cluster: Cluster, chance: random.Random) -> None:
        operators = fragment(cluster, chance)
        others = [n for n in cluster.names if n != cluster.where[operators[0]]]
        undo_at = chance.choice(("preparing", "ready", *[None] * 12))

        def between() -> None:
            cluster.exchange()
            if chance.random() < 0.2:
                cluster.steps(chance)
            if chance.random() < 0.2:
                cluster.compact()

        if cluster.move(operators, chance.choice(others), between, undo_at=undo_at):
            self.done += 1
        else:
            self.undone += 1


def test_a_hundred_moves_under_load(spark: Any, tmp_path: Path) -> None:
    streams = made_up(240, 5)
    example = Example(streams, cut(streams, 24), QUERIES)
    disturbance = Disturbance(13)
    runner = ClusterRunner(spark, tmp_path, 3, seed=11, disturb=disturbance)
    results = runner.run(streams, example.texts(), example.batches)
    assert disturbance.done >= 100
    assert disturbance.undone > 0
    problems = judge(example, results)
    assert not problems, "\n\n".join(problems)


# Those around the commit point, on the real engine; all of them in test_moves_without_spark.
POINTS = ("prepare.copied", "seal.resting", "seal.committed", "take.written", "take.committed")


def test_crashes_in_the_middle_of_a_move(spark: Any, tmp_path: Path) -> None:
    streams = made_up(100, 6)
    example = Example(streams, cut(streams, 20), QUERIES[1:6])
    plan = CrashPlan()
    left = list(POINTS)
    disturbance = Disturbance(1)

    def disturb(cluster: Cluster, chance: random.Random) -> None:
        plan.arm(left[0])
        for _ in range(12):
            disturbance.one(cluster, chance)
            if plan.at:
                break
        assert plan.at == left.pop(0), f"never reached: {plan.wanted}"
        cluster.revive()

    runner = ClusterRunner(spark, tmp_path, 3, seed=12, disturb=disturb)
    faults.set_hook(plan)
    try:
        results = runner.run(streams, example.texts(), example.batches)
    finally:
        faults.set_hook(None)
    assert not left
    problems = judge(example, results)
    assert not problems, "\n\n".join(problems)


def test_every_kind_can_be_tried_out_before_it_runs(spark: Any, tmp_path: Path) -> None:
    """Warming up evaluates an operator of any kind on what lies there, and changes nothing."""
    streams = made_up(60, 8)
    cluster = Cluster(SparkPlane(spark), tmp_path, 1)
    cluster.declare(streams)
    for name, cql in Example(streams, cut(streams, 30), QUERIES).texts().items():
        cluster.deploy(name, cql, lambda _: FIRST)
    engine = cluster.alive[FIRST].engine
    for stream in streams:
        for table in files_of(stream, (30, 30)):
            engine.appenders[stream.name].append(arrived(table), {})
    for operator in engine.operators.values():
        cluster.step(cluster.alive[FIRST], operator)
    heads = {row["id"]: tuple(row) for row in engine.ledger.streams()}
    tried = {o.kind: try_out(engine.runner, o) for o in engine.operators.values()}
    assert set(tried) == {"map", "join", "partial", "combine", "interval", "running", "distinct"}
    assert all(tried.values())
    assert {row["id"]: tuple(row) for row in engine.ledger.streams()} == heads
    cluster.close()


@pytest.fixture
def pair(spark: Any, tmp_path: Path) -> Any:
    """Two processors with one small query, all of it on the first."""
    streams = made_up(30, 7)
    cluster = Cluster(SparkPlane(spark), tmp_path, 2)
    cluster.declare(streams)
    cluster.deploy("q", "SELECT name, n FROM a WHERE n % 2 = 0", lambda _: FIRST)
    yield cluster
    cluster.close()


def test_a_seal_waits_until_the_new_owner_is_ready(pair: Cluster) -> None:
    (operator,) = pair.where
    request = pair.request([operator], "p1")
    old, new = pair.alive["p0"], pair.alive["p1"]
    with pytest.raises(RefusedError, match="not under way"):
        old.old_owner.seal(request.move, request.operators, Place("p1"))
    new.new_owner.prepare(request)
    old.old_owner.needs(request.move, request.operators, Place("p1"))
    with pytest.raises(RefusedError, match="not ready"):
        old.old_owner.seal(request.move, request.operators, Place("p1"))
    while new.ownership.move(request.move).phase != "ready":
        new.exchange()
    record = old.old_owner.seal(request.move, request.operators, Place("p1"))
    assert old.old_owner.seal(request.move, request.operators, Place("p1")) == record
    with pytest.raises(RefusedError) as sealed:
        old.old_owner.undo(request.move)
    assert sealed.value.code == "sealed"
    with pytest.raises(RefusedError, match="sealed"):
        new.new_owner.undo(request.move)
    new.new_owner.take_over(request.move)
    assert new.ownership.owned(operator).epoch == 2
    assert old.ownership.owned(operator) is None
    assert operator not in old.engine.operators


def test_an_undone_move_is_not_sealed_late(pair: Cluster) -> None:
    (operator,) = pair.where
    request = pair.request([operator], "p1")
    old, new = pair.alive["p0"], pair.alive["p1"]
    new.new_owner.prepare(request)
    while new.ownership.move(request.move).phase != "ready":
        new.exchange()
    new.new_owner.undo(request.move)
    with pytest.raises(RefusedError, match="not ready"):
        old.old_owner.seal(request.move, request.operators, Place("p1"))
    with pytest.raises(RefusedError, match="undone"):
        new.new_owner.prepare(request)
    assert new.ownership.copies() == []
    assert old.engine.ledger.consumers_of("processor") == {}
    assert old.engine.ledger.consumers_of("move") == {}


def test_old_epochs_are_refused(pair: Cluster) -> None:
    """A processor that has been replaced without knowing it is not believed."""
    (operator,) = pair.where
    old, new = pair.alive["p0"], pair.alive["p1"]
    new.receiver.connect(operator, Place("p0"), 5)
    with pytest.raises(RefusedError) as refused:
        new.receiver.pull(operator)
    assert refused.value.code == "stale"
    with pytest.raises(RefusedError) as asked:
        old.distributor.page(operator, 1, "p1", 2)
    assert asked.value.code == "not_owner"


def test_whoever_opens_a_home_fences_the_one_before(pair: Cluster) -> None:
    before = pair.alive["p0"]
    after = pair.open("p0")
    assert after.id == "p0"
    assert list(after.engine.operators) == list(pair.where)
    assert after.engine.ledger.epoch == before.engine.ledger.epoch + 1
    with pytest.raises(Exception, match="taken over this home"):
        before.distributor.expect("s:a", "p1")
    before.close()
