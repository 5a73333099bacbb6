"""Text to statements: CREATE STREAM, QUERY, RULES or VIEW, or a query by itself.

Only the shape of the text is judged here; names and types are the binder's.
"""

import re
import sys
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from millstream.core.durations import microseconds
from millstream.core.errors import CqlError, UsageError
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.parsing.dialect import STATEMENT_HINT, Cql, mark_names
from millstream.language.cql.parsing.foreign_windows import mark_window_names
from millstream.language.cql.parsing.group_windows import settle_windows
from millstream.language.cql.parsing.grouping_sets import expanded
from millstream.language.cql.parsing.syntax import (
    CqlSyntaxError,
    CreateSyntax,
    HistorySyntax,
    Span,
)
from millstream.language.cql.parsing.unnesting import settle_unnests
from millstream.language.cql.types import canonical
from millstream.language.plan.schema import Field

TEXT_MAX = 1_000_000  # characters
SELECTS_MAX, DIGITS_MAX = 500, 1_000  # in a text, of a number
FRAMES_MAX = 10_000  # sqlglot takes about twenty for each parenthesis
SOURCE_OPTIONS = (
    "path", "format", "options", "source", "rate", "follow", "trigger", "schema", "key", "op",
    "history",
)  # fmt: skip
OPTIONS = ("time", "lateness", "idle", "max_ahead", "retain", *SOURCE_OPTIONS)


@dataclass(frozen=True, slots=True)
class Text:
    """A text and where things stand in it."""

    source: str

    def error(self, message: str, span: Span, hint: str = "") -> CqlError:
        start = min(span.start, len(self.source))
        before = self.source[:start]
        line = before.count("\n") + 1
        column = start - (before.rfind("\n") + 1) + 1
        length = span.end - span.start + 1
        return CqlError(
            message, source=self.source, line=line, column=column, length=length, hint=hint
        )

    def slice(self, span: Span) -> str:
        return self.source[span.start : span.end + 1]


@dataclass(frozen=True, slots=True, eq=False)
class SelectStatement:
    """A query as written, with the views that stand in the same text."""

    text: Text
    tree: exp.Expr
    views: "tuple[CreateView, ...]" = ()
    span: Span | None = None  # where it stands in a CREATE; else it is all of its statement
    history: HistorySyntax | None = None  # it begins with the past of its streams


@dataclass(frozen=True, slots=True, eq=False)
class CreateQuery:
    """CREATE [OR REPLACE] QUERY name [FROM BEGINNING | FROM HISTORY] AS query; with `rules`,
    CREATE RULES name FROM rules."""

    name: str
    select: SelectStatement
    from_beginning: bool = False
    rules: str = ""  # the rule table, where it stands before the query
    replaces: bool = False  # whether a query of this name goes on with this text


@dataclass(frozen=True, slots=True, eq=False)
class CreateStream:
    """CREATE STREAM name (columns) WITH (options)."""

    definition: StreamDefinition


@dataclass(frozen=True, slots=True, eq=False)
class CreateView:
    """CREATE VIEW name AS query: the query by another name, bound wherever it is used."""

    name: str
    select: SelectStatement
    span: Span


Statement = SelectStatement | CreateQuery | CreateStream | CreateView


def parse(source: str) -> tuple[Statement, ...]:
    """All statements of a text, separated by semicolons.

    >>> [type(s).__name__ for s in parse("SELECT a FROM s; CREATE QUERY q AS SELECT b FROM s;")]
    ['SelectStatement', 'CreateQuery']
    """
    text = Text(source)
    trees = [tree for tree in _trees(text) if tree is not None]
    if not trees:
        raise text.error("the text is empty", Span(0, 0), STATEMENT_HINT)
    return tuple(_statement(text, tree) for tree in trees)


