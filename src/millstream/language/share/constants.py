"""Comparisons of a row's value with a constant, as sets of values on one ordered line.

Constants are compared here only where this order is Spark's: numbers that Spark compares exactly
with the column's type (whole numbers and decimals with each other, anything that fits with
doubles, where NaN is no constant), strings by code point, which is the order of their UTF-8 bytes.
"""

import math
import re
from dataclasses import dataclass
from decimal import Decimal

from millstream.language.plan.expressions import MIRRORED, Call, Column, Expr, Literal
from millstream.language.plan.schema import Schema
from millstream.language.share.rowwise import TIME_US

INTEGERS = ("tinyint", "smallint", "int", "bigint")
_NUMBER = re.compile(r"(-?\d+)[LSY]?")
_DOUBLE = re.compile(r"(-?[\d.]+(?:[eE][+-]?\d+)?)D?")
_DECIMAL = re.compile(r"(-?\d*\.?\d+)(?:BD)?")
_DIGITS_MAX = 30  # of a decimal: Spark has 38 for a common type of both sides
_EXACT_MAX = 2**53  # whole numbers that a double tells apart
_STRING = re.compile(r"'([^'\\]*)'")

Constant = int | float | Decimal | str


@dataclass(frozen=True, slots=True)
class Test:
    """`value operator constants`: what one conjunct asks of one value."""

    value: Expr
    type: str
    operator: str  # <, <=, =, <>, >=, >, in, is_null, is_not_null
    constants: tuple[Constant, ...]
    literals: tuple[Expr, ...]

    def holds_at(self, place: Constant, *, exactly: bool, after: bool) -> bool:
        """Whether it is true just before a constant, exactly at it, or just after it."""
        match self.operator:
            case "is_not_null":
                return True
            case "is_null":
                return False
            case "in" | "=":
                return exactly and place in self.constants
            case "<>":
                return not (exactly and place == self.constants[0])
        own = self.constants[0]
        if place != own:
            return place < own if self.operator in ("<", "<=") else place > own  # type: ignore[operator]
        if exactly:
            return self.operator in ("<=", ">=")
        return after == (self.operator in (">", ">="))


def type_of(expr: Expr, schema: Schema) -> str | None:
    """The type of a value that can be compared here."""
    if isinstance(expr, Column):
        return schema[expr.index].type
    return "bigint" if expr == TIME_US else None


def constant_of(literal: Expr, type_: str) -> Constant | None:
    """The constant's value in Python; None where its order may not be Spark's."""
    if not isinstance(literal, Literal):
        return None
    if type_ == "string":
        found = _STRING.fullmatch(literal.text) if literal.type == "string" else None
        return found[1] if found else None
    number = _number(literal)
    if number is None:
        return None
    if type_ == "double":
        if isinstance(number, int) and abs(number) > _EXACT_MAX:
            return None
        return float(number) if math.isfinite(number) else None
    exact = type_ in INTEGERS or type_.startswith("decimal")
    return number if exact and not isinstance(number, float) else None


def _number(literal: Literal) -> int | float | Decimal | None:
    """A literal's value, as exactly as its type has it."""
    if literal.type in INTEGERS:
        found = _NUMBER.fullmatch(literal.text)
        return int(found[1]) if found else None
    if literal.type == "double":
        found = _DOUBLE.fullmatch(literal.text)
        return float(found[1]) if found else None
    if literal.type.startswith("decimal"):
        found = _DECIMAL.fullmatch(literal.text)
        return Decimal(found[1]) if found and len(found[1]) <= _DIGITS_MAX else None
    return None


def test_of(term: Expr, schema: Schema) -> Test | None:
    """The conjunct as a test of one value; None where it is anything else."""
    match term:
        case Call("is_null" | "is_not_null", (value,)):
            type_ = type_of(value, schema)
            return Test(value, type_, term.name, (), ()) if type_ else None
        case Call("in", (value, *literals)):
            return _test(value, "in", tuple(literals), schema)
        case Call("=" | "<>" | "<" | "<=" | ">" | ">=", (left, right)):
            if isinstance(left, Literal):
                return _test(right, MIRRORED.get(term.name, term.name), (left,), schema)
            return _test(left, term.name, (right,), schema)
        case _:
            return None


def _test(value: Expr, name: str, literals: tuple[Expr, ...], schema: Schema) -> Test | None:
    type_ = type_of(value, schema)
    if type_ is None:
        return None
    constants = tuple(constant_of(literal, type_) for literal in literals)
    if any(c is None for c in constants):
        return None
    return Test(value, type_, name, tuple(c for c in constants if c is not None), literals)
