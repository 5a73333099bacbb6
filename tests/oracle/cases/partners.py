"""Outer joins, IN and EXISTS: rows by whom they meet while they are there.

    orders    1.0 id 1 x    2.0 id 2 y    5.0 id 1 z    6.0 id null n
    payments  1.5 id 1 100  3.0 id 2 200  9.0 id 2 400  9.5 id null 7

With [RANGE 2 SECONDS] on both, x meets 100 and y meets 200; z leaves at 7.000001, n at 8.000001,
400 at 11.000001 and 7 at 11.500001. The payment of 3.0 is still there when z comes.
"""

from oracle.cases.case import Case, Scene, rows, stream
from oracle.model import (
    SECOND,
    Item,
    Now,
    Partner,
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

ORDERS = stream(
    "o",
    {"id": "int", "item": "string"},
    [(1.0, 1, "x"), (2.0, 2, "y"), (5.0, 1, "z"), (6.0, None, "n")],
)
PAYMENTS = stream(
    "p",
    {"id": "int", "amount": "bigint"},
    [(1.5, 1, 100), (3.0, 2, 200), (9.0, 2, 400), (9.5, None, 7)],
)
TWO, FOUR = Range(2 * SECOND), Range(4 * SECOND)
SAME = expr("o.id = p.id")
PAYMENT_ID = expr("id", "p.id")
BOTH = "FROM o [RANGE 2 SECONDS] {} JOIN p [RANGE 2 SECONDS] ON o.id = p.id"
WORDS = {"'some'": expr("amount > 50"), "'much'": expr("amount > 150")}
MET = (("x", 100, 1.5), ("y", 200, 3))
UNPAID = (("z", None, 7.000001), ("n", None, 8.000001))
UNORDERED = ((None, 400, 11.000001), (None, 7, 11.500001))


def outer(kind: str, orders: Window, payments: Window, **more: object) -> Select:
    return Select(
        (item("o.item"), item("p.amount")),
        (Source("o", window=orders), Source("p", window=payments)),
        on=(SAME,),
        outer=kind,  # type: ignore[arg-type]
        **more,  # type: ignore[arg-type]
    )


def of_orders(partner: Partner, window: Window = TWO) -> Select:
    return Select((item("item"),), (Source("o", window=window),), partner=partner)


def of_payments(partner: Partner) -> Select:
    return Select((item("amount"),), (Source("p", window=TWO),), partner=partner)


PAID = outer("LEFT", TWO, TWO)
CASES = (
    Case("left", PAID, f"SELECT o.item, p.amount {BOTH.format('LEFT')}", rows(*MET, *UNPAID)),
    Case(
        "right",
        outer("RIGHT", TWO, TWO),
        f"SELECT o.item, p.amount {BOTH.format('RIGHT')}",
        rows(*MET, *UNORDERED),
        "SELECT o.item, p.amount FROM o [RANGE 2 SECONDS] RIGHT OUTER JOIN p [RANGE 2 SECONDS]"
        " USING (id)",
    ),
    Case(
        "full",
        outer("FULL", TWO, TWO),
        f"SELECT o.item, p.amount {BOTH.format('FULL')}",
        rows(*MET, *UNPAID, *UNORDERED),
    ),
    Case(
        "left_where_missing",
        outer("LEFT", TWO, TWO, where=expr("p.amount IS NULL")),
        f"SELECT o.item, p.amount {BOTH.format('LEFT')} WHERE p.amount IS NULL",
        rows(*UNPAID),
    ),
    Case(
        "left_lookup",
        outer("LEFT", Now(), Rows(1, ("id",))),
        "SELECT o.item, p.amount FROM o [NOW] LEFT JOIN p [PARTITION BY id ROWS 1] ON o.id = p.id",
        rows(("x", None, 1), ("y", None, 2), ("z", 100, 5), ("n", None, 6)),
    ),
    Case(
        "left_counted",
        Select(
            (Item(agg("count(*)"), "n"), Item(agg("count(q.amount)"), "paid")),
            (Sub(PAID, "q", Range(4 * SECOND, 4 * SECOND)),),
        ),
        "SELECT count(*) AS n, count(q.amount) AS paid FROM (SELECT o.item, p.amount "
        f"{BOTH.format('LEFT')}) AS q [RANGE 4 SECONDS SLIDE 4 SECONDS]",
        rows((2, 2, 4), (1, 0, 8), (1, 0, 12)),
    ),
    Case(
        "in",
        of_orders(Partner(Source("p", window=TWO), values=(expr("id", "o.id"), PAYMENT_ID))),
        "SELECT item FROM o [RANGE 2 SECONDS] WHERE id IN (SELECT id FROM p [RANGE 2 SECONDS])",
        rows(("x", 1.5), ("y", 3)),
        "SELECT o.item FROM o [RANGE 2 SECONDS] LEFT SEMI JOIN p [RANGE 2 SECONDS] ON o.id = p.id",
    ),
    Case(
        "not_in",
        of_orders(Partner(Source("p", window=TWO), None, (expr("o.id"), expr("p.id")), True)),
        "SELECT item FROM o [RANGE 2 SECONDS] WHERE o.id NOT IN"
        " (SELECT p.id FROM p [RANGE 2 SECONDS])",
        rows(("z", 7.000001), ("n", 8.000001)),
    ),
    Case(
        "not_in_with_a_null_among_the_values",
        of_payments(Partner(Source("o", window=FOUR), None, (expr("p.id"), expr("o.id")), True)),
        "SELECT amount FROM p [RANGE 2 SECONDS] WHERE p.id NOT IN"
        " (SELECT o.id FROM o [RANGE 4 SECONDS])",
        rows(),
    ),
    Case(
        "not_exists",
        of_payments(Partner(Source("o", window=FOUR), SAME, negated=True)),
        "SELECT amount FROM p [RANGE 2 SECONDS] WHERE NOT EXISTS"
        " (SELECT 1 FROM o [RANGE 4 SECONDS] WHERE o.id = p.id)",
        rows((400, 11.000001), (7, 11.500001)),
        "SELECT p.amount FROM p [RANGE 2 SECONDS] LEFT ANTI JOIN o [RANGE 4 SECONDS] USING (id)",
    ),
    Case(
        "constants_by_key",
        Select(
            (item("item"), Item(expr("CASE id WHEN 1 THEN 'one' WHEN 3 THEN 'three' END"), "name")),
            (Source("o", window=TWO),),
        ),
        "SELECT item, CASE id WHEN 1 THEN 'one' WHEN 3 THEN 'three' END AS name"
        " FROM o [RANGE 2 SECONDS]",
        rows(("x", "one", 1), ("y", None, 2), ("z", "one", 5), ("n", None, 6)),
        "SELECT item, name FROM o [RANGE 2 SECONDS] LEFT JOIN"
        " (VALUES (1, 'one'), (3, 'three')) AS t (number, name) ON o.id = t.number",
    ),
    Case(
        "constants_by_range",
        Union(
            tuple(
                Select((item("amount"), Item(expr(word), "word")), (Source("p"),), where=test)
                for word, test in WORDS.items()
            )
        ),
        "SELECT amount, 'some' AS word FROM p WHERE amount > 50 UNION ALL"
        " SELECT amount, 'much' AS word FROM p WHERE amount > 150",
        rows((100, "some", 1.5), (200, "some", 3), (200, "much", 3), (400, "some", 9),
             (400, "much", 9)),
        "SELECT amount, word FROM p, (VALUES (50, 'some'), (150, 'much')) AS t (least, word)"
        " WHERE amount > least",
    ),
    Case(
        "constants_without",
        Select((item("item"),), (Source("o"),), where=expr("id NOT IN (2, 3)")),
        "SELECT item FROM o WHERE id NOT IN (2, 3)",
        rows(("x", 1), ("z", 5)),
        "SELECT item FROM o WHERE id NOT IN (SELECT n FROM taken);"
        " CREATE VIEW taken AS SELECT * FROM (VALUES (2), (3)) AS t (n)",
    ),
    Case(
        "exists_later",
        of_orders(
            Partner(Source("p", window=TWO), expr("o.id = p.id AND p.ts > o.ts")), Range(8 * SECOND)
        ),
        "SELECT item FROM o [RANGE 8 SECONDS] WHERE EXISTS"
        " (SELECT 1 FROM p [RANGE 2 SECONDS] WHERE o.id = p.id AND p.ts > o.ts)",
        rows(("x", 1.5), ("y", 3)),
    ),
)  # fmt: skip

PARTNERS = Scene("partners", (ORDERS, PAYMENTS), CASES)
