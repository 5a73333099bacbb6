"""Queries over queries, on the readings' stream: windows inside and outside, WITH, relations.

    A1 1.0 a 10    B1 1.0 b 20    A2 2.5 a 30    B2 4.0 b null    A3 4.0 a 5    C1 7.0 c 40

`COUNTS` gives (a 1) (b 1) at 2, (a 2) (b 1) at 4, (a 1) (b 1) at 6, (c 1) at 8 and at 10.
"""

from oracle.cases.case import Case, Scene, rows
from oracle.cases.readings import BY_K, COUNT, TOTAL, R, counted
from oracle.model import (
    SECOND,
    Emit,
    Item,
    Now,
    Range,
    Rows,
    Select,
    Source,
    Sub,
    Unbounded,
    Union,
    agg,
    expr,
    item,
)

COUNTS = counted(Range(3 * SECOND, 2 * SECOND))
COUNTS_TEXT = "SELECT k, count(*) AS n FROM r [RANGE 3 SECONDS SLIDE 2 SECONDS] GROUP BY k"
A_OR_LARGE = Union(
    (
        Select((item("v"),), (Source("r"),), where=expr("k = 'a'")),
        Select((item("v"),), (Source("r"),), where=expr("v > 15")),
    )
)
A_OR_LARGE_TEXT = "SELECT v FROM r WHERE k = 'a' UNION ALL SELECT v FROM r WHERE v > 15"

SELECTS = (
    Case(
        "select_over_select",
        Select(
            (item("q.w"),),
            (
                Sub(
                    Select((item("k"), item("v + 1", "w")), (Source("r"),), where=expr("k = 'a'")),
                    "q",
                ),
            ),
            where=expr("q.w > 10"),
        ),
        "SELECT q.w FROM (SELECT k, v + 1 AS w FROM r WHERE k = 'a') AS q WHERE q.w > 10",
        rows((11, 1), (31, 2.5)),
    ),
    Case(
        "subquery_keeps_its_intervals",
        Emit(
            "DSTREAM",
            Select(
                (item("q.v"),),
                (Sub(Select((item("k"), item("v")), (Source("r", window=Rows(2)),)), "q"),),
                where=expr("q.k = 'a'"),
            ),
        ),
        "DSTREAM (SELECT q.v FROM (SELECT k, v FROM r [ROWS 2]) AS q WHERE q.k = 'a')",
        rows((10, 2.5), (30, 4)),
    ),
    Case(
        "window_on_a_subquery_starts_anew",
        Emit(
            "DSTREAM",
            Select(
                (item("q.k"),),
                (Sub(Select((item("k"),), (Source("r", window=Rows(1)),)), "q", Rows(1)),),
            ),
        ),
        "DSTREAM (SELECT q.k FROM (SELECT k FROM r [ROWS 1]) AS q [ROWS 1])",
        rows(("b", 2.5), ("a", 4), ("a", 7)),
    ),
    Case(
        "union_has_no_position_nulls_come_first",
        Select(
            (item("u.v"),),
            (
                Sub(
                    Union(
                        (
                            Select((item("v"),), (Source("r"),), where=expr("k = 'a'")),
                            Select((item("v"),), (Source("r"),), where=expr("v IS NULL")),
                        )
                    ),
                    "u",
                    Rows(1),
                ),
            ),
        ),
        "SELECT u.v FROM (SELECT v FROM r WHERE k = 'a' UNION ALL"
        " SELECT v FROM r WHERE v IS NULL) AS u [ROWS 1]",
        rows((10, 1), (30, 2.5), (5, 4)),
    ),
    Case(
        "union_ordered_by_time_then_columns",
        Emit("DSTREAM", Select((item("u.v"),), (Sub(A_OR_LARGE, "u", Rows(2)),))),
        f"DSTREAM (SELECT u.v FROM ({A_OR_LARGE_TEXT}) AS u [ROWS 2])",
        rows((10, 2.5), (20, 2.5), (30, 4), (30, 7)),
    ),
    Case(
        "istream_inside",
        Select(
            (item("q.v"),),
            (
                Sub(
                    Emit("ISTREAM", Select((item("v"),), (Source("r", window=Range(SECOND)),))), "q"
                ),
            ),
            where=expr("q.v >= 30"),
        ),
        "SELECT q.v FROM (ISTREAM (SELECT v FROM r [RANGE 1 SECOND])) AS q WHERE q.v >= 30",
        rows((30, 2.5), (40, 7)),
    ),
)


