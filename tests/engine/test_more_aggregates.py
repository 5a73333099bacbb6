"""Aggregates over the values themselves agree with DuckDB: any batches, alone or shared."""

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from engine_runner import EngineRunner, ForcedCompaction

from millstream.engine.settings import EngineSettings
from oracle.model import Column, Row, Stream
from oracle.plain_sql import Case, made_up, problems, windows

pytestmark = pytest.mark.spark

COLUMNS = tuple(
    Column(name, type_)
    for name, type_ in (
        ("k", "string"), ("v", "int"), ("x", "double"), ("t", "string"), ("c", "boolean"),
        ("m", "decimal(12,2)"),
    )
)  # fmt: skip
VALUES = {
    "k": ("a", "a", "b", None),
    "v": (1, 2, 3, 5, 5, None),
    "x": (0.5, -1.25, 3.0, 8.0, None),
    "t": ("p", "q", "r", "s", None),
    "c": (True, True, False, None),
    "m": (Decimal("0.25"), Decimal("-7.10"), Decimal("12.00"), None),
}
# CQL, and the same in DuckDB over (ts_us, pos): rows in the order of time and position.
AT = "ts_us, pos"
AGGREGATES = {
    "sum(m)": "sum(m)",
    "round(CAST(avg(m) AS DOUBLE), 3)": "round(avg(m), 3)",
    "array_agg(t)": f"coalesce(list(t ORDER BY {AT}) FILTER (t IS NOT NULL), [])",
    "collect_list(v) FILTER (WHERE x > 0)":
        f"coalesce(list(v ORDER BY {AT}) FILTER (v IS NOT NULL AND x > 0), [])",
    "array_agg(t ORDER BY v DESC, x)":
        f"coalesce(list(t ORDER BY v DESC NULLS LAST, x NULLS FIRST, {AT}) "
        "FILTER (t IS NOT NULL), [])",
    "collect_set(v)": "coalesce(list_sort(list(DISTINCT v) FILTER (v IS NOT NULL)), [])",
    "string_agg(t, '-')": f"string_agg(t, '-' ORDER BY {AT})",
    "listagg(t, ', ') WITHIN GROUP (ORDER BY x)":
        f"string_agg(t, ', ' ORDER BY x NULLS FIRST, {AT})",
    "listagg(DISTINCT t, '')": "string_agg(DISTINCT t, '' ORDER BY t)",
    "array_agg(DISTINCT v ORDER BY v DESC)":
        "coalesce(list_reverse_sort(list(DISTINCT v) FILTER (v IS NOT NULL)), [])",
    "max_by(t, v)": f"last(t ORDER BY v, {AT}) FILTER (v IS NOT NULL)",
    "min_by(t, x)": f"first(t ORDER BY x, {AT}) FILTER (x IS NOT NULL)",
    "any_value(x)": f"first(x ORDER BY {AT}) FILTER (x IS NOT NULL)",
    "last(t) IGNORE NULLS": f"last(t ORDER BY {AT}) FILTER (t IS NOT NULL)",
    "count_if(v > 2)": "count(*) FILTER (v > 2)",
    "bool_and(c)": "bool_and(c)",
    "every(v > 0) FILTER (WHERE c)": "bool_and(v > 0) FILTER (c)",
    "bool_or(c)": "bool_or(c)",
    "bit_and(v)": "bit_and(v)",
    "bit_or(v)": "bit_or(v)",
    "bit_xor(v)": "bit_xor(v)",
    "median(x)": "median(x)",
    "percentile(v, 0.9)": "quantile_cont(v, 0.9)",
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC)": "quantile_cont(x, 0.75)",
    "percentile_approx(v, 0.7)": "list_sort(list(v) FILTER (v IS NOT NULL))"
        "[greatest(ceil(0.7 * count(v)), 1)::INT]",
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY t)": "list_sort(list(t) FILTER (t IS NOT NULL))"
        "[greatest(ceil(0.5 * count(t)), 1)::INT]",
    "mode(v)": "list_sort(list_transform(map_entries(histogram(v)), "
        "lambda p: {'n': -(p.value::INT), 'v': p.key}))[1].v",
    "histogram(t)": "coalesce(list_transform(map_entries(histogram(t)), "
        "lambda p: {'value': p.key, 'count': p.value::BIGINT}), [])",
    "approx_count_distinct(t)": "count(DISTINCT t)",
    "approx_count_distinct(x)": "count(DISTINCT x)",
    "covar_pop(v, x)": "covar_pop(v, x)",
    "covar_samp(v, x)": "covar_samp(v, x)",
    "corr(v, x)": "CASE WHEN regr_sxx(v, x) > 0 AND regr_syy(v, x) > 0 THEN corr(v, x) END",
    "regr_count(v, x)": "regr_count(v, x)",
    "regr_slope(v, x)": "CASE WHEN regr_sxx(v, x) > 0 THEN regr_slope(v, x) END",
    "regr_intercept(v, x)": "CASE WHEN regr_sxx(v, x) > 0 THEN regr_intercept(v, x) END",
    "regr_r2(v, x)": "CASE WHEN regr_sxx(v, x) > 0 THEN regr_r2(v, x) END",
    "regr_avgx(v, x)": "regr_avgx(v, x)",
    "regr_sxy(v, x)": "regr_sxy(v, x)",
}  # fmt: skip


def listed(choice: list[str]) -> tuple[str, str]:
    """The select lists of both languages."""
    cql = ", ".join(f"{name} AS a{i}" for i, name in enumerate(choice))
    sql = ", ".join(f"{AGGREGATES[name]} AS a{i}" for i, name in enumerate(choice))
    return cql, sql