def split(source: str) -> list[str]:
    """The text of each statement; a comment by itself is none.

    >>> split("SELECT ';' FROM s; -- the first; then\\nSELECT b FROM s; -- no more")
    ["SELECT ';' FROM s", '-- the first; then\\nSELECT b FROM s']
    """
    try:
        tokens = Cql().tokenize(source)
    except TokenError as failure:
        raise _unreadable(Text(source), failure) from None
    found: list[str] = []
    begin, filled = 0, False
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            filled = True
            continue
        if filled:
            found.append(source[begin : token.start].strip())
        begin, filled = token.end + 1, False
    return [*found, source[begin:].strip()] if filled else found


def finished(source: str) -> bool:
    """Whether nothing but comments follows the last semicolon, or there is nothing else at all.

    >>> finished("SELECT a FROM s"), finished("SELECT a FROM s; -- so"), finished("SELECT ';")
    (False, True, False)
    """
    try:
        tokens = Cql().tokenize(source)
    except TokenError:
        return False
    return not tokens or tokens[-1].token_type is TokenType.SEMICOLON


def parse_query(source: str) -> SelectStatement:
    """One query, plain or as CREATE QUERY, with the views beside it."""
    statements = parse(source)
    views = tuple(s for s in statements if isinstance(s, CreateView))
    others = [s for s in statements if not isinstance(s, CreateView)]
    if not others:
        raise UsageError("expected a query, found CREATE VIEW", hint="add SELECT ... FROM the view")
    if len(others) > 1:
        raise UsageError(f"expected one query, found {len(others)} statements")
    only = others[0]
    if isinstance(only, CreateStream):
        raise UsageError("expected a query, found CREATE STREAM")
    return replace(only.select if isinstance(only, CreateQuery) else only, views=views)


def parse_expression(source: str) -> tuple[Text, exp.Expr]:
    """A single expression, such as a stream's time."""
    text = Text(source)
    select = _trees(Text(f"SELECT {source}"))
    tree = select[0].expressions[0] if select and select[0] else None
    if tree is None:
        raise text.error("the text is empty", Span(0, 0), "give an expression")
    for node in tree.walk():
        if "start" in node.meta:
            node.meta["start"] -= len("SELECT ")
            node.meta["end"] -= len("SELECT ")
    return text, tree


def _refuse_endless(text: Text, tokens: list[Token]) -> None:
    """Long texts, before they are parsed: that needs more than time in proportion."""
    if len(text.source) > TEXT_MAX:
        raise text.error(
            f"the text has more than {TEXT_MAX:,} characters", Span(0, 0),
            "keep long lists in a stream and join it",
        )  # fmt: skip
    selects = 0
    for token in tokens:
        selects += token.token_type is TokenType.SELECT
        if selects > SELECTS_MAX:
            raise text.error(
                f"the text has more than {SELECTS_MAX} SELECTs", Span(token.start, token.end + 1),
                "make queries of its parts: they are computed once",
            )  # fmt: skip
        if token.token_type is TokenType.NUMBER and len(token.text) > DIGITS_MAX:
            at = Span(token.start, token.end + 1)
            raise text.error(f"a number has at most {DIGITS_MAX} digits", at)


def _trees(text: Text) -> list[Any]:
    dialect = Cql()
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(max(limit, FRAMES_MAX))
        tokens = dialect.tokenize(text.source)
        _refuse_endless(text, tokens)
        for token in tokens:
            token.comments = []  # sqlglot takes one after a semicolon for a statement
        mark_names(tokens, text.source)
        mark_window_names(tokens)
        trees = list(dialect.parser().parse(tokens, text.source))
        return [None if tree is None else _settled(tree, text.source) for tree in trees]
    except CqlSyntaxError as failure:
        raise text.error(failure.message, failure.span, failure.hint) from None
    except TokenError as failure:
        raise _unreadable(text, failure) from None
    except ParseError as failure:
        raise text.error(f"{failure}".splitlines()[0].lower(), Span(0, 0)) from None
    except RecursionError:
        raise text.error("the text is nested too deeply", Span(0, 0), "split it") from None
    finally:
        sys.setrecursionlimit(limit)


