"""Outer joins, IN and EXISTS: what they mean as plans, and what is refused."""

import pytest

from language.cql.binding import Binding
from millstream.core.errors import CqlError
from millstream.language.plan.explain import explain
from millstream.language.share.dataflow import compile_plan

pytestmark = pytest.mark.spark


def operators(binding: Binding, text: str) -> set[str]:
    return {o.id for o in compile_plan(binding.plan(text))}


def test_the_inner_part_of_an_outer_join_is_the_join_that_others_run(binding: Binding) -> None:
    sides = "r [RANGE 5 SECONDS] {} JOIN s [RANGE 5 SECONDS] ON r.k = s.k AND r.v < s.v"
    inner = operators(
        binding, f"SELECT * FROM (SELECT r.v, s.w FROM {sides.format('')}) AS j [NOW]"
    )
    left = operators(binding, f"SELECT r.v, s.w FROM {sides.format('LEFT')}")
    full = operators(binding, f"SELECT r.v, s.w FROM {sides.format('FULL')}")
    assert inner & left
    assert len(left & full) == 2  # the join, and the left side's antijoin


def test_spellings_of_one_question_are_one_operator(binding: Binding) -> None:
    left = "SELECT v FROM r [RANGE 5 SECONDS] "
    same = {
        binding.fingerprint(left + rest)
        for rest in (
            "WHERE k IN (SELECT k FROM s [NOW] WHERE v > 1)",
            "AS a WHERE EXISTS (SELECT 1 FROM s AS b [NOW] WHERE b.k = a.k AND b.v > 1)",
            "WHERE EXISTS (SELECT * FROM s [NOW] WHERE s.v > 1 AND s.k = r.k)",
            "WHERE k = ANY (SELECT k FROM s [NOW] WHERE v > 1)",
        )
    }
    assert len(same) == 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT {0}.v FROM r [NOW] AS {0} WHERE EXISTS (SELECT 1 FROM s [NOW] WHERE s.k = {0}.k)",
        "SELECT v FROM r [NOW] AS {0} WHERE v NOT IN (SELECT v FROM s [NOW] WHERE {0}.k = s.k)",
        "SELECT v, (SELECT max(v) FROM s WHERE s.k = {0}.k) AS m FROM r [NOW] AS {0}",
        "SELECT k, count(*) AS n FROM r AS {0} GROUP BY k "
        "HAVING count(*) > (SELECT count(*) FROM s WHERE s.k = {0}.k)",
    ],
)
def test_an_item_named_like_a_column_of_the_subquery(text: str, binding: Binding) -> None:
    """The streams have a column x: around a subquery, x.k is the item x all the same."""
    assert binding.fingerprint(text.format("x")) == binding.fingerprint(text.format("other"))


def test_an_asof_join_is_a_lookup(binding: Binding) -> None:
    for side in ("", "LEFT "):
        asof = f"SELECT r.v, s.w FROM r ASOF {side}JOIN s ON r.k = s.k AND r.ts >= s.ts"
        lookup = f"SELECT r.v, s.w FROM r [NOW] {side}JOIN s [PARTITION BY k ROWS 1] ON r.k = s.k"
        assert binding.fingerprint(asof) == binding.fingerprint(lookup)


