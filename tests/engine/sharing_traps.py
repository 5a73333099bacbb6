"""Streams and queries built by hand to trick sharing: nulls, NaN, -0.0, guards, other windows."""

from dataclasses import replace
from math import nan

from oracle.cases.case import stream
from oracle.model import (
    SECOND,
    WINDOW_START,
    Emit,
    Expr,
    Item,
    Now,
    Query,
    Range,
    Select,
    Source,
    Stream,
    Sub,
    agg,
    expr,
    item,
)

READINGS: Stream = stream(
    "s",
    {"k": "int", "b": "int", "tag": "string", "v": "bigint", "x": "double"},
    [
        (1, 1, 0, "a", 5, 0.0),
        (2, 2, 1, "A", 10, -0.0),
        (2, 1, 2, "Ab", None, nan),
        (7, None, None, None, 3, None),
        (3, 1, 1, "a", 20, 1.5),
        (6, 2, 0, "aB", 6, 2.5),
        (9, 1, 2, "", 15, nan),
        (9, 3, -3, "b", -7, -8.0),
        (31, 3, 1, "b", 5, 100.0),
        (26, 1, 1, "a", 4, 1.0),
        (24, 2, 2, "A", 11, 0.5),
        (29, 1, 1, "a", 10, 1.0),
        (12, 1, 1, "a", 99, 1.0),  # late
        (45, 2, 1, "Ab", 8, nan),
        (41, 1, 2, "a", 5, 0.0),
    ],
    lateness=8,
)
OTHERS: Stream = stream(
    "t",
    {"k": "int", "tag": "string", "v": "string"},
    [
        (1, 1, "a", "5"),
        (3, 2, "A", "10"),
        (2, None, "a", "x"),
        (5, 1, "b", None),
        (8, 2, "a", ""),
        (30, 3, "b", "5"),
        (27, 1, "a", "20"),
        (44, 1, "Ab", "4"),
    ],
    lateness=5,
)


def select(columns: str, source: Source | Sub, where: str | None = None) -> Select:
    return Select(
        tuple(item(c.strip(), f"c{i}") for i, c in enumerate(columns.split(","))),
        (source,),
        where=None if where is None else expr(where),
    )


def windows(
    calls: str, window: Range | Now, where: str | None = None, keys: str = "k", name: str = "s"
) -> Select:
    """A sliding aggregate; calls are separated by semicolons."""
    by = [k.strip() for k in keys.split(",") if k.strip()]
    listed: list[Expr] = [expr(k) for k in by]
    for call in calls.split(";"):
        text = call.strip()
        ordered = text.startswith(("first", "last"))
        listed.append(agg(text, text.replace(")", " ORDER BY $order)", 1) if ordered else None))
    return Select(
        tuple(Item(e, f"c{i}") for i, e in enumerate(listed)),
        (Source(name, None, window),),
        where=None if where is None else expr(where),
        keys=tuple(expr(k) for k in by),
    )


def over(query: Query, calls: str, window: Range | Now, keys: str = "k") -> Select:
    """A sliding aggregate over another query's rows."""
    return replace(windows(calls, window, None, keys), sources=(Sub(query, "q", window),))


def pairs(columns: str, where: str, lengths: tuple[int, int] = (5, 5), names: str = "st") -> Select:
    sources = tuple(
        Source(name, label, Range(length * SECOND))
        for name, label, length in zip(names, "ab", lengths, strict=False)
    )
    return replace(select(columns, sources[0], where), sources=sources)


TEN_BY_FIVE = Range(10 * SECOND, 5 * SECOND)
FOUR_BY_TWO = Range(4 * SECOND, 2 * SECOND)

