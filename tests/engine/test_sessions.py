"""Sessions agree with DuckDB (`lag` and a running sum), whatever the batches and the disorder."""

from pathlib import Path
from typing import Any

import pytest
from engine_runner import EngineRunner, ForcedCompaction

from millstream.engine.settings import EngineSettings
from oracle.model import Column, Stream
from oracle.plain_sql import SECOND, Case, made_up, problems

pytestmark = pytest.mark.spark

COLUMNS = (Column("k", "string"), Column("v", "int"), Column("x", "double"))
VALUES = {"k": ("a", "b", None), "v": (1, 2, 3, None), "x": (0.5, 1.5, -2.0)}


def sessions(gap_s: float, keys: str = "k", condition: str = "TRUE") -> str:
    """FROM of rows with the number `session` of the run that they are in."""
    by = f"PARTITION BY {keys}" if keys else ""
    gap = int(gap_s * SECOND)
    return (
        f"(SELECT *, sum(opens) OVER ({by} ORDER BY ts_us, pos) AS session FROM (SELECT *, "
        f"coalesce(ts_us - lag(ts_us) OVER ({by} ORDER BY ts_us, pos) >= {gap}, TRUE)::INT "
        f"AS opens FROM s WHERE {condition}))"
    )


CASES = {
    "by_key": Case(
        "SELECT k, window_start AS a, window_end AS b, count(*) AS n, sum(v) AS total, "
        "avg(x) AS mean, string_agg(v, '-') AS all_v, first(x) AS opening "
        "FROM s [SESSION 2 SECONDS] GROUP BY k",
        f"SELECT k, min(ts_us) AS a, max(ts_us) + {2 * SECOND} AS b, count(*) AS n, "
        "sum(v) AS total, avg(x) AS mean, string_agg(v, '-' ORDER BY ts_us, pos) AS all_v, "
        f"first(x ORDER BY ts_us, pos) AS opening, max(ts_us) + {2 * SECOND} AS ts "
        f"FROM {sessions(2)} GROUP BY k, session",
    ),
    "of_all": Case(
        "SELECT count(*) AS n, max(v) AS top FROM s [SESSION 1 SECOND]",
        f"SELECT count(*) AS n, max(v) AS top, max(ts_us) + {SECOND} AS ts "
        f"FROM {sessions(1, '')} GROUP BY session",
    ),
    "filtered": Case(
        "SELECT k, count(*) AS n FROM s [SESSION 4 SECONDS] WHERE v > 1 GROUP BY k "
        "HAVING count(*) > 1",
        f"SELECT k, count(*) AS n, max(ts_us) + {4 * SECOND} AS ts "
        f"FROM {sessions(4, 'k', 'v > 1')} GROUP BY k, session HAVING count(*) > 1",
    ),
    "long_ones": Case(  # open over many batches
        "SELECT k, count(*) AS n, median(x) AS middle FROM s [SESSION 9 SECONDS] GROUP BY k",
        f"SELECT k, count(*) AS n, median(x) AS middle, max(ts_us) + {9 * SECOND} AS ts "
        f"FROM {sessions(9)} GROUP BY k, session",
    ),
    "of_a_subquery": Case(  # results of sessions are a stream
        "SELECT max(n) AS most FROM (SELECT k, count(*) AS n FROM s [SESSION 2 SECONDS] "
        "GROUP BY k) AS t [RANGE 20 SECONDS SLIDE 20 SECONDS]",
        f"SELECT max(n) AS most, (ts // {20 * SECOND} + 1) * {20 * SECOND} AS ts FROM (SELECT "
        f"count(*) AS n, max(ts_us) + {2 * SECOND} AS ts FROM {sessions(2)} GROUP BY k, session) "
        "GROUP BY 2",
    ),
}


def stream(seed: int, rows: int) -> Stream:
    return made_up("s", COLUMNS, VALUES, rows=rows, seed=seed)


@pytest.mark.parametrize(("seed", "size", "sharing"), [(1, 20, "subsuming"), (2, 30, "none")])
def test_sessions_agree_with_duckdb(
    seed: int, size: int, sharing: str, spark: Any, tmp_path: Path
) -> None:
    batches = 60 // size
    made = stream(seed, 60)
    disturbed = EngineRunner(
        spark, tmp_path, EngineSettings(sharing=sharing), between_steps=ForcedCompaction(share=0.3)
    )
    asked = {n: c for n, c in CASES.items() if seed == 1 or n in ("by_key", "filtered")}
    texts = {name: case.cql for name, case in asked.items()}
    results = disturbed.run([made], texts, {"s": [size] * batches})
    assert not problems([made], asked, results)
