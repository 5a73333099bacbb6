"""Joins of two and three streams with every mix of windows.

    orders    o1 1.0 id 1 x    o2 2.0 id 2 y    o3 5.0 id 1 z
    payments  p1 1.5 id 1 100  p2 3.0 id 2 200  p3 6.0 id 1 300  p4 9.0 id 2 400

With [RANGE 2 SECONDS] on both: o1 p1 in [1.5, 3.000001), o2 p2 in [3, 4.000001), o3 p3 in
[6, 7.000001).
"""

from itertools import permutations

from oracle.cases.case import Case, Scene, rows, sec, stream
from oracle.model import (
    MICROSECOND,
    SECOND,
    WINDOW_END,
    Emit,
    Item,
    Now,
    Query,
    Range,
    Rows,
    Select,
    Source,
    Sub,
    Unbounded,
    Union,
    Window,
    agg,
    expr,
    item,
)

ORDERS = stream("o", {"id": "int", "item": "string"}, [(1.0, 1, "x"), (2.0, 2, "y"), (5.0, 1, "z")])
PAYMENTS = stream(
    "p",
    {"id": "int", "amount": "bigint"},
    [(1.5, 1, 100), (3.0, 2, 200), (6.0, 1, 300), (9.0, 2, 400)],
)
SAME_ID = expr("o.id = p.id")
COUNT = Item(agg("count(*)"), "n")
TOTAL = Item(agg("sum(p.amount)"), "total")


def paid(orders: Window | None, payments: Window | None) -> Select:
    return Select(
        (item("o.item"), item("p.amount")),
        (Source("o", window=orders), Source("p", window=payments)),
        where=SAME_ID,
    )


TWO_SECONDS = Range(2 * SECOND)
PAID_TEXT = (
    "SELECT o.item, p.amount FROM o [RANGE 2 SECONDS], p [RANGE 2 SECONDS] WHERE o.id = p.id"
)
LATEST = Select((item("id"), item("item")), (Source("o", window=Range(SECOND)),))
PER_WINDOW = Select(
    (COUNT, Item(WINDOW_END, "e")), (Source("o", window=Range(2 * SECOND, 2 * SECOND)),)
)

