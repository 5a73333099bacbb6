"""Divisions over a table that changes: by zero they give NULL.

What a table holds between two rows is seen or not, as batches fall: a sum may be 0 for a moment, a
count before its first row. A query must not fail by that, so that over tables a divisor of 0 is
NULL, as try_divide has it. Over streams every value is there to stay, and a division by zero fails.
"""

from dataclasses import replace

from millstream.language.plan.expressions import Call, Expr, Literal, transform
from millstream.language.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    Node,
    Project,
    Semijoin,
    is_relation,
    with_inputs,
)

DIVISIONS = ("/", "%", "div", "mod", "pmod")
ZERO = Literal("0", "int")


def forgiving(node: Node) -> Node:
    """The plan with divisions over tables that give NULL where they are by zero."""
    node = with_inputs(node, forgiving)
    match node:
        case Project() if is_relation(node):
            return replace(node, columns=tuple(map(_guarded, node.columns)))
        case Filter() if is_relation(node):
            return replace(node, predicate=_guarded(node.predicate))
        case Join() | Semijoin() if is_relation(node) and node.predicate is not None:
            return replace(node, predicate=_guarded(node.predicate))
        case Aggregate() if is_relation(node.input):
            calls = tuple(
                replace(
                    call,
                    argument=None if call.argument is None else _guarded(call.argument),
                    condition=None if call.condition is None else _guarded(call.condition),
                )
                for call in node.calls
            )
            return replace(node, keys=tuple(map(_guarded, node.keys)), calls=calls)
        case _:
            return node


def _guarded(expr: Expr) -> Expr:
    return transform(expr, _guard)


def _guard(expr: Expr) -> Expr | None:
    if not isinstance(expr, Call) or expr.name not in DIVISIONS or len(expr.args) != 2:
        return None
    first, divisor = expr.args
    plain = isinstance(divisor, Literal)
    return Call(expr.name, (first, divisor if plain else Call("nullif", (divisor, ZERO))))
