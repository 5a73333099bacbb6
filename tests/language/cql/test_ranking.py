"""Ranks: one plan for several spellings, and refusals that say what to write instead."""

import pytest

from language.cql.binding import Binding
from millstream.language.plan.explain import explain

pytestmark = pytest.mark.spark

GROUPED = "SELECT k, count(*) AS n FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k"


def test_limit_is_a_rank_in_each_window(binding: Binding) -> None:
    limit = binding.plan(f"{GROUPED} ORDER BY n DESC LIMIT 3")
    over = "ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY n DESC)"
    text = explain(limit)
    assert "rank row_number of each instant in order of" in text
    assert "row_number <= 3" in text
    assert [f.name for f in limit.columns] == ["k", "n"]
    qualified = binding.plan(f"{GROUPED} QUALIFY {over} <= 3")
    assert [f.name for f in qualified.columns] == ["k", "n"]


@pytest.mark.parametrize(
    ("text", "message", "instead"),
    [
        ("SELECT k FROM s ORDER BY k", "ORDER BY without LIMIT", f"{GROUPED} ORDER BY k LIMIT 1"),
        ("SELECT k FROM s LIMIT 3", "LIMIT without ORDER BY", f"{GROUPED} ORDER BY n DESC LIMIT 3"),
        ("SELECT k FROM s [RANGE 1 SECOND] ORDER BY v LIMIT 3", "a rank of all rows so far (LIMIT)",
         "SELECT k FROM s [NOW] ORDER BY v LIMIT 3"),
        ("SELECT DISTINCT ON (k) k FROM s ORDER BY k, v LIMIT 1", "LIMIT with DISTINCT ON",
         "SELECT DISTINCT ON (k) k FROM s ORDER BY k, v"),
        (f"{GROUPED} QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY n) <= 1",
         "a rank of all rows so far (ROW_NUMBER)",
         f"{GROUPED} QUALIFY ROW_NUMBER() OVER (PARTITION BY window_end, k ORDER BY n) <= 1"),
        ("SELECT k, rank() OVER (PARTITION BY k) AS r FROM s [NOW]", "rank without ORDER BY",
         "SELECT k, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM s [NOW]"),
        (f"{GROUPED} QUALIFY n > 1", "QUALIFY takes a rank and a whole number",
         f"{GROUPED} QUALIFY ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY n DESC) <= 3"),
        (f"{GROUPED} QUALIFY n <= 1", "QUALIFY of something that is not a rank", GROUPED),
        ("SELECT DISTINCT k FROM s [NOW] ORDER BY k LIMIT 1", "DISTINCT with a rank",
         "SELECT k FROM (SELECT DISTINCT k FROM s [NOW]) [NOW] ORDER BY k LIMIT 1"),
        (f"{GROUPED} ORDER BY 5 LIMIT 1", "the select list has 2 columns",
         f"{GROUPED} ORDER BY 2 LIMIT 1"),
    ],
)  # fmt: skip
def test_ranks_that_never_end_are_refused(
    text: str, message: str, instead: str, binding: Binding
) -> None:
    binding.refuses(text, message, instead)


def test_ranks_of_all_rows_so_far_know_their_bound(binding: Binding) -> None:
    """However it is written, what lies beyond the bound need not be kept."""
    ranked = "SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM s"
    plan = binding.plan(f"SELECT k, v FROM ({ranked}) t WHERE r <= 2 AND k > 0")
    assert plan.relation
    assert "row_number of all rows so far by " in explain(plan)
    assert "DESC NULLS LAST, up to 2" in explain(plan)
    over = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC)"
    assert ", up to 2" in explain(binding.plan(f"SELECT k, v FROM s QUALIFY {over} < 3"))
    assert "up to" not in explain(binding.plan(f"SELECT * FROM ({ranked}) t WHERE v < 3"))