SELECTIONS: tuple[Query, ...] = (
    *(select("v, tag", Source("s"), f"v {o} {n}") for o, n in zip(
        ("<", "<=", "=", "<>", ">=", ">", ">", "<"), (10, 10, 10, 10, 10, 10, 5, 6), strict=True)),
    select("v", Source("s"), "10 < v"),
    select("v, x", Source("s"), "v BETWEEN 3 AND 10"),
    select("v, x", Source("s"), "v BETWEEN 6 AND 20"),
    select("v", Source("s"), "v IN (5, 10, 3)"),
    select("v", Source("s"), "v NOT IN (5, 10)"),
    select("k", Source("s"), "v IS NULL"),
    select("k", Source("s"), "v IS NULL AND v > 3"),
    select("k", Source("s"), "v > 5 OR v IS NULL"),
    select("v", Source("s"), "NOT (v > 5)"),
    select("v, k", Source("s"), "NOT (v > 5 AND k = 1)"),
    select("x", Source("s"), "x > 1.5"),
    select("x", Source("s"), "NOT (x <= 1.5)"),
    select("x", Source("s"), "x = 0.0"),
    select("x", Source("s"), "x < 0.0"),
    select("x", Source("s"), "x >= -0.0"),
    select("x", Source("s"), "x <> 1.5"),
    select("x", Source("s"), "x <> x"),
    select("v", Source("s"), "v > 5.5"),
    select("v", Source("s"), "v > '5'"),
    select("v", Source("t"), "v > '5'"),
    select("v", Source("t"), "v = '5'"),
    select("v", Source("s"), "v = '5'"),
    select("tag", Source("s"), "tag = 'a'"),
    select("tag", Source("s"), "tag = 'A'"),
    select("tag", Source("s"), "lower(tag) = 'a'"),
    select("tag", Source("s"), "tag LIKE 'a%'"),
    select("tag, v", Source("s"), "tag LIKE 'a%' AND v > 5"),
    select("tag", Source("s"), "tag LIKE 'A%'"),
    select("tag", Source("s"), "tag < 'a'"),
    select("v", Source("s"), "b <> 0 AND v / b > 2"),
    select("v, b", Source("s"), "b <> 0 AND v / b > 4"),
    select("v", Source("s"), "v > 5 AND b <> 0 AND v / b > 4 AND k = 1"),
    select("v / b", Source("s"), "b <> 0"),
    select("v / b, v", Source("s"), "b > 1"),
    select("k", Source("s"), "k < v"),
    select("v + 1, v", Source("s"), None),
    Select((Item(expr("v"), "c0"),), (Source("s"),), where=Expr(
        "ts >= TIMESTAMP '1970-01-01 02:00:09+02:00'", "ts >= 9000000")),
    Select((Item(expr("v"), "c0"),), (Source("s"),), where=Expr(
        "ts >= TIMESTAMP '1970-01-01 00:00:09'", "ts >= 9000000")),
    Select((Item(expr("v"), "c0"),), (Source("s"),), where=Expr(
        "ts > TIMESTAMP '1970-01-01 00:00:09'", "ts > 9000000")),
)  # fmt: skip

SLIDING: tuple[Query, ...] = (
    windows("count(*)", TEN_BY_FIVE, "v = 5 OR x > 50"),  # in one batch only a row far ahead
    windows("avg(v)", TEN_BY_FIVE),
    windows("avg(v)", TEN_BY_FIVE, "v > 5"),
    windows("avg(v); count(*)", TEN_BY_FIVE, "v > 100"),
    windows("count(*); sum(v)", TEN_BY_FIVE, "x > 50"),
    windows("count(*); sum(v); max(x)", TEN_BY_FIVE, "v <= 5"),
    windows("count(*); sum(v)", FOUR_BY_TWO),
    windows("count(*); sum(v)", FOUR_BY_TWO, "v > 5"),
    windows("count(*); sum(v)", Range(10 * SECOND, 2 * SECOND), "v > 5"),
    windows("count(*)", Range(5 * SECOND, 5 * SECOND)),
    windows("count(*); min(v)", Range(3 * SECOND, 7 * SECOND)),
    windows("sum(v)", Now()),
    windows("count(DISTINCT tag); stddev_samp(v)", TEN_BY_FIVE, "v > 4"),
    windows("count(DISTINCT tag); var_pop(v)", TEN_BY_FIVE),
    windows("first(v); last(tag)", TEN_BY_FIVE, "v <> 10"),
    windows("first(v)", TEN_BY_FIVE),
    windows("first(v) FILTER (WHERE v > 15)", TEN_BY_FIVE, "x IS NOT NULL"),
    windows("sum(v) FILTER (WHERE tag = 'a'); count(*)", TEN_BY_FIVE, "v > 3"),
    windows("avg(v / b) FILTER (WHERE b <> 0)", TEN_BY_FIVE, "v > 3"),
    windows("max(v / b)", TEN_BY_FIVE, "b <> 0"),
    windows("count(*); sum(v)", TEN_BY_FIVE, keys=""),
    windows("count(*)", TEN_BY_FIVE, "v > 8", keys=""),
    windows("count(*)", TEN_BY_FIVE, keys="v"),
    windows("count(*)", TEN_BY_FIVE, keys="v", name="t"),
    windows("min(x); max(x)", TEN_BY_FIVE, keys="tag"),
    replace(windows("count(*)", TEN_BY_FIVE, "v > 3"), having=agg("count(*) > 1")),
    replace(windows("count(*)", TEN_BY_FIVE, "v > 3"), having=agg("count(*) > 1 AND max(v) > 9")),
    replace(windows("count(*)", TEN_BY_FIVE, "v > 4"), items=(
        Item(expr("k"), "c0"), Item(agg("sum(v)"), "c1"), Item(WINDOW_START, "c2"))),
)  # fmt: skip

