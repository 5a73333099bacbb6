"""Aggregates over one stream: every kind of window, every function, and relations.

    A1 1.0 a 10    B1 1.0 b 20    A2 2.5 a 30    B2 4.0 b null    A3 4.0 a 5    C1 7.0 c 40

Windows [e - 3, e) by two seconds: {A1 B1} at 2, {A1 B1 A2} at 4, {B2 A3} at 6, {C1} at 8 and 10.
Intervals of [ROWS 2]: A1 [1, 2.5)  B1 [1, 4)  A2 [2.5, 4)  B2 [4, 7)  A3 [4, …)  C1 [7, …).
"""

import math

from oracle.cases.case import Case, Scene, rows
from oracle.cases.readings import BY_K, COUNT, TOTAL, R, counted
from oracle.model import (
    SECOND,
    WINDOW_END,
    WINDOW_START,
    Emit,
    Item,
    Now,
    Range,
    Rows,
    Select,
    Source,
    Unbounded,
    agg,
    expr,
    item,
)

AGGREGATES = (
    Case(
        "sliding",
        counted(Range(3 * SECOND, 2 * SECOND), TOTAL),
        "SELECT k, count(*) AS n, sum(v) AS total FROM r [RANGE 3 SECONDS SLIDE 2 SECONDS]"
        " GROUP BY k",
        rows(
            ("a", 1, 10, 2),
            ("b", 1, 20, 2),
            ("a", 2, 40, 4),
            ("b", 1, 20, 4),
            ("b", 1, None, 6),
            ("a", 1, 5, 6),
            ("c", 1, 40, 8),
            ("c", 1, 40, 10),
        ),
    ),
    Case(
        "sliding_without_slide_steps_by_a_second",
        Select((COUNT,), (Source("r", window=Range(2 * SECOND)),)),
        "SELECT count(*) AS n FROM r [RANGE 2 SECONDS]",
        rows((2, 2), (3, 3), (1, 4), (2, 5), (2, 6), (1, 8), (1, 9)),
    ),
    Case(
        "range_shorter_than_slide",
        Select((COUNT, TOTAL), (Source("r", window=Range(SECOND, 3 * SECOND)),)),
        "SELECT count(*) AS n, sum(v) AS total FROM r [RANGE 1 SECOND SLIDE 3 SECONDS]",
        rows((1, 30, 3)),
    ),
    Case(
        "window_bounds",
        Select(
            (item("k"), Item(WINDOW_START, "window_start"), Item(WINDOW_END, "upto"), COUNT),
            (Source("r", window=Range(4 * SECOND, 4 * SECOND)),),
            keys=BY_K,
        ),
        "SELECT k, window_start, window_end AS upto, count(*) AS n"
        " FROM r [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k",
        rows(
            ("a", 0, 4 * SECOND, 2, 4),
            ("b", 0, 4 * SECOND, 1, 4),
            ("a", 4 * SECOND, 8 * SECOND, 1, 8),
            ("b", 4 * SECOND, 8 * SECOND, 1, 8),
            ("c", 4 * SECOND, 8 * SECOND, 1, 8),
        ),
    ),
    Case(
        "all_functions",
        Select(
            (
                Item(agg("count(v)"), "known"),
                Item(agg("avg(v)"), "mean"),
                Item(agg("min(v)"), "least"),
                Item(agg("max(v)"), "most"),
                Item(agg("var_pop(v)"), "vp"),
                Item(agg("var_samp(v)"), "vs"),
                Item(agg("stddev_pop(v)"), "sp"),
                Item(agg("stddev_samp(v)"), "ss"),
                Item(agg("count(DISTINCT k)"), "ks"),
                Item(agg("sum(v) FILTER (WHERE k = 'a')"), "of_a"),
            ),
            (Source("r", window=Range(4 * SECOND, 4 * SECOND)),),
        ),
        "SELECT count(v) AS known, avg(v) AS mean, min(v) AS least, max(v) AS most,"
        " var_pop(v) AS vp, var_samp(v) AS vs, stddev_pop(v) AS sp, stddev_samp(v) AS ss,"
        " count(DISTINCT k) AS ks, sum(v) FILTER (WHERE k = 'a') AS of_a"
        " FROM r [RANGE 4 SECONDS SLIDE 4 SECONDS]",
        rows(
            (3, 20.0, 10, 30, 200 / 3, 100.0, math.sqrt(200 / 3), 10.0, 2, 40, 4),
            (2, 22.5, 5, 40, 306.25, 612.5, 17.5, math.sqrt(612.5), 3, 5, 8),
        ),
    ),
    Case(
        "first_and_last_by_time_and_position",
        Select(
            (
                Item(agg("first(k)", "first(k ORDER BY $order)"), "one"),
                Item(agg("last(k)", "last(k ORDER BY $order)"), "other"),
                Item(agg("first(v)", "first(v ORDER BY $order)"), "v1"),
                Item(
                    agg(
                        "last(v) FILTER (WHERE k <> 'a')",
                        "last(v ORDER BY $order) FILTER (WHERE k <> 'a')",
                    ),
                    "not_a",
                ),
            ),
            (Source("r", window=Range(3 * SECOND, 2 * SECOND)),),
        ),
        "SELECT first(k) AS one, last(k) AS other, first(v) AS v1,"
        " last(v) FILTER (WHERE k <> 'a') AS not_a FROM r [RANGE 3 SECONDS SLIDE 2 SECONDS]",
        rows(
            ("a", "b", 10, 20, 2),
            ("a", "a", 10, 20, 4),
            ("b", "a", None, None, 6),
            ("c", "c", 40, 40, 8),
            ("c", "c", 40, 40, 10),
        ),
    ),
    Case(
        "having",
        Select(
            (item("k"), TOTAL),
            (Source("r", window=Range(3 * SECOND, 2 * SECOND)),),
            keys=BY_K,
            having=agg("sum(v) >= 20"),
        ),
        "SELECT k, sum(v) AS total FROM r [RANGE 3 SECONDS SLIDE 2 SECONDS] GROUP BY k"
        " HAVING sum(v) >= 20",
        rows(("b", 20, 2), ("a", 40, 4), ("b", 20, 4), ("c", 40, 8), ("c", 40, 10)),
    ),
    Case(
        "where_before_the_aggregate",
        Select(
            (COUNT,),
            (Source("r", window=Range(3 * SECOND, 2 * SECOND)),),
            where=expr("v > 5"),
        ),
        "SELECT count(*) AS n FROM r [RANGE 3 SECONDS SLIDE 2 SECONDS] WHERE v > 5",
        rows((2, 2), (3, 4), (1, 8), (1, 10)),
    ),
    Case(
        "key_is_an_expression",
        Select(
            (item("v % 20", "rest"), COUNT),
            (Source("r", window=Range(4 * SECOND, 4 * SECOND)),),
            keys=(expr("v % 20"),),
        ),
        "SELECT v % 20 AS rest, count(*) AS n FROM r [RANGE 4 SECONDS SLIDE 4 SECONDS]"
        " GROUP BY v % 20",
        rows((10, 2, 4), (0, 1, 4), (None, 1, 8), (5, 1, 8), (0, 1, 8)),
    ),
    Case(
        "now_groups_by_time",
        Select((COUNT, TOTAL), (Source("r", window=Now()),)),
        "SELECT count(*) AS n, sum(v) AS total FROM r [NOW]",
        rows((2, 30, 1), (1, 30, 2.5), (2, 5, 4), (1, 40, 7)),
    ),
    Case(
        "dstream_of_an_aggregate_one_slide_later",
        Emit("DSTREAM", Select((COUNT,), (Source("r", window=Range(3 * SECOND, 2 * SECOND)),))),
        "DSTREAM (SELECT count(*) AS n FROM r [RANGE 3 SECONDS SLIDE 2 SECONDS])",
        rows((2, 4), (3, 6), (2, 8), (1, 10), (1, 12)),
    ),
    Case(
        "rstream_of_an_aggregate_is_the_aggregate",
        Emit("RSTREAM", Select((COUNT,), (Source("r", window=Range(3 * SECOND, 2 * SECOND)),))),
        "RSTREAM (SELECT count(*) AS n FROM r [RANGE 3 SECONDS SLIDE 2 SECONDS])",
        rows((2, 2), (3, 4), (2, 6), (1, 8), (1, 10)),
    ),
    Case(
        "rows_2_by_group_at_each_change",
        counted(Rows(2), TOTAL),
        "SELECT k, count(*) AS n, sum(v) AS total FROM r [ROWS 2] GROUP BY k",
        rows(
            ("a", 1, 10, 1),
            ("a", 1, 30, 2.5),
            ("a", 1, 5, 4),
            ("b", 1, 20, 1),
            ("b", 1, None, 4),
            ("c", 1, 40, 7),
        ),
    ),
    Case(
        "rows_2_of_all",
        Select((COUNT, TOTAL), (Source("r", window=Rows(2)),)),
        "SELECT count(*) AS n, sum(v) AS total FROM r [ROWS 2]",
        rows((2, 30, 1), (2, 50, 2.5), (2, 5, 4), (2, 45, 7)),
    ),
    Case(
        "rows_1_changes_only_when_seen",
        counted(Rows(1)),
        "SELECT k, count(*) AS n FROM r [ROWS 1] GROUP BY k",
        rows(("b", 1, 1), ("a", 1, 2.5), ("a", 1, 4), ("c", 1, 7)),
    ),
    Case(
        "dstream_of_rows_2_until_the_next_change",
        Emit("DSTREAM", counted(Rows(2), TOTAL)),
        "DSTREAM (SELECT k, count(*) AS n, sum(v) AS total FROM r [ROWS 2] GROUP BY k)",
        rows(("a", 1, 10, 2.5), ("a", 1, 30, 4), ("b", 1, 20, 4), ("b", 1, None, 7)),
    ),
    Case(
        "partition_rows_2",
        counted(Rows(2, ("k",)), TOTAL),
        "SELECT k, count(*) AS n, sum(v) AS total FROM r [PARTITION BY k ROWS 2] GROUP BY k",
        rows(
            ("a", 1, 10, 1),
            ("a", 2, 40, 2.5),
            ("a", 2, 35, 4),
            ("b", 1, 20, 1),
            ("b", 2, 20, 4),
            ("c", 1, 40, 7),
        ),
    ),
)