def cases(seed: int) -> dict[str, Case]:
    """Every other aggregate in tumbling windows, those between them so far, some elsewhere."""
    everything = listed(list(AGGREGATES)[(seed + 1) % 2 :: 2])
    halves = listed(list(AGGREGATES)[seed % 2 :: 2])
    dice = random.Random(seed)
    some = [listed(dice.sample(list(AGGREGATES), 3)) for _ in range(4)]
    return {
        "tumbling": Case(
            f"SELECT k, {everything[0]} FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k",
            f"SELECT k, {everything[1]}, e AS ts FROM {windows(10, 10)} GROUP BY e, k",
        ),
        "so_far": Case(
            f"SELECT k, {halves[0]} FROM s GROUP BY k",
            f"SELECT k, {halves[1]} FROM s GROUP BY k",
        ),
        "hopping": Case(
            f"SELECT k, {some[0][0]} FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] WHERE v > 1 "
            "GROUP BY k",
            f"SELECT k, {some[0][1]}, e AS ts FROM {windows(6, 2, 'v > 1')} GROUP BY e, k",
        ),
        "many_windows": Case(  # by blocks of panes
            f"SELECT {some[1][0]} FROM s [RANGE 40 SECONDS SLIDE 1 SECOND]",
            f"SELECT {some[1][1]}, e AS ts FROM {windows(40, 1)} GROUP BY e",
        ),
        "now": Case(
            f"SELECT {some[2][0]} FROM s [NOW]",
            f"SELECT {some[2][1]}, ts_us AS ts FROM s GROUP BY ts_us"
        ),
        "of_a_table": Case(
            "SELECT max_by(k, n) AS most, median(n) AS middle, array_agg(n ORDER BY n) AS every_n "
            "FROM (SELECT k, count(*) AS n FROM s GROUP BY k) AS t WHERE k IS NOT NULL",
            "SELECT last(k ORDER BY n, latest, k) AS most, median(n) AS middle, "
            "list(n ORDER BY n) AS every_n FROM "
            "(SELECT k, count(*) AS n, max(ts_us) AS latest FROM s WHERE k IS NOT NULL GROUP BY k)",
        ),
    }  # fmt: skip


def stream(seed: int, rows: int = 60) -> Stream:
    return made_up("s", COLUMNS, VALUES, rows=rows, seed=seed)


def test_aggregates_agree_with_duckdb_together(runner: EngineRunner) -> None:
    made, asked = stream(1), cases(1)
    texts = {name: case.cql for name, case in asked.items()}
    results = runner.run([made], texts, {"s": [25, 1, 34]})
    assert not problems([made], asked, results)


def test_aggregates_agree_with_duckdb_alone(spark: Any, tmp_path: Path) -> None:
    """Other data, other batches, and nobody shares anything."""
    made = stream(2, rows=40)
    asked = {n: c for n, c in cases(2).items() if n in ("tumbling", "so_far")}
    texts = {name: case.cql for name, case in asked.items()}
    alone = EngineRunner(spark, tmp_path, EngineSettings(sharing="none"))
    results = alone.run([made], texts, {"s": [40]})
    assert not problems([made], asked, results)


def test_averages_of_decimals_bear_compaction(spark: Any, tmp_path: Path) -> None:
    """A stream's files are merged between any two steps, so they must have one type."""
    made, average = stream(3), "round(CAST(avg(m) AS DOUBLE), 4)"  # Spark keeps six digits
    asked = {
        "so_far": Case(
            f"SELECT k, {average} AS a, sum(m) AS b FROM s GROUP BY k",
            "SELECT k, round(avg(m), 4) AS a, sum(m) AS b FROM s GROUP BY k",
        ),
        "sliding": Case(
            f"SELECT k, {average} AS a FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k",
            f"SELECT k, round(avg(m), 4) AS a, e AS ts FROM {windows(6, 2)} GROUP BY e, k",
        ),
        "of_a_table": Case(
            f"SELECT {average.replace('(m)', '(b)')} AS a FROM "
            "(SELECT k, sum(m) AS b FROM s GROUP BY k) AS t",
            "SELECT round(avg(b), 4) AS a FROM (SELECT k, sum(m) AS b FROM s GROUP BY k)",
        ),
    }
    texts = {name: case.cql for name, case in asked.items()}
    merged = EngineRunner(spark, tmp_path, between_steps=ForcedCompaction())
    assert not problems([made], asked, merged.run([made], texts, {"s": [20, 20, 20]}))


def test_a_sketch_does_not_show_how_its_rows_were_cut(spark: Any, tmp_path: Path) -> None:
    """Far more values than a sketch holds one by one; its error is that of its size."""
    columns = (Column("n", "bigint"),)
    made = Stream("s", columns, tuple(Row(i, (i * 7919,)) for i in range(30_000)), 0)
    texts = {
        "q": "SELECT approx_count_distinct(n) AS about FROM s [RANGE 1 DAY SLIDE 1 DAY]",
        "rough": "SELECT approx_count_distinct(n, 0.1) AS about FROM s [RANGE 1 DAY SLIDE 1 DAY]",
    }
    whole = EngineRunner(spark, tmp_path / "whole").run([made], texts, {"s": [30_000]})
    parts = EngineRunner(spark, tmp_path / "parts").run([made], texts, {"s": [10_000] * 3})
    assert whole == parts
    assert abs(whole["q"][0]["about"] - 30_000) < 0.06 * 30_000
    assert abs(whole["rough"][0]["about"] - 30_000) < 0.4 * 30_000
