"""The CQL dialect: Spark's SQL plus windows in brackets, ISTREAM and its kin, and CREATE.

Functions keep the name the user wrote: which ones exist is Spark's to say, so no table of
functions lives here. What is CQL's own hangs on sqlglot's tree as `meta`: `window` on an item of
FROM, `emit` on a query. Every node knows where it stands in the text (`start`, `end`).
"""

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from millstream.language.cql.parsing.match_parser import MatchParser
from millstream.language.cql.parsing.placed_parser import STATEMENTS
from millstream.language.cql.parsing.rules import mark_rules
from millstream.language.cql.parsing.syntax import CqlSyntaxError, EmitSyntax, RulesSyntax, Span
from millstream.language.cql.parsing.table_parser import WORDED, TableParser
from millstream.language.cql.parsing.unnesting import FUNCTIONS, UnnestSyntax

TAKING_LAMBDAS = frozenset(
    {"transform", "filter", "exists", "forall", "aggregate", "reduce", "zip_with", "array_sort"}
    | {"map_filter", "map_zip_with", "transform_keys", "transform_values"}
)
EMITS = ("ISTREAM", "DSTREAM", "RSTREAM")
STATEMENT_HINT = (
    "a statement begins with SELECT, WITH, ISTREAM(, CREATE STREAM, CREATE QUERY or CREATE VIEW"
)