COUNTS_ALONE = Select((COUNT,), (Source("r", window=Unbounded(2 * SECOND)),), keys=BY_K)
COUNTS_ALONE_TEXT = "SELECT count(*) AS n FROM r [UNBOUNDED SLIDE 2 SECONDS] GROUP BY k"

RELATIONS = (
    Case(
        "unbounded_aggregate",
        Select(
            (
                item("k"),
                COUNT,
                Item(agg("count(v)"), "known"),
                TOTAL,
                Item(agg("min(v)"), "least"),
                Item(agg("last(v)", "last(v ORDER BY $order)"), "latest"),
            ),
            (Source("r"),),
            keys=BY_K,
        ),
        "SELECT k, count(*) AS n, count(v) AS known, sum(v) AS total, min(v) AS least,"
        " last(v) AS latest FROM r GROUP BY k",
        (("a", 3, 3, 45, 5, 5), ("b", 2, 1, 20, 20, None), ("c", 1, 1, 40, 40, 40)),
    ),
    Case(
        "unbounded_having",
        Select(
            (item("k"),),
            (Source("r", window=Unbounded()),),
            keys=BY_K,
            having=agg("count(*) > 1"),
        ),
        "SELECT k FROM r [UNBOUNDED] GROUP BY k HAVING count(*) > 1",
        (("a",), ("b",)),
    ),
    Case(
        "istream_of_a_relation",
        Emit("ISTREAM", counted(Unbounded(2 * SECOND))),
        "ISTREAM (SELECT k, count(*) AS n FROM r [UNBOUNDED SLIDE 2 SECONDS] GROUP BY k)",
        rows(("a", 1, 2), ("b", 1, 2), ("a", 3, 4), ("b", 2, 4), ("c", 1, 8)),
    ),
    Case(
        "dstream_of_a_relation",
        Emit("DSTREAM", counted(Unbounded(2 * SECOND))),
        "DSTREAM (SELECT k, count(*) AS n FROM r [UNBOUNDED SLIDE 2 SECONDS] GROUP BY k)",
        rows(("a", 1, 4), ("b", 1, 4)),
    ),
    Case(
        "rstream_of_a_relation",
        Emit("RSTREAM", counted(Unbounded(2 * SECOND))),
        "RSTREAM (SELECT k, count(*) AS n FROM r [UNBOUNDED SLIDE 2 SECONDS] GROUP BY k)",
        rows(
            ("a", 1, 2),
            ("b", 1, 2),
            ("a", 3, 4),
            ("b", 2, 4),
            ("a", 3, 6),
            ("b", 2, 6),
            ("a", 3, 8),
            ("b", 2, 8),
            ("c", 1, 8),
        ),
    ),
    Case(
        "istream_of_a_relation_counts_equal_rows",
        Emit("ISTREAM", COUNTS_ALONE),
        f"ISTREAM ({COUNTS_ALONE_TEXT})",
        # {1 1} at 2, {3 2} at 4 and 6, {3 2 1} at 8
        rows((1, 2), (1, 2), (3, 4), (2, 4), (1, 8)),
    ),
    Case(
        "dstream_of_a_relation_counts_equal_rows",
        Emit("DSTREAM", COUNTS_ALONE),
        f"DSTREAM ({COUNTS_ALONE_TEXT})",
        rows((1, 4), (1, 4)),
    ),
)

AGGREGATED = Scene("aggregates", (R,), (*AGGREGATES, *RELATIONS))
