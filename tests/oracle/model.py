"""Streams and queries as the oracle sees them: plain records, nothing decided here.

Times and lengths are whole microseconds. An expression is a pair of texts, one as a user writes it
in CQL and one as DuckDB evaluates it; mostly they are the same.
"""

from dataclasses import dataclass
from typing import Any, Literal

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
FOREVER = 2**63 - 1

EmitKind = Literal["ISTREAM", "DSTREAM", "RSTREAM"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stream: int, bigint, double, string, boolean, decimal(p,s), timestamp."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Row:
    """One arriving row; a row without a time is rejected."""

    ts: int | None
    values: tuple[Any, ...]  # timestamps as microseconds since the epoch


@dataclass(frozen=True, slots=True)
class Stream:
    """A finite stream: its rows in the order of their arrival."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    lateness: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """`[RANGE length SLIDE slide ALIGN START]`."""

    length: int
    slide: int | None = None
    align_start: bool = False


@dataclass(frozen=True, slots=True)
class Now:
    """`[NOW]`."""


@dataclass(frozen=True, slots=True)
class Unbounded:
    """`[UNBOUNDED SLIDE slide]`."""

    slide: int | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """`[PARTITION BY partition ROWS count]`; the partition names columns of the windowed item."""

    count: int
    partition: tuple[str, ...] = ()


Window = Range | Now | Unbounded | Rows


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression in both languages.

    In `sql`, `$order` stands for the order of rows (first and last need it), `$window_start` and
    `$window_end` for the ends of an aggregate's window.
    """

    cql: str
    sql: str
    type: str = "?"
    aggregate: bool = False


def expr(cql: str, sql: str | None = None) -> Expr:
    """A scalar expression; one text when both engines read it alike."""
    return Expr(cql, cql if sql is None else sql)


def agg(cql: str, sql: str | None = None) -> Expr:
    """An expression that contains an aggregate."""
    return Expr(cql, cql if sql is None else sql, aggregate=True)


WINDOW_START = Expr("window_start", "$window_start", "timestamp", aggregate=True)
WINDOW_END = Expr("window_end", "$window_end", "timestamp", aggregate=True)


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a select list. An item named `ts` is the result's time itself."""

    expr: Expr
    name: str


def item(text: str, name: str | None = None) -> Item:
    """A scalar entry of a select list, named after its column unless told otherwise."""
    return Item(expr(text), name or text.rpartition(".")[2])


@dataclass(frozen=True, slots=True)
class Source:
    """A stream in a FROM clause."""

    stream: str
    alias: str | None = None
    window: Window | None = None

    @property
    def label(self) -> str:
        return self.alias or self.stream


@dataclass(frozen=True, slots=True)
class Sub:
    """A subquery in a FROM clause; with a `name` it stands in a WITH clause."""

    query: "Query"
    alias: str
    window: Window | None = None
    name: str | None = None

    @property
    def label(self) -> str:
        return self.alias


FromItem = Source | Sub


@dataclass(frozen=True, slots=True)
class Partner:
    """A condition on rows of another item: `value IN (SELECT other FROM …)` with `values`, else
    `EXISTS (SELECT … FROM … WHERE on)`."""

    source: FromItem
    on: Expr | None = None
    values: tuple[Expr, Expr] | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    """SELECT … FROM … WHERE … GROUP BY … HAVING.

    `on` holds a condition for each FROM item after the first: `JOIN … ON`; empty, items are
    separated by commas. `outer` makes the only join a LEFT, RIGHT or FULL one.
    """

    items: tuple[Item, ...]
    sources: tuple[FromItem, ...]
    where: Expr | None = None
    keys: tuple[Expr, ...] = ()
    having: Expr | None = None
    distinct: bool = False
    on: tuple[Expr, ...] = ()
    outer: Literal["", "LEFT", "RIGHT", "FULL"] = ""
    partner: Partner | None = None

    @property
    def by_lifetime(self) -> bool:
        """Whether a row's result depends on whom it meets while it is there."""
        return bool(self.outer) or self.partner is not None

    @property
    def aggregated(self) -> bool:
        return bool(self.keys) or any(entry.expr.aggregate for entry in self.items)


@dataclass(frozen=True, slots=True)
class Union:
    """UNION ALL of queries with the same types; names are those of the first."""

    branches: tuple["Query", ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """An explicit ISTREAM, DSTREAM or RSTREAM around a query."""

    kind: EmitKind
    query: "Query"


Query = Select | Union | Emit


def columns_of(query: Query) -> tuple[str, ...]:
    """Names of a result's columns, without its time."""
    match query:
        case Select():
            return tuple(entry.name for entry in query.items if entry.name != "ts")
        case Union():
            return columns_of(query.branches[0])
        case Emit():
            return columns_of(query.query)


def streams_of(query: Query) -> frozenset[str]:
    """Names of the base streams a query reads."""
    match query:
        case Select():
            names: set[str] = set()
            asked = [] if query.partner is None else [query.partner.source]
            for source in (*query.sources, *asked):
                match source:
                    case Source():
                        names.add(source.stream)
                    case Sub():
                        names |= streams_of(source.query)
            return frozenset(names)
        case Union():
            return frozenset().union(*(streams_of(branch) for branch in query.branches))
        case Emit():
            return streams_of(query.query)
