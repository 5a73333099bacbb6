"""Windows of aggregates at their edges: rows in the last microsecond, over joins and unions too.

Each of two streams has rows at a window's first and last instant. Tumbling windows count every row
once; ALIGN START puts the starts of windows at multiples of the slide.
"""

from dataclasses import replace

from oracle.cases.case import Case, Scene, rows, sec, stream
from oracle.model import (
    SECOND,
    WINDOW_END,
    WINDOW_START,
    Emit,
    FromItem,
    Item,
    Now,
    Query,
    Range,
    Rows,
    Select,
    Source,
    Sub,
    Union,
    Window,
    agg,
    expr,
    item,
)

LEFT = stream(
    "l",
    {"id": "int", "g": "int"},
    [(0, 1, 1), (1.999999, 2, 1), (2, 3, 1), (3.999999, 4, 1), (5, 5, 1), (9.999999, 6, 1),
     (10, 7, 1)],
)  # fmt: skip
RIGHT = stream(
    "r", {"id": "int", "g": "int"}, [(1, 11, 1), (1.999999, 12, 1), (4, 13, 1), (9.999999, 14, 1)]
)

COUNT = Item(agg("count(*)"), "n")
START, END = Item(WINDOW_START, "window_start"), Item(WINDOW_END, "window_end")
SAME = expr("l.g = r.g")
TWO, THREE = Range(2 * SECOND), Range(3 * SECOND)
TUMBLING = Range(2 * SECOND, 2 * SECOND)
ENDS = Range(3 * SECOND, 2 * SECOND)
STARTS = replace(ENDS, align_start=True)


def joined(items: tuple[Item, ...], left: Window, right: Window | None) -> Select:
    return Select(items, (Source("l", window=left), Source("r", window=right)), where=SAME)


def united(left: Window | None, right: Window | None) -> Query:
    return Union(
        tuple(Select((item("id"),), (Source(n, window=w),)) for n, w in (("l", left), ("r", right)))
    )


def spans(*expected: tuple[int, float, float]) -> tuple[tuple[object, ...], ...]:
    """Counts with the start and the end of their window, which is ts."""
    return rows(*((n, sec(start), sec(end), end) for n, start, end in expected))


BOUNDS = (COUNT, START, END)
EACH_ROW_ONCE = spans((4, 0, 2), (2, 2, 4), (2, 4, 6), (2, 8, 10), (1, 10, 12))
DISTINCT: FromItem = Sub(
    Select((item("g"),), (Source("l", window=Range(SECOND)),), distinct=True), "d", TUMBLING
)
ALIGNED = spans((1, -2, 1), (3, 0, 3), (2, 2, 5), (1, 4, 7), (2, 8, 11), (1, 10, 13))