class CqlParser(MatchParser, TableParser):
    """Queries: ISTREAM and its kin, items of FROM, and Spark's precedence."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    STRICT_CAST = True
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": lambda self: self._parse_case()}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parser
        for name, parser in SparkParser.FUNCTION_PARSERS.items()
        if name in ("CAST", "TRY_CAST", "EXTRACT")
    } | WORDED
    PRIMARY_PARSERS: ClassVar[dict[Any, Any]] = {
        **SparkParser.PRIMARY_PARSERS,
        TokenType.STAR: lambda self, token: self._with_changes(self.expression(exp.Star(), token)),
    }

    # -- statements --------------------------------------------------------------------------

    def _parse_statement(self) -> exp.Expr | None:
        if not self._curr:
            return None
        if self._match(TokenType.CREATE):
            return self._parse_create()
        if self._curr.text.upper() in STATEMENTS:  # sqlglot takes DESCRIBE for a query
            self._refuse_statement()
        return self._parse_whole_query()

    def _parse_whole_query(self) -> exp.Expr:
        query = self._parse_emitted() or self._parse_select(nested=True)
        if query is None:
            self._refuse_statement()
        assert query is not None
        joined = self._parse_set_operations(query) or query
        result: exp.Expr = self._parse_query_modifiers(joined)
        refinement = self._parse_refinement()
        if refinement is not None:
            result.meta["refinement"] = refinement
        self._parse_for_each(result)
        return result

    def _refuse_statement(self) -> None:
        spot = self._curr or self._prev
        raise CqlSyntaxError(
            f"expected a query, found {spot.text or 'nothing'}",
            Span(spot.start, spot.end),
            STATEMENTS.get(spot.text.upper(), STATEMENT_HINT),
        )

    def _parse_for_each(self, query: exp.Expr) -> None:
        """`FOR EACH table` behind a query with parameters."""
        if not self._match_text_seq("FOR", "EACH"):
            return
        first = self._curr
        name = self._parse_id_var(any_token=False) if first else None
        if not isinstance(name, exp.Identifier):
            self.raise_error("expected a rule table after FOR EACH")
        assert isinstance(name, exp.Identifier)
        mark_rules(query, RulesSyntax(name.name, Span(first.start, self._prev.end)))

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

    # -- select ------------------------------------------------------------------------------

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """Remembers where the name stands, and the whole call.

        Only functions over arrays and maps take `x -> ...`: elsewhere it is a part of JSON.
        """
        name, known = self._curr, vars(self).get("LAMBDAS", SparkParser.LAMBDAS)
        takes = name is None or name.text.lower() in TAKING_LAMBDAS
        vars(self)["LAMBDAS"] = SparkParser.LAMBDAS if takes else {}
        try:
            made = super()._parse_function_call(*args, **kwargs)
        finally:
            vars(self)["LAMBDAS"] = known
        if made is not None and name:
            inner = made.this if isinstance(made, exp.Filter | exp.Window) else made
            inner.meta["name"] = Span(name.start, name.end)
            made.meta.update(start=name.start, end=self._prev.end)
        return made

    def _with_changes(self, star: exp.Star) -> exp.Star:
        """`* EXCEPT (a, b)`, `* EXCLUDE (a)`, `* REPLACE (a + 1 AS a)`."""
        if self._texts_follow("EXCEPT", "(") or self._texts_follow("EXCLUDE", "("):
            self._advance(2)
            star.meta["except"] = self._parse_csv(lambda: self._parse_id_var(any_token=True))
            self._match_r_paren()
        if self._texts_follow("REPLACE", "("):
            self._advance(2)
            star.meta["replace"] = self._parse_csv(self._parse_expression)
            self._match_r_paren()
        return star

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
        unnest = self._parse_elements()
        if unnest is not None:
            return unnest
        item = self._parse_table_function() or self._parse_from_item()
        before = item.meta.get("window") or self._parse_window_brackets()
        self._parse_behind_table(item)
        alias = self._parse_item_alias(alias_tokens or self.TABLE_ALIAS_TOKENS)
        if alias is None and "own_name" in item.meta:
            alias = exp.TableAlias(this=item.meta.pop("own_name"))
        if alias is not None:
            item.set("alias", alias)
        after = self._parse_window_brackets() or self._parse_trailing_window()
        self._parse_behind_table(item)
        if before and after:
            raise CqlSyntaxError("two windows on one stream", after.span, "keep one of them")
        window = before or after
        within = self._parse_joined_within()
        if within is not None:
            item.meta["within"] = within
        item.meta["end"] = self._prev.end
        if window is not None:
            item.meta["window"] = window
        return self._with_match(item, alias_tokens) if self._at_match() else item

    def _with_match(self, item: exp.Expr, alias_tokens: Collection[TokenType] | None) -> exp.Expr:
        """`s MATCH_RECOGNIZE (...) [AS] m [RANGE ...]`."""
        made = self._parse_match(item)
        alias = self._parse_item_alias(alias_tokens or self.TABLE_ALIAS_TOKENS)
        if alias is not None:
            made.set("alias", alias)
        window = self._parse_window_brackets()
        if window is not None:
            made.meta["window"] = window
        made.meta["end"] = self._prev.end
        return made

    def _parse_elements(self) -> exp.Expr | None:
        """`UNNEST(a) [WITH ORDINALITY] [AS] t(x, n)`, `LATERAL explode(a) AS t(x)`."""
        first, wrapped = self._curr, False
        if self._texts_follow("LATERAL", "TABLE", "("):  # as Flink has it
            wrapped = True
            self._advance(3)
        elif self._texts_follow("LATERAL") and self._next and self._next.text.lower() in FUNCTIONS:
            self._advance()
        word = self._curr.text.lower() if self._curr else ""
        if word not in FUNCTIONS or not self._follows(TokenType.L_PAREN):
            if wrapped:
                self.raise_error("expected UNNEST or explode in LATERAL TABLE")
            return None
        self._advance(2)
        array = self._parse_expression()
        self._match_r_paren()
        if wrapped:
            self._match_r_paren()
        if array is None:
            self.raise_error("expected an array")
        assert array is not None
        ordinality = bool(self._match_text_seq("WITH", "ORDINALITY"))
        explicit = self._match(TokenType.ALIAS)
        name = self._parse_id_var(any_token=explicit, tokens=self.TABLE_ALIAS_TOKENS)
        columns: list[exp.Expr] = []
        if self._match(TokenType.L_PAREN):
            columns = self._parse_csv(lambda: self._parse_id_var(any_token=True))
            self._match_r_paren()
        item = exp.Table(this=exp.to_identifier("unnest"))
        item.meta.update(start=first.start, end=self._prev.end)
        span = Span(first.start, self._prev.end)
        item.meta["unnest"] = UnnestSyntax(
            array, span, name.name if name is not None else None,
            tuple(c.name for c in columns), ordinality, word == "explode_outer",
        )  # fmt: skip
        return item

    def _parse_item_alias(self, tokens: Collection[TokenType]) -> exp.TableAlias | None:
        if self._can_parse_limit_or_offset() or self._at_refinement() or self._at_match():
            return None
        if self._at_within():
            return None
        self._refuse_watermark()
        explicit = self._match(TokenType.ALIAS)
        name = self._parse_id_var(any_token=explicit, tokens=tokens)
        if explicit and not isinstance(name, exp.Identifier):
            self.raise_error("expected a name after AS")
        if not name:
            return None
        if not self._match(TokenType.L_PAREN):
            return exp.TableAlias(this=name)
        columns = self._parse_csv(lambda: self._parse_id_var(any_token=True))
        self._match_r_paren()
        return exp.TableAlias(this=name, columns=columns)

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
        if self._match(TokenType.STRING, advance=False) and self.sql[self._curr.start] == '"':
            self._curr.token_type = TokenType.IDENTIFIER
        name = self._parse_id_var(any_token=False) if self._curr else None
        if not isinstance(name, exp.Identifier) and self._texts_follow("LATERAL", "("):
            spot = self._curr
            raise CqlSyntaxError(
                "LATERAL with a subquery", Span(spot.start, spot.end),
                "take its value: SELECT (SELECT max(x) FROM t WHERE t.k = s.k) AS most FROM s",
            )  # fmt: skip
        if not isinstance(name, exp.Identifier):
            self.raise_error("expected a stream or a subquery")
        assert isinstance(name, exp.Identifier)
        if self._match(TokenType.NUMBER):  # D-CAPE section 3.1 writes `Sensor 1` for Sensor1
            name = exp.Identifier(this=name.name + self._prev.text, quoted=True)
            name.meta.update(start=self._prev.start, end=self._prev.end)
        system = name.name.lower() == "sys" or self._texts_follow(".", "UNMATCHED")
        if system and self._match(TokenType.DOT):
            return self._parse_system_stream(name)
        return self.expression(exp.Table(this=name))

    def _parse_system_stream(self, prefix: exp.Identifier) -> exp.Expr:
        """`sys.steps`, `people.unmatched`; without another name, it is called `steps`."""
        part = self._parse_id_var(any_token=True) if self._curr else None
        if not isinstance(part, exp.Identifier):
            self.raise_error("expected the name of a system stream")
        assert isinstance(part, exp.Identifier)
        whole = exp.Identifier(this=f"{prefix.name}.{part.name}", quoted=True)
        whole.meta.update(start=prefix.meta.get("start"), end=part.meta.get("end"))
        made = self.expression(exp.Table(this=whole))
        made.meta["own_name"] = part
        return made

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

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        """Both bounds have to be there: sqlglot also takes `BETWEEN 1 5`."""
        symmetric = self._match_text_seq("SYMMETRIC")
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.raise_error("expected AND between the bounds of BETWEEN")
        high = self._parse_bitwise()
        return self.expression(exp.Between(this=this, low=low, high=high, symmetric=symmetric))

    def _binary_level(
        self, token: TokenType, kind: type[exp.Binary], operand: Callable[[], exp.Expr | None]
    ) -> exp.Expr | None:
        this = operand()
        while self._match(token):
            this = self.expression(kind(this=this, expression=operand()))
        return this


def mark_names(tokens: list[Token], source: str) -> None:
    """Words in double quotes after AS or beside a dot are names; elsewhere they are texts."""
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        named = before is not None and before.token_type in (TokenType.ALIAS, TokenType.DOT)
        named = named or (after is not None and after.token_type is TokenType.DOT)
        if named and token.token_type is TokenType.STRING and source[token.start] == '"':
            token.token_type = TokenType.IDENTIFIER


class Cql(Spark):
    """The dialect; sqlglot knows it as `cql`."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']  # 'it''s', as Spark 4 reads it
        COMMANDS: ClassVar[set[TokenType]] = set()

    Parser = CqlParser
