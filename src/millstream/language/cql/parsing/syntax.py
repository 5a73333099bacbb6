"""What CQL adds to SQL, as written: windows, ISTREAM and its kin, CREATE; and where it stands."""

from dataclasses import dataclass
from typing import Any
from typing import Literal as OneOf

from sqlglot import exp
from sqlglot.errors import ParseError

# Calls whose first argument may be a unit of time: TIMESTAMPDIFF(MINUTE, a, b).
UNIT_CALLS = ("timestampdiff", "timestampadd", "datediff", "date_diff", "dateadd", "date_add")


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of the first and last character."""

    start: int
    end: int


def span_of(node: exp.Expr) -> Span:
    """Where a node stands: its own place and that of everything below it."""
    places = [n.meta for n in node.walk() if "start" in n.meta]
    if not places:
        return span_of(node.parent) if node.parent is not None else Span(0, 0)
    return Span(min(p["start"] for p in places), max(p["end"] for p in places))


@dataclass(frozen=True, slots=True)
class WindowSyntax:
    """A window, as written in brackets or as other systems write it."""

    kind: str  # range, rows, now, unbounded, session, cumulate, calendar
    span: Span
    length_us: int = 0
    count: int = 0
    partition: tuple[exp.Expr, ...] = ()
    slide_us: int | None = None
    slide_span: Span | None = None
    align: str = ""  # start, end; empty where nothing is written
    align_span: Span | None = None
    offset_us: int = 0  # by which all windows are moved
    spelled: str = ""  # how another system calls it; empty in brackets
    calendar: "CalendarSyntax | None" = None
    by: tuple[str, ...] | None = (
        None  # PARTITION BY of a table function, which GROUP BY must repeat
    )


@dataclass(frozen=True, slots=True)
class CalendarSyntax:
    """A window of whole days or months of a time zone."""

    unit: OneOf["day", "month"]
    length: int
    slide: int
    zone: str
    offset_us: int = 0  # after midnight, by the clock of the zone


@dataclass(frozen=True, slots=True)
class RefinementSyntax:
    """EMIT CHANGES or EMIT FINAL at the end of a query."""

    kind: str  # changes, final
    span: Span


@dataclass(frozen=True, slots=True)
class PivotSyntax:
    """`PIVOT (calls FOR column IN (values))` behind an item of FROM."""

    calls: tuple[exp.Expr, ...]
    column: exp.Expr | None
    values: tuple[exp.Expr, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class RulesSyntax:
    """FOR EACH table, or CREATE RULES name FROM table: a query with parameters, a row a rule."""

    table: str
    span: Span


@dataclass(frozen=True, slots=True)
class HistorySyntax:
    """FROM HISTORY [UNTIL 'instant']: a query begins with the tables of its streams' past."""

    until_us: int | None  # None: the system chooses it when the query is registered
    span: Span  # of FROM HISTORY


@dataclass(frozen=True, slots=True)
class EmitSyntax:
    kind: str  # istream, dstream, rstream
    span: Span


@dataclass(frozen=True, slots=True)
class CreateSyntax:
    """CREATE STREAM, CREATE QUERY, CREATE RULES or CREATE VIEW, as written."""

    kind: str  # stream, query, view
    name: str
    span: Span
    columns: tuple[tuple[str, str, Span], ...] = ()
    options: tuple[tuple[str, Any, Span], ...] = ()
    query: exp.Expr | None = None
    from_beginning: bool = False
    body: Span | None = None  # of the query
    rules: RulesSyntax | None = None  # of CREATE RULES
    replaces: bool = False  # CREATE OR REPLACE
    history: HistorySyntax | None = None


class CqlSyntaxError(ParseError):
    """A mistake at a known spot, with a hint."""

    def __init__(self, message: str, span: Span, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.span, self.hint = message, span, hint