def every_two(seconds: int) -> Select:
    return Select((COUNT,), (Source("r", window=Range(seconds * SECOND, 2 * SECOND)),))


AGGREGATES = (
    Case(
        "rows_window_outside_the_filter",
        Select(
            (COUNT,),
            (Sub(Select((item("v"),), (Source("r"),), where=expr("k = 'a'")), "q", Rows(2)),),
        ),
        "SELECT count(*) AS n FROM (SELECT v FROM r WHERE k = 'a') AS q [ROWS 2]",
        rows((1, 1), (2, 2.5), (2, 4)),
    ),
    Case(
        "rows_window_inside_the_filter",
        Select(
            (COUNT,),
            (
                Sub(
                    Select((item("v"),), (Source("r", window=Rows(2)),), where=expr("k = 'a'")),
                    "q",
                ),
            ),
        ),
        "SELECT count(*) AS n FROM (SELECT v FROM r [ROWS 2] WHERE k = 'a') AS q",
        rows((1, 1), (1, 2.5), (1, 4)),
    ),
    Case(
        "range_inside_a_filter_still_slides",
        Select(
            (Item(agg("sum(q.v)"), "total"),),
            (
                Sub(
                    Select(
                        (item("v"),),
                        (Source("r", window=Range(3 * SECOND, 2 * SECOND)),),
                        where=expr("k = 'a'"),
                    ),
                    "q",
                ),
            ),
        ),
        "SELECT sum(q.v) AS total FROM"
        " (SELECT v FROM r [RANGE 3 SECONDS SLIDE 2 SECONDS] WHERE k = 'a') AS q",
        rows((10, 2), (40, 4), (5, 6)),
    ),
    Case(
        "window_over_a_union",
        Select((COUNT,), (Sub(A_OR_LARGE, "u", Range(4 * SECOND, 4 * SECOND)),)),
        f"SELECT count(*) AS n FROM ({A_OR_LARGE_TEXT}) AS u [RANGE 4 SECONDS SLIDE 4 SECONDS]",
        rows((4, 4), (2, 8)),
    ),
    Case(
        "dstream_inside_a_window",
        Select(
            (COUNT,),
            (
                Sub(
                    Emit("DSTREAM", Select((item("k"),), (Source("r", window=Range(2 * SECOND)),))),
                    "gone",
                    Range(4 * SECOND, 4 * SECOND),
                ),
            ),
        ),
        "SELECT count(*) AS n FROM (DSTREAM (SELECT k FROM r [RANGE 2 SECONDS])) AS gone"
        " [RANGE 4 SECONDS SLIDE 4 SECONDS]",
        rows((2, 4), (3, 8), (1, 12)),
    ),
    Case(
        "dstream_of_a_union_of_aggregates",
        Emit("DSTREAM", Union((every_two(2), every_two(4)))),
        "DSTREAM (SELECT count(*) AS n FROM r [RANGE 2 SECONDS SLIDE 2 SECONDS] UNION ALL"
        " SELECT count(*) AS n FROM r [RANGE 4 SECONDS SLIDE 2 SECONDS])",
        rows((2, 4), (1, 6), (2, 8), (1, 10), (2, 4), (3, 6), (3, 8), (3, 10), (1, 12)),
    ),
    Case(
        "rstream_of_a_union_of_aggregates",
        Emit("RSTREAM", Union((every_two(2), every_two(4)))),
        "RSTREAM (SELECT count(*) AS n FROM r [RANGE 2 SECONDS SLIDE 2 SECONDS] UNION ALL"
        " SELECT count(*) AS n FROM r [RANGE 4 SECONDS SLIDE 2 SECONDS])",
        rows((2, 2), (1, 4), (2, 6), (1, 8), (2, 2), (3, 4), (3, 6), (3, 8), (1, 10)),
    ),
    Case(
        "aggregate_of_an_aggregate_now",
        Select((Item(agg("max(c.n)"), "most"),), (Sub(COUNTS, "c", Now()),)),
        f"SELECT max(c.n) AS most FROM ({COUNTS_TEXT}) AS c [NOW]",
        rows((1, 2), (2, 4), (1, 6), (1, 8), (1, 10)),
    ),
    Case(
        "aggregate_of_an_aggregate_range",
        Select(
            (Item(agg("sum(c.n)"), "total"),),
            (Sub(COUNTS, "c", Range(4 * SECOND, 4 * SECOND)),),
        ),
        f"SELECT sum(c.n) AS total FROM ({COUNTS_TEXT}) AS c [RANGE 4 SECONDS SLIDE 4 SECONDS]",
        rows((2, 4), (5, 8), (2, 12)),
    ),
    Case(
        "filter_over_an_aggregate",
        Select((item("c.k"),), (Sub(COUNTS, "c"),), where=expr("c.n > 1")),
        f"SELECT c.k FROM ({COUNTS_TEXT}) AS c WHERE c.n > 1",
        rows(("a", 4)),
    ),
    Case(
        "with_read_twice",
        Select(
            (item("c.k"), item("c.n")),
            (
                Sub(COUNTS, "c", Now(), "counts"),
                Sub(
                    Select((Item(agg("max(d.n)"), "most"),), (Sub(COUNTS, "d", Now(), "counts"),)),
                    "m",
                    Now(),
                ),
            ),
            where=expr("c.n = m.most"),
        ),
        f"WITH counts AS ({COUNTS_TEXT}) SELECT c.k, c.n FROM counts AS c [NOW],"
        " (SELECT max(d.n) AS most FROM counts AS d [NOW]) AS m [NOW] WHERE c.n = m.most",
        rows(
            ("a", 1, 2),
            ("b", 1, 2),
            ("a", 2, 4),
            ("a", 1, 6),
            ("b", 1, 6),
            ("c", 1, 8),
            ("c", 1, 10),
        ),
    ),
)

