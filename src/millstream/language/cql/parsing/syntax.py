"""What CQL adds to SQL, as written: windows, ISTREAM and its kin, CREATE; and where it stands."""

from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.errors import ParseError


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of the first and last character."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WindowSyntax:
    """A window in brackets, as written."""

    kind: str  # range, rows, now, unbounded
    span: Span
    length_us: int = 0
    count: int = 0
    partition: tuple[exp.Expr, ...] = ()
    slide_us: int | None = None
    slide_span: Span | None = None
    align: str = ""  # start, end; empty where nothing is written
    align_span: Span | None = None


@dataclass(frozen=True, slots=True)
class EmitSyntax:
    kind: str  # istream, dstream, rstream
    span: Span


@dataclass(frozen=True, slots=True)
class CreateSyntax:
    """CREATE STREAM, CREATE QUERY or CREATE VIEW, as written."""

    kind: str  # stream, query, view
    name: str
    span: Span
    columns: tuple[tuple[str, str, Span], ...] = ()
    options: tuple[tuple[str, Any, Span], ...] = ()
    query: exp.Expr | None = None
    from_beginning: bool = False
    body: Span | None = None  # of the query


class CqlSyntaxError(ParseError):
    """A mistake at a known spot, with a hint."""

    def __init__(self, message: str, span: Span, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.span, self.hint = message, span, hint
