"""Comparisons of two columns with a constant between them (`x > y + 3`), as tests of one value.

Of whole numbers the value is the difference, in a type in which it always fits. A sum that does not
fit its own type raises, so each such test has another: of the column, where the sum has no value.
Sums of doubles never raise but are rounded: there the constants' sums are compared themselves,
whose order is that of the constants.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.language.plan.expressions import MIRRORED, Call, Cast, Column, Expr, Literal
from millstream.language.plan.schema import Schema
from millstream.language.share.constants import INTEGERS, Constant, Test, constant_of

BITS = dict(zip(INTEGERS, (8, 16, 32, 64), strict=True))
SIDES = ("<", "<=", ">", ">=")
OVERFLOWS = Cast(
    Call("raise_error", (Literal("'a sum in a condition is out of range'", "string"),)), "bigint"
)


@dataclass(frozen=True, slots=True)
class Offset:
    """`left operator right + constant`; `overflow` holds where the sum raises."""

    test: Test
    overflow: Test | None = None


def offset_of(term: Expr, schema: Schema) -> Offset | None:
    """The conjunct as a comparison of two columns; None where it is anything else."""
    match term:
        case Call("=" | "<>" | "<" | "<=" | ">" | ">=" as name, (a, b)):
            ways = ((a, name, b), (b, MIRRORED.get(name, name), a))
        case _:
            return None
    for left, operator, other in ways:
        for right, literal, sign in _sums(other):
            if isinstance(left, Column):
                return _offset(left, operator, right, literal, sign, schema)
    return None


def _sums(expr: Expr) -> Iterator[tuple[Column, Literal, int]]:
    """A column, what is added to it, and with which sign."""
    match expr:
        case Call("+", (Column() as column, Literal() as literal)):
            yield column, literal, 1
        case Call("+", (Literal() as literal, Column() as column)):
            yield column, literal, 1
        case Call("-", (Column() as column, Literal() as literal)):
            yield column, literal, -1
        case _:
            return


def _offset(
    left: Column, operator: str, right: Column, literal: Literal, sign: int, schema: Schema
) -> Offset | None:
    types = (schema[left.index].type, schema[right.index].type)
    if types == ("double", "double"):
        found = constant_of(literal, "double")
        if not isinstance(found, float) or operator not in SIDES:
            return None
        added = sign * found
        written = Literal(f"{added!r}D", "double")
        return Offset(Test(left, "double", operator, (added,), (written,), beside=right))
    if not all(t in INTEGERS for t in (*types, literal.type)):
        return None
    constant = constant_of(literal, "bigint")
    size = max(BITS[types[1]], BITS[literal.type])
    wide = "decimal(20,0)" if max(size, BITS[types[0]]) == BITS["bigint"] else "bigint"
    if not isinstance(constant, int) or not _fits(sign * constant, 64):
        return None
    apart = Call("-", (Cast(left, wide), Cast(right, wide)))
    return Offset(
        _whole(apart, "bigint", operator, sign * constant),
        _overflow(right, types[1], sign * constant, size),
    )


def _overflow(column: Column, type_: str, added: int, size: int) -> Test | None:
    """Where a number of so many bits has no room for the sum."""
    if added == 0:
        return None
    if added > 0:
        return _whole(column, type_, ">", (1 << (size - 1)) - 1 - added)
    return _whole(column, type_, "<", -(1 << (size - 1)) - added)


def _whole(value: Expr, type_: str, operator: str, constant: Constant) -> Test:
    return Test(value, type_, operator, (constant,), (Literal(f"{constant}L", "bigint"),))


def _fits(number: int, size: int) -> bool:
    return -(1 << (size - 1)) < number < 1 << (size - 1)
