"""What stands after a table in FROM: `FOR SYSTEM_TIME AS OF`, and PIVOT.

Decided here: how it is written. What it means is the binder's: it hangs on the item as `meta`.
"""

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millstream.language.cql.parsing.foreign_windows import ForeignWindowParser
from millstream.language.cql.parsing.syntax import PivotSyntax, Span


class TableParser(ForeignWindowParser):
    """Items of FROM with what others write behind a table."""

    def _parse_behind_table(self, item: exp.Expr) -> None:
        """Before or after an alias."""
        if self._texts_follow("FOR", "SYSTEM_TIME"):
            self._advance(2)
            if not self._match_text_seq("AS", "OF"):
                self.raise_error("expected AS OF after FOR SYSTEM_TIME")
            item.meta["as_of"] = self._parse_column()
        elif self._texts_follow("PIVOT", "("):
            item.meta["pivot"] = self._parse_pivot_clause()

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

    def _named(self, made: exp.Expr | None) -> exp.Expr | None:
        """With a name only after AS: `FOR` is none."""
        if made is None or not self._match(TokenType.ALIAS):
            return made
        return self.expression(exp.Alias(this=made, alias=self._parse_id_var(any_token=True)))
