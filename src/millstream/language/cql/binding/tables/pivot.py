"""PIVOT: values of a column as columns, by aggregates with a filter each.

`s PIVOT (sum(v) FOR k IN ('a', 'b'))` is the aggregate over s that groups by all columns which
PIVOT does not name, and has `sum(v) FILTER (WHERE k = 'a') AS a` and its like.
"""

from sqlglot import exp

from millstream.language.cql.binding.relations import Bound
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import PivotSyntax

HINT = "PIVOT (sum(v) AS total FOR k IN ('a' AS first, 'b'))"


def pivoted(text: Text, item: exp.Expr, bound: Bound) -> exp.Select:
    """The select that a pivoted item stands for; `bound` is the item without PIVOT."""
    pivot: PivotSyntax = item.meta["pivot"]
    if not isinstance(pivot.column, exp.Column) or not pivot.calls or not pivot.values:
        raise text.error("PIVOT takes aggregates, a column and values", pivot.span, HINT)
    named = {c.name.lower() for part in (*pivot.calls, pivot.column) for c in _columns(part)}
    kept = [c.name for c in bound.columns if c.name.lower() not in named]
    inner = item.copy()
    for key in ("pivot", "as_of"):
        inner.meta.pop(key, None)
    listed: list[exp.Expr] = [exp.column(name, quoted=True) for name in kept]
    group = [part.copy() for part in listed]
    for value in pivot.values:
        constant = value.unalias()
        for call in pivot.calls:
            aggregate = call.unalias()
            alone = aggregate.copy()
            condition = exp.EQ(this=pivot.column.copy(), expression=constant.copy())
            made = exp.Filter(this=alone, expression=exp.Where(this=condition))
            made.meta.update(aggregate.meta)
            name = exp.to_identifier(_name(value, call, len(pivot.calls)), quoted=True)
            listed.append(exp.Alias(this=made, alias=name))
    select = exp.Select(expressions=listed, from_=exp.From(this=inner))
    if group:
        select.set("group", exp.Group(expressions=group))
    for node in select.walk():
        if "start" not in node.meta:
            node.meta.update(start=pivot.span.start, end=pivot.span.end)
    return select


def _columns(node: exp.Expr) -> list[exp.Column]:
    return list(node.find_all(exp.Column))


def _name(value: exp.Expr, call: exp.Expr, calls: int) -> str:
    """The value, and the aggregate where there are several."""
    bare = value.alias or value.name or value.sql()
    return bare if calls == 1 else f"{bare}_{call.alias or call.unalias().name}"
