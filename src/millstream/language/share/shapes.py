"""What a node looks like but for the constants it compares with.

Nodes of one shape have the same columns of the same types, so that Spark is asked once for
hundreds of queries that differ in a threshold.
"""

from millstream.language.plan.expressions import COMPARISONS, Call, Expr, Literal, transform
from millstream.language.plan.keys import digest, expression_key, predicate_key, window_key
from millstream.language.plan.nodes import (
    Aggregate,
    AggregateCall,
    Distinct,
    Emit,
    Filter,
    Join,
    Matched,
    Node,
    Over,
    Project,
    Ranked,
    Ruled,
    Semijoin,
    Source,
    Union,
    Unnest,
    Windowed,
    inputs_of,
)
from millstream.language.share.dataflow import Operator

COMPARING = frozenset({*COMPARISONS, "in", "like", "ilike"})


def shape_of(operator: Operator) -> str:
    """Equal for operators whose streams have equal columns."""
    core = _shape(operator.core) if operator.core is not None else ""
    return digest(operator.kind, _shape(operator.node), core)


def _shape(node: Node) -> str:
    below = [_shape(i) for i in inputs_of(node)]
    types = ",".join(f.type for f in node.schema)
    return digest(type(node).__name__, *_own(node), types, *below)


def _own(node: Node) -> tuple[str, ...]:
    match node:
        case Source():
            return (node.stream,)
        case Filter():
            return (predicate_key(_blank(node.predicate)),)
        case Project():
            return tuple(expression_key(_blank(c)) for c in node.columns)
        case Unnest():
            return (expression_key(_blank(node.array)), str(node.outer))
        case Windowed():
            return (window_key(node.window),)
        case Ruled():
            return (node.rules.stream, predicate_key(node.predicate))
        case Join():
            return (predicate_key(_blank(node.predicate)) if node.predicate else "",)
        case Semijoin():
            kind = "anti" if node.anti else "semi"
            return (kind, predicate_key(_blank(node.predicate)) if node.predicate else "")
        case Aggregate():
            calls = (_call(c) for c in node.calls)
            keys = (expression_key(_blank(k)) for k in node.keys)
            return (type(node.grouping).__name__, *keys, ";", *calls)
        case Emit():
            return (node.kind,)
        case Ranked():
            keys = (expression_key(_blank(k)) for k in node.partition)
            order = (f"{expression_key(_blank(k))} {way}" for k, way in node.order)
            return (node.function, *keys, ";", *order)
        case Over():
            keys = (expression_key(_blank(k)) for k in node.partition)
            kinds = (f"{f.by}|{f.unbounded}|{f.last > 0}" for f in node.frames)
            order = (f"{expression_key(_blank(k))} {way}" for k, way in node.order)
            return (*keys, ";", *(_call(c) for c in node.calls), ";", *kinds, ";", *order)
        case Matched():
            return (node.shape,)  # a condition's constants are part of its program
        case Distinct() | Union():
            return ()
        case _:
            raise TypeError(f"not a plan node: {node!r}")


def _call(call: AggregateCall) -> str:
    argument = call.argument and expression_key(_blank(call.argument))
    return f"{call.function}|{call.distinct}|{call.type}|{argument}"


def _blank(expr: Expr) -> Expr:
    """The expression with constants of comparisons left out; their types stay."""

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Call) and e.name in COMPARING:
            args = tuple(Literal("?", a.type) if isinstance(a, Literal) else a for a in e.args)
            return Call(e.name, args[:2] if e.name == "in" else args)
        return None

    return transform(expr, change)
