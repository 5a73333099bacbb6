"""More than the driver may collect at once: the executors write it, or it comes in parts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_runner import settle
from small_engines import stream

from millstream.engine.engine import Engine
from millstream.engine.settings import EngineSettings
from millstream.engine.steps.bounds import StepRefusedError
from millstream.spark import deadlines
from millstream.spark.evaluator import SparkEvaluator
from millstream.spark.failures import result_too_large
from millstream.spark.plane import SparkPlane
from millstream.spark.session import collected_max

pytestmark = pytest.mark.spark
ROWS = 40_000
LIMIT = "spark.driver.maxResultSize"


@pytest.fixture
def little(spark: Any) -> Iterator[None]:
    """Spark refuses to hand over as much as these tests read."""
    settings = spark.sparkContext._jsc.sc().conf()
    before = settings.get(LIMIT)
    settings.set(LIMIT, "100k")
    yield
    settings.set(LIMIT, before)


def test_the_limit_follows_from_the_heap(spark: Any) -> None:
    settings = spark.sparkContext.getConf()
    assert settings.get(LIMIT) == collected_max(settings.get("spark.driver.memory"))


def test_steps_and_tables_and_batches(
    spark: Any, little: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011
        spark.range(ROWS).toArrow()
    assert result_too_large(refused.value)
    engine = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(step_rows_max=ROWS))
    engine.add_stream(stream("s", source="push"))
    engine.add_query("alone", "SELECT n FROM s WHERE n >= 0", from_beginning=True)
    engine.add_query("table", "SELECT n, count(*) AS c FROM s GROUP BY n", from_beginning=True)
    rows = [{"at": i, "name": "x", "n": (i * 7_919) % ROWS} for i in range(ROWS)]
    source: Any = engine.sources["s"]
    assert source.push("p", 1, rows).rows == ROWS
    source.finish()
    written: list[bool] = []
    plain = SparkEvaluator._materialise

    def watched(self: SparkEvaluator, output: Any, reader: Any, collect: bool) -> Any:
        found = plain(self, output, reader, collect)
        written.append(collect and not found[1])
        return found

    monkeypatch.setattr(SparkEvaluator, "_materialise", watched)
    settle(engine)
    assert any(written), "a result that was to be collected was written instead"
    numbers = sorted(r["n"] for r in engine.result("alone").to_pylist())
    assert numbers == list(range(ROWS))
    found = engine.table("table")
    assert found.num_rows == ROWS
    assert set(found["c"].to_pylist()) == {1}
    engine.close()


def test_a_job_that_takes_too_long_is_cut_off(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "LOOK_S", 0.1)
    limits = deadlines.Deadlines(spark.sparkContext)
    with pytest.raises(StepRefusedError, match="longer than"), limits.within(0.3):
        spark.range(1 << 62).selectExpr("sum(id % 7)").collect()
    with limits.within(60.0):
        assert spark.range(3).count() == 3
