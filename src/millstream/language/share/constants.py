"""Comparisons of a row's value with a constant, as sets of values on one ordered line.

Constants are compared here only where this order is Spark's: numbers that Spark compares exactly
with the column's type (whole numbers and decimals with each other, anything that fits with
doubles, where NaN is no constant), strings by code point, which is the order of their UTF-8 bytes.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from millstream.language.plan.expressions import (
    MIRRORED,
    Call,
    Column,
    Expr,
    Literal,
    Time,
    total,
)
from millstream.language.plan.schema import Schema
from millstream.language.share.rowwise import TIME_US

INTEGERS = ("tinyint", "smallint", "int", "bigint")
# what is computed of one value, never raises, and has the type that stands here
OF_TEXTS = ("lower", "upper", "trim", "ltrim", "rtrim", "substring", "substr", "left", "right")
OF_TIMES = ("year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear",
            "weekofyear", "hour", "minute", "second")  # fmt: skip
_NUMBER = re.compile(r"(-?\d+)[LSY]?")
_DOUBLE = re.compile(r"(-?[\d.]+(?:[eE][+-]?\d+)?)D?")
_DECIMAL = re.compile(r"(-?\d*\.?\d+)(?:BD)?")
_DIGITS_MAX = 30  # of a decimal: Spark has 38 for a common type of both sides
_EXACT_MAX = 2**53  # whole numbers that a double tells apart
_STRING = re.compile(r"'([^'\\]*)'")
NEGATED = {"=": "<>", "within": "not within"}
LAST_BYTES = (0x7F, 0xBF)  # no text that goes on from here begins with the byte after it

Constant = int | float | Decimal | str


@dataclass(frozen=True, slots=True)
class Test:
    """`value operator constants`: what one conjunct asks of one value."""

    value: Expr
    type: str
    operator: str  # <, <=, =, <>, >=, >, in, not in, within, not within, is_null, is_not_null
    constants: tuple[Constant, ...]
    literals: tuple[Expr, ...]
    beside: Expr | None = None  # a column to which the constants are added before they compare

    @property
    def line(self) -> "tuple[Expr, Expr | None, bool]":
        """Tests of one line. Sums that are rounded may be equal where their constants are not, so
        that a line of them asks on which side they are in one way alone."""
        return self.value, self.beside, self.beside is not None and self.operator in (">", "<=")

    def holds_at(self, place: Constant, *, exactly: bool, after: bool) -> bool:
        """Whether it is true just before a constant, exactly at it, or just after it."""
        match self.operator:
            case "is_not_null":
                return True
            case "is_null":
                return False
            case "in" | "=":
                return exactly and place in self.constants
            case "not in":
                return not (exactly and place in self.constants)
            case "within" | "not within":
                low, high = self.constants  # from the first up to, and not, the second
                before = not (exactly or after)
                inside = low < place <= high if before else low <= place < high  # type: ignore[operator]
                return inside == (self.operator == "within")
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
    match expr:
        case Column(index):
            return schema[index].type
        case Call("%", (value, Literal() as divisor)):
            kinds = (type_of(value, schema), divisor.type)
            whole = all(kind in INTEGERS for kind in kinds) and _number(divisor) != 0
            return "bigint" if whole else None
        case Call("length", (value,)) if type_of(value, schema) == "string":
            return "int"
        case Call(name, (value, *rest)) if name in OF_TEXTS and total(expr):
            plain = type_of(value, schema) == "string" and not columns_beyond(rest)
            return "string" if plain else None
        case Call(name, (Time(),)) if name in OF_TIMES:
            return "int"
        case _:
            return "bigint" if expr == TIME_US else None


def columns_beyond(rest: Sequence[Expr]) -> bool:
    """Whether anything but constants stands beside the value."""
    return not all(isinstance(e, Literal) for e in rest)


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
        case Call("not", (Call("in", (value, *literals)),)):
            return _test(value, "not in", tuple(literals), schema)
        case Call("like" | "startswith", (value, Literal() as pattern)):
            return _pattern(value, term.name, pattern, schema)
        case Call("not", (Call("like" | "startswith" as name, (value, Literal() as pattern)),)):
            found = _pattern(value, name, pattern, schema)
            return None if found is None else replace(found, operator=NEGATED[found.operator])
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


def _pattern(value: Expr, name: str, pattern: Literal, schema: Schema) -> Test | None:
    """A text that is the pattern, or begins with it; None for any other pattern."""
    text = constant_of(pattern, "string")
    if type_of(value, schema) != "string" or not isinstance(text, str):
        return None
    begins = text.rstrip("%") if name == "like" else text
    if name == "like" and re.search("[%_]", begins):
        return None
    if name == "like" and begins == text:
        return Test(value, "string", "=", (text,), (pattern,))
    if not begins or begins.encode()[-1] in LAST_BYTES:
        return None
    high = begins[:-1] + chr(ord(begins[-1]) + 1)
    ends = tuple(Literal(f"'{end}'", "string") for end in (begins, high))
    plain = all(constant_of(end, "string") is not None for end in ends)
    return Test(value, "string", "within", (begins, high), ends) if plain else None