EDGES_OF_JOINS = (
    Case(
        "union_of_windows_counts_each_row_once",
        Select(BOUNDS, (Sub(united(TUMBLING, TWO), "u"),)),
        "SELECT count(*) AS n, window_start, window_end FROM (SELECT id FROM l [RANGE 2 SECONDS"
        " SLIDE 2 SECONDS] UNION ALL SELECT id FROM r [RANGE 2 SECONDS]) AS u",
        EACH_ROW_ONCE,
    ),
    Case(
        "window_on_a_union_counts_each_row_once",
        Select(BOUNDS, (Sub(united(None, None), "u", TUMBLING),)),
        "SELECT count(*) AS n, window_start, window_end FROM (SELECT id FROM l UNION ALL"
        " SELECT id FROM r) AS u [RANGE 2 SECONDS SLIDE 2 SECONDS]",
        EACH_ROW_ONCE,
    ),
    Case(
        "union_of_unlike_ranges",
        Select((COUNT, END), (Sub(united(TUMBLING, Range(4 * SECOND)), "u"),)),
        "SELECT count(*) AS n, window_end FROM (SELECT id FROM l [RANGE 2 SECONDS"
        " SLIDE 2 SECONDS] UNION ALL SELECT id FROM r [RANGE 4 SECONDS]) AS u",
        # 2 + 2, 2 + 2, 1 + 1, 0 + 1, 1 + 1, 1 + 1
        rows(
            *((n, sec(end), end) for n, end in ((4, 2), (4, 4), (2, 6), (1, 8), (2, 10), (2, 12)))
        ),
    ),
    Case(
        "tumbling_join",
        joined(BOUNDS, TUMBLING, TUMBLING),
        "SELECT count(*) AS n, window_start, window_end FROM l [RANGE 2 SECONDS SLIDE 2 SECONDS],"
        " r [RANGE 2 SECONDS SLIDE 2 SECONDS] WHERE l.g = r.g",
        spans((4, 0, 2), (1, 4, 6), (1, 8, 10)),
    ),
    Case(
        "tumbling_join_inside",
        Select(BOUNDS, (Sub(joined((item("l.id"),), TUMBLING, TWO), "q"),)),
        "SELECT count(*) AS n, window_start, window_end FROM (SELECT l.id FROM l [RANGE 2 SECONDS"
        " SLIDE 2 SECONDS], r [RANGE 2 SECONDS] WHERE l.g = r.g) AS q",
        spans((4, 0, 2), (1, 4, 6), (1, 8, 10)),
    ),
    Case(
        "join_of_unlike_ranges",
        joined((COUNT,), Range(4 * SECOND, 2 * SECOND), TWO),
        "SELECT count(*) AS n FROM l [RANGE 4 SECONDS SLIDE 2 SECONDS], r [RANGE 2 SECONDS]"
        " WHERE l.g = r.g",
        rows((4, 2), (3, 6), (1, 10)),
    ),
    Case(
        "join_of_a_range_and_everything",
        joined(BOUNDS, TUMBLING, None),
        "SELECT count(*) AS n, window_start, window_end FROM l [RANGE 2 SECONDS SLIDE 2 SECONDS],"
        " r WHERE l.g = r.g",
        spans((4, 0, 2), (4, 2, 4), (3, 4, 6), (4, 8, 10), (4, 10, 12)),
    ),
    Case(
        "join_of_a_range_and_the_last_row",
        joined((COUNT,), TUMBLING, Rows(1)),
        "SELECT count(*) AS n FROM l [RANGE 2 SECONDS SLIDE 2 SECONDS], r [ROWS 1] WHERE l.g = r.g",
        rows((2, 2), (2, 4), (1, 6), (1, 10), (1, 12)),
    ),
    Case(
        "join_of_a_range_and_an_instant",
        joined((COUNT,), TUMBLING, Now()),
        "SELECT count(*) AS n FROM l [RANGE 2 SECONDS SLIDE 2 SECONDS], r [NOW] WHERE l.g = r.g",
        # the instants just before 2 and 10
        rows((2, 2), (1, 10)),
    ),
    Case(
        "distinct_below_a_join",
        Select((COUNT,), (DISTINCT, Source("r", window=TWO)), where=expr("d.g = r.g")),
        "SELECT count(*) AS n FROM (SELECT DISTINCT g FROM l [RANGE 1 SECOND]) AS d"
        " [RANGE 2 SECONDS SLIDE 2 SECONDS], r [RANGE 2 SECONDS] WHERE d.g = r.g",
        # values come at 0, 1.999999, 3.999999 (5 follows without a gap) and 9.999999
        rows((4, 2), (1, 10)),
    ),
)

