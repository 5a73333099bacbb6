"""Small steps run from plans that were made once: one plan for many, and the same answers."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_runner import EngineRunner, arrived, declare, rows_of, settle

import millstream
from millstream.engine.engine import Engine
from millstream.engine.ports import TrainStep
from millstream.spark.plane import SparkPlane
from millstream.spark.prepared import plans as prepared_plans
from millstream.spark.prepared.hoppers import CAPACITY_MIN, Hopper, SmallSession, batch_of
from millstream.spark.prepared.plans import PreparedPlan, UnpreparedError
from millstream.store.segments import SegmentStore
from oracle.harness import cut, files_of
from oracle.model import Column, Row, Stream

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COLUMNS = (Column("k", "int"), Column("v", "double"), Column("name", "string"))
WINDOW = "[RANGE 6 SECONDS SLIDE 2 SECONDS]"
QUERIES = {
    "high": "SELECT k, v, name FROM a WHERE v > 0.5",
    "low": "SELECT k, v * 2 AS w FROM a WHERE v < 0.4 AND name LIKE 'n%'",
    "means": f"SELECT k, avg(v) AS m, count(*) AS n FROM a {WINDOW} GROUP BY k",
    "sums": f"SELECT k, sum(v) AS m FROM a {WINDOW} WHERE v > 0.2 GROUP BY k",
    "ranges": "SELECT min(name) AS low, max(v) AS high FROM b [RANGE 3 SECONDS SLIDE 1 SECOND]",
    "pairs": "SELECT a.k AS k, a.v AS x, b.v AS y FROM a [RANGE 3 SECONDS], b [RANGE 2 SECONDS]"
    " WHERE a.k = b.k AND a.v + b.v > 0.8",
    "more_pairs": "SELECT a.k AS k, b.name AS name FROM a [RANGE 3 SECONDS], b [RANGE 2 SECONDS]"
    " WHERE a.k = b.k AND a.v < 0.7",
    "near": "SELECT a.v AS x, b.v AS y FROM a [RANGE 1 SECONDS], b [RANGE 1 SECONDS]"
    " WHERE a.v < b.v",
}


def stream(name: str, seed: int, count: int = 60) -> Stream:
    """Rows over half a minute, some of them without a value."""
    chance = random.Random(seed)

    def row(at: int) -> Row:
        value = None if chance.random() < 0.1 else chance.random()
        return Row(at * SECOND // 2, (chance.randrange(4), value, chance.choice(("n1", "é", None))))

    return Stream(name, COLUMNS, tuple(row(at) for at in range(count)))


STREAMS = (stream("a", 1), stream("b", 2))


def answers(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    return {
        name: sorted(
            repr({k: round(v, 9) if isinstance(v, float) else v for k, v in row.items()})
            for row in rows
        )
        for name, rows in found.items()
    }


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of operators for which plans were made, and of steps that ran from them."""
    told: list[str] = []
    make, run = PreparedPlan.__init__, PreparedPlan.run

    def made(plan: PreparedPlan, session: SmallSession, files: SegmentStore, *more: Any) -> None:
        told.append(f"plan {more[-1].steps[0].operator.kind}")
        make(plan, session, files, *more)

    def ran(plan: PreparedPlan, job: TrainStep) -> prepared_plans.Computed:
        told.append(f"step {job.steps[0].operator.kind}")
        return run(plan, job)

    monkeypatch.setattr(PreparedPlan, "__init__", made)
    monkeypatch.setattr(PreparedPlan, "run", ran)
    return told


def test_the_same_answers_either_way_from_few_plans(
    spark: Any, tmp_path: Path, plans: list[str]
) -> None:
    batches = cut(STREAMS, 4)
    ordinary = EngineRunner(spark, tmp_path / "ordinary", prepared=False)
    expected = answers(ordinary.run(STREAMS, QUERIES, batches))
    assert not plans
    found = answers(EngineRunner(spark, tmp_path / "prepared").run(STREAMS, QUERIES, batches))
    assert found == expected
    assert all(expected.values())
    for kind in ("map", "partial", "combine", "join"):
        made, ran = plans.count(f"plan {kind}"), plans.count(f"step {kind}")
        assert 1 <= made <= 4, kind
        assert ran >= 4 * made, kind


def test_more_rows_than_a_hopper_holds_make_a_larger_one(
    spark: Any, tmp_path: Path, plans: list[str]
) -> None:
    engine = Engine(tmp_path, SparkPlane(spark))
    declare(engine, STREAMS[:1])
    engine.add_query("all", "SELECT k, v, name FROM a")
    rows = 0
    for size in (2, 2, 2, CAPACITY_MIN // 8, 2):
        grown = stream("a", 3, size)
        later = [Row(rows * SECOND + (r.ts or 0), r.values) for r in grown.rows]
        moved = Stream("a", COLUMNS, tuple(later))
        (table,) = files_of(moved, cut((moved,), size)["a"])
        engine.appenders["a"].append(arrived(table), {})
        settle(engine)
        rows += size
        assert len(rows_of(engine, "all")) == rows
    engine.close()
    assert plans.count("plan map") == 2


def test_a_function_that_changed_is_the_new_one(spark: Any) -> None:
    with millstream.Session() as session:
        session.stream("p", columns={"at": "long", "x": "int"}, time="timestamp_seconds(at)")
        answer: list[int] = []
        for number, factor in enumerate((2, 3)):
            text = f"x * {factor}"
            session.register_function("times", text, "int", str(factor), parameters={"x": "int"})
            query = session.query("SELECT times(x) AS y FROM p", f"q{number}")
            query.on_batch(lambda table, _: answer.extend(table["y"].to_pylist()))
            for row in range(4):
                session.push("p", [{"at": 100 * number + row, "x": 1}])
                session.wait(30)
            query.drop()
        assert answer[:4] == [2] * 4
        assert answer[4:] in ([3] * 4, [3] * 5)  # a query begins with the row at the watermark


def test_a_plan_that_keeps_rows_is_refused(spark: Any) -> None:
    small = SmallSession(spark)
    schema = spark.createDataFrame([], "k INT").schema
    hopper = Hopper(small, schema, CAPACITY_MIN)
    prepared_plans._refuse_keeping(
        hopper.frame.groupBy("k").count()._jdf.queryExecution().executedPlan()
    )
    kept = hopper.frame.repartition(2, "k").groupBy("k").count()
    with pytest.raises(UnpreparedError):
        prepared_plans._refuse_keeping(kept._jdf.queryExecution().executedPlan())


def test_a_hopper_has_the_rows_that_were_put_there_last(spark: Any) -> None:
    schema = spark.createDataFrame([], "k INT, t STRING").schema
    hopper = Hopper(SmallSession(spark), schema, 1 << 20)
    counted = hopper.frame.where("k > 1").selectExpr("k", "t")
    for keys in ([1, 2, 3], [], [5], list(range(20_000)), [2]):
        table = pa.table({"k": pa.array(keys, pa.int32()), "t": [f"n{k}" for k in keys]})
        hopper.fill(batch_of(table.cast(hopper.schema)))
        assert counted.toArrow().to_pydict()["k"] == [k for k in keys if k > 1]
