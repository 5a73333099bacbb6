"""Plans evaluated in Python, one row at a time: what sharing must not change.

Conjunctions and disjunctions are evaluated whole, as Spark is free to do; only IF and CASE keep
what stands behind them from being asked. Division by zero and casts of other texts raise.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from millstream.language.plan.expressions import Call, Cast, Column, Expr, Literal, Time, conjuncts
from millstream.language.plan.nodes import Emit, Filter, Join, Node, Project, Source, Windowed
from millstream.language.plan.windows import FOREVER, reach
from millstream.language.share.shared_plan import Place


class RaisedError(Exception):
    """What ANSI mode does with an expression that has no value."""


@dataclass(frozen=True, slots=True)
class Row:
    ts: int
    values: tuple[Any, ...]
    until: int = FOREVER


def order(value: Any) -> Any:
    """A key that sorts as Spark does: NaN is the greatest number, texts by their bytes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float) and math.isnan(value):
        return (1, 0.0)
    return (0, value)


def value(expr: Expr, row: Row) -> Any:
    match expr:
        case Column(index):
            return row.values[index]
        case Time():
            return row.ts
        case Literal():
            return literal(expr)
        case Cast(arg, type_, _) if type_.startswith("array"):
            return [literal(Literal(text, type_)) for text in value(arg, row)]
        case Cast(arg, _, lenient):
            return _cast(value(arg, row), lenient)
        case Call("if", (condition, then, other)):
            return value(then if value(condition, row) is True else other, row)
        case Call("case", args):
            for condition, then in zip(args[0:-1:2], args[1:-1:2], strict=True):
                if value(condition, row) is True:
                    return value(then, row)
            return value(args[-1], row)
        case Call("raise_error", _):
            raise RaisedError(expr)
        case Call(name, args):
            found = _call(name, [value(a, row) for a in args])
            if name in ("+", "-") and any(_narrow(a) for a in args):
                _require_room(found)
            return found
        case _:
            raise TypeError(expr)


def _narrow(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.type == "int"


def _require_room(found: Any) -> None:
    """Sums with an int are ints: no row here has others near the ends."""
    if isinstance(found, int) and not -(1 << 31) <= found < 1 << 31:
        raise RaisedError(found)


def literal(expr: Literal) -> Any:
    text = expr.text
    if text.upper() in ("NULL", "TRUE", "FALSE"):
        return {"NULL": None, "TRUE": True, "FALSE": False}[text.upper()]
    if text.startswith("'"):
        return text[1:-1]
    number = text.rstrip("LDSYB")
    return int(number) if number.lstrip("-").isdigit() else float(number)


def _cast(found: Any, lenient: bool) -> int | None:
    try:
        return None if found is None else int(found)
    except ValueError:
        if lenient:
            return None
        raise RaisedError(found) from None


def _call(name: str, args: list[Any]) -> Any:
    match name:
        case "is_null":
            return args[0] is None
        case "is_not_null":
            return args[0] is not None
        case "and":
            return False if False in args else None if None in args else True
        case "or":
            return True if True in args else None if None in args else False
        case "array":
            return args
        case "spark_partition_id":
            return 0
        case "unix_micros":
            return args[0]
        case "least":
            return min(args)
        case "like" | "startswith" if None not in args:
            text, pattern = args
            if name == "startswith":
                return text.startswith(pattern)
            parts = {"%": "(?s:.*)", "_": "(?s:.)"}
            found = "".join(parts.get(sign) or re.escape(sign) for sign in pattern)
            return re.fullmatch(found, text) is not None
    if name == "in" and args[0] is not None:
        found = [order(args[0]) == order(a) for a in args[1:] if a is not None]
        return True if any(found) else None if None in args else False
    if None in args:
        return None
    return _known(name, args)


def _known(name: str, args: list[Any]) -> Any:
    match name, args:
        case "not", [a]:
            return not a
        case "~", [a]:
            return ~a
        case "length", [a]:
            return len(a)
        case "lower", [a]:
            return a.lower()
        case "%", [a, b]:
            if b == 0:
                raise RaisedError("by zero")
            return int(math.fmod(a, b))
        case "element", [array, place]:
            assert 0 <= place < len(array)
            return array[place]
        case "get", [array, place]:
            return array[place] if 0 <= place < len(array) else None
        case "split", [text, sign]:
            return text.split(sign)
        case "/", [_, 0]:
            raise RaisedError("by zero")
    a, b = args
    match name:
        case "&":
            return a & b
        case "|":
            return a | b
        case "+":
            return a + b
        case "-":
            return a - b
        case "/":
            return a / b
    left, right = order(a), order(b)
    return {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[name]


def holds(terms: Sequence[Expr], row: Row) -> bool:
    """Whether a conjunction is true; terms are asked only where those before are true."""
    return all(value(t, row) is True for t in terms)


def rows_of(node: Node, base: Mapping[str, Sequence[Row]]) -> list[Row]:
    match node:
        case Source():
            return [r for r in base[node.stream] if r.ts >= node.start]
        case Filter():
            terms = conjuncts(node.predicate)
            return [r for r in rows_of(node.input, base) if holds(terms, r)]
        case Project():
            return [
                replace(r, values=tuple(value(c, r) for c in node.columns))
                for r in rows_of(node.input, base)
            ]
        case Windowed():
            length = reach(node.window)
            found = rows_of(node.input, base)
            return [
                replace(r, until=FOREVER if length == FOREVER else r.ts + length + 1) for r in found
            ]
        case Emit(kind="istream"):
            return [replace(r, until=FOREVER) for r in rows_of(node.input, base)]
        case Join():
            return _joined(node, base)
        case _:
            raise TypeError(node)


def _joined(node: Join, base: Mapping[str, Sequence[Row]]) -> list[Row]:
    found = []
    for rows in product(*(rows_of(i, base) for i in node.inputs)):
        start, end = max(r.ts for r in rows), min(r.until for r in rows)
        row = Row(start, tuple(v for r in rows for v in r.values), end)
        if start < end and holds(conjuncts(node.predicate), row):
            found.append(row)
    return found


def part_of(rows: Sequence[Row], place: Place) -> list[Row]:
    """A member's rows of a shared result."""
    columns = {n: int(w[1:]) for n, w in place.columns.items()}
    numbers = [columns[f"c{i}"] for i in range(sum(n.startswith("c") for n in columns))]
    return [
        Row(
            r.ts,
            tuple(r.values[n] for n in numbers),
            r.values[columns["_until"]] if "_until" in columns else r.until,
        )
        for r in rows
        if r.values[place.word] & place.bit
    ]


def bag(rows: Sequence[Row]) -> list[str]:
    """For comparison: NaN equals NaN, and nothing else its neighbour in type."""
    return sorted(repr(r) for r in rows)