TWO_WAY = (
    Case(
        "range_range",
        paid(TWO_SECONDS, TWO_SECONDS),
        PAID_TEXT,
        rows(("x", 100, 1.5), ("y", 200, 3), ("z", 300, 6)),
    ),
    Case(
        "join_on",
        Select(
            (item("o.item"), item("p.amount")),
            (Source("o", window=TWO_SECONDS), Source("p", window=TWO_SECONDS)),
            on=(SAME_ID,),
            where=expr("p.amount > 100"),
        ),
        "SELECT o.item, p.amount FROM o [RANGE 2 SECONDS] JOIN p [RANGE 2 SECONDS]"
        " ON o.id = p.id WHERE p.amount > 100",
        rows(("y", 200, 3), ("z", 300, 6)),
    ),
    Case(
        "dstream_at_the_end_of_the_intersection",
        Emit("DSTREAM", paid(TWO_SECONDS, TWO_SECONDS)),
        f"DSTREAM ({PAID_TEXT})",
        rows(("x", 100, 3.000001), ("y", 200, 4.000001), ("z", 300, 7.000001)),
    ),
    Case(
        "rstream_of_a_join",
        Emit("RSTREAM", paid(TWO_SECONDS, TWO_SECONDS)),
        f"RSTREAM ({PAID_TEXT})",
        rows(
            ("x", 100, 2),
            ("x", 100, 3),
            ("y", 200, 3),
            ("y", 200, 4),
            ("z", 300, 6),
            ("z", 300, 7),
        ),
    ),
    Case(
        "rstream_of_a_join_with_now_is_istream",
        Emit("RSTREAM", paid(Range(SECOND), Now())),
        "RSTREAM (SELECT o.item, p.amount FROM o [RANGE 1 SECOND], p [NOW] WHERE o.id = p.id)",
        rows(("x", 100, 1.5), ("y", 200, 3), ("z", 300, 6)),
    ),
    Case(
        "a_range_reaches_its_last_microsecond",
        paid(Range(SECOND), Now()),
        "SELECT o.item, p.amount FROM o [RANGE 1 SECOND], p [NOW] WHERE o.id = p.id",
        rows(("x", 100, 1.5), ("y", 200, 3), ("z", 300, 6)),
    ),
    Case(
        "a_microsecond_less_does_not",
        paid(Range(SECOND - MICROSECOND), Now()),
        "SELECT o.item, p.amount FROM o [RANGE 999999 MICROSECONDS], p [NOW] WHERE o.id = p.id",
        rows(("x", 100, 1.5)),
    ),
    Case(
        "unbounded_without_windows",
        paid(None, None),
        "SELECT o.item, p.amount FROM o, p WHERE o.id = p.id",
        rows(
            ("x", 100, 1.5),
            ("x", 300, 6),
            ("z", 100, 5),
            ("z", 300, 6),
            ("y", 200, 3),
            ("y", 400, 9),
        ),
    ),
    Case(
        "unbounded_with_range",
        paid(Unbounded(), Range(4 * SECOND)),
        "SELECT o.item, p.amount FROM o [UNBOUNDED], p [RANGE 4 SECONDS] WHERE o.id = p.id",
        rows(
            ("x", 100, 1.5),
            ("x", 300, 6),
            ("z", 100, 5),
            ("z", 300, 6),
            ("y", 200, 3),
            ("y", 400, 9),
        ),
    ),
    Case(
        "latest_order_of_each_id",
        paid(Rows(1, ("id",)), Now()),
        "SELECT o.item, p.amount FROM o [PARTITION BY id ROWS 1], p [NOW] WHERE o.id = p.id",
        rows(("x", 100, 1.5), ("y", 200, 3), ("z", 300, 6), ("y", 400, 9)),
    ),
    Case(
        "rows_with_rows",
        Select(
            (item("o.item"), item("p.amount")),
            (Source("o", window=Rows(1)), Source("p", window=Rows(1))),
        ),
        "SELECT o.item, p.amount FROM o [ROWS 1], p [ROWS 1]",
        # o1 [1, 2) o2 [2, 5) o3 [5, …); p1 [1.5, 3) p2 [3, 6) p3 [6, 9) p4 [9, …)
        rows(
            ("x", 100, 1.5),
            ("y", 100, 2),
            ("y", 200, 3),
            ("z", 200, 5),
            ("z", 300, 6),
            ("z", 400, 9),
        ),
    ),
    Case(
        "self_join",
        Select(
            (item("a.amount", "before"), item("b.amount", "after"), item("a.ts", "since")),
            (Source("p", "a", Range(5 * SECOND)), Source("p", "b", Now())),
            where=expr("a.id = b.id AND a.amount < b.amount"),
        ),
        "SELECT a.amount AS before, b.amount AS after, a.ts AS since"
        " FROM p AS a [RANGE 5 SECONDS], p AS b [NOW] WHERE a.id = b.id AND a.amount < b.amount",
        rows((100, 300, sec(1.5), 6)),
    ),
    Case(
        "no_equality",
        Select(
            (item("o.item"), item("p.amount")),
            (Source("o", window=Range(SECOND)), Source("p", window=Range(SECOND))),
            where=expr("o.ts < p.ts"),
        ),
        "SELECT o.item, p.amount FROM o [RANGE 1 SECOND], p [RANGE 1 SECOND] WHERE o.ts < p.ts",
        rows(("x", 100, 1.5), ("y", 200, 3), ("z", 300, 6)),
    ),
    Case(
        "subquery_keeps_its_range",
        Select(
            (item("q.item"), item("p.amount")),
            (Source("p", window=Now()), Sub(LATEST, "q")),
            where=expr("q.id = p.id"),
        ),
        "SELECT q.item, p.amount FROM p [NOW], (SELECT id, item FROM o [RANGE 1 SECOND]) AS q"
        " WHERE q.id = p.id",
        rows(("x", 100, 1.5), ("y", 200, 3), ("z", 300, 6)),
    ),
    Case(
        "joined_with_a_union",
        Select(
            (item("u.what"), item("p.amount")),
            (
                Sub(
                    Union(
                        (
                            Select(
                                (item("id"), item("item", "what")),
                                (Source("o", window=Range(SECOND)),),
                            ),
                            Select(
                                (item("id"), item("'paid'", "what")),
                                (Source("p", window=Range(5 * SECOND)),),
                            ),
                        )
                    ),
                    "u",
                ),
                Source("p", window=Now()),
            ),
            on=(expr("u.id = p.id"),),
        ),
        "SELECT u.what, p.amount FROM (SELECT id, item AS what FROM o [RANGE 1 SECOND] UNION ALL"
        " SELECT id, 'paid' AS what FROM p [RANGE 5 SECONDS]) AS u JOIN p [NOW] ON u.id = p.id",
        # payments stay five seconds: each meets itself, p1 in [1.5, 6.500001) also p3 at 6
        rows(
            ("x", 100, 1.5),
            ("y", 200, 3),
            ("z", 300, 6),
            ("paid", 100, 1.5),
            ("paid", 200, 3),
            ("paid", 300, 6),
            ("paid", 300, 6),
            ("paid", 400, 9),
        ),
    ),
    Case(
        "results_are_there_for_ever",
        Select(
            (item("p.amount"), item("c.n"), item("c.e")),
            (Source("p", window=Now()), Sub(PER_WINDOW, "c")),
        ),
        "SELECT p.amount, c.n, c.e FROM p [NOW], (SELECT count(*) AS n, window_end AS e"
        " FROM o [RANGE 2 SECONDS SLIDE 2 SECONDS]) AS c",
        rows(
            (200, 1, sec(2), 3),
            *((300, 1, sec(e), 6) for e in (2, 4, 6)),
            *((400, 1, sec(e), 9) for e in (2, 4, 6)),
        ),
    ),
    Case(
        "distinct_over_a_join",
        Select(
            (item("o.id"),),
            (Source("o", window=Unbounded()), Source("p", window=Range(2 * SECOND))),
            where=SAME_ID,
            distinct=True,
        ),
        "SELECT DISTINCT o.id FROM o [UNBOUNDED], p [RANGE 2 SECONDS] WHERE o.id = p.id",
        # id 1: x p1 [1.5, 3.500001), x p3 and z p3 [6, 8.000001); id 2: [3, 5.000001), [9, …)
        rows((1, 1.5), (1, 6), (2, 3), (2, 9)),
    ),
)