def test_explain_tells_who_meets_nobody(binding: Binding) -> None:
    told = explain(
        binding.plan("SELECT r.v, s.w FROM r [NOW] LEFT JOIN s [RANGE 2 SECONDS] ON r.k = s.k")
    )
    assert "antijoin on k#0 = k#5" in told
    assert "istream" in told
    assert "w = CAST(NULL AS bigint)" in told
    told = explain(binding.plan("SELECT v FROM r [NOW] WHERE k NOT IN (SELECT k FROM s [NOW])"))
    assert "antijoin on k#0 = k#5 OR k#0 IS NULL OR k#5 IS NULL" in told.replace("(", "").replace(
        ")", ""
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("SELECT r.v FROM r LEFT JOIN s [NOW] ON r.k = s.k", "rows that never leave", "[RANGE"),
        ("SELECT r.v FROM r [ROWS 2] LEFT JOIN s [NOW] ON r.k = s.k", "window of rows", "[NOW]"),
        ("SELECT r.v FROM r [RANGE 1 SECOND] LEFT JOIN s [ROWS 1] ON r.k = s.k",
         "beside a window of rows", "[NOW]"),
        ("SELECT r.v FROM r [NOW] FULL JOIN s ON r.k = s.k", "FULL JOIN over rows that never", ""),
        ("SELECT r.v FROM r [NOW] LEFT JOIN s [NOW] ON r.k = s.k JOIN t [NOW] ON t.k = r.k",
         "a join after an outer join", "subquery"),
        ("SELECT count(*) FROM r [NOW] LEFT JOIN s [NOW] ON r.k = s.k", "right over LEFT JOIN",
         "FROM (SELECT"),
        ("SELECT r.v FROM r [NOW] NATURAL JOIN s [NOW]", "NATURAL JOIN", "USING"),
        ("SELECT r.v FROM r [NOW] ASOF JOIN s [NOW] ON r.k = s.k", "windows on an ASOF", "ASOF"),
        ("SELECT r.v FROM r ASOF JOIN s ON r.k = s.k", "ASOF JOIN without", "a.ts >= b.ts"),
        ("SELECT r.v FROM r ASOF JOIN s ON r.k = s.k AND r.ts <= s.ts", "looks back", "ASOF"),
        ("SELECT r.v FROM r ASOF JOIN s ON r.k = s.k AND r.ts >= s.ts AND s.v > 1", "takes equal",
         "ASOF"),
        ("SELECT r.v FROM r ASOF JOIN s ON r.k = s.k AND r.ts >= s.ts JOIN t ON t.k = r.k",
         "ASOF JOIN is not supported", "ROWS 1"),
        ("SELECT v FROM r WHERE k NOT IN (SELECT k FROM s [NOW])", "NOT IN over rows that", ""),
        ("SELECT v FROM r [NOW] WHERE v = 1 OR k IN (SELECT k FROM s [NOW])", "IN takes a list",
         "AND connects"),
        ("SELECT v FROM r [NOW] WHERE v > ALL (SELECT v FROM s [NOW])", "ALL is not supported here",
         "SELECT max(x)"),
        ("SELECT r.v, q.m FROM r, LATERAL (SELECT max(v) AS m FROM s WHERE s.k = r.k) AS q",
         "LATERAL with a subquery", "take its value"),
        ("SELECT v FROM r [NOW] WHERE v > (SELECT v FROM s [NOW])", "may give several rows",
         "SELECT max(x)"),
        ("SELECT v FROM r WHERE v > (SELECT max(v) FROM s [RANGE 1 SECOND SLIDE 1 SECOND])",
         "a value over windows", "[NOW]"),
        ("SELECT v FROM r WHERE v > (SELECT max(v) FROM s WHERE s.k < r.k)", "compares with rows",
         "t.k = s.k"),
        ("SELECT v FROM r WHERE ts > '2024-01-01' AND v > (SELECT max(v) FROM s)", "ts beside",
         "ts AS seen"),
        ("SELECT k, max(v - (SELECT max(v) FROM s)) AS d FROM r GROUP BY k", "inside an aggregate",
         "in a subquery"),
        ("SELECT v FROM r [NOW] WHERE k IN (SELECT k, v FROM s [NOW])", "1 values with 2", ""),
        ("SELECT v FROM r [RANGE 1 SECOND] WHERE k IN (SELECT count(*) FROM s GROUP BY k)",
         "a window beside a table", "[NOW]"),
        ("SELECT r.v FROM r JOIN s FOR SYSTEM_TIME AS OF r.ts ON r.k = s.k", "over a stream",
         "[PARTITION BY k ROWS 1]"),
        ("SELECT r.v FROM r JOIN s FOR SYSTEM_TIME AS OF s.ts ON r.k = s.k", "no row's time",
         "AS OF a.ts"),
        ("SELECT k FROM r [RANGE 1 SECOND] EXCEPT SELECT k FROM s [RANGE 1 SECOND]", "over windows",
         "GROUP BY k EXCEPT SELECT k, window_end"),
        ("SELECT v FROM r [RANGE 1 SECOND] WHERE k IN (SELECT k FROM s) AND v IN (SELECT v FROM s)",
         "a second IN", "[NOW]"),
        ("SELECT v FROM r [NOW] WHERE EXISTS (SELECT 1 FROM s [NOW] WHERE s.z = r.k)",
         "unknown column s.z", "columns of s"),
        ("SELECT count(*) FROM r [NOW] WHERE k IN (SELECT k FROM s [NOW])", "right over IN", ""),
        ("SELECT a FROM (VALUES 1, 2) AS t (a)", "over constants alone", "JOIN (VALUES"),
        ("SELECT DISTINCT a FROM (VALUES 1, 2) AS t (a)", "over constants alone", "JOIN (VALUES"),
        ("SELECT v FROM r RIGHT JOIN (VALUES 1) AS t (a) ON r.v = t.a", "RIGHT JOIN with constants",
         "LEFT JOIN (VALUES"),
        ("SELECT v FROM r JOIN (VALUES 1) AS t (a) [NOW] ON r.v = t.a", "window over const", ""),
        ("SELECT v FROM r JOIN (VALUES (1), (2, 3)) AS t (a) ON r.v = t.a", "2 values", ""),
        ("SELECT v FROM r JOIN (VALUES (1, 2)) AS t (a) ON r.v = t.a", "1 names for 2", "each"),
        ("SELECT v FROM r JOIN (VALUES (k)) AS t (a) ON r.v = t.a", "takes constants", "quotes"),
    ],
)  # fmt: skip
def test_what_is_refused(binding: Binding, text: str, message: str, hint: str) -> None:
    with pytest.raises(CqlError) as caught:
        binding.plan(text)
    assert message in caught.value.message
    assert hint in caught.value.hint


