"""Time itself: late rows, ties, touching intervals, times before 1970, long gaps, empty streams."""

from oracle.cases.case import Case, Scene, rows, stream
from oracle.model import (
    DAY,
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

COUNT = Item(agg("count(*)"), "n")
ID = item("id")


def counted(name: str, window: Window | None) -> Select:
    return Select((COUNT,), (Source(name, window=window),))


def ids(name: str, window: Window | None = None) -> Select:
    return Select((ID,), (Source(name, window=window),))


# Two seconds of lateness: 3 is late by a microsecond, 5 after 4 raised the bound to 10; the row
# without a time is rejected and raises nothing; a late row raises nothing either.
TOLERANT = stream(
    "tolerant",
    {"id": "int"},
    [
        (10, 1),
        (8, 2),
        (7.999999, 3),
        (12, 4),
        (9.5, 5),
        (10, 6),
        (None, 7),
        (11, 8),
        (10, 9),
    ],
    lateness=2,
)
STRICT = stream("strict", {"id": "int"}, [(1, 11), (3, 12), (2, 13), (3, 14), (5, 15)])

LATE = Scene(
    "late",
    (TOLERANT, STRICT),
    (
        Case(
            "late_row_by_row",
            ids("tolerant"),
            "SELECT id FROM tolerant",
            rows((1, 10), (2, 8), (4, 12), (6, 10), (8, 11), (9, 10)),
        ),
        Case(
            "each_stream_has_its_own_lateness",
            Union((ids("tolerant"), ids("strict"))),
            "SELECT id FROM tolerant UNION ALL SELECT id FROM strict",
            rows(
                (1, 10),
                (2, 8),
                (4, 12),
                (6, 10),
                (8, 11),
                (9, 10),
                (11, 1),
                (12, 3),
                (14, 3),
                (15, 5),
            ),
        ),
        Case(
            "row_windows_follow_time_not_arrival",
            Emit("DSTREAM", ids("tolerant", Rows(2))),
            "DSTREAM (SELECT id FROM tolerant [ROWS 2])",
            # by time: 2 at 8; 1, 6, 9 at 10; 8 at 11; 4 at 12. 1 leaves at 10, unseen.
            rows((2, 10), (6, 11), (9, 12)),
        ),
        Case(
            "aggregate_of_disorder",
            counted("tolerant", Range(2 * SECOND, 2 * SECOND)),
            "SELECT count(*) AS n FROM tolerant [RANGE 2 SECONDS SLIDE 2 SECONDS]",
            rows((1, 10), (4, 12), (1, 14)),
        ),
        Case(
            "streams_of_different_lateness_join",
            Select(
                (item("tolerant.id", "a"), item("strict.id", "b")),
                (Source("tolerant", window=Now()), Source("strict", window=Range(5 * SECOND))),
            ),
            "SELECT tolerant.id AS a, strict.id AS b FROM tolerant [NOW], strict [RANGE 5 SECONDS]",
            # strict: 12 and 14 in [3, 8.000001), 15 in [5, 10.000001)
            rows((2, 12, 8), (2, 14, 8), (2, 15, 8), (1, 15, 10), (6, 15, 10), (9, 15, 10)),
        ),
    ),
)

# Arrival w, x, y, z; by time x, y, z at 1 and w at 2.
TIES = stream("ties", {"id": "string"}, [(2, "w"), (1, "x"), (1, "y"), (1, "z")], lateness=5)
# p: [1, 2.000001) touches [2.000001, 3.000002), which ends a microsecond before the next.
TOUCHING = stream(
    "touching",
    {"id": "string"},
    [(1, "p"), (1, "q"), (1.000001, "q"), (2.000001, "p"), (3.000003, "p")],
)

EDGES = Scene(
    "edges",
    (TIES, TOUCHING),
    (
        Case(
            "ties_rows_1",
            ids("ties", Rows(1)),
            "SELECT id FROM ties [ROWS 1]",
            rows(("z", 1), ("w", 2)),
        ),
        Case(
            "ties_rows_2",
            ids("ties", Rows(2)),
            "SELECT id FROM ties [ROWS 2]",
            rows(("y", 1), ("z", 1), ("w", 2)),
        ),
        Case(
            "ties_rows_2_leave",
            Emit("DSTREAM", ids("ties", Rows(2))),
            "DSTREAM (SELECT id FROM ties [ROWS 2])",
            rows(("y", 2)),
        ),
        Case(
            "ties_rows_2_counted",
            counted("ties", Rows(2)),
            "SELECT count(*) AS n FROM ties [ROWS 2]",
            rows((2, 1), (2, 2)),
        ),
        Case(
            "ties_first_and_last",
            Select(
                (
                    Item(agg("first(id)", "first(id ORDER BY $order)"), "one"),
                    Item(agg("last(id)", "last(id ORDER BY $order)"), "other"),
                ),
                (Source("ties", window=Now()),),
            ),
            "SELECT first(id) AS one, last(id) AS other FROM ties [NOW]",
            rows(("x", "z", 1), ("w", "w", 2)),
        ),
        Case(
            "touching_intervals_merge",
            Select((ID,), (Source("touching", window=Range(SECOND)),), distinct=True),
            "SELECT DISTINCT id FROM touching [RANGE 1 SECOND]",
            rows(("p", 1), ("p", 3.000003), ("q", 1)),
        ),
        Case(
            "touching_instants_merge",
            Emit("DSTREAM", Select((ID,), (Source("touching", window=Now()),), distinct=True)),
            "DSTREAM (SELECT DISTINCT id FROM touching [NOW])",
            rows(("p", 1.000001), ("p", 2.000002), ("p", 3.000004), ("q", 1.000002)),
        ),
    ),
)

OLD = stream("old", {"id": "int"}, [(-2.5, 1), (-1, 2), (-0.000001, 3), (0, 4), (0.5, 5)])

BEFORE_1970 = Scene(
    "before_1970",
    (OLD,),
    (
        Case(
            "old_tumbling",
            counted("old", Range(2 * SECOND, 2 * SECOND)),
            "SELECT count(*) AS n FROM old [RANGE 2 SECONDS SLIDE 2 SECONDS]",
            rows((1, -2), (2, 0), (2, 2)),
        ),
        Case(
            "old_every_second",
            counted("old", Range(SECOND)),
            "SELECT count(*) AS n FROM old [RANGE 1 SECOND]",
            rows((1, -2), (2, 0), (2, 1)),
        ),
        Case(
            "old_rstream",
            Emit("RSTREAM", ids("old", Range(SECOND))),
            "RSTREAM (SELECT id FROM old [RANGE 1 SECOND])",
            rows((1, -2), (2, -1), (2, 0), (3, 0), (4, 0), (4, 1), (5, 1)),
        ),
        Case(
            "old_relation_by_instants",
            Emit("ISTREAM", counted("old", Unbounded(2 * SECOND))),
            "ISTREAM (SELECT count(*) AS n FROM old [UNBOUNDED SLIDE 2 SECONDS])",
            rows((1, -2), (4, 0), (5, 2)),
        ),
    ),
)

AFTER_THE_GAP = 1_577_836_800  # 1 January 2020, fifty years after the first row
GAPPED = stream("gapped", {"id": "int"}, [(0.5, 1), (AFTER_THE_GAP + 0.25, 2)])

GAP = Scene(
    "gap",
    (GAPPED,),
    (
        Case(
            "gap_sliding",
            counted("gapped", Range(2 * SECOND, SECOND)),
            "SELECT count(*) AS n FROM gapped [RANGE 2 SECONDS SLIDE 1 SECOND]",
            rows((1, 1), (1, 2), (1, AFTER_THE_GAP + 1), (1, AFTER_THE_GAP + 2)),
        ),
        Case(
            "a_day_without_slide",
            counted("gapped", Range(DAY)),
            "SELECT count(*) AS n FROM gapped [RANGE 1 DAY]",
            rows(
                *((1, e) for e in range(1, 86_401)),
                *((1, AFTER_THE_GAP + e) for e in range(1, 86_401)),
            ),
        ),
        Case(
            "gap_rows",
            Emit("DSTREAM", ids("gapped", Rows(1))),
            "DSTREAM (SELECT id FROM gapped [ROWS 1])",
            rows((1, AFTER_THE_GAP + 0.25)),
        ),
        Case(
            "gap_rstream",
            Emit("RSTREAM", ids("gapped", Range(SECOND))),
            "RSTREAM (SELECT id FROM gapped [RANGE 1 SECOND])",
            rows((1, 1), (2, AFTER_THE_GAP + 1)),
        ),
        Case(
            "gap_join",
            Select(
                (item("a.id", "a"), item("b.id", "b")),
                (Source("gapped", "a", Range(DAY)), Source("gapped", "b", Now())),
            ),
            "SELECT a.id AS a, b.id AS b FROM gapped AS a [RANGE 1 DAY], gapped AS b [NOW]",
            rows((1, 1, 0.5), (2, 2, AFTER_THE_GAP + 0.25)),
        ),
        Case(
            "gap_snapshot",
            Select(
                (COUNT,),
                (Source("gapped", "a", Range(SECOND)), Source("gapped", "b", Range(2 * SECOND))),
                where=expr("a.id = b.id"),
            ),
            "SELECT count(*) AS n FROM gapped AS a [RANGE 1 SECOND],"
            " gapped AS b [RANGE 2 SECONDS] WHERE a.id = b.id",
            rows((1, 1), (1, AFTER_THE_GAP + 1)),
        ),
        Case(
            "gap_relation",
            counted("gapped", None),
            "SELECT count(*) AS n FROM gapped",
            ((2,),),
        ),
    ),
)

NOTHING = stream("nothing", {"id": "int"}, [])
LONELY = stream("lonely", {"id": "int"}, [(1, 1)])

EMPTY = Scene(
    "empty",
    (NOTHING, LONELY),
    (
        Case("nothing_selected", ids("nothing"), "SELECT id FROM nothing", ()),
        Case(
            "nothing_joined",
            Select(
                (item("lonely.id"),),
                (Source("nothing"), Source("lonely")),
            ),
            "SELECT lonely.id FROM nothing, lonely",
            (),
        ),
        Case(
            "nothing_united",
            Union((ids("nothing"), ids("lonely"))),
            "SELECT id FROM nothing UNION ALL SELECT id FROM lonely",
            rows((1, 1)),
        ),
        Case(
            "nothing_counted",
            counted("nothing", Range(2 * SECOND, SECOND)),
            "SELECT count(*) AS n FROM nothing [RANGE 2 SECONDS SLIDE 1 SECOND]",
            (),
        ),
        Case(
            "nothing_in_a_relation",
            Select((ID, COUNT), (Source("nothing"),), keys=(expr("id"),)),
            "SELECT id, count(*) AS n FROM nothing GROUP BY id",
            (),
        ),
    ),
)
