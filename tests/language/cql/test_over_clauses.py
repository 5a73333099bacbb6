"""OVER: one plan for several spellings, and refusals that say what to write instead."""

import pytest

from language.cql.binding import Binding
from millstream.core.errors import UsageError
from millstream.language.plan.explain import explain
from millstream.language.share.dataflow import compile_plan

pytestmark = pytest.mark.spark

MEAN = (
    "avg(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND "
    "CURRENT ROW)"
)
LAG = "LAG(v) OVER (PARTITION BY k ORDER BY ts)"
TABLE = "(SELECT k, count(*) AS n FROM s GROUP BY k) AS t"
GROUPED = "SELECT k, count(*) AS n FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"SELECT k, {LAG} AS p FROM s",
         "SELECT k, lag(v, 1) OVER w AS p FROM s WINDOW w AS (PARTITION BY k ORDER BY ts)"),
        (f"SELECT k, {LAG} AS p FROM s",
         "SELECT k, first_value(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 "
         "PRECEDING) AS p FROM s"),
        (f"SELECT {LAG} AS p, {MEAN} AS m FROM s",
         f"SELECT p, m FROM (SELECT {MEAN} AS m, {LAG} AS p FROM s)"),
        (f"SELECT {MEAN} AS m FROM s",
         "SELECT avg(v) OVER (PARTITION BY k ORDER BY at RANGE BETWEEN INTERVAL 600 SECONDS "
         "PRECEDING AND CURRENT ROW) AS m FROM s"),
        (f"SELECT {MEAN} AS m FROM s",
         "SELECT avg(v) OVER (PARTITION BY k ORDER BY ts RANGE 10 minutes PRECEDING) AS m FROM s"),
        (f"SELECT k, {MEAN} AS m FROM s QUALIFY {MEAN} > 2",
         f"SELECT k, m FROM (SELECT k, {MEAN} AS m FROM s) WHERE m > 2"),
        (f"SELECT k, {MEAN} AS m FROM s QUALIFY m > 2",
         f"SELECT k, m FROM (SELECT k, {MEAN} AS m FROM s) WHERE m > 2"),
        ("SELECT sum(v) OVER (ORDER BY ts) AS t FROM s",
         "SELECT sum(v) OVER (ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS t "
         "FROM s [RANGE 5 SECONDS]"),
        ("SELECT row_number() OVER (PARTITION BY k ORDER BY ts) AS n FROM s",
         "SELECT count(*) OVER (PARTITION BY k ORDER BY ts ROWS UNBOUNDED PRECEDING) AS n FROM s"),
        ("SELECT w + 1 AS y, sum(w + 1) OVER (ORDER BY ts ROWS 2 PRECEDING) AS t FROM s",
         "SELECT y, sum(y) OVER (ORDER BY ts ROWS 2 PRECEDING) AS t FROM (SELECT w + 1 AS y FROM s)"
         ),
        (f"SELECT k, LAG(n) OVER (ORDER BY ts) AS p FROM ({GROUPED}) AS t",
         "SELECT k, LAG(n) OVER (ORDER BY window_end) AS p FROM (SELECT k, count(*) AS n, "
         "window_end FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k) AS t"),
        ("SELECT count(*) AS n FROM s [CUMULATE 1 HOUR SLIDE 10 MINUTES]",
         "SELECT count(*) AS n FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(at), INTERVAL '10' MINUTE, "
         "INTERVAL '1' HOUR)) GROUP BY window_start, window_end"),
        ("SELECT count(*) AS n FROM s [CUMULATE 1 HOUR SLIDE 10 MINUTES OFFSET 5 MINUTES]",
         "SELECT count(*) AS n FROM TABLE(CUMULATE(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), "
         "STEP => INTERVAL '10' MINUTE, SIZE => INTERVAL '1' HOUR, OFFSET => INTERVAL '65' MINUTE"
         ")) GROUP BY window_start, window_end"),
        ("SELECT count(*) AS n FROM s [RANGE 1 YEAR SLIDE 1 QUARTER]",
         "SELECT count(*) AS n FROM s [RANGE 12 months SLIDE 3 months IN 'UTC']"),
    ],
)  # fmt: skip
def test_spellings_of_one_meaning(one: str, other: str, binding: Binding) -> None:
    # what can raise, and what tells rows without a position apart, stays where it is written
    if "w + 1" in one or "LAG(n)" in one:
        assert binding.plan(one).columns == binding.plan(other).columns
        return
    assert binding.fingerprint(one) == binding.fingerprint(other)


