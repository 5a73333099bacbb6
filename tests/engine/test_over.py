"""OVER agrees with DuckDB, whatever the batches, the disorder and the sharing."""

import random
from pathlib import Path
from typing import Any

import pytest
from engine_runner import EngineRunner, ForcedCompaction
from processors_together import Cluster, ClusterRunner, CrashPlan
from test_moves import Disturbance

from millstream.engine.settings import EngineSettings
from millstream.spark.operators.over import by_blocks
from millstream.store import faults
from oracle.generate_over import overs
from oracle.model import Column, Stream
from oracle.plain_sql import SECOND, Case, made_up, problems

pytestmark = pytest.mark.spark

COLUMNS = (Column("k", "string"), Column("v", "int"), Column("x", "double"))
VALUES = {
    "k": (*"aaabbc", None),
    "v": (1, 2, 3, 3, None),
    "x": (0.5, 1.5, -2.0, 1e18, None),
}
BY_TIME = "PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '4' SECOND PRECEDING AND CURRENT ROW"
TIME = f"PARTITION BY k ORDER BY ts_us RANGE BETWEEN {4 * SECOND} PRECEDING AND CURRENT ROW"
BY_ROWS = "PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"
ROWS = "PARTITION BY k ORDER BY ts_us, pos ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"
NEXT = "PARTITION BY k ORDER BY ts_us, pos"
CASES = {
    "time": Case(
        f"SELECT k, v, count(*) OVER ({BY_TIME}) AS n, sum(v) OVER ({BY_TIME}) AS total, "
        f"avg(v) OVER ({BY_TIME}) AS mean, min(x) OVER ({BY_TIME}) AS low, "
        f"max(v) FILTER (WHERE x > 0) OVER ({BY_TIME}) AS high, "
        f"sum(v) FILTER (WHERE x > 0) OVER ({BY_TIME}) AS some, "
        f"first(x) OVER ({BY_TIME}) AS opening, last_value(x) OVER ({BY_TIME}) AS closing, "
        f"count(DISTINCT v) OVER ({BY_TIME}) AS kinds, nth_value(v, 2) OVER ({BY_TIME}) AS second "
        "FROM s",
        f"SELECT k, v, count(*) OVER ({TIME}) AS n, sum(v) OVER ({TIME}) AS total, "
        f"avg(v) OVER ({TIME}) AS mean, min(x) OVER ({TIME}) AS low, "
        f"max(v) FILTER (WHERE x > 0) OVER ({TIME}) AS high, "
        f"sum(v) FILTER (WHERE x > 0) OVER ({TIME}) AS some, "
        "list_extract(x_list, 1).x AS opening, list_extract(x_list, -1).x AS closing, "
        f"count(DISTINCT v) OVER ({TIME}) AS kinds, list_extract(x_list, 2).v AS second, "
        "ts_us AS ts FROM (SELECT *, list_sort(list({'ts': ts_us, 'pos': pos, 'x': x, 'v': v}) "
        f"OVER ({TIME})) AS x_list FROM s)",
    ),
    "time_around": Case(  # waits for rows after it
        "SELECT k, sum(v) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND "
        "INTERVAL '2' SECOND FOLLOWING) AS total, max(x) OVER (ORDER BY ts RANGE BETWEEN "
        "INTERVAL '1' SECOND FOLLOWING AND INTERVAL '3' SECOND FOLLOWING) AS next_x FROM s",
        f"SELECT k, sum(v) OVER (ORDER BY ts_us RANGE BETWEEN {SECOND} PRECEDING AND {2 * SECOND} "
        f"FOLLOWING) AS total, max(x) OVER (ORDER BY ts_us RANGE BETWEEN {SECOND} FOLLOWING AND "
        f"{3 * SECOND} FOLLOWING) AS next_x, ts_us AS ts FROM s",
    ),
    "rows": Case(
        f"SELECT k, x, sum(v) OVER ({BY_ROWS}) AS total, count(v) OVER ({BY_ROWS}) AS n, "
        f"stddev(v) OVER ({BY_ROWS}) AS spread, array_agg(v) OVER ({BY_ROWS}) AS vs, "
        f"first_value(v) IGNORE NULLS OVER ({BY_ROWS}) AS opening, nth_value(v, 2) OVER ({BY_ROWS})"
        " AS second, sum(v) OVER (ORDER BY ts ROWS 4 PRECEDING) AS of_all FROM s WHERE x IS NULL "
        "OR x < 10",
        f"SELECT k, x, sum(v) OVER ({ROWS}) AS total, count(v) OVER ({ROWS}) AS n, "
        f"stddev(v) OVER ({ROWS}) AS spread, list_filter(list(v) OVER ({ROWS}), lambda e: e IS NOT "
        f"NULL) AS vs, first_value(v IGNORE NULLS) OVER ({ROWS}) AS opening, nth_value(v, 2) OVER "
        f"({ROWS}) AS second, sum(v) OVER (ORDER BY ts_us, pos ROWS 4 PRECEDING) AS of_all, "
        "ts_us AS ts FROM s WHERE x IS NULL OR x < 10",
    ),
    "lag_lead": Case(
        "SELECT k, v, v - LAG(v) OVER w AS step, LAG(v, 2, -1) OVER w AS two, LEAD(v) OVER w AS "
        "ahead, LEAD(x, 2, v * 1.0D) OVER w AS far, LAG(k) OVER (ORDER BY ts) AS before FROM s "
        "WINDOW w AS (PARTITION BY k ORDER BY ts)",
        f"SELECT k, v, v - LAG(v) OVER ({NEXT}) AS step, LAG(v, 2, -1) OVER ({NEXT}) AS two, "
        f"LEAD(v) OVER ({NEXT}) AS ahead, LEAD(x, 2, v::DOUBLE) OVER ({NEXT}) AS far, "
        "LAG(k) OVER (ORDER BY ts_us, pos) AS before, ts_us AS ts FROM s",
    ),
    "so_far": Case(
        "SELECT k, row_number() OVER (PARTITION BY k ORDER BY ts) AS nr, sum(v) OVER (PARTITION BY "
        "k ORDER BY ts) AS total, avg(v) OVER (PARTITION BY k ORDER BY ts ROWS UNBOUNDED PRECEDING)"
        " AS mean, min(x) OVER (ORDER BY ts) AS low, first_value(v) OVER (PARTITION BY k ORDER BY "
        "ts) AS opening, last(v) IGNORE NULLS OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN "
        "UNBOUNDED PRECEDING AND CURRENT ROW) AS known FROM s",
        f"SELECT k, row_number() OVER ({NEXT}) AS nr, sum(v) OVER (PARTITION BY k ORDER BY ts_us) "
        f"AS total, avg(v) OVER ({NEXT} ROWS UNBOUNDED PRECEDING) AS mean, min(x) OVER (ORDER BY "
        f"ts_us) AS low, first_value(v) OVER ({NEXT}) AS opening, last_value(v IGNORE NULLS) OVER "
        f"({NEXT} ROWS UNBOUNDED PRECEDING) AS known, ts_us AS ts FROM s",
    ),
    "first_of_key": Case(  # how Flink keeps the first row of each key
        "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, v ORDER BY ts) AS n FROM s)"
        " WHERE n = 1",
        "SELECT k, v, ts_us AS ts FROM s QUALIFY row_number() OVER (PARTITION BY k, v ORDER BY "
        "ts_us, pos) = 1",
    ),
    "qualify": Case(
        "SELECT k, v, LAG(v) OVER (PARTITION BY k ORDER BY ts) AS before FROM s "
        "WHERE v IS NOT NULL QUALIFY v > before AND count(*) OVER (ORDER BY ts) > 4",
        f"SELECT k, v, LAG(v) OVER ({NEXT}) AS before, ts_us AS ts FROM s WHERE v IS NOT NULL "
        "QUALIFY v > before AND count(*) OVER (ORDER BY ts_us) > 4",
    ),
    "of_results": Case(  # over what windows give
        "SELECT k, count(*) AS n, count(*) - LAG(count(*)) OVER (PARTITION BY k ORDER BY "
        "window_end) AS more, sum(sum(v)) OVER (PARTITION BY k ORDER BY ts ROWS 2 PRECEDING) AS "
        "three FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k",
        "SELECT k, n, n - LAG(n) OVER (PARTITION BY k ORDER BY ts) AS more, sum(total) OVER "
        "(PARTITION BY k ORDER BY ts ROWS 2 PRECEDING) AS three, ts FROM (SELECT k, count(*) AS n, "
        f"sum(v) AS total, (ts_us // {5 * SECOND} + 1) * {5 * SECOND} AS ts FROM s GROUP BY 1, 4)",
    ),
    "under_windows": Case(  # windows over what OVER gives, delayed as LEAD is
        "SELECT count(*) AS n, max(gap) AS top FROM (SELECT v, LEAD(v) OVER (ORDER BY ts) - v AS "
        "gap FROM s) AS t [RANGE 5 SECONDS SLIDE 5 SECONDS]",
        "SELECT count(*) AS n, max(gap) AS top, (ts_us // 5000000 + 1) * 5000000 AS ts FROM ("
        "SELECT ts_us, LEAD(v) OVER (ORDER BY ts_us, pos) - v AS gap FROM s) GROUP BY 3",
    ),
}  # fmt: skip


