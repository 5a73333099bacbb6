"""GROUPING SETS, ROLLUP and CUBE, parts of `*` and of JSON agree with DuckDB, in any batches."""

import pytest
from engine_runner import EngineRunner

from oracle.model import Column
from oracle.plain_sql import Case, made_up, problems, windows

pytestmark = pytest.mark.spark

COLUMNS = (Column("k", "string"), Column("v", "int"), Column("x", "double"), Column("j", "string"))
VALUES = {
    "k": ("a", "b", None), "v": (1, 2, None), "x": (0.5, 1.5, -2.0),
    "j": ('{"u": {"w": 3}, "l": [4, "five"]}', '{"u": {"w": "x y"}}', "{}", None),
}  # fmt: skip
TUMBLING = "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
CASES = {
    "rollup": Case(
        f"SELECT k, v, grouping(v) AS g, count(*) AS n, sum(x) AS total {TUMBLING} "
        "GROUP BY ROLLUP (k, v)",
        "SELECT k, v, grouping(v) AS g, count(*) AS n, sum(x) AS total, e AS ts "
        f"FROM {windows(10, 10)} GROUP BY e, ROLLUP (k, v)",
    ),
    "cube": Case(
        "SELECT window_end AS b, k, v % 2 AS odd, grouping_id(k, v % 2) AS g, count(*) AS n "
        f"{TUMBLING} GROUP BY window_end, CUBE (k, v % 2) HAVING count(*) > 1",
        "SELECT e AS b, k, v % 2 AS odd, grouping_id(k, v % 2) AS g, count(*) AS n, e AS ts "
        f"FROM {windows(10, 10)} GROUP BY e, CUBE (k, v % 2) HAVING count(*) > 1",
    ),
    "sets_of_a_table": Case(
        "SELECT k, v, count(*) AS n FROM s GROUP BY GROUPING SETS ((k), (v), ())",
        "SELECT k, v, count(*) AS n FROM s GROUP BY GROUPING SETS ((k), (v), ())",
    ),
    "except": Case(
        "SELECT * EXCEPT (x, j) REPLACE (v * 10 AS v) FROM s WHERE k = 'a'",
        "SELECT k, v * 10 AS v, ts_us AS ts FROM s WHERE k = 'a'",
    ),
    # a field that is NULL leaves no row out; fields are named after their columns
    "structs": Case(
        f"SELECT k, max(struct(v, k)).v AS most, count(DISTINCT struct(v, k)) AS n {TUMBLING} "
        "WHERE v IS NOT NULL GROUP BY k",
        "SELECT k, max(v) AS most, count(DISTINCT v) AS n, e AS ts "
        f"FROM {windows(10, 10, 'v IS NOT NULL')} GROUP BY e, k",
    ),
    "odd_names": Case(
        f"SELECT k, last(named_struct('two words', v, '2', k)).`two words` AS w {TUMBLING} "
        "GROUP BY k",
        f"SELECT k, last(v ORDER BY ts_us, pos) AS w, e AS ts FROM {windows(10, 10)} GROUP BY e, k",
    ),
    "zipped": Case(
        "SELECT z[0].l AS l, z[1].n AS n, z[1].`2` AS c, size(z) AS z FROM (SELECT arrays_zip(l, "
        "n, array(3)) AS z FROM (SELECT split(j, ':') AS l, array(v, 7) AS n FROM s))",
        "SELECT string_split(j, ':')[1] AS l, CASE WHEN j IS NOT NULL THEN 7 END AS n, "
        "NULL AS c, greatest(len(string_split(j, ':')), CASE WHEN j IS NOT NULL THEN 2 END) AS z, "
        "ts_us AS ts FROM s",
    ),
    "json": Case(
        "SELECT j -> 'u' ->> 'w' AS w, j -> 'l' -> 1 AS l, json_value(j, '$.u.w') AS same FROM s",
        "SELECT j::JSON -> 'u' ->> 'w' AS w, j::JSON -> 'l' ->> 1 AS l, "
        "j::JSON ->> '$.u.w' AS same, ts_us AS ts FROM s",
    ),
}


def test_groupings_and_parts_agree_with_duckdb(runner: EngineRunner) -> None:
    made = made_up("s", COLUMNS, VALUES, rows=30, seed=5)
    results = runner.run([made], {n: c.cql for n, c in CASES.items()}, {"s": [13, 17]})
    assert not problems([made], CASES, results)
