"""Conditions that hang on rows matched before, as terms for the machine that walks along a match.

What hangs on the row at hand alone stays Spark's, as one more leaf; the operators above are few,
and have Spark's meaning (`spark/operators/matching/terms.py`).
"""

from sqlglot import exp

from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.expressions import span_of
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.types import INTEGERS
from millstream.language.plan.expressions import (
    COMPARISONS,
    Call,
    Cast,
    Column,
    Expr,
    columns_of,
    transform,
)
from millstream.language.plan.row_patterns import Leaf, Term
from millstream.language.plan.schema import Schema
from millstream.language.plan.sql_text import sql

LOGICAL = frozenset({*COMPARISONS, "and", "or", "not", "in", "is_null", "is_not_null"})
ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "abs"})
CHOOSING = frozenset({"coalesce", "case", "if"})
SCALARS = frozenset({"boolean", "string", "date", "timestamp", "double", "float", "void", "binary"})
HINT = "compute it where the row is: LAST(upper(A.name))"


class TermMaker:
    """Turns expressions over columns and slots into terms over leaves."""

    def __init__(
        self,
        text: Text,
        analyzer: Analyzer,
        schema: Schema,
        numbers: dict[int, int],
        leaves: list[Leaf],
        move: dict[int, Expr],
    ) -> None:
        self._text, self._analyzer, self._schema = text, analyzer, schema
        self._numbers, self._move = numbers, move
        self.leaves = leaves

    def hangs_on_others(self, expr: Expr) -> bool:
        return bool(columns_of(expr) & self._numbers.keys())

    def term(self, expr: Expr, at: exp.Expr) -> Term | int:
        if isinstance(expr, Column) and expr.index in self._numbers:
            number = self._numbers[expr.index]
            self._refuse_type(self.leaves[number].type, at)
            return number
        if not self.hangs_on_others(expr):
            return self._own(expr, at)
        type_ = self._type(expr)
        if isinstance(expr, Call) and (
            expr.name in LOGICAL | CHOOSING or (expr.name in ARITHMETIC and self._reckons(expr))
        ):
            return Term(expr.name, type_, tuple(self.term(arg, at) for arg in expr.args))
        exact = type_ == "double" or type_.startswith("decimal")
        if isinstance(expr, Cast) and exact and self._number(self._type(expr.arg)):
            return Term("cast", type_, (self.term(expr.arg, at),))
        what = expr.name.partition("@")[0] if isinstance(expr, Call) else "a cast"
        raise self._text.error(f"{what} over rows of another variable", span_of(at), HINT)

    def _own(self, expr: Expr, at: exp.Expr) -> int:
        """A value of the row at hand."""
        type_ = self._type(expr)
        self._refuse_type(type_, at)
        moved = transform(
            expr, lambda e: self._move.get(e.index) if isinstance(e, Column) else None
        )
        leaf = Leaf("current", None, moved, type_)
        if leaf not in self.leaves:
            self.leaves.append(leaf)
        return self.leaves.index(leaf)

    def _type(self, expr: Expr) -> str:
        (type_,) = self._analyzer.analyse(self._schema, [sql(expr)])
        return type_

    def _refuse_type(self, type_: str, at: exp.Expr) -> None:
        if type_ in SCALARS or self._number(type_) or type_.startswith("interval"):
            return
        raise self._text.error(
            f"a value of type {type_} of another row", span_of(at), "compare its parts"
        )

    def _number(self, type_: str) -> bool:
        return type_ in INTEGERS or type_ in ("double", "float") or type_.startswith("decimal")

    def _reckons(self, call: Call) -> bool:
        """Whether the machine has the arithmetic of these types."""
        types = [self._type(arg) for arg in call.args]
        result = self._type(call)
        if all(self._number(t) for t in types):
            return result != "float"
        timed = all(t == "timestamp" or t.startswith("interval") for t in types)
        return (
            timed
            and call.name in ("+", "-")
            and (result == "timestamp" or result.startswith("interval"))
        )
