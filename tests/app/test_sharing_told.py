"""What a session says of sharing: before a query is registered, and of what it costs."""

from typing import Any

import pytest

import millstream

pytestmark = pytest.mark.spark


def test_a_session_tells_what_a_query_would_share(spark: Any) -> None:
    with millstream.Session() as s:
        s.stream("r", columns={"at": "timestamp", "k": "int", "v": "double"}, time="at")
        warm = s.query("SELECT k, v FROM r WHERE v > 10", "warm")
        assert "new; its cost is not measured yet" in s.explain("SELECT count(*) AS n FROM r [NOW]")
        s.query("SELECT k FROM r WHERE v > 30", "hot")
        s.query("SELECT k FROM r WHERE v > 30 AND TRUE", "hot_too")
        rows = [{"at": f"2024-01-01 00:00:{i:02}", "k": i, "v": 2.0 * i} for i in range(40)]
        s.push("r", rows)
        s.finish("r")
        assert warm.to_arrow().num_rows == 34
        told = s.explain("SELECT v FROM r WHERE v > 20 AND k < 7")
        assert "in one job with warm, hot, hot_too; warm has all it needs" in told
        assert "residual (v > 20) AND (k < 7)" in told
        assert "ms a thousand rows, as its companions cost" in told
        assert "the same as for warm; costs nothing more" in s.explain(
            "SELECT k, v FROM r WHERE v > 10"
        )
        engine = s.here("a look at its ledger").engine
        costs = engine.status()["queries"]
        assert costs["warm"]["shared_s"] > 0
        assert costs["hot"]["shared_s"] == costs["hot_too"]["shared_s"] > 0
        measured = sum(r["seconds"] for r in engine.ledger.operator_statistics().values())
        divided = sum(c["own_s"] + c["shared_s"] for c in costs.values())
        assert divided == pytest.approx(measured, abs=0.01)