ROWS = "(SELECT k, max(v) AS v FROM s GROUP BY k)"
MEANS = "(SELECT avg(v) FROM t)"


@pytest.mark.parametrize(
    ("text", "message", "instead"),
    [
        (f"SELECT a.k, b.v FROM r a LEFT JOIN {ROWS} b ON a.k = b.k AND b.v < {MEANS}",
         "in ON of a join that is not an inner join",
         f"SELECT a.k, b.v FROM r a LEFT JOIN (SELECT *, {MEANS} AS most FROM {ROWS} x) AS b "
         "ON a.k = b.k AND b.v < b.most"),
        (f"SELECT k, sum(v - {MEANS}) AS d FROM r GROUP BY k", "inside an aggregate",
         f"SELECT k, sum(v - m) AS d FROM (SELECT k, v, {MEANS} AS m FROM r) GROUP BY k"),
    ],
)  # fmt: skip
def test_where_a_value_stands(binding: Binding, text: str, message: str, instead: str) -> None:
    binding.refuses(text, message, instead)


def test_unlike_all_is_not_in(binding: Binding) -> None:
    left = "SELECT v FROM r [NOW] WHERE"
    all_ = f"{left} k <> ALL (SELECT k FROM s [RANGE 1 SECOND])"
    assert binding.fingerprint(all_) == binding.fingerprint(
        f"{left} k NOT IN (SELECT k FROM s [RANGE 1 SECOND])"
    )
    assert binding.fingerprint(f"{left} NOT k = ANY (SELECT k FROM s [RANGE 1 SECOND])") == (
        binding.fingerprint(all_)
    )


