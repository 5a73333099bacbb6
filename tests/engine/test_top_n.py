"""Top-N within windows agrees with DuckDB's ranks, whatever the batches, alone and shared."""

from pathlib import Path
from typing import Any

import pytest
from engine_runner import EngineRunner, ForcedCompaction

from millstream.engine.settings import EngineSettings
from oracle.model import Column
from oracle.plain_sql import Case, made_up, problems, windows

pytestmark = pytest.mark.spark

COLUMNS = (Column("k", "string"), Column("v", "int"), Column("x", "double"))
VALUES = {"k": ("a", "b", "c", None), "v": (1, 2, 3, 3, None), "x": (0.5, 1.5, -2.0, None)}
COUNTS = "SELECT k, v, count(*) AS n, e AS ts FROM {} GROUP BY e, k, v"
TIES = "k NULLS FIRST, v NULLS FIRST, n"  # all columns, left to right


def ranked(function: str, over: str, length_s: int, slide_s: int, bound: str) -> str:
    counts = COUNTS.format(windows(length_s, slide_s))
    return (
        f"SELECT k, v, n, ts FROM (SELECT *, {function}() OVER ({over}) AS r FROM ({counts})) "
        f"WHERE r {bound}"
    )


GROUPED = "SELECT k, v, count(*) AS n FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k, v"
CASES = {
    "limit": Case(
        f"{GROUPED} ORDER BY n DESC LIMIT 2",
        ranked("row_number", f"PARTITION BY ts ORDER BY n DESC, {TIES}", 6, 3, "<= 2"),
    ),
    "limit_by_aggregate": Case(
        f"{GROUPED} ORDER BY count(*), 2 DESC LIMIT 1",
        ranked("row_number", f"PARTITION BY ts ORDER BY n, v DESC NULLS LAST, {TIES}", 6, 3, "= 1"),
    ),
    "flink": Case(
        "SELECT k, v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, "
        "window_end, k ORDER BY n DESC) AS rownum FROM "
        "(SELECT window_start, window_end, k, v, count(*) AS n "
        "FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end, k, v) AS c) AS t WHERE rownum <= 1",
        ranked("row_number", f"PARTITION BY ts, k ORDER BY n DESC, {TIES}", 10, 10, "<= 1"),
    ),
    "qualify": Case(
        f"{GROUPED} QUALIFY RANK() OVER (PARTITION BY window_end ORDER BY n DESC) <= 2",
        ranked("rank", "PARTITION BY ts ORDER BY n DESC", 6, 3, "<= 2"),
    ),
    "qualify_alias": Case(
        "SELECT k, v, count(*) AS n, dense_rank() OVER (PARTITION BY ts, k ORDER BY count(*)) AS r "
        "FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k, v QUALIFY r < 2",
        "SELECT k, v, n, r, ts FROM (SELECT *, dense_rank() OVER (PARTITION BY ts, k ORDER BY n) "
        f"AS r FROM ({COUNTS.format(windows(6, 3))})) WHERE r < 2",
    ),
    "all_ranks": Case(
        "SELECT k, v, x, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS r, "
        "rank() OVER (ORDER BY x) AS q FROM s [NOW]",
        "SELECT k, v, x, row_number() OVER (PARTITION BY ts_us, k ORDER BY v DESC NULLS LAST, pos) "
        "AS r, rank() OVER (PARTITION BY ts_us ORDER BY x NULLS FIRST) AS q, ts_us AS ts FROM s",
    ),
    "over_top": Case(  # a window over the best of each window
        f"SELECT sum(n) AS total FROM ({GROUPED} ORDER BY n DESC LIMIT 2) AS t "
        "[RANGE 9 SECONDS SLIDE 9 SECONDS]",
        "SELECT sum(n) AS total, (ts // 9000000 + 1) * 9000000 AS ts FROM ("
        + ranked("row_number", f"PARTITION BY ts ORDER BY n DESC, {TIES}", 6, 3, "<= 2")
        + ") GROUP BY 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("seed", "size", "sharing"), [(3, 13, "subsuming"), (4, 20, "none")])
def test_ranks_agree_with_duckdb(
    seed: int, size: int, sharing: str, spark: Any, tmp_path: Path
) -> None:
    made = made_up("s", COLUMNS, VALUES, rows=3 * size, seed=seed)
    asked = {n: c for n, c in CASES.items() if seed == 3 or n in ("flink", "all_ranks")}
    disturbed = EngineRunner(
        spark, tmp_path, EngineSettings(sharing=sharing), between_steps=ForcedCompaction(share=0.3)
    )
    texts = {name: case.cql for name, case in asked.items()}
    results = disturbed.run([made], texts, {"s": [size] * 3})
    assert not problems([made], asked, results)