OVER_JOINS = (
    Case(
        "snapshot_every_second",
        Select(
            (COUNT, TOTAL),
            (Source("o", window=TWO_SECONDS), Source("p", window=TWO_SECONDS)),
            where=SAME_ID,
        ),
        "SELECT count(*) AS n, sum(p.amount) AS total FROM o [RANGE 2 SECONDS],"
        " p [RANGE 2 SECONDS] WHERE o.id = p.id",
        rows((1, 100, 2), (1, 100, 3), (1, 200, 4), (1, 300, 7)),
    ),
    Case(
        "snapshot_slide",
        Select(
            (item("o.item"), TOTAL),
            (
                Source("o", window=Range(2 * SECOND, 2 * SECOND)),
                Source("p", window=Range(2 * SECOND, 2 * SECOND)),
            ),
            where=SAME_ID,
            keys=(expr("o.item"),),
        ),
        "SELECT o.item, sum(p.amount) AS total FROM o [RANGE 2 SECONDS SLIDE 2 SECONDS],"
        " p [RANGE 2 SECONDS SLIDE 2 SECONDS] WHERE o.id = p.id GROUP BY o.item",
        rows(("x", 100, 2), ("y", 200, 4)),
    ),
    Case(
        "relation_over_an_unbounded_join",
        Select(
            (
                item("o.id"),
                COUNT,
                TOTAL,
                Item(agg("first(o.item)", "first(o.item ORDER BY $order)"), "one"),
                Item(agg("last(o.item)", "last(o.item ORDER BY $order)"), "other"),
            ),
            (Source("o"), Source("p")),
            where=SAME_ID,
            keys=(expr("o.id"),),
        ),
        "SELECT o.id, count(*) AS n, sum(p.amount) AS total, first(o.item) AS one,"
        " last(o.item) AS other FROM o, p WHERE o.id = p.id GROUP BY o.id",
        # id 1: x p1 at 1.5, z p1 at 5, x p3 and z p3 at 6: the last by columns is z
        ((1, 4, 800, "x", "z"), (2, 2, 600, "y", "y")),
    ),
    Case(
        "rstream_of_a_relation_over_a_join",
        Emit(
            "RSTREAM",
            Select(
                (item("o.id"), TOTAL),
                (Source("o", window=Unbounded(5 * SECOND)), Source("p", window=Unbounded())),
                where=SAME_ID,
                keys=(expr("o.id"),),
            ),
        ),
        "RSTREAM (SELECT o.id, sum(p.amount) AS total FROM o [UNBOUNDED SLIDE 5 SECONDS],"
        " p [UNBOUNDED] WHERE o.id = p.id GROUP BY o.id)",
        # at 5: x p1, z p1, y p2; at 10, the first multiple after the last row, all six
        rows((1, 200, 5), (2, 200, 5), (1, 800, 10), (2, 600, 10)),
    ),
)

