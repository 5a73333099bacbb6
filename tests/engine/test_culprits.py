"""The rows behind a failed query: one row, a pair of a join, rows that fail only together."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_engines import stream

from millstream.engine import culprits
from millstream.engine.culprits import find_culprits, halved
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.query import Query
from millstream.engine.sources.push_source import PushSource
from millstream.engine.steps.trains import alone
from millstream.spark.plane import SparkPlane

Rows = Sequence[dict[str, Any]]


def test_halving_takes_few_looks() -> None:
    looks: list[int] = []

    def fails(numbers: range) -> bool:
        looks.append(len(numbers))
        return 123_456 in numbers

    assert list(halved(range(500_000), fails)) == [123_456]
    assert len(looks) <= 2 * 19


pytestmark = pytest.mark.spark


@pytest.fixture
def engine(spark: Any, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(tmp_path / "home", SparkPlane(spark))
    for name in ("s", "t"):
        opened.add_stream(stream(name, source="push"))
    yield opened
    opened.close()


def run_over(engine: Engine, *batches: tuple[str, Rows]) -> None:
    """Each batch is processed before the next comes."""
    loop = Loop(engine)
    loop.start()
    try:
        for number, (name, rows) in enumerate(batches, start=1):
            door = engine.sources[name]
            assert isinstance(door, PushSource)
            door.push(f"p{number}", 1, rows)
            loop.wake()
            assert loop.settled.wait(120)
            assert loop.failure is None, loop.failure
    finally:
        loop.stop()


def failed(engine: Engine, name: str) -> Query:
    query = engine.queries[name]
    assert query.state == "failed"
    return query


def rows(start: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"at": start + i, "name": str(start + i), "n": i} | more for i in range(count)]


def test_the_row_of_a_cast_and_the_rows_of_others(engine: Engine) -> None:
    engine.add_query("good", "SELECT name FROM s")
    engine.add_query("bad", "SELECT CAST(name AS INT) AS number FROM s")
    files = len(engine.store.files())
    batch = rows(0, 700)
    batch[457] |= {"name": "4x7", "n": None}
    run_over(engine, ("s", batch), ("s", rows(800, 5)))
    query = failed(engine, "bad")
    assert query.culprits == [
        {"stream": "s", "rows": 1, "row": 457, "values": {"at": 457, "name": "4x7", "n": None}}
    ]
    assert "'4x7'" in query.reason
    assert query.reason.endswith("; row 457 of s: at=457, name='4x7', n=null")
    assert engine.result("good").num_rows == 705
    assert len(engine.store.files()) <= files + 4  # what was tried is gone
    again = Engine(engine.home, engine.plane)  # and the next process knows it
    again.add_stream(stream("s", source="push"))
    assert again.add_query("bad", query.cql).culprits == query.culprits
    again.drop_query("bad")
    assert again.ledger.meta("culprits:bad") is None
    again.close()


def test_both_rows_of_a_joined_pair(engine: Engine) -> None:
    engine.add_query(
        "bad",
        "SELECT s.name FROM s [RANGE 1 HOUR] JOIN t [RANGE 1 HOUR] ON s.n = t.n "
        "WHERE CAST(concat(s.name, t.name) AS INT) > 0",
    )
    right = [{"at": 10, "name": "1", "n": 1}, {"at": 11, "name": "y", "n": 2}]
    left = [{"at": 20 + i, "name": "1", "n": i % 3} for i in range(6)]
    run_over(engine, ("t", right), ("s", left))
    found = {c["stream"]: c for c in failed(engine, "bad").culprits}
    assert found["t"]["values"]["name"] == "y"
    assert found["s"]["values"]["n"] == 2
    assert found["s"]["rows"] == found["t"]["rows"] == 1


def test_rows_that_fail_only_together(engine: Engine) -> None:
    engine.add_query("bad", "SELECT sum(big) AS total FROM (SELECT n * 9000000000000000000 AS big "
                            "FROM s WHERE n < 2) GROUP BY 1 = 1")  # fmt: skip
    run_over(engine, ("s", [{"at": i, "name": "", "n": n} for i, n in enumerate([0, 1, 1, 0])]))
    (found,) = failed(engine, "bad").culprits
    assert found["rows"] == 2 or found["rows"] == 4
    assert "together" in engine.queries["bad"].reason


def test_the_search_is_bounded_and_never_hides_the_failure(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.add_query("bad", "SELECT CAST(name AS INT) AS number FROM s")
    monkeypatch.setattr(culprits, "JOBS_MAX", 3)
    run_over(engine, ("s", [*rows(0, 64), {"at": 64, "name": "x", "n": 0}, *rows(65, 63)]))
    (found,) = failed(engine, "bad").culprits
    assert 1 < found["rows"] <= 64
    monkeypatch.setattr(culprits, "_parts", lambda step: 1 / 0)
    engine.add_query("worse", "SELECT CAST(name AS DATE) AS day FROM t")
    run_over(engine, ("t", [{"at": 1, "name": "x", "n": 0}]))
    assert "'x'" in failed(engine, "worse").reason
    assert failed(engine, "worse").culprits == []


def test_a_step_without_rows_has_no_culprit(engine: Engine) -> None:
    engine.add_query("fine", "SELECT name FROM s")
    (operator,) = engine.operators.values()
    assert find_culprits(engine, engine.runner, alone(operator), 100) == ()
