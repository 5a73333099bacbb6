"""Made-up dataflows of queries that overlap: over the same streams, keys and constants.

Built to trick whoever shares work between them: nulls, NaN, -0.0, texts that differ in case,
ranges that overlap without containing each other, guards, equal text over columns of other types,
literals of other types, windows that differ in length and slide, self-joins, sides in either order.
Few choices of each kind, so that queries of a dataflow have much in common and never everything.
"""

from collections.abc import Sequence
from decimal import Decimal
from math import nan
from typing import Any, TypeVar

from hypothesis import strategies as st

from oracle.generate_streams import BEHIND, GAPS, LATENESS, batch_sizes
from oracle.harness import Example
from oracle.model import (
    MILLISECOND,
    SECOND,
    WINDOW_END,
    WINDOW_START,
    Column,
    Expr,
    FromItem,
    Item,
    Now,
    Query,
    Range,
    Row,
    Select,
    Source,
    Stream,
    Sub,
    Unbounded,
    Union,
    Window,
    agg,
)

T = TypeVar("T")

COLUMNS: dict[str, dict[str, str]] = {
    "s": {
        "k": "int",
        "b": "int",
        "tag": "string",
        "v": "bigint",
        "x": "double",
        "d": "decimal(10,2)",
    },
    # the same names with other types
    "t": {"k": "int", "tag": "string", "v": "string", "x": "bigint", "d": "double"},
}
TAGS = ("a", "A", "b", "Ab", "aB", "", None, "a")
DOUBLES = (0.0, 1.5, -0.0, nan, None, 2.5, -8.0, 100.0, 1.0)
PALETTES: dict[str, dict[str, tuple[Any, ...]]] = {
    "s": {
        "k": (1, 2, 3, None, 1, 2),
        "b": (0, 1, 2, None, -3),
        "tag": TAGS,
        "v": (5, 0, 10, 3, None, -7, 20, 15, 6, 4),
        "x": DOUBLES,
        "d": (Decimal("0.00"), Decimal("1.10"), None, Decimal("-3.25"), Decimal("5.00")),
    },
    "t": {
        "k": (1, 2, 3, None, 2, 4),
        "tag": TAGS,
        "v": ("5", "10", "a", None, "20", "4", ""),
        "x": (0, 1, 5, None, 10, -2),
        "d": DOUBLES,
    },
}
SCATTER = 7_919  # prime: neighbouring numbers give unlike rows
STARTS = (0, 10 * SECOND, -75 * SECOND)

