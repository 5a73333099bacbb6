"""One small stream with ties and a null, and every construct that needs one stream.

    A1 1.0 a 10    B1 1.0 b 20    A2 2.5 a 30    B2 4.0 b null    A3 4.0 a 5    C1 7.0 c 40

Intervals of [ROWS 2]: A1 [1, 2.5)  B1 [1, 4)  A2 [2.5, 4)  B2 [4, 7)  A3 [4, …)  C1 [7, …).
Of [ROWS 1]: A1 and B2 are pushed out at their own time and never seen.
"""

from oracle.cases.case import Case, Scene, rows, stream
from oracle.model import (
    SECOND,
    Emit,
    Item,
    Now,
    Range,
    Rows,
    Select,
    Source,
    Unbounded,
    Union,
    Window,
    agg,
    expr,
    item,
)

R = stream(
    "r",
    {"k": "string", "v": "int"},
    [
        (1.0, "a", 10),
        (1.0, "b", 20),
        (2.5, "a", 30),
        (4.0, "b", None),
        (4.0, "a", 5),
        (7.0, "c", 40),
    ],
)


def kv(window: Window | None = None) -> Select:
    return Select((item("k"), item("v")), (Source("r", window=window),))


COUNT = Item(agg("count(*)"), "n")
TOTAL = Item(agg("sum(v)"), "total")
BY_K = (expr("k"),)


def counted(window: Window | None, *more: Item) -> Select:
    return Select((item("k"), COUNT, *more), (Source("r", window=window),), keys=BY_K)


SELECTS = (
    Case(
        "where",
        Select((item("k"), item("v")), (Source("r"),), where=expr("v >= 20")),
        "SELECT k, v FROM r WHERE v >= 20",
        rows(("b", 20, 1), ("a", 30, 2.5), ("c", 40, 7)),
    ),
    Case(
        "expressions",
        Select(
            (
                item("r.k"),
                item("v * 2 + 1", "twice"),
                item("coalesce(v, -1)", "known"),
                item("CASE WHEN v > 15 THEN 'high' WHEN v IS NULL THEN 'none' ELSE 'low' END", "c"),
                item("ts"),
            ),
            (Source("r"),),
        ),
        "SELECT r.k, v * 2 + 1 AS twice, coalesce(v, -1) AS known,"
        " CASE WHEN v > 15 THEN 'high' WHEN v IS NULL THEN 'none' ELSE 'low' END AS c, ts FROM r",
        rows(
            ("a", 21, 10, "low", 1),
            ("b", 41, 20, "high", 1),
            ("a", 61, 30, "high", 2.5),
            ("b", None, -1, "none", 4),
            ("a", 11, 5, "low", 4),
            ("c", 81, 40, "high", 7),
        ),
    ),
    Case(
        "conjuncts_in_order",
        Select((item("k"),), (Source("r"),), where=expr("v <> 10 AND 100 / (v - 10) > 5")),
        "SELECT k FROM r WHERE v <> 10 AND 100 / (v - 10) > 5",
        rows(("b", 1)),
    ),
    Case(
        "union_all",
        Union(
            (
                Select((item("k"), item("v")), (Source("r"),), where=expr("v < 25")),
                Select((item("k"), item("0", "v")), (Source("r"),), where=expr("k = 'a'")),
            )
        ),
        "SELECT k, v FROM r WHERE v < 25 UNION ALL SELECT k, 0 AS v FROM r WHERE k = 'a'",
        rows(("a", 10, 1), ("b", 20, 1), ("a", 5, 4), ("a", 0, 1), ("a", 0, 2.5), ("a", 0, 4)),
    ),
)