JOINED = pairs("a.v, b.v, a.tag", "a.k = b.k")
COUNTED = Select(
    (Item(expr("k"), "k"), Item(agg("count(*)"), "n")),
    (Source("s", None, Range(10 * SECOND, 5 * SECOND)),),
    keys=(expr("k"),),
)
JOINS: tuple[Query, ...] = (
    JOINED,
    pairs("a.v, b.v", "a.k = b.k AND a.v > 5"),
    pairs("a.v, b.v", "a.k = b.k AND b.v > '4'"),
    pairs("a.v, b.v", "a.k = b.k", (5, 3)),
    pairs("a.v, b.v", "a.k = b.k", (2, 7)),
    pairs("a.v, b.v", "a.k = b.k AND a.v > 5", (3, 3)),
    pairs("b.v, a.v", "b.k = a.k AND b.v > 3", (4, 6), "ts"),
    pairs("a.v, b.v", "a.k = b.k AND a.v > b.v", (5, 5), "ss"),
    pairs("a.v, b.v", "a.k = b.k AND a.v < b.v", (5, 3), "ss"),
    pairs("a.v, b.v", "a.k = b.k AND a.v > 5", (3, 5), "ss"),
    pairs("a.v, b.v", "a.k < b.k", (3, 3), "ss"),
    pairs("a.v, b.v", "a.k < b.k AND a.v > 5", (5, 2), "ss"),
    pairs("a.v, b.v", "a.tag = b.tag AND a.b <> 0 AND a.v / a.b > 3"),
    pairs("a.v, b.v", "a.tag = b.tag AND a.k + b.k > 2"),
    replace(pairs("a.v, b.v, c.v", "a.k = b.k AND b.k = c.k AND a.v > 5", (5, 5), "st"),
            sources=tuple(Source(n, label, Range(w * SECOND)) for n, label, w in (
                ("s", "a", 5), ("t", "b", 4), ("s", "c", 6)))),
    replace(pairs("a.v, b.v, c.v", "a.k = b.k AND b.k = c.k AND c.v > 5", (5, 5), "st"),
            sources=tuple(Source(n, label, Range(w * SECOND)) for n, label, w in (
                ("s", "a", 3), ("t", "b", 5), ("s", "c", 4)))),
    select("c0, c1", Sub(JOINED, "q"), "c0 > 5"),
    select("c0", Sub(JOINED, "q"), "c0 > 10"),
    select("c2", Sub(JOINED, "q"), "c1 = '5'"),
    over(JOINED, "first(c0); last(c1)", TEN_BY_FIVE, "c2"),
    over(JOINED, "first(c1); count(*)", FOUR_BY_TWO, "c2"),
    over(select("c1, c0, c2", Sub(JOINED, "q"), "c0 > 4"), "first(c1)", TEN_BY_FIVE, "c2"),
    *(replace(select("q.n, b.v", Source("s"), f"q.k = b.k AND b.v > {n}"), sources=(
        Sub(COUNTED, "q"), Source("s", "b", Range(4 * SECOND)))) for n in (3, 5)),
    *(replace(select("q.n, b.v", Source("s"), f"q.k = b.k AND b.v > {n}"), sources=(
        Sub(Emit("ISTREAM", COUNTED), "q"), Source("s", "b", Range(4 * SECOND)))) for n in (3, 5)),
    *(replace(select("q.n, b.v", Source("s"), f"q.k = b.k AND b.v > {n}"), sources=(
        Sub(COUNTED, "q", Range(w * SECOND)), Source("s", "b", Range(4 * SECOND))))
        for n, w in ((3, 5), (5, 3))),
)  # fmt: skip

# Aggregates over windows of joins, and windows that start at multiples of their slide. The first
# has the join of the third without its last instant.
TUMBLING = Range(5 * SECOND, 5 * SECOND)
COUNTED = (Item(agg("count(*)"), "n"), Item(agg("sum(a.v)"), "total"))
SAME_KEY = Expr("a.k = b.k", "a.k = b.k")
BY_START = Range(5 * SECOND, 2 * SECOND, align_start=True)
WINDOWED: tuple[Query, ...] = (
    Select(
        (*COUNTED, Item(WINDOW_START, "begun")),
        (Source("s", "a", TUMBLING), Source("t", "b", TUMBLING)),
        where=SAME_KEY,
    ),
    Select(
        (*COUNTED, Item(WINDOW_START, "begun")),
        (Source("s", "a", BY_START), Source("t", "b", Range(5 * SECOND))),
        where=SAME_KEY,
    ),
    Select(
        (item("a.v"), Item(expr("b.v"), "w")),
        (Source("s", "a", Range(5 * SECOND)), Source("t", "b", Range(5 * SECOND))),
        where=SAME_KEY,
    ),
    Select(COUNTED, (Source("s", "a", BY_START),)),
    Select(COUNTED, (Source("s", "a", Range(5 * SECOND, 2 * SECOND)),)),
    Select(COUNTED, (Source("s", "a", Range(20_300_000, 500_000, align_start=True)),)),
)
