"""Tables beside tables: at every watermark what SQL gives over the rows so far.

Rows carry keys that change, so that groups vanish, matches are lost and NULLs come and go. After
each round of rows every query's table is compared with DuckDB's answer over the rows so far, and
its changes with its table.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from engine_runner import ForcedCompaction, arrived, compact_all, declare, rows_of, settle
from processors_together import Cluster, ClusterRunner
from table_queries import (
    GROUPED_VALUES,
    LOOKUPS,
    MORE_TABLES,
    OVER_TABLES,
    TABLES,
    WHOLE_STREAMS,
    Both,
)

from millstream.engine.engine import Engine
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane
from oracle.harness import cut, files_of
from oracle.model import Column, Row, Stream

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COLUMNS = {
    "a": (Column("id", "int"), Column("k", "int"), Column("v", "int")),
    "b": (Column("id", "int"), Column("k", "int"), Column("w", "int")),
}


def made_up(number: int, count: int) -> tuple[Stream, ...]:
    """Two streams over one clock; keys are few and often NULL, so that matches come and go."""
    chance = random.Random(number)
    rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    at = 0
    for _ in range(count):
        at += chance.choice((0, 1, SECOND, SECOND))
        name = chance.choice("ab")
        key = chance.choice((1, 1, 2, 3, None))
        rows[name].append(Row(at, (chance.randint(1, 4), key, chance.randint(0, 5))))
    return tuple(Stream(name, COLUMNS[name], tuple(rows[name])) for name in COLUMNS)


def plain(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(v for c, v in row.items() if c != "ts") for row in rows)


def expected(streams: Mapping[str, Sequence[Row]], sql: str) -> Counter[tuple[Any, ...]]:
    base = duckdb.connect()
    for name, rows in streams.items():
        names = ", ".join(f"{c.name} INTEGER" for c in COLUMNS[name])
        base.execute(f"CREATE TABLE {name} (ts BIGINT, pos BIGINT, {names})")
        for position, row in enumerate(rows):
            values = [row.ts, position, *row.values]
            base.execute(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", values)
    return Counter(base.execute(sql).fetchall())


def rounds(streams: tuple[Stream, ...], size: int) -> list[dict[str, Sequence[Row]]]:
    """What has arrived after each round of that many rows, both streams in order of time."""
    order = sorted((row.ts, s.name, i) for s in streams for i, row in enumerate(s.rows))
    ends = [*range(size, len(order), size), len(order)]
    by_name = {s.name: s for s in streams}
    return [
        {
            name: s.rows[: sum(1 for _, other, _ in order[:end] if other == name)]
            for name, s in by_name.items()
        }
        for end in ends
    ]


def check(
    spark: Any,
    home: Path,
    streams: tuple[Stream, ...],
    queries: Mapping[str, Both],
    size: int,
    between: Callable[[Engine], None] | None = None,
) -> None:
    engine = Engine(home, SparkPlane(spark), EngineSettings())
    declare(engine, streams)
    for name, both in queries.items():
        engine.add_query(name, both.cql)
    before = {s.name: 0 for s in streams}
    for so_far in rounds(streams, size):
        for stream in streams:
            rows = so_far[stream.name]
            part = Stream(stream.name, stream.columns, tuple(rows[before[stream.name] :]))
            before[stream.name] = len(rows)
            if part.rows:
                (table,) = files_of(part, [len(part.rows)])
                engine.appenders[stream.name].append(arrived(table), {})
        settle(engine, between)
        for name, both in queries.items():
            if both.table:
                found, wanted = plain(rows_of(engine, name)), expected(so_far, both.sql)
                assert found == wanted, (name, so_far)
    for appender in engine.appenders.values():
        appender.finish()
    settle(engine, between)
    for name, both in queries.items():
        found, wanted = plain(rows_of(engine, name)), expected(so_far, both.sql)
        assert found == wanted, (name, so_far)
    engine.close()


CHOSEN = (
    *("full", "not_in", "current", "rank", "first_rows", "except_all", "correlated"),
    "value_of_nothing",
)


def test_tables_beside_tables(spark: Any, tmp_path: Path) -> None:
    """In small rounds, merged between steps by chance; all of them for long, below."""
    queries = {name: (TABLES | MORE_TABLES)[name] for name in CHOSEN}
    check(spark, tmp_path / "home", made_up(1, 24), queries, 8, ForcedCompaction(0.1))


def test_streams_whose_rows_never_leave(spark: Any, tmp_path: Path) -> None:
    """Without windows outer joins, NOT IN and NOT EXISTS are tables of all rows so far."""
    chosen = ["streams_full", "streams_chain", "streams_not_in", "two_met", "counted_exists"]
    queries = {name: WHOLE_STREAMS[name] for name in (*chosen, "none_there", "decimals")}
    check(spark, tmp_path / "home", made_up(11, 24), queries, 8, ForcedCompaction(0.1))


def test_over_and_values_of_groups(spark: Any, tmp_path: Path) -> None:
    """Frames and values change when any row of the partition, or of the other table, does."""
    chosen = ["over_rows", "over_peers", "over_whole", "over_range", "having_correlated"]
    chosen += ["divided_by_value", "fails_in_passing"]
    queries = {name: (OVER_TABLES | GROUPED_VALUES)[name] for name in chosen}
    check(spark, tmp_path / "home", made_up(6, 24), queries, 8, ForcedCompaction(0.1))


def test_a_value_over_a_table_that_is_still_empty(spark: Any, tmp_path: Path) -> None:
    """`count(*) / count(DISTINCT id)` over no rows is NULL, and fails nobody."""
    mixed = made_up(6, 24)
    late = mixed[0].rows[-1].ts + SECOND
    later = tuple(Row(late + row.ts, row.values) for row in mixed[1].rows)
    streams = (mixed[0], Stream("b", COLUMNS["b"], later))
    queries = {"having_value": GROUPED_VALUES["having_value"]}
    check(spark, tmp_path / "home", streams, queries, len(mixed[0].rows))


def test_lookups_see_the_table_of_their_instant(spark: Any, tmp_path: Path) -> None:
    queries = {
        name: LOOKUPS[name]
        for name in (
            "lookup_left",
            "lookup_not_in",
            "window_value",
            "window_having",
            "window_except",
            "window_intersect_all",
        )
    }
    check(spark, tmp_path / "home", made_up(3, 24), queries, 12, ForcedCompaction(0.1))


@pytest.mark.soak
@pytest.mark.parametrize("size", [1, 5, 30])
@pytest.mark.parametrize(
    "queries",
    [TABLES, MORE_TABLES, LOOKUPS, OVER_TABLES | GROUPED_VALUES, WHOLE_STREAMS],
    ids=["joins", "more", "lookups", "over", "streams"],
)
@pytest.mark.parametrize("number", range(10, 13))
def test_tables_at_every_batch_size(
    number: int, queries: Mapping[str, Both], size: int, spark: Any, tmp_path: Path
) -> None:
    """Row by row, by few and in one go, with compaction always, or by chance."""
    forced = ForcedCompaction(0.1 if size == 1 else 1.0, number)
    check(spark, tmp_path / "home", made_up(number, 30), queries, size, forced)


def test_tables_that_move(spark: Any, tmp_path: Path) -> None:
    """Operators of tables change their processors while rows come, and everybody merges."""
    streams = made_up(4, 16)
    moves: list[str] = []

    def disturb(cluster: Cluster, chance: random.Random) -> None:
        for processor in cluster.alive.values():
            compact_all(processor.engine)
        operator = chance.choice(sorted(cluster.where))
        to = chance.choice([n for n in cluster.names if n != cluster.where[operator]])
        moves.append(operator)
        assert cluster.move([operator], to, cluster.exchange)

    chosen = {n: (TABLES | MORE_TABLES)[n] for n in ("left", "first_rows")}
    runner = ClusterRunner(spark, tmp_path, 2, seed=3, disturb=disturb)
    found = runner.run(streams, {n: both.cql for n, both in chosen.items()}, cut(streams, 4))
    so_far = {s.name: s.rows for s in streams}
    assert moves
    for name, both in chosen.items():
        assert plain(found[name]) == expected(so_far, both.sql), name
