"""Made-up queries over made-up streams: every construct, always valid.

What the semantics leave open is not made up: SLIDE where nothing uses it, windows of one query
with different SLIDEs, aggregates over joins that never end by ROWS, aggregates of [NOW] joins,
RSTREAM over an aggregate of ROWS, first and last over the rows of an explicit ISTREAM and its kin.
Subqueries give exact values only, so that a group or an order never hangs on a last digit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from hypothesis import strategies as st

from oracle.generate_expressions import (
    Refs,
    aggregate,
    any_scalar,
    comparison,
    condition,
    having,
    kind_of,
    made,
    scalar,
)
from oracle.generate_tables import table_over_tables
from oracle.model import (
    MILLISECOND,
    SECOND,
    WINDOW_END,
    WINDOW_START,
    Emit,
    EmitKind,
    Expr,
    FromItem,
    Item,
    Now,
    Query,
    Range,
    Rows,
    Select,
    Source,
    Stream,
    Sub,
    Unbounded,
    Union,
    Window,
)
from oracle.nature import grouping_of, item_nature

T = TypeVar("T")

LENGTHS = (2 * SECOND, SECOND, 5 * SECOND, 2_500 * MILLISECOND, 10 * SECOND, 30 * SECOND)
SHORT = LENGTHS[:4]
UNEVEN = (3 * SECOND, 20_300 * MILLISECOND, 3_700 * MILLISECOND)  # multiples of no slide but one
SLIDES = (None, 2 * SECOND, SECOND, 5 * SECOND, 500 * MILLISECOND, 7 * SECOND)
LONG_SLIDES = (5 * SECOND, None, 30 * SECOND)
LABELS = ("a", "b", "c")
PREFIXES = ("c", "m", "n")  # of a query's columns by how deep it stands: no name means two things
DEEPEST = len(PREFIXES) - 1
ANY = ("range", "none", "rows", "now", "partition", "unbounded")
ENDING = ("range", "now", "rows", "partition")
FOR_EVER = ("none", "unbounded")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A query and its columns with their kinds."""

    query: Query
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Readable:
    """A FROM item and the columns it offers."""

    item: FromItem
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller wants of windows: their kinds, lengths, and a SLIDE where one fits."""

    kinds: tuple[str, ...] = ANY
    lengths: tuple[int, ...] = LENGTHS
    slide: int | None = None
    align_start: bool = False  # of what has the slide


def forever(readables: Sequence[Readable]) -> bool:
    return all(item_nature(readable.item).shape == "forever" for readable in readables)


def ordered(readables: Sequence[Readable]) -> bool:
    """Whether the order of the rows is beyond doubt: explicit ISTREAM and its kin leave it open."""
    return not any(isinstance(r.item, Sub) and isinstance(r.item.query, Emit) for r in readables)


def named_bounds(readables: Sequence[Readable]) -> tuple[Expr, ...]:
    """What an aggregate may say of its window; a start where all ranges are of one length."""
    natures = [item_nature(readable.item) for readable in readables]
    grouping = grouping_of(natures)
    if grouping == "sliding":
        return (WINDOW_START, WINDOW_END)
    if grouping != "snapshot":
        return ()
    alike = len(frozenset().union(*(nature.ranges for nature in natures))) == 1
    plain = all(nature.shape in ("range", "forever") for nature in natures)
    return (WINDOW_START, WINDOW_END) if alike and plain else (WINDOW_END,)


class QueryMaker:
    """Draws queries over given streams; every method draws one thing."""

    def __init__(self, draw: st.DrawFn, streams: Sequence[Stream]) -> None:
        self.draw = draw
        self.streams = streams

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices; shrinking prefers the first."""
        return self.draw(st.sampled_from(choices))

    def one_in(self, count: int) -> bool:
        """True now and then; shrinking prefers False."""
        return self.draw(st.integers(1, count)) == count

    # FROM items

    def window(self, columns: Sequence[tuple[str, str]], asked: Asked) -> Window | None:
        kinds = asked.kinds
        keys = [name for name, kind in columns if kind in ("integer", "ascii", "boolean")]
        if not keys:
            kinds = tuple(kind for kind in kinds if kind != "partition") or ("range",)
        match self.pick(kinds):
            case "range":
                aligned = asked.align_start and asked.slide is not None
                return Range(self.pick(asked.lengths), asked.slide, aligned)
            case "now":
                return Now()
            case "rows":
                return Rows(self.pick((1, 2, 3, 5)))
            case "partition":
                return Rows(self.pick((1, 2, 3)), (self.pick(keys),))
            case "unbounded":
                return Unbounded(asked.slide)
            case _:
                return None if asked.slide is None else Unbounded(asked.slide)

    def base(self, label: str | None, asked: Asked) -> Readable:
        stream = self.pick(self.streams)
        columns = tuple((c.name, kind_of(c.name, c.type)) for c in stream.columns)
        return Readable(Source(stream.name, label, self.window(columns, asked)), columns)

    def subquery(self, label: str, asked: Asked, depth: int) -> Readable:
        inner = self.stream_query(depth + 1)
        kinds = asked.kinds
        if isinstance(inner.query, Emit):
            kinds = tuple(kind for kind in kinds if kind not in ("rows", "partition")) or ("range",)
        window = self.window(inner.columns, replace(asked, kinds=kinds))
        return Readable(Sub(inner.query, label, window), inner.columns)

    def readable(self, label: str | None, asked: Asked, depth: int) -> Readable:
        if depth < DEEPEST and self.one_in(4):
            return self.subquery(label or "q", asked, depth)
        return self.base(label, asked)

    def single(self, asked: Asked, depth: int) -> list[Readable]:
        return [self.readable("a" if self.one_in(2) else None, asked, depth)]

    def several(self, asked: Asked, depth: int, first: Asked | None = None) -> list[Readable]:
        """Two or three items to join; at most one of two is a subquery."""
        if self.one_in(4):
            asks = (first or asked, asked, asked)
            return [self.base(label, ask) for label, ask in zip(LABELS, asks, strict=True)]
        left = self.base("a", first or asked)
        return [left, self.readable("b", asked, depth)]

    def refs(self, readables: Sequence[Readable], *, times: bool) -> Refs:
        """All columns; of a single item sometimes without its name before them."""
        bare = len(readables) == 1 and not self.one_in(2)
        found = []
        for readable in readables:
            before = "" if bare else f"{readable.item.label}."
            columns = [*readable.columns, *([("ts", "timestamp")] if times else [])]
            found += [Expr(before + name, before + name, kind) for name, kind in columns]
        return Refs(tuple(found))

    # Select lists and conditions

    def listed(self, expressions: Sequence[Expr], depth: int) -> tuple[Item, ...]:
        prefix = PREFIXES[depth]
        return tuple(Item(e, f"{prefix}{number}") for number, e in enumerate(expressions))

    def drawn(self, select: Select) -> Drawn:
        return Drawn(select, tuple((entry.name, entry.expr.type) for entry in select.items))

    def scalars(self, refs: Refs, most: int = 4) -> list[Expr]:
        count = self.draw(st.integers(1, most))
        return [any_scalar(self.draw, refs) for _ in range(count)]

    def maybe_condition(self, refs: Refs) -> Expr | None:
        return condition(self.draw, refs) if self.one_in(2) else None

    def joining(self, readables: Sequence[Readable], refs: Refs) -> tuple[Expr, ...]:
        """For each item after the first a condition that ties it to the one before."""
        found = []
        for left, right in pairwise(readables):
            kinds = [
                kind
                for kind in ("integer", "ascii", "text", "double", "boolean")
                if any(k == kind for _, k in left.columns)
                and any(k == kind for _, k in right.columns)
            ]
            if not kinds:
                found.append(comparison(self.draw, refs))
                continue
            kind = kinds[0] if not self.one_in(4) else self.pick(kinds)
            ends = [
                Expr(f"{r.item.label}.{name}", f"{r.item.label}.{name}", kind)
                for r, name in (
                    (r, self.pick([name for name, k in r.columns if k == kind]))
                    for r in (left, right)
                )
            ]
            operator = "<" if self.loose(left, right) and self.one_in(3) else "="
            found.append(made("boolean", f"{{0}} {operator} {{1}}", *ends))
        return tuple(found)

    def loose(self, left: Readable, right: Readable) -> bool:
        """Whether both windows are so short that a join without equality stays small."""
        windows = (left.item.window, right.item.window)
        return all(
            isinstance(w, Now) or (isinstance(w, Range) and w.length in SHORT) for w in windows
        )

    def joined(self, select: Select, readables: Sequence[Readable], refs: Refs) -> Select:
        """The select with its join conditions, after ON or among those of WHERE."""
        ties = self.joining(readables, refs)
        if self.one_in(2):
            return replace(select, on=ties)
        terms = [*ties, *([] if select.where is None else [select.where])]
        where = made("boolean", " AND ".join(f"{{{n}}}" for n in range(len(terms))), *terms)
        return replace(select, where=where)

    # Queries that give streams

    def rows(self, readables: Sequence[Readable], depth: int, most: int = 4) -> Drawn:
        """A select without aggregates."""
        refs = self.refs(readables, times=True)
        select = Select(
            self.listed(self.scalars(refs, most), depth),
            tuple(readable.item for readable in readables),
            where=self.maybe_condition(refs),
        )
        if len(readables) > 1:
            select = self.joined(select, readables, refs)
        return self.drawn(select)

    def plain(self, depth: int) -> Drawn:
        found = self.rows(self.single(Asked(), depth), depth)
        assert isinstance(found.query, Select)
        if depth > 0 or not self.one_in(6):
            return found
        time = Item(Expr("ts", "ts", "timestamp"), "ts")
        return replace(found, query=replace(found.query, items=(*found.query.items, time)))

    def join(self, depth: int) -> Drawn:
        return self.rows(self.several(Asked(), depth), depth)

    def distinct(self, depth: int) -> Drawn:
        readables = self.several(Asked(), depth) if self.one_in(4) else self.single(Asked(), depth)
        found = self.rows(readables, depth, most=2)
        assert isinstance(found.query, Select)
        return replace(found, query=replace(found.query, distinct=True))

    def union(self, depth: int, asked: Asked | None = None) -> Drawn:
        """Two or three selects whose columns are of the same kinds."""
        kinds = [self.pick(("integer", "ascii", "double", "boolean")) for _ in range(2)]
        branches = []
        for _ in range(3 if self.one_in(4) else 2):
            readables = [self.base(None, asked or Asked())]
            refs = self.refs(readables, times=False)
            items = self.listed([scalar(self.draw, refs, kind) for kind in kinds], depth)
            where = self.maybe_condition(refs)
            branches.append(Select(items, (readables[0].item,), where=where))
        return Drawn(Union(tuple(branches)), self.drawn(branches[0]).columns)

    def grouped(
        self, readables: Sequence[Readable], depth: int, *, exact: bool, relation: bool = False
    ) -> Drawn:
        """An aggregate over the given items."""
        refs = self.refs(readables, times=False)
        steady = ordered(readables) and not relation
        keys = [self.key(refs) for _ in range(self.pick((1, 0, 2)))]
        calls = [
            aggregate(self.draw, refs, exact=exact, ordered=steady)
            for _ in range(self.draw(st.integers(1, 3)))
        ]
        if not relation and (bounds := named_bounds(readables)) and self.one_in(4):
            calls.append(self.pick(bounds))
        select = Select(
            self.listed([*keys, *calls], depth),
            tuple(readable.item for readable in readables),
            where=self.maybe_condition(refs),
            keys=tuple(dict.fromkeys(keys)),
            having=having(self.draw, refs) if self.one_in(4) else None,
        )
        if len(readables) > 1:
            select = self.joined(select, readables, refs)
        return self.drawn(select)

    def key(self, refs: Refs) -> Expr:
        simple = refs.of("integer", "ascii", "boolean", "double", "text") or list(refs.columns)
        if refs.of("integer") and self.one_in(4):
            return made("integer", "{0} % 3", self.pick(refs.of("integer")))
        return self.pick(simple)

    def aggregated(self, depth: int) -> Drawn:
        """An aggregate over windows that end: its result is a stream."""
        slide = self.pick(SLIDES)
        aligned = self.one_in(3)
        exact = depth > 0
        lengths = SHORT if exact else (*LENGTHS, *UNEVEN)
        if self.one_in(4):  # a join: a range and anything but [NOW]
            lengths = (self.pick(SHORT),) if aligned or self.one_in(2) else SHORT
            first = Asked(("range",), lengths, slide, aligned)
            others = Asked(("range", "none", "rows", "partition", "unbounded"), lengths, None)
            return self.grouped(self.several(others, DEEPEST, first), depth, exact=exact)
        if depth < DEEPEST and self.one_in(6):  # the window stands inside a filter
            asked = Asked(ENDING, lengths, slide, aligned)
            inner = self.rows([self.base(None, asked)], depth + 1)
            return self.grouped(
                [Readable(Sub(inner.query, "q"), inner.columns)], depth, exact=exact
            )
        if depth < DEEPEST and self.one_in(6):  # windows stand inside a union
            asked = Asked(("range",), (self.pick(SHORT),) if aligned else SHORT, slide, aligned)
            inner = self.union(depth + 1, asked)
            return self.grouped(
                [Readable(Sub(inner.query, "q"), inner.columns)], depth, exact=exact
            )
        kinds = ("range", "range", "range", "rows", "now", "partition")
        asked = Asked(kinds, lengths, slide, aligned)
        return self.grouped(self.single(asked, depth), depth, exact=exact)

    def distinct_aggregate(self, depth: int) -> Drawn:
        """Equal results of neighbouring windows are one."""
        window = Asked(("range",), SHORT, self.pick(SLIDES))
        found = self.grouped([self.base(None, window)], depth, exact=True)
        assert isinstance(found.query, Select)
        return replace(found, query=replace(found.query, distinct=True))

    def stream_query(self, depth: int) -> Drawn:
        """A query that may stand in FROM: a stream of exact values, not too long."""
        kinds: tuple[Callable[[int], Drawn], ...] = (
            self.plain,
            self.aggregated,
            self.join,
            self.union,
            self.distinct,
            self.inner_emit,
        )
        return self.pick(kinds)(depth)

    def inner_emit(self, depth: int) -> Drawn:
        kind: EmitKind = self.pick(("ISTREAM", "DSTREAM", "RSTREAM"))
        slide = self.pick(SLIDES[:4]) if kind == "RSTREAM" else None
        found = self.rows([self.base(None, Asked(("range",), SHORT, slide))], depth)
        return replace(found, query=Emit(kind, found.query))

    # Relations

    def relation(self, depth: int, slide: int | None = None, *, exact: bool = False) -> Drawn:
        """An aggregate over everything so far."""
        if depth < DEEPEST and self.one_in(4):
            return self.over_relation(depth, slide, exact=exact)
        asked = Asked(FOR_EVER, LENGTHS, slide)
        if self.one_in(4):
            readables = self.several(asked, DEEPEST)
        elif slide is None and depth < DEEPEST and self.one_in(4):
            inner = self.aggregated(depth + 1)
            readables = [Readable(Sub(inner.query, "q"), inner.columns)]
        else:
            readables = [self.base(None, asked)]
        return self.grouped(readables, depth, exact=exact)

    def over_relation(self, depth: int, slide: int | None, *, exact: bool) -> Drawn:
        """A filter, a DISTINCT or another aggregate over a relation."""
        inner = self.relation(depth + 1, slide, exact=True)
        readables = [Readable(Sub(inner.query, "q"), inner.columns)]
        shape = self.pick(("aggregate", "filter", "distinct"))
        if shape == "aggregate":
            return self.grouped(readables, depth, exact=exact, relation=True)
        refs = self.refs(readables, times=False)
        select = Select(
            self.listed(self.scalars(refs, 2), depth),
            (readables[0].item,),
            where=self.maybe_condition(refs),
            distinct=shape == "distinct",
        )
        return self.drawn(select)

    def relation_emitted(self) -> Query:
        kind: EmitKind = self.pick(("ISTREAM", "DSTREAM", "RSTREAM"))
        return Emit(kind, self.relation(0, self.pick(LONG_SLIDES), exact=True).query)

    # Explicit ISTREAM, DSTREAM, RSTREAM

    def emitted(self) -> Query:
        kind: EmitKind = self.pick(("DSTREAM", "RSTREAM", "ISTREAM"))
        shape = self.pick(("rows", "join", "distinct", "aggregate", "union"))
        if shape == "aggregate":
            return self.emitted_aggregate(kind)
        slide = self.pick(SLIDES) if kind == "RSTREAM" else None
        ending = Asked(ENDING, SHORT, slide)
        anything = Asked(ENDING if kind == "RSTREAM" else ANY, SHORT, None)
        if shape == "join":
            readables = self.several(anything, DEEPEST, ending)
            return Emit(kind, self.rows(readables, 0).query)
        if shape == "union" and kind != "RSTREAM":
            return Emit(kind, self.union(0, ending).query)
        if kind == "RSTREAM":
            ending = Asked(("range", "unbounded", "rows"), LENGTHS, self.pick(LONG_SLIDES))
        found = self.rows([self.base(None, ending)], 0, most=3).query
        assert isinstance(found, Select)
        return Emit(kind, replace(found, distinct=shape == "distinct"))

    def emitted_aggregate(self, kind: EmitKind) -> Query:
        kinds = ("range", "now") if kind == "RSTREAM" else ("range", "rows", "partition", "now")
        asked = Asked(kinds, (*LENGTHS, *UNEVEN), self.pick(SLIDES), self.one_in(3))
        return Emit(kind, self.grouped([self.base(None, asked)], 0, exact=False).query)

    # Whole queries

    def query(self) -> Query:
        kinds: tuple[Callable[[], Query], ...] = (
            lambda: self.plain(0).query,
            lambda: self.aggregated(0).query,
            lambda: self.join(0).query,
            self.emitted,
            lambda: self.relation(0).query,
            lambda: self.distinct(0).query,
            lambda: self.aggregated(0).query,
            lambda: self.union(0).query,
            self.relation_emitted,
            self.emitted,
            lambda: self.over_relation(0, None, exact=False).query,
            lambda: self.distinct_aggregate(0).query,
            self.hottest,
            lambda: table_over_tables(self.draw, self.pick(self.streams).name),
        )
        return self.with_names(self.pick(kinds)())

    def hottest(self) -> Query:
        """The shape of Nexmark's hot items: results beside the greatest of the same instant."""
        slide = self.pick(SLIDES)
        counts = Select(
            (Item(Expr("k", "k", "integer"), "m0"), Item(Expr("count(*)", "count(*)"), "m1")),
            (Source(self.pick(self.streams).name, None, Range(self.pick(LENGTHS), slide)),),
            keys=(Expr("k", "k", "integer"),),
        )
        greatest = Select(
            (Item(Expr("max(h.m1)", "max(h.m1)", aggregate=True), "n0"),),
            (Sub(counts, "h", Now()),),
        )
        return Select(
            (Item(Expr("c.m0", "c.m0"), "c0"), Item(Expr("c.m1", "c.m1"), "c1")),
            (Sub(counts, "c", Now()), Sub(greatest, "g", Now())),
            where=Expr("c.m1 >= g.n0", "c.m1 >= g.n0"),
        )

    def with_names(self, query: Query) -> Query:
        """Some subqueries of FROM go to a WITH clause."""
        if not isinstance(query, Select) or not self.one_in(2):
            return query
        return replace(
            query,
            sources=tuple(
                replace(source, name=f"w{number}") if isinstance(source, Sub) else source
                for number, source in enumerate(query.sources)
            ),
        )