EMITS = (
    Case(
        "istream_is_the_default",
        Emit("ISTREAM", kv(Range(2 * SECOND))),
        "ISTREAM (SELECT k, v FROM r [RANGE 2 SECONDS])",
        rows(("a", 10, 1), ("b", 20, 1), ("a", 30, 2.5), ("b", None, 4), ("a", 5, 4), ("c", 40, 7)),
    ),
    Case(
        "dstream_range",
        Emit("DSTREAM", kv(Range(2 * SECOND))),
        "DSTREAM (SELECT k, v FROM r [RANGE 2 SECONDS])",
        rows(
            ("a", 10, 3.000001),
            ("b", 20, 3.000001),
            ("a", 30, 4.500001),
            ("b", None, 6.000001),
            ("a", 5, 6.000001),
            ("c", 40, 9.000001),
        ),
    ),
    Case(
        "dstream_now",
        Emit("DSTREAM", Select((item("k"),), (Source("r", window=Now()),), where=expr("v > 25"))),
        "DSTREAM (SELECT k FROM r [NOW] WHERE v > 25)",
        rows(("a", 2.500001), ("c", 7.000001)),
    ),
    Case(
        "dstream_of_a_union",
        Emit(
            "DSTREAM",
            Union(
                (
                    Select((item("v"),), (Source("r", window=Now()),), where=expr("v > 25")),
                    Select((item("v"),), (Source("r", window=Rows(2)),), where=expr("k = 'b'")),
                )
            ),
        ),
        "DSTREAM (SELECT v FROM r [NOW] WHERE v > 25"
        " UNION ALL SELECT v FROM r [ROWS 2] WHERE k = 'b')",
        rows((30, 2.500001), (40, 7.000001), (20, 4), (None, 7)),
    ),
    Case(
        "rstream_range_every_second",
        Emit("RSTREAM", Select((item("k"),), (Source("r", window=Range(2 * SECOND)),))),
        "RSTREAM (SELECT k FROM r [RANGE 2 SECONDS])",
        rows(
            *(("a", at) for at in (1, 2, 3, 3, 4, 4, 5, 6)),
            *(("b", at) for at in (1, 2, 3, 4, 5, 6)),
            *(("c", at) for at in (7, 8, 9)),
        ),
    ),
    Case(
        "rstream_range_slide",
        Emit("RSTREAM", kv(Range(2 * SECOND, 3 * SECOND))),
        "RSTREAM (SELECT k, v FROM r [RANGE 2 SECONDS SLIDE 3 SECONDS])",
        rows(("a", 10, 3), ("b", 20, 3), ("a", 30, 3), ("b", None, 6), ("a", 5, 6), ("c", 40, 9)),
    ),
    Case(
        "rstream_now_is_istream",
        Emit("RSTREAM", kv(Now())),
        "RSTREAM (SELECT k, v FROM r [NOW])",
        rows(("a", 10, 1), ("b", 20, 1), ("a", 30, 2.5), ("b", None, 4), ("a", 5, 4), ("c", 40, 7)),
    ),
    Case(
        "rstream_unbounded_stops_after_the_last_row",
        Emit("RSTREAM", kv(Unbounded(5 * SECOND))),
        "RSTREAM (SELECT k, v FROM r [UNBOUNDED SLIDE 5 SECONDS])",
        rows(
            *(("a", 10, at) for at in (5, 10)),
            *(("b", 20, at) for at in (5, 10)),
            *(("a", 30, at) for at in (5, 10)),
            *(("b", None, at) for at in (5, 10)),
            *(("a", 5, at) for at in (5, 10)),
            ("c", 40, 10),
        ),
    ),
)

