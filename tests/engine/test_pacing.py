"""A pace: fewer steps, the same results, and nobody thinks that all is done while rows wait."""

import time
from pathlib import Path
from typing import Any

import pytest
from small_engines import stream

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.push_source import PushSource
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark

PACE_S = 1.5
BATCHES = 20
QUERIES = {
    "plain": "SELECT n FROM s WHERE n % 2 = 0",
    "windows": "SELECT sum(n) AS n FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS]",
}


@pytest.fixture
def paced(spark: Any, tmp_path: Path) -> Any:
    engine = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(pace_s=PACE_S))
    engine.add_stream(stream("s", source="push"))
    for name, cql in QUERIES.items():
        engine.add_query(name, cql)
    loop = Loop(engine)
    loop.start()
    yield engine, loop
    loop.stop()
    engine.close()


def push(engine: Engine, number: int) -> None:
    door = engine.sources["s"]
    assert isinstance(door, PushSource)
    door.push("p", number, [{"at": number, "name": "a", "n": number}])


def plain_rows(engine: Engine) -> list[int]:
    return sorted(row["n"] for row in engine.result("plain").to_pylist())


def test_rows_wait_for_the_pace_and_are_all_there_in_the_end(paced: Any) -> None:
    engine, loop = paced
    began: dict[str, list[float]] = {}

    def stepped(report: Any) -> None:
        began.setdefault(report.operator, []).append(report.started)

    push(engine, 1)
    assert loop.settled.wait(60)  # the first steps on a cold engine, whatever they take
    engine.on_step.append(stepped)
    for number in range(2, BATCHES + 1):
        push(engine, number)
        time.sleep(0.1)
    loop.wake()
    assert loop.settled.wait(60), "in the end nothing waits"
    assert plain_rows(engine) == [n for n in range(1, BATCHES + 1) if n % 2 == 0]
    assert began, "steps ran"
    plain = began[engine.queries["plain"].operators[0]]
    span = plain[-1] - plain[0]
    assert len(plain) <= 2 + span / PACE_S, "twenty batches are a few steps"
    windows = engine.result("windows").to_pylist()
    assert sum(row["n"] for row in windows) == sum(range(1, 20)), "windows that are over"


def test_one_is_not_settled_while_rows_wait_for_the_pace(paced: Any) -> None:
    engine, loop = paced
    push(engine, 1)
    assert loop.settled.wait(60)
    push(engine, 2)
    assert loop.settled.wait(60)
    assert plain_rows(engine) == [2]
    push(engine, 3)  # within the pace of the step before
    push(engine, 4)
    assert loop.settled.wait(60)
    assert plain_rows(engine) == [2, 4]
