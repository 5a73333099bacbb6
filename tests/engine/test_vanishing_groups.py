"""Groups that vanish: a table over a table has one answer, whenever its changes were merged.

Orders pass through three states. In a table by state the first groups lose their last row;
no later change says so again.
"""

import random
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pyarrow as pa
import pytest
from engine_runner import (
    EngineRunner,
    ForcedCompaction,
    acknowledge_kept,
    arrived,
    compact_all,
    declare,
    rows_of,
    settle,
)
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from processors_together import Cluster, ClusterRunner
from test_oracle_properties import agrees

import millstream
from millstream.engine.engine import Engine
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane
from millstream.store import faults
from oracle.generate_tables import table_examples
from oracle.harness import Example, cut, files_of
from oracle.model import Column, Row, Stream

pytestmark = pytest.mark.spark

SECOND = 1_000_000
STATES = ("new", "paid", "shipped")
ORDERS, BATCH = 20, 5  # of the example
FEW_ORDERS, SMALL_BATCH = 8, 4  # where every step costs a merge of all streams as well
INNER = "(SELECT id, last(status) AS status, avg(x) AS x FROM orders GROUP BY id) t"
BY_STATUS = f"SELECT status, count(*) AS n FROM {INNER} GROUP BY status"
QUERIES = {
    "by_status": BY_STATUS,
    "groups": f"SELECT count(*) AS n, max(n) AS most FROM ({BY_STATUS}) u",
    "distinct": f"SELECT DISTINCT status FROM {INNER}",
    "having": f"SELECT status, count(*) AS n FROM {INNER} GROUP BY status HAVING count(*) < 7",
    "over_having": "SELECT count(*) AS n FROM"
    f" (SELECT status, count(*) AS n FROM {INNER} GROUP BY status HAVING count(*) < 7) u",
    "doubles": f"SELECT sum(x) AS total, avg(x) AS mean, stddev_pop(x) AS spread FROM {INNER}",
}


MERGED = ("by_status", "groups", "distinct")  # results that their operators keep and merge


def orders(count: int) -> Stream:
    """Every order is new, then every order is paid, then every order is shipped."""
    chance = random.Random(1)
    columns = (Column("id", "int"), Column("status", "string"), Column("x", "double"))
    passed = [(number, state, chance.random()) for state in STATES for number in range(count)]
    return Stream("orders", columns, tuple(Row(i * SECOND, row) for i, row in enumerate(passed)))


def arrivals(stream: Stream, size: int) -> list[pa.Table]:
    return [arrived(part) for part in files_of(stream, cut((stream,), size)[stream.name])]


def answers_of(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[tuple[Any, ...]]]:
    """Rows without their times; the last digits of a double are nobody's promise."""

    def plain(row: dict[str, Any]) -> tuple[Any, ...]:
        values = (v for c, v in row.items() if c != "ts")
        return tuple(round(v, 6) if isinstance(v, float) else v for v in values)

    return {name: sorted(map(plain, rows)) for name, rows in found.items()}


def expected(stream: Stream) -> dict[str, list[tuple[Any, ...]]]:
    values: dict[int, list[float]] = {}
    for row in stream.rows:
        values.setdefault(row.values[0], []).append(row.values[2])
    means = [fmean(found) for found in values.values()]
    count = len(values)
    return {
        "by_status": [("shipped", count)],
        "groups": [(1, count)],
        "distinct": [("shipped",)],
        "having": [],
        "over_having": [],
        "doubles": [tuple(round(f(means), 6) for f in (sum, fmean, pstdev))],
    }


def acknowledged(engine: Engine, _: int) -> Engine:
    """After a round: users have taken all changes."""
    acknowledge_kept(engine)
    return engine


def test_orders_that_pass_through_states(spark: Any, tmp_path: Path) -> None:
    """In batches of five, merged when enough has come together; what emptied is gone."""
    streams = (orders(ORDERS),)
    runner = EngineRunner(spark, tmp_path, after_round=acknowledged)
    chosen = {name: QUERIES[name] for name in MERGED}
    found = runner.run(streams, chosen, cut(streams, BATCH))
    assert answers_of(found) == {name: expected(streams[0])[name] for name in MERGED}


