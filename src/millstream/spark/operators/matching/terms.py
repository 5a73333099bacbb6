"""Conditions over what a match has so far, by Spark's rules, as they run in Python workers.

Spark has computed the values; what is left is to compare and to reckon with them: NULL is unknown,
NaN is the greatest number and equals itself, whole numbers do not overflow silently, decimals have
the scale that Spark gives the result. Times and intervals are whole microseconds. This module
travels to the workers as it is, so it imports nothing of the package.
"""

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from math import fmod, isnan
from typing import Any

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
EXACT = Context(prec=120)
ORDERS: dict[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "<>": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}

# -- values carried along a match -------------------------------------------------------------


def start_of(kind: str) -> Any:
    return {"count": 0, "first": (), "last": ()}.get(kind)


def _first(before: tuple[Any, ...], value: Any, offset: int) -> tuple[Any, ...]:
    return before if len(before) > offset else (*before, value)


def _last(before: tuple[Any, ...], value: Any, offset: int) -> tuple[Any, ...]:
    return (*before, value)[-(offset + 1) :]


def _total(before: Any, value: Any, _: int) -> Any:
    """(sum, count) of the values that are not NULL."""
    if value is None:
        return before
    if before is None:
        return value, 1
    total, count = before
    return (EXACT.add(total, value) if isinstance(value, Decimal) else total + value), count + 1


def _least(before: Any, value: Any, _: int) -> Any:
    if value is None or (before is not None and compared(before, value) <= 0):
        return before
    return value


def _most(before: Any, value: Any, _: int) -> Any:
    if value is None or (before is not None and compared(before, value) >= 0):
        return before
    return value


FOLDS: dict[str, Callable[[Any, Any, int], Any]] = {
    "current": lambda _before, value, _offset: value,
    "first": _first,
    "last": _last,
    "count": lambda before, value, _: before + (value is not None),
    "sum": _total,
    "avg": _total,
    "min": _least,
    "max": _most,
}


def value_of(leaf: tuple[str, int, int, str], carried: Any) -> Any:
    """What a condition sees of a carried value."""
    kind, _, offset, type_ = leaf
    if kind in ("first", "last"):
        return None if len(carried) <= offset else carried[offset if kind == "first" else 0]
    if kind not in ("sum", "avg") or carried is None:
        return carried
    total, count = carried
    if kind == "sum":
        return fitted(total, type_)
    if type_.startswith("decimal"):
        return fitted(EXACT.divide(Decimal(total), Decimal(count)), type_)
    return float(total) / count


# -- terms ------------------------------------------------------------------------------------


def evaluated(term: Any, leaf: Callable[[int], Any]) -> Any:
    """A term is the number of a leaf, or (name, type, arguments)."""
    if isinstance(term, int):
        return leaf(term)
    name, type_, args = term
    if name in ("and", "or"):
        return _connected(name == "or", args, leaf)
    if name in ("case", "if"):
        return _chosen(args, leaf)
    if name == "coalesce":
        return next((v for v in (evaluated(a, leaf) for a in args) if v is not None), None)
    values = [evaluated(a, leaf) for a in args]
    if name == "in":
        return _listed(values)
    if name == "<=>":
        a, b = values
        return (a is None and b is None) or (None not in (a, b) and compared(a, b) == 0)
    if name in ("is_null", "is_not_null"):
        return (values[0] is None) == (name == "is_null")
    if None in values:
        return None
    if name == "not":
        return not values[0]
    if name in ORDERS:
        return ORDERS[name](compared(*values))
    return reckoned(name, type_, values)


def _connected(wanted: bool, args: Any, leaf: Callable[[int], Any]) -> Any:
    unknown = False
    for arg in args:
        value = evaluated(arg, leaf)
        if value is wanted:
            return wanted
        unknown = unknown or value is None
    return None if unknown else not wanted


def _chosen(args: Any, leaf: Callable[[int], Any]) -> Any:
    for condition, value in zip(args[0:-1:2], args[1::2], strict=False):
        if evaluated(condition, leaf) is True:
            return evaluated(value, leaf)
    return evaluated(args[-1], leaf)


def _listed(values: list[Any]) -> Any:
    value, *others = values
    if value is None:
        return None
    if any(other is not None and compared(value, other) == 0 for other in others):
        return True
    return None if None in others else False


def compared(a: Any, b: Any) -> int:
    """-1, 0 or 1."""
    if isinstance(a, float) != isinstance(b, float):
        a, b = float(a), float(b)  # as Spark compares a double with any number
    if isinstance(a, float) and (isnan(a) or isnan(b)):
        return int(isnan(a)) - int(isnan(b))
    return int(a > b) - int(a < b)


def reckoned(name: str, type_: str, values: list[Any]) -> Any:
    """Arithmetic, in the type of the result."""
    if type_ == "double":
        return _of_doubles(name, [float(v) for v in values])
    if type_.startswith("decimal"):
        return fitted(_of_decimals(name, [Decimal(v) for v in values]), type_)
    return fitted(_of_integers(name, values), type_)


def _of_doubles(name: str, values: list[float]) -> float:
    match name, values:
        case "+", [a, b]:
            return a + b
        case "-", [a, b]:
            return a - b
        case "*", [a, b]:
            return a * b
        case "/", [a, b]:
            return float(a / _divisor(b))
        case "%", [a, b]:
            return fmod(a, _divisor(b))
        case "-", [a]:
            return -a
        case "abs", [a]:
            return abs(a)
        case _:  # cast
            return values[0]


def _of_decimals(name: str, values: list[Decimal]) -> Decimal:
    match name, values:
        case "+", [a, b]:
            return EXACT.add(a, b)
        case "-", [a, b]:
            return EXACT.subtract(a, b)
        case "*", [a, b]:
            return EXACT.multiply(a, b)
        case "/", [a, b]:
            return EXACT.divide(a, _divisor(b))
        case "%", [a, b]:
            return EXACT.remainder(a, _divisor(b))
        case "-", [a]:
            return -a
        case "abs", [a]:
            return abs(a)
        case _:
            return values[0]


def _of_integers(name: str, values: list[Any]) -> int:
    match name, values:
        case "+", [a, b]:
            return int(a + b)
        case "-", [a, b]:
            return int(a - b)
        case "*", [a, b]:
            return int(a * b)
        case "%", [a, b]:
            rest = abs(a) % abs(_divisor(b))
            return int(-rest if a < 0 else rest)
        case "-", [a]:
            return int(-a)
        case "abs", [a]:
            return int(abs(a))
        case _:
            return int(values[0])


def _divisor(value: Any) -> Any:
    if value == 0:
        raise ZeroDivisionError("division by zero in a condition of MATCH_RECOGNIZE")
    return value


def fitted(value: Any, type_: str) -> Any:
    """The value in a type, or an error where it does not fit."""
    if type_.startswith("decimal"):
        precision, scale = (int(n) for n in type_[len("decimal(") : -1].split(","))
        rounded = Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)
        if abs(rounded) >= Decimal(10) ** (precision - scale):
            raise OverflowError(f"{value} is no {type_} in a condition of MATCH_RECOGNIZE")
        return rounded
    if type_ in BITS and not -(2 ** (BITS[type_] - 1)) <= value < 2 ** (BITS[type_] - 1):
        raise OverflowError(f"{value} is no {type_} in a condition of MATCH_RECOGNIZE")
    return value
