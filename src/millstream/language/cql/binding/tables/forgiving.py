"""Expressions over a table that changes: where they would fail they give NULL.

What a table holds between two rows is seen or not, as batches fall: a sum may be 0 for a moment, a
text no number until the next row of its key. A query must not fail by that, so that over tables a
division by zero, an overflow and a cast that is not possible give NULL, as Spark's try_divide,
try_add and try_cast have it. Over streams every value is there to stay, and the query fails.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from millstream.language.cql.known_types import NUMBERS
from millstream.language.cql.types import INTEGERS
from millstream.language.plan.expressions import Call, Cast, Column, Expr, Literal, transform
from millstream.language.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Node,
    Over,
    Project,
    Ranked,
    Semijoin,
    is_relation,
    with_inputs,
)
from millstream.language.plan.schema import Schema

DIVISIONS = ("/", "%", "div", "mod", "pmod")
ARITHMETIC = ("+", "-", "*")
TRIED = {  # the functions of Spark that have a twin
    "+": "try_add",
    "-": "try_subtract",
    "*": "try_multiply",
    "element_at": "try_element_at",
    "to_number": "try_to_number",
    "to_timestamp": "try_to_timestamp",
    "parse_url": "try_parse_url",
    "url_decode": "try_url_decode",
    "parse_json": "try_parse_json",
}
FLOATING = ("float", "double")
ZERO = Literal("0", "int")


def forgiving(node: Node) -> Node:
    """The plan with NULL where an expression over a table would fail."""
    node = with_inputs(node, forgiving)
    match node:
        case Project() if is_relation(node):
            row = node.input.schema
            return replace(node, columns=tuple(guarded(c, row) for c in node.columns))
        case Filter() if is_relation(node):
            return replace(node, predicate=guarded(node.predicate, node.input.schema))
        case Join() | Semijoin() if is_relation(node) and node.predicate is not None:
            row = tuple(field for member in node.inputs for field in member.schema)
            return replace(node, predicate=guarded(node.predicate, row))
        case Aggregate() if is_relation(node.input):
            row = node.input.schema
            keys = tuple(guarded(key, row) for key in node.keys)
            return replace(node, keys=keys, calls=_calls(node.calls, row))
        case Over() if is_relation(node.input):
            row = node.input.schema
            partition = tuple(guarded(key, row) for key in node.partition)
            # a key that a frame measures must not become NULL: it would have another frame
            measured = any(frame.by == "values" for frame in node.frames)
            order = node.order if measured else _order(node.order, row)
            return replace(node, partition=partition, calls=_calls(node.calls, row), order=order)
        case Ranked() if is_relation(node.input):
            row = node.input.schema
            partition = tuple(guarded(key, row) for key in node.partition)
            return replace(node, partition=partition, order=_order(node.order, row))
        case _:
            return node


def _calls(calls: tuple[AggregateCall, ...], row: Schema) -> tuple[AggregateCall, ...]:
    return tuple(
        replace(
            call,
            argument=None if call.argument is None else guarded(call.argument, row),
            condition=None if call.condition is None else guarded(call.condition, row),
        )
        for call in calls
    )


def _order(keys: tuple[tuple[Expr, str], ...], row: Schema) -> tuple[tuple[Expr, str], ...]:
    return tuple((guarded(key, row), way) for key, way in keys)


def guarded(expr: Expr, row: Schema = ()) -> Expr:
    """The expression with NULL where it would fail; `row` has the types of its columns."""
    return transform(expr, lambda part: _guard(part, row))


def _guard(expr: Expr, row: Schema) -> Expr | None:
    match expr:
        case Call(name, (first, divisor)) if name in DIVISIONS:
            plain = isinstance(divisor, Literal)
            return Call(name, (first, divisor if plain else Call("nullif", (divisor, ZERO))))
        case Call(name, args) if name in ARITHMETIC:
            if len(args) == 1 or _floats(args, row):
                return None
            return reduce(lambda whole, arg: Call(TRIED[name], (whole, arg)), args)
        case Call(name, args) if name in TRIED:
            return Call(TRIED[name], args)
        case Cast(arg, type_, False) if not _widens(_type(arg, row), type_):
            return Cast(arg, type_, lenient=True)
        case _:
            return None


def _type(expr: Expr, row: Schema) -> str:
    match expr:
        case Column(index) if index < len(row):
            return row[index].type
        case Literal(_, type_) | Cast(_, type_):
            return type_
        case _:
            return ""


def _floats(args: Sequence[Expr], row: Schema) -> bool:
    """Whether an operand is a floating number, which never overflows."""
    return any(_type(arg, row) in FLOATING for arg in args)


def _widens(source: str, target: str) -> bool:
    """Whether every value of one type is one of the other."""
    if target in ("string", source):
        return True
    if target in FLOATING:
        return source in NUMBERS or source.startswith("decimal")
    if source in INTEGERS and target in INTEGERS:
        return INTEGERS.index(source) <= INTEGERS.index(target)
    return False