def stream(seed: int, rows: int) -> Stream:
    return made_up("s", COLUMNS, VALUES, rows=rows, seed=seed)


@pytest.mark.parametrize(("seed", "size", "sharing"), [(5, 30, "subsuming"), (6, 7, "none")])
def test_over_agrees_with_duckdb(
    seed: int, size: int, sharing: str, spark: Any, tmp_path: Path
) -> None:
    batches = 2 if seed == 5 else 3
    made = stream(seed, size * batches)
    disturbed = EngineRunner(
        spark, tmp_path, EngineSettings(sharing=sharing), between_steps=ForcedCompaction(share=0.3)
    )
    asked = {n: c for n, c in CASES.items() if seed == 5 or n in ("time", "lag_lead", "so_far")}
    texts = {name: case.cql for name, case in asked.items()}
    results = disturbed.run([made], texts, {"s": [size] * batches})
    assert not problems([made], asked, results)


def wide(seed: int, rows: int) -> Stream:
    columns = (*COLUMNS[:1], Column("g", "int"), *COLUMNS[1:])
    values = {**VALUES, "g": (0, 1), "x": (0.5, 1.25, -2.0, None)}
    return made_up("s", columns, values, rows=rows, seed=seed)


def check_made_up(seed: int, count: int, spark: Any, folder: Path) -> None:
    dice = random.Random(seed)
    sizes = [dice.choice((5, 13, 20)), 1, dice.choice((5, 13))]
    made, cases = wide(seed, sum(sizes)), overs(seed, count)
    runner = EngineRunner(spark, folder, between_steps=ForcedCompaction(share=0.5, seed=seed))
    results = runner.run([made], {n: c.cql for n, c in cases.items()}, {"s": sizes})
    assert not problems([made], cases, results)


