"""What stands after a table in FROM: `FOR SYSTEM_TIME AS OF`, and PIVOT; arguments with words.

Decided here: how it is written. What it means is the binder's: it hangs on the item as `meta`.
`SUBSTRING(t FROM 2 FOR 3)` and its kin become calls with commas.
"""

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millstream.language.cql.parsing.foreign_windows import ForeignWindowParser
from millstream.language.cql.parsing.syntax import UNIT_CALLS, CqlSyntaxError, PivotSyntax, Span

UNITS = frozenset(
    {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"}
    | {"MILLISECOND", "MICROSECOND"}
)
AS_OF_HINT = "the table as of each row of s: FROM s JOIN t FOR SYSTEM_TIME AS OF s.ts ON s.k = t.k"


class TableParser(ForeignWindowParser):
    """Items of FROM with what others write behind a table."""

    def _parse_behind_table(self, item: exp.Expr) -> None:
        """Before or after an alias."""
        if self._texts_follow("FOR", "SYSTEM_TIME"):
            self._advance(2)
            if not self._match_text_seq("AS", "OF"):
                self.raise_error("expected AS OF after FOR SYSTEM_TIME")
            item.meta["as_of"] = self._parse_row_time()
        elif self._texts_follow("PIVOT", "("):
            item.meta["pivot"] = self._parse_pivot_clause()

    def _parse_row_time(self) -> exp.Expr:
        """The time of a row of another item; a fixed time is none."""
        first, made = self._curr, self._parse_bitwise()
        if not isinstance(made, exp.Column | exp.Anonymous) and first:
            raise CqlSyntaxError(
                "FOR SYSTEM_TIME AS OF a time that is not a row's",
                Span(first.start, self._prev.end), AS_OF_HINT,
            )  # fmt: skip
        assert made is not None
        return made

    def _parse_pivot_clause(self) -> PivotSyntax:
        """`PIVOT (sum(v) AS s, count(*) FOR k IN ('a' AS x, 'b'))`."""
        first = self._curr
        self._advance(2)
        calls = self._parse_csv(lambda: self._named(self._parse_function()))
        if not self._match_text_seq("FOR"):
            self.raise_error("expected FOR after the aggregates of PIVOT")
        column = self._parse_column()
        if not self._match(TokenType.IN) or not self._match(TokenType.L_PAREN):
            self.raise_error("expected IN ( after the column of PIVOT")
        values = self._parse_csv(lambda: self._named(self._parse_disjunction()))
        self._match_r_paren()
        self._match_r_paren()
        span = Span(first.start, self._prev.end)
        return PivotSyntax(tuple(calls), column, tuple(values), span)

    # -- arguments with words between them ---------------------------------------------------

    def _operand(self) -> exp.Expr:
        found = self._parse_bitwise()
        if found is None:
            self.raise_error("Required argument")
        assert found is not None
        return found

    def _parse_trimmed(self) -> exp.Expr:
        """`TRIM(BOTH 'x' FROM t)`, `TRIM(t)`."""
        side = self._curr.text.upper() if self._curr else ""
        name = {"BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "")
        if not name or self._follows(TokenType.R_PAREN) or self._follows(TokenType.COMMA):
            name = ""
        else:
            self._advance()
        if name and self._match(TokenType.FROM):
            return exp.Anonymous(this=name, expressions=[self._operand()])
        args = self._parse_csv(self._operand)
        if len(args) == 1 and self._match(TokenType.FROM):
            text, name = self._operand(), name or "btrim"
            args = [text, *args] if name == "btrim" else [*args, text]
        return exp.Anonymous(this=name or "trim", expressions=args)

    def _parse_worded(self, name: str, *words: str) -> exp.Expr:
        """`SUBSTRING(t FROM 2 FOR 3)`: each word may stand for a comma."""
        args = self._parse_csv(self._parse_lambda)
        for word in words:
            if self._match_text_seq(word):
                args.append(self._operand())
        return exp.Anonymous(this=name, expressions=args)

    def _parse_part_of_json(self) -> exp.Expr:
        """`JSON_VALUE(j, '$.a' RETURNING INT NULL ON EMPTY)`: what is missing is NULL anyway."""
        made: exp.Expr = exp.Anonymous(
            this="json_value", expressions=self._parse_csv(self._parse_lambda)
        )
        wanted = self._parse_types() if self._match_text_seq("RETURNING") else None
        while self._texts_follow("NULL", "ON"):
            self._advance(2)
            if not self._match_texts(("EMPTY", "ERROR")):
                self.raise_error("expected EMPTY or ERROR")
        if self._match_texts(("DEFAULT", "ERROR"), advance=False):
            word = self._curr
            raise CqlSyntaxError(
                f"{word.text} in JSON_VALUE is not supported", Span(word.start, word.end),
                "what is missing is NULL: coalesce(JSON_VALUE(j, '$.a'), '0') has a default",
            )  # fmt: skip
        if wanted is None:
            return made
        return self.expression(exp.TryCast(this=made, to=wanted))

    def _parse_place(self) -> exp.Expr:
        """`POSITION('a' IN t)`."""
        args = [self._operand()]
        while self._match(TokenType.IN) or self._match(TokenType.COMMA):
            args.append(self._operand())
        return exp.Anonymous(this="position", expressions=args)

    def _parse_concatenated(self) -> exp.Expr:
        """`GROUP_CONCAT(x ORDER BY y SEPARATOR ';')`, as MySQL has it."""
        args: list[Any] = self._parse_csv(self._parse_lambda)
        if not args or not self._match_text_seq("SEPARATOR"):
            return exp.Anonymous(this="group_concat", expressions=args)
        separator, last = self._operand(), args[-1]
        order = last if isinstance(last, exp.Order) else None
        listed = last if order is None else order.this
        if isinstance(listed, exp.Distinct):
            listed.append("expressions", separator)
        else:
            args = [listed, order or separator]
            if order is not None:  # behind the separator, as in string_agg
                order.set("this", separator)
        return exp.Anonymous(this="group_concat", expressions=args)

    def _parse_unit_call(self, name: str) -> exp.Expr:
        """`TIMESTAMPDIFF(MINUTE, a, b)`: the first argument is a unit."""
        args: list[Any] = []
        word = self._curr.text.upper() if self._curr else ""
        if word in UNITS and self._follows(TokenType.COMMA):
            self._advance(2)
            args.append(exp.Var(this=word))
        return exp.Anonymous(this=name, expressions=[*args, *self._parse_csv(self._parse_lambda)])

    def _named(self, made: exp.Expr | None) -> exp.Expr | None:
        """With a name only after AS: `FOR` is none."""
        if made is None or not self._match(TokenType.ALIAS):
            return made
        return self.expression(exp.Alias(this=made, alias=self._parse_id_var(any_token=True)))


def _with_unit(name: str) -> Callable[[Any], exp.Expr]:
    return lambda self: TableParser._parse_unit_call(self, name)


WORDED: dict[str, Callable[[Any], exp.Expr]] = {
    "TRIM": TableParser._parse_trimmed,
    "SUBSTRING": lambda self: TableParser._parse_worded(self, "substring", "FROM", "FOR"),
    "SUBSTR": lambda self: TableParser._parse_worded(self, "substr", "FROM", "FOR"),
    "OVERLAY": lambda self: TableParser._parse_worded(self, "overlay", "PLACING", "FROM", "FOR"),
    "POSITION": TableParser._parse_place,
    "JSON_VALUE": TableParser._parse_part_of_json,
    "GROUP_CONCAT": TableParser._parse_concatenated,
    **{name.upper(): _with_unit(name) for name in UNIT_CALLS},
}