def test_queries_share_what_they_take_from_over(binding: Binding) -> None:
    texts = (f"SELECT k, v - {LAG} AS d FROM s", f"SELECT v FROM s QUALIFY {LAG} > 5")
    plans = [{o.id: o.kind for o in compile_plan(binding.plan(t))} for t in texts]
    shared = plans[0].keys() & plans[1].keys()
    assert [plans[0][o] for o in shared] == ["over"]


def test_a_table_is_taken_in_any_order(binding: Binding) -> None:
    text = (
        f"SELECT sum(n) OVER w AS t, LAG(n) OVER w AS p FROM {TABLE} WINDOW w AS (ORDER BY n DESC)"
    )
    plan = binding.plan(text)
    assert plan.relation
    assert [o.kind for o in compile_plan(plan)] == ["running", "table_over", "map"]
    told = explain(plan)
    assert "sum(count) of all rows up to it and its peers" in told
    assert "in order of count DESC NULLS LAST" in told
    other = text.replace("DESC", "ASC")
    assert binding.fingerprint(text) != binding.fingerprint(other)


def test_explain_says_which_rows_are_taken(binding: Binding) -> None:
    text = explain(binding.plan(f"SELECT k, {MEAN} AS m, {LAG} AS p FROM s"))
    assert "over avg(v) of time -10 minutes to 0 seconds by k" in text
    assert "over first(v) of rows -1 to -1 by k" in text
    months = explain(binding.plan("SELECT count(*) AS n FROM s [RANGE 1 MONTH SLIDE 1 MONTH]"))
    assert "aggregate count(*) over 1 month every 1 month in UTC" in months
    grown = explain(binding.plan("SELECT count(*) AS n FROM s [CUMULATE 1 DAY SLIDE 1 HOUR]"))
    assert "aggregate count(*) over up to 1 day every 1 hour" in grown