def _settled(tree: exp.Expr, source: str) -> exp.Expr:
    """A statement with others' windows and several groupings in the form of CQL."""
    create: CreateSyntax | None = tree.meta.get("create")
    query = tree if create is None else create.query
    if query is None:
        return tree
    settle_unnests(query)
    settle_windows(query, source)
    query = expanded(query)
    if create is None:
        return query
    tree.meta["create"] = replace(create, query=query)
    return tree


INSIDE = re.compile(r"'(\w+)'(\w+)'")  # a text with a quote in it


def _unreadable(text: Text, failure: TokenError) -> CqlError:
    found = re.search(r"Missing (\S+) from \d+:(\d+)", f"{failure} {failure.__cause__}")
    if not found:
        return _unclosed(text) or text.error("the text cannot be read", Span(0, 0))
    at = min(int(found[2]), max(0, len(text.source) - 1))
    return text.error(f"{found[1]} is not closed", Span(at, at), f"add {found[1]}")


def _unclosed(text: Text) -> CqlError | None:
    """What begins last and does not end: before it the text can be read."""
    for opening in reversed(list(re.finditer(r"/\*|['\"`]", text.source))):
        try:
            Cql().tokenize(text.source[: opening.start()])
        except TokenError:
            continue
        what, end = ("the comment", "*/") if opening[0] == "/*" else (opening[0], opening[0])
        spot = Span(opening.start(), opening.end() - 1)
        hint = f"add {end}"
        if inside := INSIDE.search(text.source):
            hint = f"a quote inside a text is doubled: '{inside[1]}''{inside[2]}'"
        return text.error(f"{what} is not closed", spot, hint)
    return None


def _statement(text: Text, tree: exp.Expr) -> Statement:
    syntax = tree.meta.get("create")
    if syntax is None:
        return SelectStatement(text, tree)
    if syntax.kind in ("query", "view"):
        select = SelectStatement(text, syntax.query, span=syntax.body, history=syntax.history)
        if syntax.kind == "view":
            return CreateView(syntax.name, select, syntax.span)
        rules = "" if syntax.rules is None else syntax.rules.table
        beginning, replaces = syntax.from_beginning, syntax.replaces
        return CreateQuery(syntax.name, select, beginning, rules, replaces)
    return CreateStream(_definition(text, syntax))


def _definition(text: Text, syntax: CreateSyntax) -> StreamDefinition:
    columns = []
    for name, kind, span in syntax.columns:
        try:
            columns.append(Field(name, canonical(kind)))
        except UsageError as mistake:
            raise text.error(mistake.message, span, mistake.hint) from None
    options: dict[str, Any] = {}
    for key, value, span in syntax.options:
        name, _, below = key.lower().partition(".")
        name = "options" if name == "option" else name
        if name not in OPTIONS:
            raise text.error(
                f"unknown option {key}{did_you_mean(key, OPTIONS)}", span, ", ".join(OPTIONS)
            )
        if below:
            options.setdefault(name, {})[key.partition(".")[2]] = value
        elif name in options:
            raise text.error(f"option {key} is given twice", span)
        else:
            options[name] = _length(text, name, value, span)
    try:
        return StreamDefinition(
            syntax.name,
            tuple(columns),
            str(options.pop("time", "")),
            lateness_us=options.pop("lateness", 0),
            idle_us=options.pop("idle", None),
            max_ahead_us=options.pop("max_ahead", None),
            retain_us=options.pop("retain", None),
            source=options,
        )
    except UsageError as mistake:
        raise text.error(mistake.message, syntax.span, mistake.hint) from None


def _length(text: Text, name: str, value: Any, span: Span) -> Any:
    if name not in ("lateness", "idle", "max_ahead", "retain"):
        return value
    try:
        return microseconds(str(value))
    except UsageError as mistake:
        raise text.error(mistake.message, span, mistake.hint) from None