ROW_WINDOWS = (
    Case(
        "rows_2",
        Emit("DSTREAM", kv(Rows(2))),
        "DSTREAM (SELECT k, v FROM r [ROWS 2])",
        rows(("a", 10, 2.5), ("b", 20, 4), ("a", 30, 4), ("b", None, 7)),
    ),
    Case(
        "rows_1_hides_rows_pushed_out_at_once",
        kv(Rows(1)),
        "SELECT k, v FROM r [ROWS 1]",
        rows(("b", 20, 1), ("a", 30, 2.5), ("a", 5, 4), ("c", 40, 7)),
    ),
    Case(
        "filter_comes_after_the_row_window",
        Select((item("v"),), (Source("r", window=Rows(1)),), where=expr("k = 'b'")),
        "SELECT v FROM r [ROWS 1] WHERE k = 'b'",
        rows((20, 1)),
    ),
    Case(
        "partition_rows_1",
        Emit("DSTREAM", kv(Rows(1, ("k",)))),
        "DSTREAM (SELECT k, v FROM r [PARTITION BY k ROWS 1])",
        rows(("a", 10, 2.5), ("a", 30, 4), ("b", 20, 4)),
    ),
    Case(
        "rstream_rows_1",
        Emit("RSTREAM", kv(Rows(1))),
        "RSTREAM (SELECT k, v FROM r [ROWS 1])",
        rows(
            ("b", 20, 1),
            ("b", 20, 2),
            ("a", 30, 3),
            ("a", 5, 4),
            ("a", 5, 5),
            ("a", 5, 6),
            ("c", 40, 7),
        ),
    ),
)

DISTINCTS = (
    Case(
        "distinct_merges_intervals",
        Select((item("k"),), (Source("r", window=Range(2 * SECOND)),), distinct=True),
        "SELECT DISTINCT k FROM r [RANGE 2 SECONDS]",
        rows(("a", 1), ("b", 1), ("b", 4), ("c", 7)),
    ),
    Case(
        "dstream_of_distinct_at_merged_ends",
        Emit(
            "DSTREAM",
            Select((item("k"),), (Source("r", window=Range(2 * SECOND)),), distinct=True),
        ),
        "DSTREAM (SELECT DISTINCT k FROM r [RANGE 2 SECONDS])",
        rows(("a", 6.000001), ("b", 3.000001), ("b", 6.000001), ("c", 9.000001)),
    ),
    Case(
        "rstream_of_distinct",
        Emit(
            "RSTREAM",
            Select((item("k"),), (Source("r", window=Range(2 * SECOND)),), distinct=True),
        ),
        "RSTREAM (SELECT DISTINCT k FROM r [RANGE 2 SECONDS])",
        rows(
            *(("a", at) for at in (1, 2, 3, 4, 5, 6)),
            *(("b", at) for at in (1, 2, 3, 4, 5, 6)),
            *(("c", at) for at in (7, 8, 9)),
        ),
    ),
    Case(
        "distinct_for_ever",
        Select((item("k"),), (Source("r"),), distinct=True),
        "SELECT DISTINCT k FROM r",
        rows(("a", 1), ("b", 1), ("c", 7)),
    ),
    Case(
        "distinct_rows_2",
        Select((item("k"),), (Source("r", window=Rows(2)),), distinct=True),
        "SELECT DISTINCT k FROM r [ROWS 2]",
        rows(("a", 1), ("b", 1), ("c", 7)),
    ),
    Case(
        "distinct_over_an_aggregate",
        Select(
            (COUNT,), (Source("r", window=Range(3 * SECOND, 2 * SECOND)),), keys=BY_K, distinct=True
        ),
        "SELECT DISTINCT count(*) AS n FROM r [RANGE 3 SECONDS SLIDE 2 SECONDS] GROUP BY k",
        rows((1, 2), (2, 4)),
    ),
    Case(
        "distinct_results_come_again_after_a_gap",
        Select((COUNT,), (Source("r", window=Range(SECOND, SECOND)),), distinct=True),
        "SELECT DISTINCT count(*) AS n FROM r [RANGE 1 SECOND SLIDE 1 SECOND]",
        # a result is in the relation until the next window: 2 in [2, 3) and [5, 6), 1 in [3, 4)
        # and [8, 9)
        rows((2, 2), (1, 3), (2, 5), (1, 8)),
    ),
)

READINGS = Scene("readings", (R,), (*SELECTS, *EMITS, *ROW_WINDOWS, *DISTINCTS))
