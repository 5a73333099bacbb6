"""Types that need no question: columns, constants, and comparisons of like with like.

Most conditions of standing queries are of this kind, each with another constant. Everything else
is Spark's to say; None means: ask.
"""

import re
from collections.abc import Callable

from millstream.language.cql.types import INTEGERS
from millstream.language.plan.expressions import (
    COMPARISONS,
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    Time,
)
from millstream.language.plan.schema import Schema

NUMBERS = frozenset({*INTEGERS, "float", "double"})
DECIMAL = re.compile(r"decimal\((\d+),\d+\)")
DIGITS_MAX = 38  # of a decimal of Spark's
PLAIN = frozenset({"boolean", "string", "date", "timestamp", *INTEGERS, "float", "double"})
CONSTANTS = frozenset({"boolean", "string", "int", "bigint", "double", "void"})


def known_type(made: Expr, columns: Schema, type_of: Callable[[Expr], str | None]) -> str | None:
    """
    >>> from millstream.language.plan.schema import Field
    >>> known_type(Column(0), (Field("v", "int"),), lambda _: None)
    'int'
    """
    match made:
        case Column(index):
            return columns[index].type
        case Time():
            return "timestamp"
        case Literal(_, type_):
            return type_ if type_ in CONSTANTS or _decimal(type_) else None
        case Cast(arg, type_, lenient):
            return type_ if not lenient and type_ in NUMBERS and _numeric(type_of(arg)) else None
        case Call(name, args):
            types = [type_of(arg) for arg in args]
            return "boolean" if _condition(name, types) else None
        case _:
            return None


def _condition(name: str, types: list[str | None]) -> bool:
    """Whether a call is a condition over operands that certainly fit each other."""
    if name in COMPARISONS or name == "in":
        return all(_numeric(t) for t in types) or (len(set(types)) == 1 and types[0] in PLAIN)
    if name in ("and", "or", "not"):
        return set(types) == {"boolean"}
    if name in ("is_null", "is_not_null"):
        return types[0] is not None
    return name == "like" and set(types) == {"string"}


def _numeric(type_: str | None) -> bool:
    return type_ is not None and (type_ in NUMBERS or type_.startswith("decimal"))


def _decimal(type_: str) -> bool:
    """Whether it is a decimal of at most the digits that Spark has; more are Spark's to refuse."""
    found = DECIMAL.fullmatch(type_)
    return found is not None and int(found[1]) <= DIGITS_MAX
