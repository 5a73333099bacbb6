"""Retention and compaction: nothing that is needed goes, nothing changes, little stays."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_runner import acknowledge_kept, arrived, settle
from small_engines import bag, stream

from millstream.engine.engine import Engine
from millstream.engine.maintenance import Maintenance
from millstream.engine.settings import EngineSettings
from millstream.language.plan.windows import BEGINNING
from millstream.spark.plane import SparkPlane
from millstream.store.consumers import hold_of

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COLUMNS = {"ts": "timestamp", "k": "int", "n": "int"}
QUERIES = {
    "join": "SELECT x.n AS n, y.n AS m FROM a [RANGE 4 SECONDS] x JOIN a [RANGE 6 SECONDS] y"
    " ON x.k = y.k",
    "total": "SELECT k, count(*) AS c, max(n) AS m FROM a GROUP BY k",
    "nested": "SELECT max(c) AS best FROM (SELECT k, count(*) AS c FROM a GROUP BY k) t",
    "distinct": "SELECT DISTINCT n % 9 AS r FROM a",
    "vanishing": "SELECT c, count(*) AS n FROM (SELECT k, count(*) AS c FROM a GROUP BY k) t"
    " GROUP BY c",
}
SLIDING = "SELECT k, sum(n) AS s FROM a [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k"


def batch(number: int, rows: int = 12) -> pa.Table:
    """Two seconds of rows; the second half out of order within its lateness."""
    times = [(2 * number + (i % 2)) * SECOND + i for i in range(rows)]
    moments = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    keys = pa.array([i % 3 for i in range(rows)], pa.int32())
    values = pa.array([number * rows + i for i in range(rows)], pa.int32())
    return arrived(pa.table({"ts": moments, "k": keys, "n": values}))


def opened(spark: Any, home: Path, queries: dict[str, str] = QUERIES) -> Engine:
    engine = Engine(home, SparkPlane(spark), EngineSettings())
    engine.add_stream(stream("a", COLUMNS, "ts", source="push", lateness_us=2 * SECOND))
    for name, cql in queries.items():
        engine.add_query(name, cql)
    return engine


def answers(engine: Engine) -> dict[str, Any]:
    found = {}
    for name, query in engine.queries.items():
        if query.plan.relation:
            found[name] = bag(engine.table(name).drop_columns(["ts"]).to_pylist())
        else:
            found[name] = bag(engine.result(name).to_pylist())
    return found


@pytest.fixture
def engine(spark: Any, tmp_path: Path) -> Iterator[Engine]:
    made = opened(spark, tmp_path / "home", {})
    yield made
    made.close()


def test_compaction_changes_no_result(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, merged = opened(spark, tmp_path / "plain"), opened(spark, tmp_path / "merged")
    for number in range(6):
        for engine in (plain, merged):
            engine.appenders["a"].append(batch(number), {})
            if engine is plain:
                with monkeypatch.context() as patched:
                    patched.setattr(Maintenance, "compact", lambda self, stream: 0)
                    settle(engine)
            else:
                acknowledge_kept(engine)
                settle(engine)
                for row in engine.ledger.streams():
                    engine.maintenance.compact(row["id"])
    for engine in (plain, merged):
        engine.appenders["a"].finish()
        settle(engine)
    assert any(s.last > s.first for n in merged.operators for s in merged.ledger.segments(n))
    assert answers(merged) == answers(plain)
    plain.close()
    merged.close()


def test_nothing_goes_while_an_operator_comes(engine: Engine) -> None:
    """An operator that has moved here is in the ledger before the loop sees it."""
    engine.add_query("join", QUERIES["join"])
    (operator,) = engine.operators
    for number in range(6):
        engine.appenders["a"].append(batch(number), {})
        settle(engine)
    held = engine.ledger.segments("s:a")
    coming = engine.operators.pop(operator)
    engine.maintenance.retain(["s:a"])
    assert engine.ledger.segments("s:a") == held
    engine.operators[operator] = coming
    engine.maintenance.retain(["s:a"])
    assert engine.ledger.segments("s:a") == held, "all of it was in reach"


def test_rows_out_of_every_reach_go(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Maintenance, "compact", lambda self, stream: 0)
    engine.add_query("join", QUERIES["join"])
    for number in range(10):
        engine.appenders["a"].append(batch(number), {})
        settle(engine)
    held = engine.ledger.segments("s:a")
    oldest = min(s.ts_min for s in held if s.rows)
    assert oldest >= (18 - 2 - 6 - 4) * SECOND, "reach and lateness and a segment's length"
    assert oldest <= (19 - 2 - 6) * SECOND, "what a window still reaches stays"
    row = engine.ledger.stream("s:a")
    assert row is not None
    assert row["retained_from"] > BEGINNING
    assert set(engine.store.files()) == engine.ledger.named_files()


def test_without_queries_only_what_a_new_one_needs_is_kept(engine: Engine) -> None:
    for number in range(5):
        engine.appenders["a"].append(batch(number), {})
        engine.maintenance.retain(["s:a"])
    mark = engine.ledger.stream("s:a")["watermark"]  # type: ignore[index]
    for segment in engine.ledger.segments("s:a"):
        assert segment.ts_max >= mark or segment.last == 5
    query = engine.add_query("q", "SELECT n FROM a")
    assert query.start == mark
    settle(engine)
    expected = [
        number * 12 + i
        for number in range(5)
        for i in range(12)
        if (2 * number + (i % 2)) * SECOND + i >= mark
    ]
    assert sorted(engine.result("q")["n"].to_pylist()) == expected


def test_a_dropped_query_leaves_nothing(engine: Engine) -> None:
    before = {row["id"] for row in engine.ledger.streams()}
    for name, cql in QUERIES.items():
        engine.add_query(name, cql)
    for number in range(3):
        engine.appenders["a"].append(batch(number), {})
        settle(engine)
    for name in QUERIES:
        engine.drop_query(name)
    engine.maintenance.retain(["s:a"])
    assert {row["id"] for row in engine.ledger.streams()} == before
    assert engine.ledger.consumers("s:a") == {}
    assert engine.ledger.operator_statistics() == {}
    assert set(engine.store.files()) == engine.ledger.named_files()


def test_what_two_queries_share_stays_with_the_second(engine: Engine) -> None:
    for name in ("one", "two"):
        engine.add_query(name, SLIDING)
    for number in range(6):
        engine.appenders["a"].append(batch(number), {})
        settle(engine)
        if number == 2:
            engine.drop_query("one")
    engine.appenders["a"].finish()
    settle(engine)
    alone = answers(engine)["two"]
    assert sum(alone.values()) > 6


# -- queries that come while rows do -------------------------------------------------------------


def test_registration_holds_the_streams_first(engine: Engine, spark: Any, tmp_path: Path) -> None:
    """Rows that arrive, and what is dropped, between the start and the operators' own holds."""
    for number in range(4):
        engine.appenders["a"].append(batch(number), {})
    plain, meanwhile = engine.hosting.compile, iter(range(4, 9))

    def slow(cql: str, start: int | None, query: str = "") -> Any:
        if start is not None:  # the start is known, the operators hold nothing yet
            assert hold_of("q") in engine.ledger.consumers("s:a")
            for number in meanwhile:
                engine.appenders["a"].append(batch(number), {})
                engine.maintenance.retain(["s:a"])
        return plain(cql, start, query)

    engine.hosting.compile = slow  # type: ignore[method-assign]
    query = engine.add_query("q", "SELECT n FROM a")
    settle(engine)
    expected = [
        number * 12 + i
        for number in range(9)
        for i in range(12)
        if (2 * number + (i % 2)) * SECOND + i >= query.start
    ]
    assert sorted(engine.result("q")["n"].to_pylist()) == expected
    assert hold_of("q") not in engine.ledger.consumers("s:a")


def test_a_registration_that_was_cut_short_holds_nothing_after_a_restart(
    engine: Engine, spark: Any, tmp_path: Path
) -> None:
    with engine.ledger.transaction() as ledger:
        ledger.set_cursor(hold_of("q"), "s:a", 1, BEGINNING)
    engine.close()
    again = opened(spark, tmp_path / "home", {})
    assert again.ledger.consumers("s:a") == {}
    again.close()


def test_queries_come_and_go_while_others_look_after_segments(engine: Engine) -> None:
    """Retention and compaction in one thread, registration in another: nobody stumbles."""
    engine.add_query("steady", QUERIES["join"])
    problems: list[BaseException] = []
    done = threading.Event()

    def tidy() -> None:
        try:
            while not done.is_set():
                engine.maintenance.retain(["s:a"])
                for row in engine.ledger.streams():
                    engine.maintenance.compact(row["id"])
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=tidy)
    thread.start()
    try:
        for number in range(8):
            engine.appenders["a"].append(batch(number, 3), {})
            engine.add_query(f"q{number}", f"SELECT n + {number} AS n FROM a WHERE n > {number}")
            if number % 2:
                engine.drop_query(f"q{number}")
    finally:
        done.set()
        thread.join()
    assert problems == []
