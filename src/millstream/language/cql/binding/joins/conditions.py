"""Conditions of WHERE and ON over the items of one FROM, typed."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.aggregates import find
from millstream.language.cql.binding.coercion import Typed, as_condition
from millstream.language.cql.binding.expressions import Lowering, Resolve, span_of
from millstream.language.cql.binding.resolution import resolver
from millstream.language.cql.binding.scope import Scope
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.parsing.parser import Text
from millstream.language.plan.expressions import Call, Expr
from millstream.language.plan.schema import Schema


def _instead_of(around: exp.Expr | None) -> str:
    """What to write instead of an aggregate; `x = ANY(a)` looks like one."""
    if isinstance(around, exp.EQ):
        return "use HAVING, or a subquery in FROM; for a value in an array: array_contains(a, x)"
    return "use HAVING, or a subquery in FROM"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Lowers the conditions of one query's text."""

    text: Text
    catalog: Catalog
    analyzer: Analyzer

    def of(self, scope: Scope, node: exp.Expr, clause: str) -> Expr:
        aggregates = find(node)
        if aggregates:
            raise self.text.error(
                f"an aggregate in {clause}", span_of(aggregates[0].call),
                _instead_of(aggregates[0].call.parent),
            )  # fmt: skip
        return self.lowered(resolver(self.text, scope, clause), scope.row, node, clause)

    def lowered(self, resolve: Resolve, row: Schema, node: exp.Expr, clause: str) -> Expr:
        """A condition over rows whose names somebody else resolves."""
        lowering = Lowering(self.text, self.catalog, resolve)
        made = lowering.lower(node)
        (found,) = Typed(lowering, row, self.analyzer).check([(made, node)])
        return as_condition(lowering, clause, found, node)

    def equality(self, scope: Scope, equality: Call, node: exp.Expr) -> Expr:
        """A column of USING, typed."""
        lowering = Lowering(self.text, self.catalog, resolver(self.text, scope, "ON"))
        lowering.trail += [(made, node) for made in (*equality.args, equality)]
        ((condition, _),) = Typed(lowering, scope.row, self.analyzer).check([(equality, node)])
        return condition


def terms_of(node: exp.Expr) -> Iterator[exp.Expr]:
    """The terms of a condition that AND connects."""
    bare = node.unnest()
    if isinstance(bare, exp.And):
        yield from terms_of(bare.this)
        yield from terms_of(bare.expression)
    else:
        yield node
