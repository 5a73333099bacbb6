"""CREATE STREAM, CREATE QUERY, CREATE RULES and CREATE VIEW."""

from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.language.cql.parsing.rules import mark_rules
from millstream.language.cql.parsing.syntax import (
    CqlSyntaxError,
    CreateSyntax,
    RulesSyntax,
    Span,
)
from millstream.language.cql.parsing.window_parser import WindowParser

CREATE_HINT = (
    "CREATE STREAM name (columns) WITH (...), CREATE [OR REPLACE] QUERY name AS SELECT ..., "
    "CREATE RULES name FROM table AS SELECT ..., or CREATE VIEW name AS SELECT ..."
)
TABLE_HINT = (
    "a stream: CREATE STREAM name (columns) WITH (...); a query's table: CREATE QUERY name AS "
    "SELECT ...; a table of constants: CREATE VIEW name AS SELECT * FROM (VALUES ...) AS v (a, b)"
)
QUERY_HINT = "CREATE QUERY name AS SELECT ..."
# What others create, and what does the same here.
HINTS = {
    "TABLE": TABLE_HINT,
    "MATERIALIZED": QUERY_HINT,
    "SINK": f"{QUERY_HINT}; the job file says where its rows go: [queries.name.sink]",
    **dict.fromkeys(("TEMPORARY", "TEMP"), "CREATE VIEW name AS SELECT ..."),
    **dict.fromkeys(("SOURCE", "EXTERNAL"), "CREATE STREAM name (columns) WITH (...)"),
    "FUNCTION": "register it in Python: session.register_function(name, function, returns)",
}


class CreateParser(WindowParser):
    """Parses statements that declare something."""

    def _parse_whole_query(self) -> exp.Expr:
        raise NotImplementedError

    def _parse_create(self) -> exp.Create | exp.Command:
        create = self._prev
        if self._match_text_seq("OR", "REPLACE"):
            syntax = self._parse_replacing(create)
        elif self._match_text_seq("STREAM"):
            syntax = self._parse_create_stream(create)
        elif self._match_text_seq("QUERY"):
            syntax = self._parse_create_query(create)
        elif self._match_text_seq("RULES"):
            syntax = self._parse_create_rules(create)
        elif self._match_text_seq("VIEW"):
            syntax = self._parse_create_view(create)
        else:
            spot = self._curr or create
            raise CqlSyntaxError(
                f"cannot create {spot.text}", Span(spot.start, spot.end),
                HINTS.get(spot.text.upper(), CREATE_HINT),
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

    def _parse_replacing(self, create: Token) -> CreateSyntax:
        """`CREATE OR REPLACE QUERY name AS query`: nothing else can be replaced."""
        if not self._match_text_seq("QUERY"):
            spot = self._curr or create
            raise CqlSyntaxError(
                f"cannot replace {spot.text}", Span(spot.start, spot.end),
                "CREATE OR REPLACE QUERY name AS SELECT ...; who reads a view keeps its definition",
            )  # fmt: skip
        return replace(self._parse_create_query(create), replaces=True)

    def _parse_create_query(self, create: Token) -> CreateSyntax:
        name = self._name("query")
        beginning = self._match_text_seq("FROM", "BEGINNING")
        query, body = self._parse_body()
        span = Span(create.start, body.end)
        return CreateSyntax(
            "query", name.name, span, query=query, from_beginning=beginning, body=body
        )

    def _parse_create_rules(self, create: Token) -> CreateSyntax:
        """`CREATE RULES name FROM table [FROM BEGINNING] AS query`."""
        name = self._name("rule set")
        if not self._match(TokenType.FROM):
            self.raise_error("expected FROM and a rule table")
        first = self._curr
        table = self._name("rule table")
        rules = RulesSyntax(table.name, Span(first.start, self._prev.end))
        beginning = self._match_text_seq("FROM", "BEGINNING")
        query, body = self._parse_body()
        mark_rules(query, rules)
        span = Span(create.start, body.end)
        return CreateSyntax(
            "query", name.name, span, query=query, from_beginning=bool(beginning), body=body,
            rules=rules,
        )  # fmt: skip

    def _parse_create_view(self, create: Token) -> CreateSyntax:
        name = self._name("view")
        query, body = self._parse_body()
        return CreateSyntax("view", name.name, Span(create.start, body.end), query=query, body=body)

    def _parse_body(self) -> tuple[exp.Expr, Span]:
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS")
        first = self._curr
        query = self._parse_whole_query()
        return query, Span(first.start if first else 0, self._prev.end)

    def _parse_create_stream(self, create: Token) -> CreateSyntax:
        name = self._name("stream")
        if not self._match(TokenType.L_PAREN):
            spot = self._curr
            if spot and spot.text.upper() in ("AS", "WITH"):
                raise CqlSyntaxError(
                    "a stream made by a query", Span(spot.start, spot.end),
                    f"CREATE QUERY {name.name} AS SELECT ...; others read it by its name",
                )  # fmt: skip
            self.raise_error("expected ( and the columns")
        options: list[tuple[str, Any, Span]] = []
        columns: list[tuple[str, str, Span]] = []
        self._parse_csv(lambda: self._parse_stream_part(columns, options))
        self._match_r_paren()
        if self._match(TokenType.WITH):
            options += self._parse_options()
        span = Span(create.start, self._prev.end)
        return CreateSyntax("stream", name.name, span, tuple(columns), tuple(options))

    def _parse_stream_part(
        self, columns: list[tuple[str, str, Span]], options: list[tuple[str, Any, Span]]
    ) -> bool:
        if not self._parse_watermark(options):
            columns.append(self._parse_stream_column())
        return True

    def _parse_watermark(self, options: list[tuple[str, Any, Span]]) -> bool:
        """`WATERMARK FOR at AS at - INTERVAL '5' SECOND` among the columns: time and lateness."""
        if not self._match_text_seq("WATERMARK", "FOR"):
            return False
        time = self._name("column")
        if not self._match(TokenType.ALIAS):
            self.raise_error("expected AS and the watermark")
        first = self._curr
        if self._name("column").name.lower() != time.name.lower():
            raise CqlSyntaxError(
                "a watermark that is not of its own column", Span(first.start, first.end),
                f"WATERMARK FOR {time.name} AS {time.name} - INTERVAL '5' SECOND",
            )  # fmt: skip
        options.append(("time", time.name, Span(first.start, first.end)))
        if self._match(TokenType.DASH):
            begin = self._curr
            while self._curr and self._curr.token_type not in (TokenType.COMMA, TokenType.R_PAREN):
                self._advance()
            span = Span(begin.start, self._prev.end)
            options.append(("lateness", self.sql[span.start : span.end + 1], span))
        return True

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
