"""Kinds of values: NaN, nulls, decimals, booleans, unicode, timestamps, keywords as names."""

from decimal import Decimal
from math import nan

from oracle.cases.case import Case, Scene, rows, stream
from oracle.model import SECOND, Item, Now, Range, Select, Source, agg, expr, item

V = stream(
    "v",
    {
        "x": "double",
        "d": "decimal(10,2)",
        "b": "boolean",
        "w": "string",
        "seen": "timestamp",
        "order": "int",
    },
    [
        (1, nan, Decimal("1.10"), True, "Grüße", 0, 1),
        (2, 1.5, Decimal("2.20"), False, "日本", -1, 2),
        (3, None, None, None, None, None, None),
        (4, nan, Decimal("0.01"), True, "Grüße", 0, 1),
    ],
)
# Times as people write them: two are of no day at all.
WRITTEN = stream(
    "written",
    {"id": "int", "t": "string"},
    [
        (1, 1, "12:30"),
        (2, 2, "2026-01-31 12:30:00"),
        (3, 3, "T07:00"),
        (4, 4, None),
        (5, 5, "1999-12-31"),
        (6, 6, "later"),
    ],
)
AFTER = "try_cast(t AS timestamp) > TIMESTAMP '2000-01-01 00:00:00'"
ORDER = expr("`order`", '"order"')

VALUES = Scene(
    "values",
    (V, WRITTEN),
    (
        Case(
            "nan_is_the_greatest_number",
            Select((item("w"), item("x")), (Source("v"),), where=expr("x > 1.5")),
            "SELECT w, x FROM v WHERE x > 1.5",
            rows(("Grüße", nan, 1), ("Grüße", nan, 4)),
        ),
        Case(
            "nan_is_one_group",
            Select(
                (
                    item("x"),
                    Item(agg("count(*)"), "n"),
                    Item(agg("sum(d)"), "total"),
                    Item(agg("max(w)"), "word"),
                ),
                (Source("v"),),
                keys=(expr("x"),),
            ),
            "SELECT x, count(*) AS n, sum(d) AS total, max(w) AS word FROM v GROUP BY x",
            (
                (nan, 2, Decimal("1.11"), "Grüße"),
                (1.5, 1, Decimal("2.20"), "日本"),
                (None, 1, None, None),
            ),
        ),
        Case(
            "aggregates_of_every_kind",
            Select(
                (
                    Item(agg("max(x)"), "most"),
                    Item(agg("min(x)"), "least"),
                    Item(agg("sum(x)"), "total"),
                    Item(agg("count(DISTINCT x)"), "xs"),
                    Item(agg("count(DISTINCT w)"), "ws"),
                    Item(agg("min(b)"), "every"),
                    Item(agg("max(seen)"), "latest"),
                    Item(agg("sum(d)"), "money"),
                    Item(agg("last(w)", "last(w ORDER BY $order)"), "word"),
                ),
                (Source("v", window=Range(4 * SECOND, 4 * SECOND)),),
            ),
            "SELECT max(x) AS most, min(x) AS least, sum(x) AS total, count(DISTINCT x) AS xs,"
            " count(DISTINCT w) AS ws, min(b) AS every, max(seen) AS latest, sum(d) AS money,"
            " last(w) AS word FROM v [RANGE 4 SECONDS SLIDE 4 SECONDS]",
            rows(
                (nan, 1.5, nan, 2, 2, False, 0, Decimal("3.30"), None, 4),
                (nan, nan, nan, 1, 1, True, 0, Decimal("0.01"), "Grüße", 8),
            ),
        ),
        Case(
            "nan_joins_nan",
            Select(
                (Item(expr("a.`order`", 'a."order"'), "one"), item("b.ts", "other")),
                (Source("v", "a", Range(10 * SECOND)), Source("v", "b", Now())),
                where=expr("a.x = b.x"),
            ),
            "SELECT a.`order` AS one, b.ts AS other FROM v AS a [RANGE 10 SECONDS], v AS b [NOW]"
            " WHERE a.x = b.x",
            rows(
                (1, 1 * SECOND, 1),
                (2, 2 * SECOND, 2),
                (1, 4 * SECOND, 4),
                (1, 4 * SECOND, 4),
            ),
        ),
        Case(
            "three_valued_logic",
            Select((item("w"),), (Source("v"),), where=expr("NOT (b AND x > 100)")),
            "SELECT w FROM v WHERE NOT (b AND x > 100)",
            rows(("日本", 2)),
        ),
        Case(
            "unicode_like",
            Select((item("w"),), (Source("v"),), where=expr("w LIKE 'Gr%' OR w = '日本'")),
            "SELECT w FROM v WHERE w LIKE 'Gr%' OR w = '日本'",
            rows(("Grüße", 1), ("日本", 2), ("Grüße", 4)),
        ),
        Case(
            "keywords_as_names",
            Select(
                (Item(ORDER, "order"), Item(expr("`order` + 1", '"order" + 1'), "select")),
                (Source("v"),),
                where=expr("`order` IS NOT NULL", '"order" IS NOT NULL'),
            ),
            "SELECT `order`, `order` + 1 AS `select` FROM v WHERE `order` IS NOT NULL",
            rows((1, 2, 1), (2, 3, 2), (1, 2, 4)),
        ),
        Case(
            "distinct_nulls_and_nans",
            Select((item("x"), item("b")), (Source("v"),), distinct=True),
            "SELECT DISTINCT x, b FROM v",
            rows((nan, True, 1), (1.5, False, 2), (None, None, 3)),
        ),
        Case(
            "timestamp_columns",
            Select(
                (item("seen"), item("d")), (Source("v"),), where=expr("seen < ts AND seen <= seen")
            ),
            "SELECT seen, d FROM v WHERE seen < ts AND seen <= seen",
            rows((0, Decimal("1.10"), 1), (-1, Decimal("2.20"), 2), (0, Decimal("0.01"), 4)),
        ),
        Case(
            "a_time_of_day_alone_is_no_timestamp",
            Select((item("id"),), (Source("written"),), where=expr(AFTER)),
            f"SELECT id FROM written WHERE {AFTER}",
            rows((2, 2)),
        ),
        Case(
            "nor_is_it_before_any_day",
            Select(
                (item("id"),),
                (Source("written"),),
                where=expr("try_cast(t AS timestamp) IS NULL"),
            ),
            "SELECT id FROM written WHERE try_cast(t AS timestamp) IS NULL",
            rows((1, 1), (3, 3), (4, 4), (6, 6)),
        ),
    ),
)