ALIGNMENT = (
    Case(
        "ends_at_multiples",
        Select(BOUNDS, (Source("l", window=ENDS),)),
        "SELECT count(*) AS n, window_start, window_end FROM l [RANGE 3 SECONDS SLIDE 2 SECONDS]",
        spans((2, -1, 2), (3, 1, 4), (2, 3, 6), (1, 5, 8), (1, 7, 10), (2, 9, 12)),
        "SELECT count(*) AS n, window_start, window_end"
        " FROM l [RANGE 3 SECONDS SLIDE 2 SECONDS ALIGN END]",
    ),
    Case(
        "starts_at_multiples",
        Select(BOUNDS, (Source("l", window=STARTS),)),
        "SELECT count(*) AS n, window_start, window_end"
        " FROM l [RANGE 3 SECONDS SLIDE 2 SECONDS ALIGN START]",
        ALIGNED,
        "SELECT count(*) AS n, window_start, window_end FROM l [range 3s slide 2s align start]",
    ),
    Case(
        "starts_of_windows_shorter_than_their_slide",
        Select(BOUNDS, (Source("l", window=Range(SECOND, 5 * SECOND, align_start=True)),)),
        "SELECT count(*) AS n, window_start, window_end"
        " FROM l [RANGE 1 SECOND SLIDE 5 SECONDS ALIGN START]",
        spans((1, 0, 1), (1, 5, 6), (1, 10, 11)),
    ),
    Case(
        "starts_of_tumbling_windows_are_ends",
        Select(BOUNDS, (Source("r", window=replace(TUMBLING, align_start=True)),)),
        "SELECT count(*) AS n, window_start, window_end"
        " FROM r [RANGE 2 SECONDS SLIDE 2 SECONDS ALIGN START]",
        spans((2, 0, 2), (1, 4, 6), (1, 8, 10)),
    ),
    Case(
        "starts_below_a_filter",
        Select(
            (COUNT,),
            (Sub(Select((item("id"),), (Source("l", window=STARTS),), where=expr("id > 2")), "q"),),
        ),
        "SELECT count(*) AS n FROM (SELECT id FROM l [RANGE 3 SECONDS SLIDE 2 SECONDS ALIGN START]"
        " WHERE id > 2) AS q",
        rows((1, 3), (2, 5), (1, 7), (2, 11), (1, 13)),
    ),
    Case(
        "starts_of_a_join",
        joined(BOUNDS, STARTS, THREE),
        "SELECT count(*) AS n, window_start, window_end FROM l [RANGE 3 SECONDS SLIDE 2 SECONDS"
        " ALIGN START], r [RANGE 3 SECONDS] WHERE l.g = r.g",
        spans((6, 0, 3), (2, 2, 5), (1, 4, 7), (2, 8, 11)),
    ),
    Case(
        "starts_of_a_union",
        Select(BOUNDS, (Sub(united(STARTS, STARTS), "u"),)),
        "SELECT count(*) AS n, window_start, window_end FROM (SELECT id FROM l [RANGE 3 SECONDS"
        " SLIDE 2 SECONDS ALIGN START] UNION ALL SELECT id FROM r [RANGE 3 SECONDS SLIDE 2 SECONDS"
        " ALIGN START]) AS u",
        spans((1, -2, 1), (5, 0, 3), (3, 2, 5), (2, 4, 7), (3, 8, 11), (1, 10, 13)),
    ),
    Case(
        "starts_in_a_dstream",
        Emit("DSTREAM", Select((COUNT,), (Source("l", window=STARTS),))),
        "DSTREAM (SELECT count(*) AS n FROM l [RANGE 3 SECONDS SLIDE 2 SECONDS ALIGN START])",
        rows((1, 3), (3, 5), (2, 7), (1, 9), (2, 13), (1, 15)),
    ),
    Case(
        "starts_in_an_rstream",
        Emit("RSTREAM", Select(BOUNDS, (Source("l", window=STARTS),))),
        "RSTREAM (SELECT count(*) AS n, window_start, window_end"
        " FROM l [RANGE 3 SECONDS SLIDE 2 SECONDS ALIGN START])",
        ALIGNED,
    ),
)

WINDOWS = Scene("windows", (LEFT, RIGHT), (*EDGES_OF_JOINS, *ALIGNMENT))
