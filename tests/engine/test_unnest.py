"""UNNEST agrees with DuckDB in every place where rows stand, whatever the batches."""

import pytest
from engine_runner import EngineRunner

from oracle.model import Column
from oracle.plain_sql import Case, made_up, problems, windows

pytestmark = pytest.mark.spark

COLUMNS = (Column("k", "string"), Column("v", "int"), Column("words", "string"))
VALUES = {"k": ("a", "b", None), "v": (1, 2, None), "words": ("x y", "y", "x x z", "z y x", None)}
SPLIT = "SELECT *, unnest(string_split(words, ' ')) AS w FROM s"
ELEMENTS = f"({SPLIT})"
CASES = {
    "comma": Case(
        "SELECT s.k, t.w, v FROM s, UNNEST(split(words, ' ')) AS t(w) WHERE w <> 'z' AND v > 0",
        f"SELECT k, w, v, ts_us AS ts FROM {ELEMENTS} WHERE w <> 'z' AND v > 0",
    ),
    "outer": Case(
        "SELECT k, w, n FROM s LEFT JOIN UNNEST(split(words, ' ')) WITH ORDINALITY AS t(w, n) "
        "ON TRUE",
        "SELECT k, w, n, ts_us AS ts FROM (SELECT *, unnest(string_split(words, ' ')) AS w, "
        "unnest(generate_series(1, len(string_split(words, ' ')))) AS n FROM s) "
        "UNION ALL SELECT k, NULL, NULL, ts_us FROM s WHERE words IS NULL",
    ),
    "window": Case(
        "SELECT w, count(*) AS n, sum(v) AS total FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] "
        "CROSS JOIN UNNEST(split(words, ' ')) AS t(w) GROUP BY w",
        "SELECT w, count(*) AS n, sum(v) AS total, e AS ts FROM "
        f"{windows(6, 3, table='elements')} GROUP BY e, w",
    ),
    "table": Case(
        "SELECT w, count(*) AS n FROM s LATERAL VIEW explode(split(words, ' ')) t AS w GROUP BY w",
        f"SELECT w, count(*) AS n FROM {ELEMENTS} GROUP BY w",
    ),
    "join": Case(
        "SELECT a.w, b.v FROM (SELECT k, explode(split(words, ' ')) AS w FROM s) AS a "
        "[RANGE 2 SECONDS] JOIN s [RANGE 2 SECONDS] AS b ON a.k = b.k AND a.w = 'z'",
        f"SELECT a.w, b.v, greatest(a.ts_us, b.ts_us) AS ts FROM {ELEMENTS} a, s b "
        "WHERE a.k = b.k AND a.w = 'z' AND abs(a.ts_us - b.ts_us) <= 2000000",
    ),
    "rows": Case(  # ties by all columns: elements have no position
        "SELECT max(w) AS top, count(*) AS n FROM (SELECT k, w FROM s, UNNEST(split(words, ' ')) "
        "AS t(w)) [PARTITION BY k ROWS 2] GROUP BY k",
        "SELECT max(w) AS top, count(*) AS n, tick AS ts FROM (SELECT DISTINCT k, ts_us AS tick "
        f"FROM {ELEMENTS}) q, (SELECT *, lead(ts_us, 2) OVER (PARTITION BY k ORDER BY ts_us, w) "
        f"AS until FROM {ELEMENTS}) r WHERE q.k IS NOT DISTINCT FROM r.k AND r.ts_us <= tick "
        "AND (until IS NULL OR until > tick) GROUP BY q.k, tick",
    ),
}


def test_elements_agree_with_duckdb(runner: EngineRunner) -> None:
    made = made_up("s", COLUMNS, VALUES, rows=40, seed=6)
    results = runner.run([made], {n: c.cql for n, c in CASES.items()}, {"s": [23, 17]})
    view = f"CREATE VIEW elements AS {SPLIT}"
    assert not problems([made], CASES, results, view)