# What is asked of a stream's row; {a} stands before the columns. Pairs where DuckDB reads another
# text. {n} is a whole number, {m} another.
NUMBERS = ("5", "10", "3", "0", "15", "-7")
PREDICATES: dict[str, tuple[str | tuple[str, str], ...]] = {
    "s": (
        "{a}v > {n}",
        "{n} < {a}v",
        "{a}v <= {n}",
        "{a}v = {n}",
        "{a}v <> {n}",
        "{a}v BETWEEN {n} AND {m}",
        "{a}v NOT BETWEEN {n} AND {m}",
        "{a}v IN ({n}, {m})",
        "{a}v NOT IN ({n}, {m})",
        "NOT ({a}v > {n})",
        "NOT ({a}v > {n} AND {a}x < 2.5)",
        "({a}v > {n} OR {a}k = 2)",
        "({a}v > {n} AND {a}v < {m})",
        "{a}v > {n} AND {a}k IS NOT NULL",
        "{a}v IS NULL",
        "{a}v IS NOT NULL",
        "({a}v > {n}) IS NULL",
        "{a}v > {n}.5",
        "{a}v >= {n}.0",
        "{a}v > '{n}'",
        "{a}v + 0 > {n}",
        "abs({a}v) > {n}",
        "coalesce({a}v, 6) > {n}",
        "{a}v > {a}k",
        "{a}k < {a}b",
        "{a}k = 2",
        "{a}k = 2.0",
        "{a}k <> {n}",
        "{a}x > {n}",
        "{a}x > 1.5",
        "{a}x <= 1.5",
        "{a}x = 0.0",
        "{a}x <> 0.0",
        "{a}x < 0",
        "{a}x >= -0.0",
        "NOT ({a}x <= {n})",
        "{a}x IN (0.0, 2.5)",
        "{a}x IS NULL",
        "{a}d > 1",
        "{a}d >= 1.10",
        "{a}d <> 5",
        "{a}tag = 'a'",
        "{a}tag = 'A'",
        "{a}tag <> ''",
        "{a}tag < 'b'",
        "{a}tag >= 'Ab'",
        "{a}tag IN ('a', 'Ab')",
        "{a}tag LIKE 'a%'",
        "{a}tag LIKE 'A%'",
        "{a}tag NOT LIKE 'a%'",
        "upper({a}tag) = 'A'",
        "lower({a}tag) < 'b'",
        "{a}b <> 0 AND {a}v / {a}b > 2",
        "{a}b <> 0 AND {a}v > {n} AND {a}v / {a}b > 1",
        "({a}b = 0 OR {a}v / nullif({a}b, 0) > 1)",
        "CASE WHEN {a}b = 0 THEN {a}v > {n} ELSE {a}v / {a}b > 2 END",
        ("{a}ts >= TIMESTAMP '1970-01-01 00:00:12'", "{a}ts >= 12000000"),
        ("{a}ts < TIMESTAMP '1970-01-01 00:00:20'", "{a}ts < 20000000"),
    ),
    "t": (
        "{a}v > '5'",
        "{a}v = '10'",
        "{a}v <> ''",
        "{a}v IS NULL",
        "{a}v IN ('5', 'a')",
        "{a}x > {n}",
        "{a}x <= {n}",
        "{a}x > 1.5",
        "{a}x IS NOT NULL",
        "{a}x BETWEEN {n} AND {m}",
        "{a}d > 1",
        "{a}d >= 1.10",
        "{a}d = 0.0",
        "NOT ({a}d < {n})",
        "{a}k = 2",
        "{a}k <> 2",
        "{a}tag = 'a'",
        "{a}tag LIKE 'a%'",
        "lower({a}tag) = 'ab'",
        "{a}x <> 0 AND {a}k / {a}x < 1",
    ),
}
SCALARS: dict[str, tuple[str, ...]] = {
    "s": (
        "{a}v",
        "{a}k",
        "{a}x",
        "{a}tag",
        "{a}d",
        "{a}v + 1",
        "{a}v * 2",
        "{a}x + {a}x",
        "upper({a}tag)",
        "coalesce({a}v, -1)",
        "{a}v > {a}k",
        "CASE WHEN {a}b <> 0 THEN {a}v / {a}b END",
        "7",
    ),
    "t": ("{a}v", "{a}k", "{a}x", "{a}tag", "{a}d", "{a}x + 1", "{a}v || '!'", "{a}d * 2.0"),
}
CALLS: dict[str, tuple[str, ...]] = {
    "s": (
        "avg({a}v)",
        "count(*)",
        "count({a}v)",
        "sum({a}v)",
        "sum({a}d)",
        "min({a}x)",
        "max({a}x)",
        "max({a}tag)",
        "count(DISTINCT {a}tag)",
        "count(DISTINCT {a}v)",
        "stddev_samp({a}v)",
        "var_pop({a}v)",
        "sum({a}v + 1)",
        "sum(CASE WHEN {a}v > 5 THEN 1 ELSE 0 END)",
        "first({a}v)",
        "last({a}tag)",
        "avg({a}x)",
    ),
    "t": (
        "avg({a}x)",
        "count(*)",
        "sum({a}x)",
        "max({a}v)",
        "min({a}d)",
        "count(DISTINCT {a}v)",
        "last({a}x)",
    ),
}
KEYS = (("k",), ("tag",), (), ("k", "tag"), ("v",))
HAVINGS = ("count(*) > 1", "max({a}x) > 1", "count({a}v) >= 1", "min({a}k) < 3")
WINDOWS = (
    Range(10 * SECOND, 5 * SECOND),
    Range(5 * SECOND, 5 * SECOND),
    Range(4 * SECOND, 2 * SECOND),
    Range(10 * SECOND, 2 * SECOND),
    Range(6 * SECOND, 4 * SECOND),
    Range(2_500 * MILLISECOND, SECOND),
    Range(3 * SECOND, 7 * SECOND),
    Range(6 * SECOND, 4 * SECOND, align_start=True),
    Range(2_500 * MILLISECOND, SECOND, align_start=True),
    Range(20_300 * MILLISECOND, 500 * MILLISECOND, align_start=True),
    Range(5 * SECOND),
    Now(),
)
JOINED = ("b.v", "a.k", "b.x", "a.tag", "b.d")  # columns of t, by name
LENGTHS = (5 * SECOND, 4 * SECOND, 2 * SECOND, 8 * SECOND, 30 * SECOND, 1)
TIES = (
    "{0}.k = {1}.k",
    "{0}.tag = {1}.tag",
    "{1}.k = {0}.k",
    "{0}.k = {1}.k AND {0}.tag = {1}.tag",
)