# Pairs of neighbours within two seconds of each other are not enough: id 1 and id 4 never hold
# all three at once, whatever the order of the joins.
TA = stream("ta", {"id": "int"}, [(0, 1), (1, 2), (10, 3), (22, 4)])
TB = stream("tb", {"id": "int"}, [(2, 1), (2, 2), (12, 3), (20, 4)], lateness=5)
TC = stream("tc", {"id": "int"}, [(4, 1), (3, 2), (11, 3), (24, 4)], lateness=5)


def three(order: tuple[str, ...], windows: dict[str, Window]) -> Query:
    first, second, third = order
    return Select(
        (item("ta.id"),),
        tuple(Source(name, window=windows[name]) for name in order),
        where=expr(f"{first}.id = {second}.id AND {second}.id = {third}.id"),
    )


EQUAL: dict[str, Window] = dict.fromkeys(("ta", "tb", "tc"), TWO_SECONDS)
MIXED: dict[str, Window] = {"ta": Range(4 * SECOND), "tb": TWO_SECONDS, "tc": Range(SECOND)}
LENGTHS = {"ta": "4 SECONDS", "tb": "2 SECONDS", "tc": "1 SECOND"}


def _equal(order: tuple[str, ...]) -> Case:
    first, second, third = order
    return Case(
        f"three_way_{first}_{second}_{third}",
        three(order, EQUAL),
        f"SELECT ta.id FROM {first} [RANGE 2 SECONDS], {second} [RANGE 2 SECONDS],"
        f" {third} [RANGE 2 SECONDS] WHERE {first}.id = {second}.id AND {second}.id = {third}.id",
        rows((2, 3), (3, 12)),
    )


def _mixed(order: tuple[str, ...]) -> Case:
    first, second, third = order
    windows = ", ".join(f"{name} [RANGE {LENGTHS[name]}]" for name in order)
    return Case(
        f"three_way_mixed_{first}_{second}_{third}",
        three(order, MIXED),
        f"SELECT ta.id FROM {windows} WHERE {first}.id = {second}.id AND {second}.id = {third}.id",
        rows((1, 4), (2, 3), (3, 12)),
    )


ORDERINGS = tuple(permutations(("ta", "tb", "tc")))

JOINS = Scene("joins", (ORDERS, PAYMENTS), (*TWO_WAY, *OVER_JOINS))
THREE_WAY = Scene(
    "three_way",
    (TA, TB, TC),
    (
        *(_equal(order) for order in ORDERINGS),
        *(_mixed(order) for order in ORDERINGS),
        Case(
            "three_way_now_and_rows",
            Select(
                (item("ta.id", "a"), item("tb.id", "b"), item("tc.id", "c")),
                (
                    Source("ta", window=Rows(1)),
                    Source("tb", window=Unbounded()),
                    Source("tc", window=Now()),
                ),
                on=(expr("tb.id <= ta.id"), expr("tc.id = tb.id")),
            ),
            "SELECT ta.id AS a, tb.id AS b, tc.id AS c FROM ta [ROWS 1]"
            " JOIN tb [UNBOUNDED] ON tb.id <= ta.id JOIN tc [NOW] ON tc.id = tb.id",
            # ta: 1 in [0, 1), 2 in [1, 10), 3 in [10, 22), 4 from 22 on; tc 3 at 11 is before tb 3
            rows((2, 1, 1, 4), (2, 2, 2, 3), (4, 4, 4, 24)),
        ),
    ),
)
