"""Relations without a row yet: nothing has passed a filter, or nothing is due."""

from pathlib import Path
from typing import Any

import pytest
from engine_runner import EngineRunner

from oracle.model import Column, Row, Stream

pytestmark = pytest.mark.spark


def test_nothing_has_passed_the_filter_yet(spark: Any, tmp_path: Path) -> None:
    rows = tuple(Row(1_000_000 * i, (i,)) for i in range(8))
    stream = Stream("u", (Column("k", "int"),), rows)
    queries = {
        "never": "SELECT count(*) AS n, max(k) AS top FROM u [UNBOUNDED] WHERE k > 100",
        "late": "SELECT count(*) AS n, max(k) AS top FROM u [UNBOUNDED] WHERE k > 5",
    }
    found = EngineRunner(spark, tmp_path).run([stream], queries, {"u": [4, 4]})
    assert found["never"] == []
    assert [(row["n"], row["top"]) for row in found["late"]] == [(2, 7)]


def test_the_watermark_moves_within_a_slide_before_the_first_row_is_due(
    spark: Any, tmp_path: Path
) -> None:
    """No multiple of the slide lies in such a span: bounds of windows that run backwards."""
    times = (5_000_000, 5_000_001, 5_000_002, 40_000_000)
    rows = tuple(Row(at, (i,)) for i, at in enumerate(times))
    stream = Stream("u", (Column("k", "int"),), rows, lateness=30_000_000)
    join = "FROM u AS a [RANGE 5 SECONDS], u AS b [RANGE 1 SECOND] WHERE a.k = b.k"
    queries = {
        "counted": f"SELECT count(*) AS n {join}",
        "grouped": f"SELECT a.k AS k, count(*) AS n {join} GROUP BY a.k",
        "told": f"RSTREAM (SELECT a.k AS k {join})",
        "panes": "SELECT count(*) AS n FROM u [RANGE 5 SECONDS SLIDE 1 SECOND]",
        "blocks": "SELECT count(*) AS n FROM u [RANGE 1 HOUR SLIDE 1 SECOND]",
        "table": "RSTREAM (SELECT count(*) AS n FROM u [UNBOUNDED])",
    }
    found = EngineRunner(spark, tmp_path).run([stream], queries, {"u": [1, 1, 1, 1]})
    assert [row["n"] for row in found["counted"]] == [3, 1]
    assert sorted((row["k"], row["n"]) for row in found["grouped"]) == [(k, 1) for k in range(4)]
    assert [row["n"] for row in found["panes"]] == [3] * 5 + [1] * 5
    assert {row["n"] for row in found["blocks"]} == {3, 4, 1}
    assert [row["n"] for row in found["table"]] == [1] + [3] * 34 + [4]
    # at 5 s row 0; at 6 s, still within [5, 6] and the like, rows 0 to 2; at 40 and 41 s row 3
    assert sorted(row["k"] for row in found["told"]) == [0, 0, 1, 2, 3, 3]