@pytest.mark.parametrize(
    ("text", "message", "instead"),
    [
        ("SELECT sum(v) OVER (PARTITION BY k) AS t FROM s", "OVER without ORDER BY",
         "SELECT sum(v) OVER (PARTITION BY k ORDER BY ts) AS t FROM s"),
        ("SELECT sum(v) OVER (ORDER BY v) AS t FROM s", "OVER in another order than that of time",
         "SELECT sum(v) OVER (ORDER BY ts) AS t FROM s"),
        ("SELECT LAG(s.v) OVER (ORDER BY s.ts) AS t FROM s [NOW] JOIN t [NOW] USING (k)",
         "OVER in the order of another time",
         "SELECT LAG(s.v) OVER (ORDER BY ts) AS t FROM s [NOW] JOIN t [NOW] USING (k)"),
        ("SELECT LAG(v) OVER (ORDER BY ts DESC) AS t FROM s", "in another order",
         "SELECT LEAD(v) OVER (ORDER BY ts) AS t FROM s"),
        ("SELECT sum(v) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS t "
         "FROM s", "UNBOUNDED FOLLOWING",
         "SELECT sum(v) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING) AS t FROM s"),
        ("SELECT sum(v) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS t "
         "FROM s", "UNBOUNDED PRECEDING up to another row",
         "SELECT sum(v) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING) - v AS t FROM s"),
        ("SELECT sum(v) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1' MONTH PRECEDING AND CURRENT "
         "ROW) AS t FROM s", "a frame of months",
         "SELECT sum(v) OVER (ORDER BY ts RANGE INTERVAL '30' DAY PRECEDING) AS t FROM s"),
        ("SELECT sum(v) OVER (ORDER BY ts RANGE 10 PRECEDING) AS t FROM s",
         "RANGE takes an interval of time",
         "SELECT sum(v) OVER (ORDER BY ts RANGE INTERVAL '10' SECOND PRECEDING) AS t FROM s"),
        ("SELECT count(DISTINCT v) OVER (ORDER BY ts) AS t FROM s", "of all rows so far",
         "SELECT count(DISTINCT v) OVER (ORDER BY ts ROWS 99 PRECEDING) AS t FROM s"),
        ("SELECT corr(v, w) OVER (ORDER BY ts ROWS 9 PRECEDING) AS t FROM s", "corr with OVER",
         "SELECT corr(v, w) AS t FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS]"),
        ("SELECT ntile(4) OVER (ORDER BY ts) AS t FROM s", "NTILE with OVER", "SELECT k FROM s"),
        ("SELECT LAG(v) IGNORE NULLS OVER (ORDER BY ts) AS t FROM s", "LAG with IGNORE NULLS",
         "SELECT last(v) IGNORE NULLS OVER (ORDER BY ts ROWS BETWEEN 100 PRECEDING AND 1 PRECEDING)"
         " AS t FROM s"),
        ("SELECT LAG(v, w) OVER (ORDER BY ts) AS t FROM s", "LAG takes a value",
         "SELECT LAG(v, 2) OVER (ORDER BY ts) AS t FROM s"),
        (f"SELECT LAG({LAG}) OVER (ORDER BY ts) AS t FROM s", "OVER inside OVER",
         f"SELECT LAG(p) OVER (ORDER BY ts) AS t FROM (SELECT {LAG} AS p FROM s)"),
        (f"SELECT k FROM s WHERE {LAG} > 1", "a window function (OVER)",
         f"SELECT k FROM s QUALIFY {LAG} > 1"),
        (f"SELECT k, sum(n) OVER (ORDER BY n, k RANGE 2 PRECEDING) AS p FROM {TABLE}",
         "in an order of several values",
         f"SELECT k, sum(n) OVER (ORDER BY n RANGE 2 PRECEDING) AS p FROM {TABLE}"),
        (f"SELECT k, sum(n) OVER (ORDER BY CAST(k AS STRING) RANGE 2 PRECEDING) AS p FROM {TABLE}",
         "over values of type string",
         f"SELECT k, sum(n) OVER (ORDER BY n ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS p FROM "
         f"{TABLE}"),
        (f"SELECT k, first(k) OVER (ORDER BY n RANGE 2 PRECEDING) AS p FROM {TABLE}",
         "first over RANGE with a length",
         f"SELECT k, min_by(k, n) OVER (ORDER BY n RANGE 2 PRECEDING) AS p FROM {TABLE}"),
        (f"SELECT k, sum(n) OVER (ORDER BY ts RANGE INTERVAL '1' HOUR PRECEDING) AS p FROM {TABLE}",
         "this RANGE over a table that changes",
         "SELECT k, sum(n) OVER (ORDER BY ts RANGE INTERVAL '1' HOUR PRECEDING) AS p FROM "
         "(ISTREAM(SELECT k, count(*) AS n FROM s GROUP BY k)) AS t"),
        (f"SELECT k, LEAD(n) OVER (PARTITION BY k) AS p FROM {TABLE}", "LEAD without ORDER BY",
         f"SELECT k, LEAD(n) OVER (ORDER BY k) AS p FROM {TABLE}"),
        (f"SELECT k, sum(n) OVER (ORDER BY n GROUPS 1 PRECEDING) AS p FROM {TABLE}",
         "GROUPS in a frame", f"SELECT k, sum(n) OVER (ORDER BY n ROWS 1 PRECEDING) AS p FROM "
         f"{TABLE}"),
        (f"SELECT k, sum(n) OVER (ORDER BY n ROWS BETWEEN 1 FOLLOWING AND CURRENT ROW) AS p FROM "
         f"{TABLE}", "a frame that ends before it begins",
         f"SELECT k, sum(n) OVER (ORDER BY n) AS p FROM {TABLE}"),
        ("SELECT LAG(v) OVER u AS p FROM s WINDOW w AS (ORDER BY ts)", "unknown window u",
         "SELECT LAG(v) OVER w AS p FROM s WINDOW w AS (ORDER BY ts)"),
        ("SELECT v FROM s WINDOW w AS (ORDER BY ts)", "WINDOW without OVER", "SELECT v FROM s"),
        ("SELECT sum(v) OVER (ORDER BY ts GROUPS 2 PRECEDING) AS t FROM s", "GROUPS in a frame",
         "SELECT sum(v) OVER (ORDER BY ts ROWS 2 PRECEDING) AS t FROM s"),
        ("SELECT nth_value(v, 2) OVER (ORDER BY ts) AS t FROM s", "NTH_VALUE of all rows so far",
         "SELECT nth_value(v, 2) OVER (ORDER BY ts ROWS 9 PRECEDING) AS t FROM s"),
        (f"SELECT k, {LAG} AS p FROM s [RANGE 5 SECONDS SLIDE 1 SECOND]", "SLIDE has no effect",
         f"SELECT k, {LAG} AS p FROM s"),
        ("SELECT count(*) FROM s [CUMULATE 1 HOUR]", "CUMULATE needs a SLIDE",
         "SELECT count(*) FROM s [CUMULATE 1 HOUR SLIDE 10 MINUTES]"),
        ("SELECT count(*) FROM s [CUMULATE 1 HOUR SLIDE 7 MINUTES]", "CUMULATE needs a SLIDE",
         "SELECT count(*) FROM s [CUMULATE 1 HOUR SLIDE 10 MINUTES]"),
        ("SELECT k FROM s [CUMULATE 1 HOUR SLIDE 10 MINUTES]", "CUMULATE has no effect here",
         "SELECT k, count(*) FROM s [CUMULATE 1 HOUR SLIDE 10 MINUTES] GROUP BY k"),
        ("SELECT count(*) FROM s [CUMULATE 1 HOUR SLIDE 10 MINUTES] JOIN t USING (k)",
         "a join over windows of results",
         "SELECT count(*) FROM (SELECT s.k FROM s [RANGE 1 HOUR] JOIN t [NOW] USING (k)) AS j "
         "[CUMULATE 1 HOUR SLIDE 10 MINUTES]"),
        ("SELECT count(*) FROM s [RANGE 1 DAY SLIDE 1 DAY IN 'Europe/Berlim']",
         "did you mean Europe/Berlin?",
         "SELECT count(*) FROM s [RANGE 1 DAY SLIDE 1 DAY IN 'Europe/Berlin']"),
        ("SELECT count(*) FROM s [RANGE 1 HOUR SLIDE 1 HOUR IN 'Europe/Berlin']",
         "1 HOUR is not a number of days or months", "SELECT count(*) FROM s [RANGE 1 HOUR]"),
        ("SELECT count(*) FROM s [RANGE 1 MONTH SLIDE 1 DAY]", "a window of months that slides by",
         "SELECT count(*) FROM s [RANGE 30 DAYS SLIDE 1 DAY]"),
        ("SELECT count(*) FROM s [CUMULATE 1 DAY SLIDE 1 HOUR IN 'Europe/Berlin']",
         "CUMULATE by a calendar",
         "SELECT count(*) FROM s [RANGE 1 DAY SLIDE 1 DAY IN 'Europe/Berlin']"),
        ("SELECT count(*) FROM s [RANGE 1 MONTH]", "needs SLIDE",
         "SELECT count(*) FROM s [RANGE 1 MONTH SLIDE 1 MONTH]"),
    ],
)  # fmt: skip
def test_what_never_ends_is_refused(
    text: str, message: str, instead: str, binding: Binding
) -> None:
    binding.refuses(text, message, instead)


def test_over_of_a_table_is_no_stream(binding: Binding) -> None:
    text = f"SELECT k, LAG(n) OVER (ORDER BY k) AS p FROM {TABLE}"
    with pytest.raises(UsageError, match="rank or OVER of tables"):
        compile_plan(binding.plan(f"ISTREAM({text})"))
