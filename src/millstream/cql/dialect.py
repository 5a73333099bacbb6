"""The CQL dialect: Spark's SQL plus windows in brackets, ISTREAM and its kin, and CREATE.

Functions keep the name the user wrote: which ones exist is Spark's to say, so no table of
functions lives here. What is CQL's own hangs on sqlglot's tree as `meta`: `window` on an item of
FROM, `emit` on a query. Every node knows where it stands in the text (`start`, `end`).
"""

from collections.abc import Callable, Collection
from typing import Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from millstream.cql.durations import microseconds
from millstream.cql.syntax import (
    CqlSyntaxError,
    CreateSyntax,
    EmitSyntax,
    Span,
    WindowSyntax,
)
from millstream.errors import UsageError

T = TypeVar("T")
E = TypeVar("E", bound=exp.Expr)
EMITS = ("ISTREAM", "DSTREAM", "RSTREAM")
RANGE_HINT = (
    "windows are [RANGE 10 SECONDS], [RANGE 1 MINUTE SLIDE 5 SECONDS], [ROWS 10], "
    "[PARTITION BY k ROWS 10], [NOW], [UNBOUNDED]"
)


class CqlParser(SparkParser):
    """Spark's parser, stricter, with CQL's additions."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    STRICT_CAST = True
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": lambda self: self._parse_case()}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parser
        for name, parser in SparkParser.FUNCTION_PARSERS.items()
        if name in ("CAST", "TRY_CAST", "EXTRACT")
    }
    PRIMARY_PARSERS: ClassVar[dict[Any, Any]] = {
        **SparkParser.PRIMARY_PARSERS,
        TokenType.STAR: lambda self, token: self.expression(exp.Star(), token),
    }

    # -- positions and errors ----------------------------------------------------------------

    def expression(
        self, instance: E, token: Token | None = None, comments: list[str] | None = None
    ) -> E:
        made = super().expression(instance, token, comments)
        if "start" not in made.meta and self._prev:
            starts = [c.meta["start"] for c in made.iter_expressions() if "start" in c.meta]
            made.meta["start"] = min([*starts, self._prev.start])
            made.meta["end"] = self._prev.end
        return made

    def raise_error(self, message: str, token: Any = None) -> None:
        spot = token or self._curr
        if spot:
            raise CqlSyntaxError(_readable(message, spot.text), Span(spot.start, spot.end))
        end = len(self.sql.rstrip())
        raise CqlSyntaxError(_readable(message, ""), Span(end, end))

    def fail(self, message: str, span: Span, hint: str = "") -> None:
        raise CqlSyntaxError(message, span, hint)

    def _parse_csv(
        self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA
    ) -> list[T]:
        first = parse_method()
        items = [] if first is None else [first]
        while self._match(sep):
            comma = self._prev
            item = parse_method()
            if item is None:
                raise CqlSyntaxError(
                    "expected something after the comma", Span(comma.start, comma.end)
                )
            items.append(item)
        return items

    # -- statements --------------------------------------------------------------------------

    def _parse_statement(self) -> exp.Expr | None:
        if not self._curr:
            return None
        if self._match(TokenType.CREATE):
            return self._parse_create()
        return self._parse_whole_query()

    def _parse_whole_query(self) -> exp.Expr:
        query = self._parse_emitted() or self._parse_select(nested=True)
        if query is None:
            spot = self._curr or self._prev
            raise CqlSyntaxError(
                f"expected a query, found {spot.text or 'nothing'}",
                Span(spot.start, spot.end),
                "a statement begins with SELECT, WITH, ISTREAM(, CREATE STREAM or CREATE QUERY",
            )
        joined = self._parse_set_operations(query) or query
        result: exp.Expr = self._parse_query_modifiers(joined)
        return result

    def _parse_emitted(self) -> exp.Expr | None:
        """`ISTREAM (SELECT ...)`."""
        if not (self._match_texts(EMITS, advance=False) and self._follows(TokenType.L_PAREN)):
            return None
        emit = self._parse_emit()
        self._match(TokenType.L_PAREN)
        inner = self._parse_whole_query()
        self._match_r_paren()
        while isinstance(inner, exp.Subquery) and not inner.alias and "emit" not in inner.meta:
            inner = inner.this
        self._set_emit(inner, emit)
        return self.expression(exp.Subquery(this=inner))

    def _parse_emit(self) -> EmitSyntax:
        self._advance()
        return EmitSyntax(self._prev.text.lower(), Span(self._prev.start, self._prev.end))

    def _set_emit(self, query: exp.Expr, emit: EmitSyntax) -> None:
        if "emit" in query.meta:
            raise CqlSyntaxError(
                f"{emit.kind.upper()} over {query.meta['emit'].kind.upper()}", emit.span,
                "a query becomes a stream once; put a window on the inner one: "
                "FROM (ISTREAM(...)) [RANGE ...]",
            )  # fmt: skip
        query.meta["emit"] = emit

    def _follows(self, kind: TokenType) -> bool:
        return bool(self._next and self._next.token_type == kind)

    def _parse_create(self) -> exp.Create | exp.Command:
        create = self._prev
        if self._match_text_seq("STREAM"):
            syntax = self._parse_create_stream(create)
        elif self._match_text_seq("QUERY"):
            syntax = self._parse_create_query(create)
        else:
            spot = self._curr or create
            raise CqlSyntaxError(
                f"cannot create {spot.text}", Span(spot.start, spot.end),
                "CREATE STREAM name (columns) WITH (...), or CREATE QUERY name AS SELECT ...",
            )  # fmt: skip
        made = exp.Create(this=exp.Identifier(this=syntax.name), kind=syntax.kind)
        made.meta["create"] = syntax
        return made

    def _name(self, what: str) -> exp.Identifier:
        name = self._parse_id_var(any_token=True)
        if not isinstance(name, exp.Identifier):
            self.raise_error(f"expected the name of a {what}")
        assert isinstance(name, exp.Identifier)
        return name

    def _parse_create_query(self, create: Token) -> CreateSyntax:
        name = self._name("query")
        beginning = self._match_text_seq("FROM", "BEGINNING")
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS")
        query = self._parse_whole_query()
        span = Span(create.start, self._prev.end)
        return CreateSyntax("query", name.name, span, query=query, from_beginning=beginning)

    def _parse_create_stream(self, create: Token) -> CreateSyntax:
        name = self._name("stream")
        if not self._match(TokenType.L_PAREN):
            self.raise_error("expected ( and the columns")
        columns = self._parse_csv(self._parse_stream_column)
        self._match_r_paren()
        options: list[tuple[str, Any, Span]] = []
        if self._match(TokenType.WITH):
            options = self._parse_options()
        span = Span(create.start, self._prev.end)
        return CreateSyntax("stream", name.name, span, tuple(columns), tuple(options))

    def _parse_stream_column(self) -> tuple[str, str, Span]:
        name = self._name("column")
        first, depth = self._curr, 0
        while self._curr:
            text = self._curr.text
            if depth == 0 and self._curr.token_type in (TokenType.COMMA, TokenType.R_PAREN):
                break
            depth += text.count("<") + text.count("(") - text.count(">") - text.count(")")
            self._advance()
        if not first or self._curr is first:
            self.raise_error(f"expected the type of column {name.name}")
        return (name.name, self._find_sql(first, self._prev), Span(first.start, self._prev.end))

    def _parse_options(self) -> list[tuple[str, Any, Span]]:
        if not self._match(TokenType.L_PAREN):
            self.raise_error("expected (")
        options = self._parse_csv(self._parse_option)
        self._match_r_paren()
        return options

    def _parse_option(self) -> tuple[str, Any, Span] | None:
        if not self._curr or self._curr.token_type == TokenType.R_PAREN:
            return None
        first = self._curr
        parts = [first.text]
        self._advance()
        while self._match(TokenType.DOT):
            parts.append(self._curr.text)
            self._advance()
        span = Span(first.start, self._prev.end)
        equals = self._match(TokenType.EQ)
        if self._match(TokenType.L_PAREN, advance=False):
            inner = self._parse_options()
            return (".".join(parts), {key: value for key, value, _ in inner}, span)
        if not equals:
            self.raise_error(f"expected = after {first.text}")
        return (".".join(parts), self._parse_option_value(), span)

    def _parse_option_value(self) -> Any:
        value = self._parse_primary()
        if isinstance(value, exp.Boolean):
            return bool(value.this)
        if isinstance(value, exp.Literal):
            return value.to_py() if value.is_number else value.this
        self.raise_error("expected a text in quotes, a number, TRUE or FALSE")
        raise AssertionError

    # -- select ------------------------------------------------------------------------------

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """Remembers where the name stands, and the whole call."""
        name = self._curr
        made = super()._parse_function_call(*args, **kwargs)
        if made is not None and name:
            inner = made.this if isinstance(made, exp.Filter | exp.Window) else made
            inner.meta["name"] = Span(name.start, name.end)
            made.meta.update(start=name.start, end=self._prev.end)
        return made

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        emit = self._parse_select_emit()
        if emit is None:
            found = self._parse_expressions()
        else:
            found = self._parse_wrapped_projections() or self._parse_expressions()
        if not found:
            self.raise_error("expected the columns to select")
        if emit is not None:
            found[0].meta["select_emit"] = emit
        return found, None

    def _parse_select_emit(self) -> EmitSyntax | None:
        """`SELECT ISTREAM a, b`; a column of that name stays possible."""
        if not self._match_texts(EMITS, advance=False):
            return None
        after = self._next.token_type if self._next else None
        if after in (None, TokenType.COMMA, TokenType.FROM, TokenType.DOT, TokenType.ALIAS):
            return None
        return self._parse_emit()

    def _parse_wrapped_projections(self) -> list[exp.Expr] | None:
        """`ISTREAM(a, b)`, unless the parenthesis only begins the first column."""
        start = self._index
        if not self._match(TokenType.L_PAREN):
            return None
        found = self._parse_expressions()
        if self._match(TokenType.R_PAREN) and (
            not self._curr or self._curr.token_type == TokenType.FROM
        ):
            return found
        self._retreat(start)
        return None

    def _parse_select_query(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        select = super()._parse_select_query(*args, **kwargs)
        if isinstance(select, exp.Select) and select.expressions:
            emit = select.expressions[0].meta.pop("select_emit", None)
            if emit is not None:
                self._set_emit(select, emit)
        return select

    # -- FROM --------------------------------------------------------------------------------

    def _parse_table(
        self, *_: Any, alias_tokens: Collection[TokenType] | None = None, **__: Any
    ) -> exp.Expr | None:
        """A stream or a subquery, with its window before or after its alias."""
        item = self._parse_from_item()
        before = self._parse_window_brackets()
        alias = self._parse_item_alias(alias_tokens or self.TABLE_ALIAS_TOKENS)
        if alias is not None:
            item.set("alias", alias)
        after = self._parse_window_brackets()
        if before and after:
            raise CqlSyntaxError("two windows on one stream", after.span, "keep one of them")
        window = before or after
        item.meta["end"] = self._prev.end
        if window is not None:
            item.meta["window"] = window
        return item

    def _parse_item_alias(self, tokens: Collection[TokenType]) -> exp.TableAlias | None:
        if self._can_parse_limit_or_offset():
            return None
        explicit = self._match(TokenType.ALIAS)
        name = self._parse_id_var(any_token=explicit, tokens=tokens)
        if explicit and not isinstance(name, exp.Identifier):
            self.raise_error("expected a name after AS")
        return exp.TableAlias(this=name) if name else None

    def _parse_from_item(self) -> exp.Expr:
        if self._match_texts(EMITS, advance=False) and self._follows(TokenType.L_PAREN):
            return self._parse_emitted() or exp.Subquery()
        if self._match(TokenType.L_PAREN):
            opening = self._prev
            inner = self._parse_whole_query()
            self._match_r_paren()
            made = self.expression(exp.Subquery(this=inner))
            made.meta["start"] = opening.start
            return made
        name = self._parse_id_var(any_token=False) if self._curr else None
        if not isinstance(name, exp.Identifier):
            self.raise_error("expected a stream or a subquery")
        assert isinstance(name, exp.Identifier)
        if self._match(TokenType.NUMBER):  # D-CAPE section 3.1 writes `Sensor 1` for Sensor1
            name = exp.Identifier(this=name.name + self._prev.text, quoted=True)
            name.meta.update(start=self._prev.start, end=self._prev.end)
        return self.expression(exp.Table(this=name))

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        if self._match(TokenType.COMMA):  # sqlglot would swallow what is wrong after it
            return self.expression(exp.Join(this=self._parse_table(alias_tokens=alias_tokens)))
        first = self._curr
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if join is not None:
            join.meta["start"] = first.start
        return join

    # -- windows -----------------------------------------------------------------------------

    def _parse_window_brackets(self) -> WindowSyntax | None:
        if not self._match(TokenType.L_BRACKET):
            return None
        opening = self._prev
        if not any(t.token_type == TokenType.R_BRACKET for t in self._tokens[self._index :]):
            raise CqlSyntaxError(
                "the window's bracket is not closed", Span(opening.start, opening.end), "add ]"
            )
        window = self._parse_window_body(opening)
        if not self._match(TokenType.R_BRACKET):
            spot = self._curr
            raise CqlSyntaxError(
                f"unexpected {spot.text} in a window", Span(spot.start, spot.end), RANGE_HINT
            )
        return window

    def _parse_window_body(self, opening: Token) -> WindowSyntax:
        partition: list[exp.Expr] = []
        first = self._curr
        if self._match(TokenType.PARTITION_BY) or self._match_text_seq("PARTITION", "BY"):
            partition = self._parse_csv(self._parse_bitwise)
            if not self._match_text_seq("ROWS", advance=False):
                raise CqlSyntaxError(
                    "PARTITION BY needs ROWS", Span(first.start, self._prev.end), RANGE_HINT
                )
        kind = self._curr.text.upper() if self._curr else ""
        self._advance()
        slide_us, slide_span, length_us, count = None, None, 0, 0
        if kind == "RANGE" and self._match_text_seq("UNBOUNDED"):
            kind = "UNBOUNDED"
        elif kind == "RANGE":
            length_us, _ = self._parse_duration("RANGE")
        elif kind == "ROWS" and self._match_text_seq("UNBOUNDED"):
            kind = "UNBOUNDED"
        elif kind == "ROWS":
            count = self._parse_row_count()
        elif kind not in ("NOW", "UNBOUNDED"):
            raise CqlSyntaxError(
                "an empty window" if kind == "]" else f"unknown window {kind}",
                Span(first.start, max(first.start, self._prev.end)), RANGE_HINT,
            )  # fmt: skip
        if self._match_text_seq("SLIDE"):
            slide_us, slide_span = self._parse_duration("SLIDE")
        return WindowSyntax(
            kind.lower(), Span(opening.start, self._curr.end if self._curr else self._prev.end),
            length_us, count, tuple(partition), slide_us, slide_span,
        )  # fmt: skip

    def _parse_row_count(self) -> int:
        spot = self._curr
        self._advance()
        text = spot.text if spot else ""
        if not text.isdigit() or int(text) == 0:
            raise CqlSyntaxError(
                f"a window of {text or 'no'} rows",
                Span(spot.start, spot.end), "ROWS takes a whole number above 0",
            )  # fmt: skip
        return int(text)

    def _parse_duration(self, word: str) -> tuple[int, Span]:
        """The text up to SLIDE or the bracket, read as a length of time."""
        keyword, first = self._prev, self._curr
        while (
            self._curr
            and self._curr.token_type != TokenType.R_BRACKET
            and not self._match_text_seq("SLIDE", advance=False)
        ):
            self._advance()
        if self._prev is keyword:
            raise CqlSyntaxError(
                f"{word} needs a length of time", Span(keyword.start, keyword.end), RANGE_HINT
            )
        span = Span(first.start, self._prev.end)
        text = self.sql[span.start : span.end + 1]
        try:
            length_us = microseconds(text)
        except UsageError as mistake:
            raise CqlSyntaxError(mistake.message, span, mistake.hint) from None
        if length_us <= 0:
            raise CqlSyntaxError(
                f"{word} {text} is not above zero", span,
                "use [NOW] for rows of the same instant" if word == "RANGE" else "",
            )  # fmt: skip
        return length_us, span

    # -- precedence as Spark has it: * / % DIV, + - ||, << >>, &, ^, | -----------------------

    def _parse_term(self, parse_mod: bool = True) -> exp.Expr | None:
        this = self._parse_factor(parse_mod=parse_mod)
        while self._match_set((TokenType.PLUS, TokenType.DASH, TokenType.DPIPE)):
            operator = self._prev.token_type
            right = self._parse_factor(parse_mod=parse_mod)
            kind = {TokenType.PLUS: exp.Add, TokenType.DASH: exp.Sub}.get(operator, exp.DPipe)
            this = self.expression(kind(this=this, expression=right))
        return this

    def _parse_bitwise(self) -> exp.Expr | None:
        return self._binary_level(
            TokenType.PIPE, exp.BitwiseOr,
            lambda: self._binary_level(
                TokenType.CARET, exp.BitwiseXor,
                lambda: self._binary_level(TokenType.AMP, exp.BitwiseAnd, self._parse_term),
            ),
        )  # fmt: skip

    def _binary_level(
        self, token: TokenType, kind: type[exp.Binary], operand: Callable[[], exp.Expr | None]
    ) -> exp.Expr | None:
        this = operand()
        while self._match(token):
            this = self.expression(kind(this=this, expression=operand()))
        return this


def _readable(message: str, token: str) -> str:
    """sqlglot's wording made plain."""
    found = f", found {token}" if token else ", but the text ends"
    if message == "Expected TYPE after CAST":
        return f"unknown type {token}"
    if message == "Expected END after CASE":
        return "CASE is not closed by END"
    if message.startswith(("Expecting ", "Expected ", "expected ")):
        return "expected " + message.split(" ", 1)[1] + found
    if message.startswith("Required "):
        return "expected an expression" + found
    if "Unexpected token" in message:
        return f"unexpected {token}" if token else "the text ends too early"
    return message[:1].lower() + message[1:]


class Cql(Spark):
    """The dialect; sqlglot knows it as `cql`."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']  # 'it''s', as Spark 4 reads it
        COMMANDS: ClassVar[set[TokenType]] = set()

    Parser = CqlParser
