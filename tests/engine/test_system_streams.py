"""Queries over the system itself: fed when used, bounded, not feeding on themselves, ending."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_engines import stream

from millstream.core.errors import CqlError, UsageError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.sources import system_rows, system_source
from millstream.engine.sources.push_source import PushSource
from millstream.engine.sources.system_source import SystemSource
from millstream.engine.steps.trains import alone
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.cql.parsing.parser import parse_query
from millstream.language.cql.system_streams import COLUMNS
from millstream.spark.plane import SparkPlane

ROWS = [{"at": t, "name": "ab"[t % 2], "n": t} for t in range(1, 11)]


# -- without Spark --------------------------------------------------------------------------------


def test_system_streams_are_known_but_not_listed() -> None:
    catalog = Catalog()
    assert [f.name for f in catalog.stream("SYS.steps").columns][:2] == ["at", "operator"]
    assert catalog.stream("sys.moves").name == "sys.moves"
    with pytest.raises(UsageError, match="no stream is declared"):
        raise UsageError(str(_unknown(catalog, "steps")))
    assert _unknown(catalog, "sys.nonsense").message == "unknown stream sys.nonsense"


def _unknown(catalog: Catalog, name: str) -> UsageError:
    with pytest.raises(UsageError) as told:
        catalog.stream(name)
    return told.value


@pytest.mark.parametrize("text", ["SELECT a FROM sys.", "SELECT a FROM x.steps"])
def test_only_names_of_the_system_have_a_dot(text: str) -> None:
    with pytest.raises(CqlError):
        parse_query(text)


def test_a_stream_of_ones_own_may_be_called_sys() -> None:
    assert parse_query("SELECT a FROM sys [RANGE 1 MINUTE] WHERE sys.a = 1")


# -- with Spark -----------------------------------------------------------------------------------


@pytest.fixture
def engine(spark: Any, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(tmp_path / "home", SparkPlane(spark))
    opened.add_stream(stream("s", source="push"))
    yield opened
    opened.close()


def source_of(engine: Engine, name: str) -> SystemSource:
    found = engine.sources[name]
    assert isinstance(found, SystemSource)
    return found


def push(engine: Engine, rows: list[dict[str, Any]]) -> None:
    door = engine.sources["s"]
    assert isinstance(door, PushSource)
    door.push("p", door.expected("p"), rows)


def run_steps(engine: Engine) -> None:
    """All steps that can be run, told to who listens."""
    for operator in list(engine.operators.values()):
        report = engine.runner.run(alone(operator), 1000)
        if report is not None:
            for listener in engine.on_step:
                listener(report.whole)


@pytest.mark.spark
def test_steps_are_told_to_queries_and_watchers_are_not_watched(engine: Engine) -> None:
    engine.add_query("plain", "SELECT name FROM s WHERE n > 4")
    assert not any(name.startswith("sys.") for name in engine.sources)
    engine.add_query(
        "watch", "SELECT steps.kind, rows_in, rows_out, seconds > 0 AS took FROM sys.steps"
    )
    source = source_of(engine, "sys.steps")
    engine.on_step.append(source.stepped)
    push(engine, ROWS)
    run_steps(engine)
    assert source.flush() == 1
    run_steps(engine)  # the watcher's own step
    assert source.flush() == 0
    got = engine.result("watch").drop_columns(["ts"]).to_pylist()
    assert got == [{"kind": "map", "rows_in": 10, "rows_out": 6, "took": True}]
    engine.drop_query("watch")
    push(engine, ROWS)
    run_steps(engine)
    assert source.flush() == 0  # nobody reads: nothing is gathered


@pytest.mark.spark
def test_how_well_queries_are_served_is_measured_and_told(engine: Engine) -> None:
    engine.add_query("plain", "SELECT name FROM s WHERE n > 4")
    engine.add_query("served", "SELECT query, ratio, delay >= evaluation AS late FROM sys.queries")
    push(engine, ROWS)
    run_steps(engine)
    told = engine.status()["queries"]["plain"]
    assert told["ratio"] >= 1.0, "a result is never there before its steps were done"
    assert told["ratio_communication"] == 0.0
    assert told["delay_s"] >= told["evaluation_s"] > 0
    source = source_of(engine, "sys.queries")
    source.look()
    assert source.flush() == 1, "of queries that have given results, and not of those who watch"
    run_steps(engine)
    (row,) = engine.result("served").drop_columns(["ts"]).to_pylist()
    assert row["query"] == "plain"
    assert row["ratio"] == pytest.approx(told["ratio"], abs=0.01)
    assert row["late"]


@pytest.mark.spark
def test_operators_admissions_and_moves_are_seen(engine: Engine) -> None:
    engine.add_query("plain", "SELECT name FROM s WHERE n > 4")
    engine.add_query("queues", "SELECT operator, queue_rows, queries FROM sys.operators")
    engine.add_query("who", "SELECT query, decision FROM sys.admissions")
    engine.add_query("moved", "SELECT operator, direction FROM sys.moves")
    push(engine, ROWS)
    for name in ("sys.operators", "sys.admissions", "sys.moves"):
        source_of(engine, name).look()
    engine.add_query("late", "SELECT n FROM s")
    operator = engine.queries["plain"].operators[0]
    kept = engine.operators.pop(operator)  # as a move away does
    for name in ("sys.admissions", "sys.moves"):
        source_of(engine, name).look()
    engine.operators[operator] = kept
    for name in ("sys.operators", "sys.admissions", "sys.moves"):
        source_of(engine, name).flush()
    run_steps(engine)

    def rows(query: str) -> list[dict[str, Any]]:
        return list(engine.result(query).drop_columns(["ts"]).to_pylist())

    assert rows("queues") == [{"operator": operator, "queue_rows": 10, "queries": 1}]
    assert [r["query"] for r in rows("who")] == ["plain", "queues", "who", "moved", "late"]
    assert {r["decision"] for r in rows("who")} == {"admitted"}
    assert rows("moved") == [{"operator": operator, "direction": "out"}]


@pytest.mark.spark
def test_on_a_cluster_rows_are_posted(spark: Any, tmp_path: Path) -> None:
    engine = Engine(tmp_path / "home", SparkPlane(spark))
    known = Catalog().stream("sys.moves")
    definition = StreamDefinition(known.name, known.columns, known.time, source={"source": "push"})
    engine.add_stream(definition)
    engine.add_query("moved", "SELECT at, operator, processor, direction, reason FROM sys.moves")
    door = engine.sources["sys.moves"]
    assert isinstance(door, PushSource)
    row = {"at": 5_000_000, "operator": "o:1", "kind": "map", "processor": "p1", "direction": "in"}
    assert door.push("manager", 1, [row, {**row, "at": 4_000_000}]).late == 1
    assert door.push("manager", 1, [row]).repeated
    for wrong in ({"operator": "o:2"}, {**row, "at": "soon"}, {**row, "operator": 3}):
        with pytest.raises(UsageError, match=r"none of sys\.moves"):
            door.push("manager", 2, [wrong])
    run_steps(engine)
    (told,) = engine.result("moved").to_pylist()
    assert (told["at"].timestamp(), told["processor"], told["reason"]) == (5.0, "p1", None)
    engine.close()


@pytest.mark.spark
def test_a_run_with_such_a_query_comes_to_its_end(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_source, "EVERY_SECONDS", 0.1)
    file = tmp_path / "rows.csv"
    file.write_text("".join(f"{t},a,{t}\n" for t in range(1, 50)))
    engine = Engine(tmp_path / "home", SparkPlane(spark))
    engine.add_stream(stream("s", path=str(file)))
    engine.add_query("plain", "SELECT name FROM s WHERE n > 4", from_beginning=True)
    engine.add_query(
        "work",
        "SELECT kind, count(*) AS steps, sum(rows_in) AS rows "
        "FROM sys.steps [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY kind",
        from_beginning=True,
    )
    loop = Loop(engine)
    loop.run()
    (told,) = engine.result("work").to_pylist()
    assert (told["kind"], told["rows"]) == ("map", 49)
    assert engine.result("plain").num_rows == 45
    engine.close()


def test_the_buffer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_source, "ROWS_KEPT", 3)
    definition = Catalog().stream("sys.moves")
    source = SystemSource(definition, None, None, None)  # type: ignore[arg-type]
    for n in range(5):
        source.note(operator=str(n), kind="map", processor="p", direction="in")
    assert (len(source._rows), source.lost) == (3, 2)
    table = system_rows.table_of(list(source._rows), definition)
    assert table["c1"].to_pylist() == ["2", "3", "4"]
    assert set(COLUMNS) == {
        "sys.operators",
        "sys.steps",
        "sys.queries",
        "sys.moves",
        "sys.admissions",
        "sys.alarms",
    }