PER_K = counted(None)
PER_K_TEXT = "SELECT k, count(*) AS n FROM r GROUP BY k"
TOTALS = Select((item("k"), TOTAL), (Source("r"),), keys=BY_K)
HISTOGRAM = Select(
    (item("c.n"), Item(agg("count(*)"), "ks")),
    (Sub(counted(Unbounded(2 * SECOND)), "c"),),
    keys=(expr("c.n"),),
)
HISTOGRAM_TEXT = (
    "SELECT c.n, count(*) AS ks FROM"
    " (SELECT k, count(*) AS n FROM r [UNBOUNDED SLIDE 2 SECONDS] GROUP BY k) AS c GROUP BY c.n"
)

RELATIONS = (
    Case(
        "relation_filtered",
        Select((item("c.k"), item("c.n")), (Sub(PER_K, "c"),), where=expr("c.n > 1")),
        f"SELECT c.k, c.n FROM ({PER_K_TEXT}) AS c WHERE c.n > 1",
        (("a", 3), ("b", 2)),
    ),
    Case(
        "relation_over_relation",
        Select((Item(agg("avg(t.total)"), "mean"),), (Sub(TOTALS, "t"),)),
        "SELECT avg(t.total) AS mean FROM (SELECT k, sum(v) AS total FROM r GROUP BY k) AS t",
        ((35.0,),),
    ),
    Case(
        "relation_over_a_stream_of_results",
        Select(
            (item("c.k"), Item(agg("count(*)"), "windows")),
            (Sub(COUNTS, "c"),),
            keys=(expr("c.k"),),
        ),
        f"SELECT c.k, count(*) AS windows FROM ({COUNTS_TEXT}) AS c GROUP BY c.k",
        (("a", 3), ("b", 3), ("c", 2)),
    ),
    Case(
        "relation_union",
        Union(
            (
                Select((item("k"), COUNT), (Source("r"),), keys=BY_K, having=agg("count(*) = 1")),
                Select((item("k"), TOTAL), (Source("r"),), keys=BY_K, having=agg("sum(v) > 30")),
            )
        ),
        "SELECT k, count(*) AS n FROM r GROUP BY k HAVING count(*) = 1 UNION ALL"
        " SELECT k, sum(v) AS total FROM r GROUP BY k HAVING sum(v) > 30",
        (("c", 1), ("a", 45), ("c", 40)),
    ),
    Case(
        "istream_of_a_relation_over_a_relation",
        Emit("ISTREAM", HISTOGRAM),
        f"ISTREAM ({HISTOGRAM_TEXT})",
        rows((1, 2, 2), (3, 1, 4), (2, 1, 4), (1, 1, 8)),
    ),
    Case(
        "dstream_of_a_relation_over_a_relation",
        Emit("DSTREAM", HISTOGRAM),
        f"DSTREAM ({HISTOGRAM_TEXT})",
        rows((1, 2, 4)),
    ),
)

NESTED = Scene("nested", (R,), (*SELECTS, *AGGREGATES, *RELATIONS))