def test_a_value_beside_groups_of_a_window_is_a_lookup_at_its_end(binding: Binding) -> None:
    window = "FROM r [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k"
    having = f"SELECT k, count(*) AS n {window} HAVING count(*) > {MEANS}"
    lookup = f"SELECT k, n FROM (SELECT k, count(*) AS n {window}) AS g [NOW] WHERE n > {MEANS}"
    assert binding.fingerprint(having) == binding.fingerprint(lookup)


def test_a_condition_of_on_is_one_of_where(binding: Binding) -> None:
    on = f"SELECT a.k, b.v FROM r a JOIN {ROWS} b ON a.k = b.k AND b.v < {MEANS} WHERE a.v > 1"
    where = f"SELECT a.k, b.v FROM r a JOIN {ROWS} b ON a.k = b.k WHERE a.v > 1 AND b.v < {MEANS}"
    assert binding.fingerprint(on) == binding.fingerprint(where)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v FROM r [NOW] WHERE k IN (SELECT k FROM s [NOW]) AND v IN (SELECT v FROM t [NOW])",
        "SELECT k, v, r.w FROM r [NOW] FULL JOIN s [NOW] USING (k, v)",
        "SELECT k FROM r [NOW] RIGHT JOIN s [NOW] USING (k)",
        "SELECT a.v FROM r a [NOW] JOIN s b [NOW] ON a.k = b.k LEFT JOIN t [NOW] ON t.v = b.v",
        "SELECT v FROM r [NOW] WHERE (k, v) IN (SELECT k, v FROM s [RANGE 1 SECOND])",
        "SELECT v FROM r [NOW] WHERE k IN (SELECT k FROM s [RANGE 1 MINUTE] GROUP BY k)",
        "SELECT v FROM r WHERE k IN (VALUES 'a', 'b')",
        "SELECT v FROM r WHERE k IN (SELECT a FROM (VALUES 'a', NULL) AS t (a))",
        "SELECT v, a FROM (VALUES (1, 'x'), (2.5, 'y')) AS t (a, b) JOIN r ON r.x > t.a",
        "SELECT b, count(*) AS n FROM r [RANGE 5 SECONDS SLIDE 5 SECONDS]"
        " JOIN (VALUES ('k', 'x'), ('l', 'y')) AS t (a, b) ON r.k = t.a GROUP BY b",
        "SELECT v FROM r [NOW] WHERE NOT (k IN (SELECT k FROM s [ROWS 3]))",
        "SELECT v FROM r [NOW] WHERE k IN (SELECT upper(k) FROM s [NOW] WHERE s.ts <= r.ts)",
        "SELECT v FROM r [NOW] WHERE EXISTS (SELECT 1 FROM s [NOW] JOIN t [NOW] ON s.k = t.k)",
    ],
)
def test_what_is_taken(binding: Binding, text: str) -> None:
    assert compile_plan(binding.plan(text))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.v FROM r AS a LEFT JOIN s AS b ON a.k = b.k",
        "SELECT a.v FROM r [UNBOUNDED] AS a FULL JOIN s AS b USING (k)",
        "SELECT a.v FROM r AS a LEFT ANTI JOIN s AS b ON a.k = b.k",
        "SELECT v FROM r WHERE k NOT IN (SELECT k FROM s)",
        "SELECT v FROM r WHERE k IN (SELECT k FROM s) AND v IN (SELECT v FROM t)",
        "SELECT count(*) AS n FROM r WHERE k IN (SELECT k FROM s)",
    ],
)
def test_streams_without_windows_are_tables_where_a_match_may_still_come(
    text: str, binding: Binding
) -> None:
    assert binding.plan(text).relation


def test_the_first_match_of_each_row_stays_a_stream(binding: Binding) -> None:
    for text in (
        "SELECT v FROM r WHERE k IN (SELECT k FROM s)",
        "SELECT a.v FROM r AS a LEFT SEMI JOIN s AS b ON a.k = b.k",
    ):
        assert not binding.plan(text).relation
