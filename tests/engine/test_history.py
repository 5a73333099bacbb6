"""Streams that keep history: what stays, from where a query begins, how far it is with it."""

from pathlib import Path

from millstream.engine.engine import Engine
from millstream.engine.maintenance import HISTORY_ROWS_MAX
from millstream.engine.ports import CompiledQuery, Step
from millstream.engine.steps.trains import alone
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.nodes import Plan, Source
from millstream.language.plan.schema import Field
from millstream.language.share.dataflow import Operator
from millstream.store.moves.ownership import definition_of, definition_text
from plain_plane import PlainPlane, Read, Rows, read, write

COLUMNS = (Field("c0", "bigint"),)


def declared(retain_us: int | None) -> StreamDefinition:
    return StreamDefinition("a", COLUMNS, "ts", source={"source": "push"}, retain_us=retain_us)


def compiled(cql: str) -> CompiledQuery:
    base = Source("a", COLUMNS)
    operator = Operator(f"o:{cql}", "map", base, None, ("s:a",))
    return CompiledQuery(Plan(base, COLUMNS, relation=False), (operator,), operator.id)


def compute(step: Step, rows_of: Read) -> tuple[Rows, Rows | None]:
    return rows_of(step.new), None


def opened(home: Path, retain_us: int | None = 50) -> Engine:
    engine = Engine(home, PlainPlane(compiled, compute))
    engine.add_stream(declared(retain_us))
    return engine


def came(engine: Engine, *times: int) -> None:
    """A batch of rows, and what a loop does after it."""
    with engine.ledger.transaction() as ledger:
        ledger.publish("s:a", [write(engine.store, [(t, t) for t in times])], times[-1])
    engine.maintenance.retain(["s:a"])


def times_kept(engine: Engine) -> list[int]:
    return [t for t, _ in read(engine.store, engine.ledger.segments("s:a"))]


def run(engine: Engine, name: str, rows: int = 1) -> None:
    engine.runner.run(alone(engine.operators[f"o:{name}"]), rows)


def test_rows_stay_for_so_long_behind_the_newest(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    for time in range(0, 200, 10):
        came(engine, time)
    assert times_kept(engine) == [140, 150, 160, 170, 180, 190]
    engine.close()
    without = opened(tmp_path / "without", None)
    for time in range(0, 200, 10):
        came(without, time)
    assert times_kept(without) == [190]
    without.close()


def test_the_end_of_a_stream_takes_no_history(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    came(engine, 100)
    came(engine, 120)
    with engine.ledger.transaction() as ledger:
        ledger.publish("s:a", [], 2**62)
    engine.maintenance.retain(["s:a"])
    assert times_kept(engine) == [100, 120]
    engine.close()


def test_a_query_begins_with_history_and_goes_on(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    for time in range(0, 200, 10):
        came(engine, time)
    query = engine.add_query("q", "q", from_beginning=True)
    assert query.start == 131  # what lies before is not all there
    came(engine, 200)  # 140 goes out of history, and stays for the query
    assert engine.status()["queries"]["q"]["history_rows"] == 6
    run(engine, "q", 2)
    told = engine.status()["queries"]["q"]
    assert told["history_rows"] == 4
    assert told["history_s"] is not None
    for _ in range(3):
        run(engine, "q", 2)
    assert "history_rows" not in engine.status()["queries"]["q"]
    made = read(engine.store, engine.ledger.segments("o:q"))
    assert [t for t, _ in made] == list(range(140, 210, 10))
    engine.close()


def test_progress_outlives_a_restart_and_ends_with_the_query(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    came(engine, 1)
    came(engine, 2)
    engine.add_query("q", "q", from_beginning=True)
    run(engine, "q")
    engine.close()
    again = opened(tmp_path)
    again.add_query("q", "q")
    assert again.status()["queries"]["q"]["history_rows"] == 1
    again.drop_query("q")
    assert again.ledger.meta("history:q") is None
    came(again, 3)
    again.add_query("q", "q")  # from now on: no history
    came(again, 4)
    assert "history_rows" not in again.status()["queries"]["q"]
    again.close()


def test_history_that_nobody_reads_is_merged(tmp_path: Path) -> None:
    engine = opened(tmp_path, 10_000)
    for time in range(12):
        came(engine, time)
    assert "s:a" in engine.maintenance.grown()
    while engine.maintenance.compact("s:a"):
        pass
    assert len(engine.ledger.segments("s:a")) < 6
    assert times_kept(engine) == list(range(12))
    assert HISTORY_ROWS_MAX < 500_000  # less than a step takes at most
    engine.close()


def test_a_declaration_keeps_its_history_in_the_ledger() -> None:
    assert definition_of(definition_text(declared(7))).retain_us == 7
    assert definition_of(definition_text(declared(None))).retain_us is None
