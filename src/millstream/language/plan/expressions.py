"""Scalar expressions over the columns of one row.

An expression knows columns by position, never by name. Functions keep the name under which Spark
knows them. Operators are calls as well: `=`, `<`, `and`, `+`, `like`, `in`, `is_null`, `case`, ...
Whether an expression can raise matters: guards (`b <> 0 AND a / b > 2`) keep their order only
around those that can.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
COMMUTATIVE = frozenset({"=", "<>", "<=>", "+", "*", "and", "or"})
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
# Calls that never raise when their arguments have the types the analyser accepted.
TOTAL = frozenset(
    {*COMPARISONS, "&", "|", "^", "~"}
    | {"and", "or", "not", "is_null", "is_not_null", "in", "like", "ilike", "case"}
    | {"coalesce", "nvl", "ifnull", "nullif", "if", "lower", "upper", "length", "trim", "isnan"}
    | {"concat", "try_divide", "try_add", "try_subtract", "try_multiply", "like_escape"}
    | {
        "args",
        "dated",
        "field",
        "unix_micros",
        "named_struct",
        "||",
        "greatest",
        "least",
        "date_trunc",
        "ltrim",
        "rtrim",
    }
    | {"year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear"}
    | {"weekofyear", "hour", "minute", "second", "substring", "substr", "left", "right"}
)


@dataclass(frozen=True, slots=True)
class Column:
    """The column at a position of the input row."""

    index: int


@dataclass(frozen=True, slots=True)
class Time:
    """The event time of the input row, as a timestamp."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant, kept as the text of a Spark SQL literal: `1`, `'a'`, `1.5BD`, `NULL`."""

    text: str
    type: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator applied to arguments."""

    name: str
    args: "tuple[Expr, ...]"


@dataclass(frozen=True, slots=True)
class Cast:
    arg: "Expr"
    type: str
    lenient: bool = False  # try_cast


@dataclass(frozen=True, slots=True)
class Lambda:
    """`x -> body`, the argument of a higher-order function; parameters are named."""

    parameters: tuple[str, ...]
    body: "Expr"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A lambda's parameter inside its body."""

    name: str


Expr = Column | Time | Literal | Call | Cast | Lambda | Parameter

TRUE = Literal("TRUE", "boolean")


def children(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Call(_, args):
            return args
        case Cast(arg):
            return (arg,)
        case Lambda(_, body):
            return (body,)
        case _:
            return ()


def transform(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Rewrites bottom-up; `change` gives the replacement, or None to leave a node as it is."""
    match expr:
        case Call(name, args):
            new = tuple(transform(arg, change) for arg in args)
            expr = expr if new == args else Call(name, new)
        case Cast(arg, type_, lenient):
            inner = transform(arg, change)
            expr = expr if inner == arg else Cast(inner, type_, lenient)
        case Lambda(parameters, body):
            inner = transform(body, change)
            expr = expr if inner == body else Lambda(parameters, inner)
        case _:
            pass
    changed = change(expr)
    return expr if changed is None else changed


def walk(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in children(expr):
        yield from walk(child)


def columns_of(expr: Expr) -> frozenset[int]:
    return frozenset(e.index for e in walk(expr) if isinstance(e, Column))


def uses_time(expr: Expr) -> bool:
    return any(isinstance(e, Time) for e in walk(expr))


def substitute(expr: Expr, columns: tuple[Expr, ...]) -> Expr:
    """Replaces each column by the expression that computes it."""
    return transform(expr, lambda e: columns[e.index] if isinstance(e, Column) else None)


def shift(expr: Expr, by: int) -> Expr:
    """Moves all column positions."""
    return transform(expr, lambda e: Column(e.index + by) if isinstance(e, Column) else None)


def conjuncts(expr: Expr | None) -> tuple[Expr, ...]:
    """The terms of a conjunction, in order.

    >>> a, b = Column(0), Column(1)
    >>> conjuncts(Call("and", (a, Call("and", (b, a))))) == (a, b, a)
    True
    """
    match expr:
        case None:
            return ()
        case Call("and", args):
            return tuple(term for arg in args for term in conjuncts(arg))
        case _:
            return () if expr == TRUE else (expr,)


def conjunction(terms: tuple[Expr, ...]) -> Expr | None:
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else Call("and", terms)


def total(expr: Expr) -> bool:
    """Whether evaluation never raises, whatever the row."""
    return all(
        not isinstance(e, Cast | Lambda) and (not isinstance(e, Call) or e.name in TOTAL)
        for e in walk(expr)
    ) or (isinstance(expr, Cast) and expr.lenient and total(expr.arg))
