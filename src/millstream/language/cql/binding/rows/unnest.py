"""UNNEST bound: the rows of an item of FROM, once for each element of an array of theirs.

It lies below the item's window of time, which sees only times: a row's elements have its time. They
have no position, so that ties are told apart by all columns.
"""

from collections.abc import Callable

from sqlglot import exp

from millstream.language.cql.binding.expressions import span_of
from millstream.language.cql.binding.scope import Member, Named, Scope
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.unnesting import HINT, UnnestSyntax
from millstream.language.plan.expressions import Expr
from millstream.language.plan.nodes import Node, Unnest
from millstream.language.plan.schema import Field

Typed = Callable[[exp.Expr, Scope], tuple[Expr, str]]  # an expression over a scope, and its type


def unnested(
    text: Text, rows: Node, members: tuple[Member, ...], found: list[UnnestSyntax], typed: Typed
) -> tuple[Node, tuple[Member, ...]]:
    """The rows with a column for each element, and what names mean there."""
    for syntax in found:
        array, type_ = typed(syntax.array, Scope(members, rows.schema))
        if not type_.startswith("array<"):
            hint = "map_entries(m) gives an array" if type_.startswith("map<") else HINT
            raise text.error(f"UNNEST takes an array, got {type_}", span_of(syntax.array), hint)
        types = [type_.removeprefix("array<").removesuffix(">")]
        types += ["int"] if syntax.ordinality else []
        names = syntax.columns or _usual(syntax)
        if len(names) != len(types):
            raise text.error(
                f"UNNEST gives {len(types)} columns, and {len(names)} are named", syntax.span, HINT
            )
        width = len(rows.schema)
        fields = tuple(Field(n, t) for n, t in zip(names, types, strict=True))
        rows = Unnest(rows, array, fields, outer=syntax.outer)
        columns = tuple(Named(n, width + i) for i, n in enumerate(names))
        members = (*members, Member(syntax.name, columns, lateral=True))
    return rows, members


def _usual(syntax: UnnestSyntax) -> tuple[str, ...]:
    """Names where none are given: that of the table, as `UNNEST(a) AS x` has it, or Spark's."""
    first = syntax.name or "col"
    return (first, "ordinality") if syntax.ordinality else (first,)