@pytest.mark.parametrize("size", [SMALL_BATCH, 3 * FEW_ORDERS], ids=["by_few", "whole"])
def test_with_compaction_between_any_two_steps(size: int, spark: Any, tmp_path: Path) -> None:
    streams = (orders(FEW_ORDERS),)
    runner = EngineRunner(spark, tmp_path, between_steps=ForcedCompaction())
    found = runner.run(streams, QUERIES, cut(streams, size))
    assert answers_of(found) == expected(streams[0])


def test_a_sum_of_doubles_is_taken_back_to_the_last_digit(spark: Any, tmp_path: Path) -> None:
    """The order in which doubles are added differs from step to step, with the files."""
    streams = (orders(ORDERS),)
    runner = EngineRunner(spark, tmp_path, after_round=acknowledged)
    found = runner.run(streams, {"doubles": QUERIES["doubles"]}, cut(streams, BATCH))
    assert answers_of(found) == {"doubles": expected(streams[0])["doubles"]}


class Crash(BaseException):
    """What a test does to the process."""


POINTS = ("step.written", "step.committed", "compaction.written", "compaction.committed")


def test_a_crash_in_the_middle_brings_no_group_back(spark: Any, tmp_path: Path) -> None:
    """In every round the process ends at another point, and a new one goes on."""
    streams = (orders(FEW_ORDERS),)
    crashes: list[str] = []

    plane = SparkPlane(spark)

    def opened() -> Engine:
        engine = Engine(tmp_path / "home", plane, EngineSettings())
        declare(engine, streams)
        for name in MERGED:
            engine.add_query(name, QUERIES[name])
        return engine

    def crash(wanted: str) -> Callable[[str], None]:
        def reached(point: str) -> None:
            if point == wanted:
                faults.set_hook(None)
                crashes.append(point)
                raise Crash(point)

        return reached

    engine = opened()
    for number, part in enumerate(arrivals(streams[0], SMALL_BATCH)):
        engine.appenders["orders"].append(part, {})
        faults.set_hook(crash(POINTS[(number - 1) % len(POINTS)]) if number else None)
        try:
            settle(engine, compact_all)
        except Crash:
            engine.close()
            engine = opened()
            settle(engine, compact_all)
        finally:
            faults.set_hook(None)
    engine.appenders["orders"].finish()
    settle(engine, compact_all)
    found = {name: rows_of(engine, name) for name in MERGED}
    engine.close()
    assert set(crashes) == set(POINTS)
    assert answers_of(found) == {name: expected(streams[0])[name] for name in MERGED}


SHOWN = (*MERGED, "having")


