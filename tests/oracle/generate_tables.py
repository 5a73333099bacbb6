"""Made-up tables over tables whose groups empty and come back.

A few things change their state all the time. The innermost table has their present states; what
stands over it groups by them, so that a group loses its last row, gains one again, and a HAVING or
a filter turns false and true. Values that others group by are exact; doubles whose sums depend on
the order of rows are only summed at the top.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

from oracle.harness import Example
from oracle.model import (
    SECOND,
    Column,
    Emit,
    EmitKind,
    Expr,
    Item,
    Query,
    Row,
    Select,
    Source,
    Stream,
    Sub,
    Unbounded,
    agg,
)

T = TypeVar("T")

COLUMNS = (
    Column("k", "int"),
    Column("tag", "string"),
    Column("v", "bigint"),
    Column("x", "double"),
)
THINGS = (1, 2, 3, None)
STATES = ("a", "b", "Ab", None)
NUMBERS = (0, 1, 5, None)
DOUBLES = (0.1, 0.7, 0.3, 1.1, None)  # sums of these differ in their last digit by order
GAPS = (SECOND, 0, 3 * SECOND)
ROWS_MIN, ROWS_MAX = 6, 12
QUERIES_MIN, QUERIES_MAX = 3, 5
SHAPES = ("groups", "whole", "distinct", "having", "rows")
PREFIXES = ("m", "n", "c")  # of columns by how deep a table stands, the innermost first
TURNING = ("count(*) = 1", "count(*) > 1", "count(*) % 2 = 0")  # false and true again
SLIDES = (5 * SECOND, 2 * SECOND)


@dataclass(frozen=True, slots=True)
class Table:
    """A relation and its columns with their kinds: integer, text or double."""

    query: Select
    columns: tuple[tuple[str, str], ...]

    def of(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.columns if kind in kinds]


def _pick(draw: st.DrawFn, choices: Sequence[T]) -> T:
    return draw(st.sampled_from(choices))


def _ordered(function: str, column: str) -> Expr:
    return agg(f"{function}({column})", f"{function}({column} ORDER BY $order)")


def states(draw: st.DrawFn, stream: str, slide: int | None = None) -> Table:
    """The present state of every thing."""
    values: tuple[tuple[Expr, str], ...] = (
        (_ordered("last", "tag"), "text"),
        (_ordered("last", "v"), "integer"),
        (agg("count(*) % 2"), "integer"),
        (agg("avg(x)"), "double"),
    )
    named = [Item(expression, f"m{i}") for i, (expression, _) in enumerate(values, 1)]
    window = None if slide is None else Unbounded(slide)
    key = Expr("k", "k", "integer")
    where = Expr("v IS NOT NULL", "v IS NOT NULL") if draw(st.integers(0, 3)) == 3 else None
    select = Select(
        (Item(key, "m0"), *named), (Source(stream, None, window),), where=where, keys=(key,)
    )
    kinds = ("integer", *(kind for _, kind in values))
    return Table(select, tuple((f"m{i}", kind) for i, kind in enumerate(kinds)))


def over(draw: st.DrawFn, below: Table, prefix: str, *, top: bool) -> Table:
    """One more table over a table."""
    shape = _pick(draw, SHAPES)
    exact = below.of("integer", "text")
    kinds = dict(below.columns)
    chosen = draw(st.lists(st.sampled_from(exact), min_size=1, max_size=2, unique=True))
    keys = [] if shape == "whole" else [(Expr(n, n, kinds[n]), kinds[n]) for n in chosen]
    calls = []
    if shape in ("groups", "whole", "having"):
        calls = [_call(draw, below, top=top) for _ in range(draw(st.integers(1, 2)))]
    entries = [*keys, *calls]
    select = Select(
        tuple(Item(e, f"{prefix}{i}") for i, (e, _) in enumerate(entries)),
        (Sub(below.query, "t"),),
        where=_condition(draw, below) if shape == "rows" or draw(st.integers(0, 3)) == 3 else None,
        keys=tuple(e for e, _ in keys) if shape in ("groups", "having") else (),
        having=agg(_pick(draw, TURNING)) if shape == "having" else None,
        distinct=shape == "distinct",
    )
    return Table(select, tuple((f"{prefix}{i}", kind) for i, (_, kind) in enumerate(entries)))


def _call(draw: st.DrawFn, below: Table, *, top: bool) -> tuple[Expr, str]:
    exact, numbers, doubles = (
        below.of(*k) for k in (("integer", "text"), ("integer",), ("double",))
    )
    choices = [("count(*)", "integer")]
    choices += [(f"count(DISTINCT {n})", "integer") for n in exact]
    choices += [(f"{f}({n})", "integer") for n in numbers for f in ("sum", "max", "min")]
    if top:
        choices += [(f"{f}({n})", "double") for n in doubles for f in ("sum", "avg", "stddev_pop")]
    text, kind = _pick(draw, choices)
    return agg(text), kind


def _condition(draw: st.DrawFn, below: Table) -> Expr:
    texts = [f"{n} = 'a'" for n in below.of("text")]
    texts += [f"{n} > 0" for n in below.of("integer")]
    text = _pick(draw, texts)
    return Expr(text, text, "boolean")


def table_over_tables(draw: st.DrawFn, stream: str) -> Query:
    """One or two tables over that of the states; now and then its changes as a stream."""
    emitted = draw(st.integers(0, 5)) == 5
    found = states(draw, stream, _pick(draw, SLIDES) if emitted else None)
    deep = draw(st.booleans())
    if deep:
        found = over(draw, found, PREFIXES[1], top=False)
    query = over(draw, found, PREFIXES[2], top=not emitted).query
    if not emitted:
        return query
    kind: EmitKind = _pick(draw, ("ISTREAM", "DSTREAM", "RSTREAM"))
    return Emit(kind, query)


@st.composite
def changing_streams(draw: st.DrawFn) -> Stream:
    """Few things with few states: most rows move a thing from one group to another."""
    drawn = draw(
        st.lists(
            st.tuples(*(st.sampled_from(c) for c in (GAPS, THINGS, STATES, NUMBERS, DOUBLES))),
            min_size=ROWS_MIN,
            max_size=ROWS_MAX,
        )
    )
    rows, clock = [], 0
    for gap, *values in drawn:
        clock += gap
        rows.append(Row(clock, tuple(values)))
    return Stream("s", COLUMNS, tuple(rows))


@st.composite
def table_examples(draw: st.DrawFn) -> Example:
    """A dataflow of tables over tables over one stream, in one file: whoever runs it cuts it."""
    stream = draw(changing_streams())
    count = draw(st.integers(QUERIES_MIN, QUERIES_MAX))
    queries = tuple(table_over_tables(draw, stream.name) for _ in range(count))
    return Example((stream,), {stream.name: [len(stream.rows)]}, queries)