def values_of(stream: str, number: int) -> tuple[Any, ...]:
    """The values that a number stands for."""
    rest = number * SCATTER
    values = []
    for palette in PALETTES[stream].values():
        rest, digit = divmod(rest, len(palette))
        values.append(palette[digit])
    return tuple(values)


_ROW = st.tuples(st.sampled_from(GAPS[:-1]), st.sampled_from(BEHIND), st.integers(0, 99_999))


@st.composite
def overlapping_streams(draw: st.DrawFn) -> tuple[Stream, ...]:
    start = draw(st.sampled_from(STARTS))
    found = []
    for name, columns in COLUMNS.items():
        rows, clock = [], start
        for gap, behind, number in draw(st.lists(_ROW, min_size=15, max_size=45)):
            clock += gap
            time = None if behind is None else clock - behind
            rows.append(Row(time, values_of(name, number)))
        listed = tuple(Column(n, type_) for n, type_ in columns.items())
        found.append(Stream(name, listed, tuple(rows), draw(st.sampled_from(LATENESS))))
    return tuple(found)


class OverlappingMaker:
    """Draws queries of one dataflow; what they group and join by is chosen once."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.keys = [self.pick(KEYS) for _ in range(2)]
        self.tie = self.pick(TIES)
        self.numbers = [self.pick(NUMBERS) for _ in range(3)]

    def pick(self, choices: Sequence[T]) -> T:
        return self.draw(st.sampled_from(choices))

    def one_in(self, count: int) -> bool:
        return self.draw(st.integers(1, count)) == count

    def text(self, template: str | tuple[str, str], label: str) -> Expr:
        cql, sql = (template, template) if isinstance(template, str) else template
        before = f"{label}." if label else ""
        n, m = self.pick(self.numbers), self.pick(self.numbers)
        return Expr(cql.format(a=before, n=n, m=m), sql.format(a=before, n=n, m=m))

    def predicate(self, stream: str, label: str = "") -> Expr:
        terms = [self.text(self.pick(PREDICATES[stream]), label)]
        while len(terms) < 3 and self.one_in(3):
            terms.append(self.text(self.pick(PREDICATES[stream]), label))
        return together(terms)

    def condition(self, *asked: tuple[str, str]) -> Expr | None:
        """On each of (stream, label) perhaps."""
        terms = [self.predicate(s, label) for s, label in asked if not self.one_in(3)]
        return together(terms) if terms else None

    def items(self, *asked: tuple[str, str]) -> tuple[Item, ...]:
        chosen = [
            self.pick([(s, label) for s, label in asked]) for _ in range(self.pick((1, 2, 3)))
        ]
        found = [self.text(self.pick(SCALARS[s]), label) for s, label in chosen]
        return tuple(Item(e, f"c{i}") for i, e in enumerate(found))

    def stream(self) -> str:
        return "s" if not self.one_in(4) else "t"

    # Queries

    def query(self) -> Query:
        kinds = (
            self.selection,
            self.join,
            self.aggregate,
            self.aggregate,
            self.nested,
            self.over_windows,
        )
        return self.pick(kinds)()

    def selection(self) -> Query:
        name = self.stream()
        where = self.condition((name, ""))
        return Select(self.items((name, "")), (Source(name),), where=where)

    def join(self) -> Query:
        names = self.pick((("s", "t"), ("t", "s"), ("s", "s"), ("s", "t")))
        labels = ("a", "b")
        sides = tuple(
            Source(n, label, self.window()) for n, label in zip(names, labels, strict=True)
        )
        asked = tuple(zip(names, labels, strict=True))
        ties = [Expr(t, t) for t in (self.tie.format(*labels),)]
        if self.one_in(6) and all(_short(s.window) for s in sides):
            ties = [Expr("a.k < b.k", "a.k < b.k")]
        if self.one_in(3):
            other = "a.x > b.x" if self.one_in(2) else "a.k + b.k > 2"
            ties.append(Expr(other, other))
        where = self.condition(*asked)
        terms = [*ties, *([] if where is None else [where])]
        if self.one_in(8):
            sides = (*sides, Source("s", "c", Range(self.pick(LENGTHS[:4]))))
            terms.insert(0, Expr("b.k = c.k", "b.k = c.k"))
        return Select(self.items(*asked), sides, where=together(terms))

    def window(self) -> Window | None:
        if self.one_in(8):
            return self.pick((Now(), Unbounded(), None))
        return Range(self.pick(LENGTHS))

    def aggregate(self) -> Query:
        name = self.stream()
        source: FromItem = Source(name, "a", self.pick(WINDOWS))
        if self.one_in(5):  # a filter below the window
            columns = tuple(Item(Expr(c, c), c) for c in COLUMNS[name])
            inner = Select(columns, (Source(name),), where=self.condition((name, "")))
            source = Sub(inner, "a", self.pick(WINDOWS))
        return self.grouped(name, source, self.condition((name, "a")))

    def grouped(self, name: str, source: FromItem, where: Expr | None) -> Query:
        keys = [f"a.{k}" for k in self.pick(self.keys)]
        calls = [self.call(name) for _ in range(self.pick((1, 2, 3)))]
        if isinstance(source.window, Range) and self.one_in(5):
            calls.append(self.pick((WINDOW_START, WINDOW_END)))
        listed = [*(Expr(k, k) for k in keys), *calls]
        having = self.text(self.pick(HAVINGS), "a") if self.one_in(4) else None
        return Select(
            tuple(Item(e, f"c{i}") for i, e in enumerate(listed)),
            (source,),
            where=where,
            keys=tuple(Expr(k, k) for k in keys),
            having=None if having is None else agg(having.cql, having.sql),
        )

    def call(self, name: str) -> Expr:
        plain = self.text(self.pick(CALLS[name]), "a")
        cql = sql = plain.cql
        if cql.startswith(("first", "last")):
            sql = sql.replace(")", " ORDER BY $order)")
        if self.one_in(4):
            only = self.predicate(name, "a")
            cql, sql = (
                f"{text} FILTER (WHERE {condition})"
                for text, condition in ((cql, only.cql), (sql, only.sql))
            )
        return agg(cql, sql)

    def over_windows(self) -> Query:
        """An aggregate over a join that others make as well, or over a union of windows."""
        ranges = (Range(5 * SECOND), Range(5 * SECOND, 5 * SECOND), Range(4 * SECOND, 2 * SECOND))
        first = self.pick((*ranges, Range(5 * SECOND, 2 * SECOND, align_start=True)))
        second = Range(5 * SECOND if first.align_start else self.pick(LENGTHS[:4]))
        if self.one_in(2):
            sides = (Source("s", "a", first), Source("t", "b", second))
            inner = Select(
                tuple(Item(Expr(text, text), text[2:]) for text in JOINED),
                sides,
                where=Expr(self.tie.format("a", "b"), self.tie.format("a", "b")),
            )
            return self.grouped("t", Sub(inner, "a"), self.condition(("t", "a")))
        columns = tuple(Item(Expr(c, c), c) for c in COLUMNS["s"])
        inner_union = Union(
            tuple(
                Select(columns, (Source("s", None, w),), where=self.condition(("s", "")))
                for w in (first, second)
            )
        )
        keys = (Expr("a.k", "a.k"),)
        calls = tuple(Item(agg(c), f"n{i}") for i, c in enumerate(("count(*)", "sum(a.v)")))
        return Select((Item(keys[0], "k"), *calls), (Sub(inner_union, "a"),), keys=keys)

    def nested(self) -> Query:
        """Residual filters behind a join or an aggregate that others have as well."""
        if self.one_in(2):
            inner = Select(
                tuple(Item(Expr(text, text), text[2:]) for text in JOINED),
                (
                    Source("s", "a", Range(5 * SECOND)),
                    Source("t", "b", Range(self.pick(LENGTHS[:2]))),
                ),
                where=Expr("a.k = b.k", "a.k = b.k"),
            )
            if self.one_in(2):
                return self.grouped("t", Sub(inner, "a", self.pick(WINDOWS)), None)
            where = self.text(self.pick(("a.x > {n}", "a.x <= {n}", "a.tag = 'a'")), "")
            return Select(_columns("a.k", "a.v", "a.x"), (Sub(inner, "a"),), where=where)
        inner = Select(
            (Item(Expr("k", "k"), "k"), Item(agg("count(*)"), "n"), Item(agg("sum(v)"), "total")),
            (Source("s", None, self.pick(WINDOWS[:3])),),
            where=self.pick((None, Expr("v > 3", "v > 3"))),
            keys=(Expr("k", "k"),),
        )
        where = self.text(self.pick(("q.n > 1", "q.total > {n}", "q.total <= {n}")), "")
        if self.one_in(3):  # joined again with the stream
            sides = (Sub(inner, "q", self.pick((None, Range(5 * SECOND)))),
                     Source("s", "b", Range(4 * SECOND)))  # fmt: skip
            terms = [Expr("q.k = b.k", "q.k = b.k"), where]
            return Select(_columns("q.n", "b.v"), sides, where=together(terms))
        return Select(_columns("q.k", "q.n", "q.total"), (Sub(inner, "q"),), where=where)


def _short(window: Window | None) -> bool:
    return isinstance(window, Now) or (isinstance(window, Range) and window.length <= 5 * SECOND)


def _columns(*texts: str) -> tuple[Item, ...]:
    return tuple(Item(Expr(t, t), f"c{i}") for i, t in enumerate(texts))


def together(terms: Sequence[Expr]) -> Expr:
    """The conjunction, in order."""
    if len(terms) == 1:
        return terms[0]
    return Expr(" AND ".join(t.cql for t in terms), " AND ".join(t.sql for t in terms))


@st.composite
def overlapping(draw: st.DrawFn, fewest: int = 4, most: int = 14) -> Example:
    """One dataflow of overlapping queries."""
    streams = draw(overlapping_streams())
    batches = {s.name: draw(batch_sizes(len(s.rows))) for s in streams}
    maker = OverlappingMaker(draw)
    count = draw(st.integers(fewest, most))
    return Example(streams, batches, tuple(maker.query() for _ in range(count)))