def test_the_table_of_a_session_after_its_changes_were_taken(spark: Any) -> None:
    """Whoever takes the changes lets them be merged; the table stays what it was."""
    columns = {"at": "long", "id": "int", "status": "string", "x": "double"}
    batches: dict[str, list[tuple[str, int]]] = {name: [] for name in SHOWN}
    with millstream.Session() as session:
        session.stream("orders", source="push", columns=columns, time="timestamp_seconds(at)")
        queries = {name: session.query(QUERIES[name], name) for name in SHOWN}
        for name, query in queries.items():
            query.on_batch(lambda table, _, name=name: batches[name].extend(changes_of(table)))
        stream = orders(ORDERS)
        rows = stream.rows
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            session.push("orders", [(row.ts // SECOND, *row.values) for row in part])
            session.wait()
        session.finish("orders")
        session.wait()
        found = {name: query.table().to_pylist() for name, query in queries.items()}
        engine = session.here("a look at its segments").engine
        merged = [
            name
            for name, query in engine.queries.items()
            if any(s.last > s.first for s in engine.ledger.segments(query.stream))
        ]
    assert set(MERGED) <= set(merged), "their changes were merged"
    assert answers_of(found) == {name: expected(stream)[name] for name in SHOWN}
    for name, changes in batches.items():
        sums: dict[str, int] = {}
        for row, sign in changes:
            sums[row] = sums.get(row, 0) + sign
        assert set(sums.values()) <= {0, 1}, name
        assert sum(sums.values()) == len(expected(stream)[name]), name


def changes_of(table: Any) -> list[tuple[str, int]]:
    """Each change of a batch as its row and sign."""
    return [
        (repr({c: v for c, v in row.items() if c != "op"}), 1 if row["op"] == "+" else -1)
        for row in table.to_pylist()
    ]


def test_a_query_that_comes_late_reads_merged_changes(spark: Any, tmp_path: Path) -> None:
    """It shares the table below, of which only what was not taken back is left."""
    streams = (orders(FEW_ORDERS),)
    engine = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings())
    declare(engine, streams)
    engine.add_query("by_status", QUERIES["by_status"])
    # holds the stream from its first row on, so that a late query has the same start
    engine.add_query(
        "all", "SELECT a.id FROM orders [UNBOUNDED] a JOIN orders [NOW] b ON a.id = b.id"
    )
    parts = arrivals(streams[0], SMALL_BATCH)
    for number, part in enumerate(parts):
        if number == len(parts) - 2:
            before = set(engine.operators)
            for name in ("groups", "distinct"):
                engine.add_query(name, QUERIES[name], from_beginning=True)
            assert len(set(engine.operators) - before) == 2, "they read tables that were there"
        engine.appenders["orders"].append(part, {})
        settle(engine, compact_all)
    engine.appenders["orders"].finish()
    settle(engine, compact_all)
    found = {name: rows_of(engine, name) for name in MERGED}
    engine.close()
    assert answers_of(found) == {name: expected(streams[0])[name] for name in found}


def test_tables_over_copies_of_tables(spark: Any, tmp_path: Path) -> None:
    """The table below lies on one processor, those over it on others, and everybody merges; then
    they move, and what they read back is what their new owner merged."""
    streams = (orders(FEW_ORDERS),)
    rounds: list[str] = []

    def disturb(cluster: Cluster, chance: random.Random) -> None:
        for processor in cluster.alive.values():
            compact_all(processor.engine)
        operator = chance.choice(sorted(cluster.where))
        rounds.append(operator)
        if len(rounds) % 2:
            return
        to = chance.choice([n for n in cluster.names if n != cluster.where[operator]])

        def between() -> None:
            cluster.exchange()
            cluster.steps()  # whoever stands amid what others have merged must get past it

        assert cluster.move([operator], to, between)

    runner = ClusterRunner(spark, tmp_path, 2, seed=2, disturb=disturb)
    chosen = {name: QUERIES[name] for name in MERGED}
    found = runner.run(streams, chosen, cut(streams, SMALL_BATCH))
    assert answers_of(found) == {name: expected(streams[0])[name] for name in chosen}


# -- made-up tables over tables -------------------------------------------------------------------

CHECKED = settings(
    max_examples=3,
    deadline=None,
    database=None,
    print_blob=True,
    phases=(Phase.generate,),  # an example takes a minute: too long to look for a smaller one
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)
FEW = 4


def agrees_whatever_the_batches(number: int, spark: Any, folder: Path) -> None:
    """Row by row with compaction by chance, by few and in one go with compaction always."""

    @seed(number)
    @CHECKED
    @given(table_examples())
    def check(made_up: Example) -> None:
        for size, share in ((1, 0.4), (FEW, 1.0), (len(made_up.streams[0].rows), 1.0)):
            note(f"in files of {size} rows")
            forced = ForcedCompaction(share, number)
            runner = EngineRunner(spark, folder / f"{size}", between_steps=forced)
            batches = cut(made_up.streams, size)
            agrees(Example(made_up.streams, batches, made_up.queries), runner)

    check()


def test_tables_over_tables_agree_with_duckdb(spark: Any, tmp_path: Path) -> None:
    agrees_whatever_the_batches(0, spark, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, 21))
def test_tables_over_tables_agree_with_duckdb_for_long(
    number: int, spark: Any, tmp_path: Path
) -> None:
    agrees_whatever_the_batches(number, spark, tmp_path)
