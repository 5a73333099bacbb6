"""An unbounded aggregate without keys has no row before it has seen one."""

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