def test_frames_from_blocks_agree_with_duckdb(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_blocks, "DIRECT_ROWS_MAX", 0)
    monkeypatch.setattr(by_blocks, "BLOCKS_A_FRAME", 5)
    made = wide(9, 60)
    near = f"({BY_TIME.replace('4', '3')})"
    every = (
        "SELECT k, v, count(*) OVER {0} AS n, sum(x) OVER {0} AS total, max(v) OVER {0} AS top, "
        "min(x) OVER {0} AS low, stddev_pop(v) OVER {0} AS spread, count(DISTINCT v) OVER {0} AS "
        "kinds, avg(v) FILTER (WHERE x > 0) OVER {0} AS some, sum(v) OVER {1} AS of_all{2} FROM s"
    )
    around = "(ORDER BY {0} RANGE BETWEEN {1}2{2} PRECEDING AND {1}1{2} FOLLOWING)"
    case = Case(
        every.format(near, around.format("ts", "INTERVAL '", "' SECOND"), ""),
        every.format(
            f"({TIME.replace(str(4 * SECOND), str(3 * SECOND))})",
            around.format("ts_us", "", "000000"), ", ts_us AS ts",
        ),
    )  # fmt: skip
    results = EngineRunner(spark, tmp_path).run([made], {"q": case.cql}, {"s": [40, 20]})
    assert not problems([made], {"q": case}, results)


def test_made_up_queries_agree_with_duckdb(spark: Any, tmp_path: Path) -> None:
    check_made_up(8, 4, spark, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 112))
def test_many_made_up_queries_agree_with_duckdb(seed: int, spark: Any, tmp_path: Path) -> None:
    check_made_up(seed, 10, spark, tmp_path)


MOVED = ("lag_lead", "so_far", "time_around", "under_windows")
POINTS = ("seal.committed", "take.committed")


def test_moved_and_crashed_over_gives_the_same(spark: Any, tmp_path: Path) -> None:
    made = stream(7, 60)
    cases = {name: CASES[name] for name in MOVED}
    plan, disturbance, left = CrashPlan(), Disturbance(3), list(POINTS)

    def disturb(cluster: Cluster, chance: random.Random) -> None:
        disturbance(cluster, chance)
        if not left:
            return
        plan.arm(left.pop(0))
        for _ in range(12):
            disturbance.one(cluster, chance)
            if plan.at:
                break
        assert plan.at, "never reached"
        cluster.revive()

    runner = ClusterRunner(spark, tmp_path, 2, seed=3, disturb=disturb)
    faults.set_hook(plan)
    try:
        results = runner.run([made], {n: c.cql for n, c in cases.items()}, {"s": [20] * 3})
    finally:
        faults.set_hook(None)
    assert disturbance.done >= 9
    assert not problems([made], cases, results)
