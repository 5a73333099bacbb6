"""What a call of an aggregate means: its arguments and the words around it as one call of the plan.

Many names are one function with a condition or another argument: `every(c)` is the least of the
conditions, `count_if(c)` counts rows, `median(x)` is a quantile. Where several values are needed
they are packed (`plan/calls.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import ceil, log2

from millstream.language.cql.literals import cast, string
from millstream.language.cql.types import INTEGERS
from millstream.language.plan.calls import packed
from millstream.language.plan.expressions import Call, Expr, Literal, conjunction, conjuncts
from millstream.language.plan.nodes import AggregateCall

NULL = Literal("NULL", "void")
FLOATING = ("float", "double")
SKETCH_SIZE = 12  # the binary logarithm of a sketch's registers: about 1.6 percent
SKETCH_SIZES = (4, 21)
TAKES_DISTINCT = frozenset(
    {"count", "sum", "avg", "min", "max", "var_samp", "var_pop", "stddev_samp", "stddev_pop"}
    | {"array_agg", "string_agg", "collect_set", "bool_and", "bool_or", "bit_and", "bit_or"}
)
PAIRS = frozenset(
    {"corr", "covar_pop", "covar_samp", "regr_count", "regr_avgx", "regr_avgy", "regr_sxx"}
    | {"regr_syy", "regr_sxy", "regr_slope", "regr_intercept", "regr_r2"}
)
# How many arguments a name takes, where it is not one.
ARGUMENTS = {
    **dict.fromkeys(PAIRS, (2, 2)),
    "max_by": (2, 2), "arg_max": (2, 2), "min_by": (2, 2), "arg_min": (2, 2),
    "percentile": (2, 2), "percentile_approx": (2, 3), "approx_percentile": (2, 3),
    "string_agg": (1, 2), "listagg": (1, 2), "group_concat": (1, 2),
    "first": (1, 2), "last": (1, 2), "first_value": (1, 2), "last_value": (1, 2),
    "any_value": (1, 2), "approx_count_distinct": (1, 2),
}  # fmt: skip
WITHIN_GROUP = frozenset({"percentile_cont", "percentile_disc", "mode"})  # by what they order
MAY_ORDER = frozenset({"approx_percentile", "percentile_approx"})  # that may be written so too
ORDERS = frozenset({"array_agg", "string_agg"})  # that take ORDER BY


class CallError(Exception):
    """A call that means nothing, with a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass(frozen=True, slots=True)
class Ordering:
    """A key of ORDER BY among an aggregate's arguments."""

    key: Expr
    type: str
    way: str  # ASC NULLS FIRST and its kin


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as written, its arguments typed."""

    name: str
    function: str
    args: tuple[tuple[Expr, str], ...]
    distinct: bool = False
    order: tuple[Ordering, ...] = ()
    skips_nulls: bool = False  # IGNORE NULLS
    where: Expr | None = None


def meaning(asked: Asked) -> AggregateCall:
    """The call of the plan; its type is empty where Spark has to say it."""
    if asked.distinct and asked.function not in TAKES_DISTINCT:
        raise CallError(f"{asked.name} does not take DISTINCT", "leave it out")
    if asked.order and asked.function not in ORDERS and asked.name not in WITHIN_GROUP | MAY_ORDER:
        raise CallError(
            f"{asked.name} does not take ORDER BY", "array_agg, string_agg and percentiles do"
        )
    if asked.skips_nulls and asked.function not in ("first", "last", "any_value"):
        raise CallError(f"{asked.name} does not take IGNORE NULLS", "leave it out")
    made = MEANINGS.get(asked.function, _pair if asked.function in PAIRS else _numeric)
    return made(asked)


def _numeric(asked: Asked) -> AggregateCall:
    ((argument, type_),) = asked.args
    if type_ == "string":
        argument, type_ = cast(argument, "double"), "double"
    return AggregateCall(asked.function, argument, "", type_, asked.distinct, asked.where)


def _extreme(asked: Asked) -> AggregateCall:
    ((argument, type_),) = asked.args
    return AggregateCall(asked.function, argument, type_, type_, False, asked.where)


def _placed(asked: Asked) -> AggregateCall:
    """first and last by time; IGNORE NULLS, TRUE after the value, and any_value pass over NULL."""
    argument, type_ = asked.args[0]
    where = asked.where
    if asked.skips_nulls or asked.function == "any_value" or _is_true(asked, 1):
        where = _and(where, Call("is_not_null", (argument,)))
    function = "first" if asked.function == "any_value" else asked.function
    return AggregateCall(function, argument, type_, type_, False, where)


def _is_true(asked: Asked, position: int) -> bool:
    if len(asked.args) <= position:
        return False
    constant = asked.args[position][0]
    if not isinstance(constant, Literal) or constant.type != "boolean":
        raise CallError(
            f"the second argument of {asked.name} is TRUE or FALSE", f"{asked.name}(x, TRUE)"
        )
    return constant.text == "TRUE"


def _count_if(asked: Asked) -> AggregateCall:
    condition = _condition(asked)
    return AggregateCall("count", None, "bigint", None, False, _and(asked.where, condition))


def _all_or_any(asked: Asked) -> AggregateCall:
    condition = _condition(asked)
    function = "min" if asked.function == "bool_and" else "max"
    return AggregateCall(function, condition, "boolean", "boolean", False, asked.where)


def _condition(asked: Asked) -> Expr:
    ((condition, type_),) = asked.args
    if type_ == "void":
        return cast(condition, "boolean")
    if type_ != "boolean":
        raise CallError(f"{asked.name} takes a condition, got {type_}", "compare it")
    return condition


def _bits(asked: Asked) -> AggregateCall:
    ((argument, type_),) = asked.args
    if type_ not in INTEGERS:
        raise CallError(f"{asked.name} takes whole numbers, got {type_}", "cast it to bigint")
    return AggregateCall(asked.function, argument, type_, type_, False, asked.where)


def _list(asked: Asked) -> AggregateCall:
    value, type_ = asked.args[0]
    parts: dict[str, Expr] = {}
    wanted = f"array<{type_}>"
    if asked.function == "string_agg":
        if type_ != "string":
            value, type_ = cast(value, "string"), "string"
        parts["separator"] = asked.args[1][0] if len(asked.args) > 1 else string(_separator(asked))
        wanted = "string"
        if not isinstance(parts["separator"], Literal):
            raise CallError(
                f"the separator of {asked.name} is a constant", f"{asked.name}(x, ', ')"
            )
    if asked.distinct and any(o.key not in (value, asked.args[0][0]) for o in asked.order):
        raise CallError(
            f"{asked.name}(DISTINCT x) in the order of something else",
            f"order by the value itself: {asked.name}(DISTINCT x ORDER BY x)",
        )
    for number, ordering in enumerate(asked.order[:1] if asked.distinct else asked.order):
        if not asked.distinct:
            parts[f"k{number}"] = ordering.key
        parts[f"d{number}"] = Literal(ordering.way, "order")
    return AggregateCall(
        asked.function, packed(v=value, **parts), wanted, type_, asked.distinct, asked.where
    )


def _separator(asked: Asked) -> str:
    return "," if asked.name == "group_concat" else ""


def _set(asked: Asked) -> AggregateCall:
    ((argument, type_),) = asked.args
    return AggregateCall("collect_set", argument, f"array<{type_}>", type_, False, asked.where)


def _histogram(asked: Asked) -> AggregateCall:
    ((value, type_),) = asked.args
    if type_ in FLOATING:
        value = Call("+", (value, Literal("0D", "double")))  # -0.0 and 0.0 are one value
        type_ = "double"
    wanted = f"array<struct<value:{type_},count:bigint>>"
    return AggregateCall("histogram", value, wanted, type_, False, asked.where)


def _by(asked: Asked) -> AggregateCall:
    (value, type_), (by, _) = asked.args
    return AggregateCall(asked.function, packed(v=value, by=by), type_, type_, False, asked.where)


def _mode(asked: Asked) -> AggregateCall:
    if asked.order:
        (ordering,) = _one(asked)
        return AggregateCall("mode", ordering.key, ordering.type, ordering.type, False, asked.where)
    ((value, type_),) = asked.args
    return AggregateCall("mode", value, type_, type_, False, asked.where)


def _quantile(asked: Asked) -> AggregateCall:
    """`median(x)`, `percentile(x, 0.9)`, `percentile_cont(0.9) WITHIN GROUP (ORDER BY x)`."""
    way = "ASC"
    if asked.name in WITHIN_GROUP or asked.order:
        # a second argument is an error that is allowed; ours has none
        if not asked.order or len(asked.args) > 1 + (asked.name in MAY_ORDER):
            raise CallError(
                f"{asked.name} needs WITHIN GROUP",
                f"{asked.name}(0.9) WITHIN GROUP (ORDER BY x)",
            )
        (ordering,) = _one(asked)
        value, type_, way = ordering.key, ordering.type, ordering.way.partition(" ")[0]
        share = asked.args[0][0]
    else:
        value, type_ = asked.args[0]
        share = Literal("0.5", "decimal(1,1)") if asked.name == "median" else asked.args[1][0]
    if asked.function == "percentile_cont":
        if type_ == "string":
            value, type_ = cast(value, "double"), "double"
        if not _is_number(type_):
            raise CallError(f"{asked.name} takes numbers, got {type_}", "percentile_disc takes all")
    wanted = "double" if asked.function == "percentile_cont" else type_
    parts = {"v": value, "p": _share(asked, share), "d0": Literal(way, "order")}
    return AggregateCall(asked.function, packed(**parts), wanted, type_, False, asked.where)


def _one(asked: Asked) -> tuple[Ordering]:
    if len(asked.order) != 1:
        raise CallError(f"{asked.name} orders by one value", "WITHIN GROUP (ORDER BY x)")
    return (asked.order[0],)


def _share(asked: Asked, share: Expr) -> Literal:
    """From 0 to 1, exactly as written: 0.7 of ten values is seven of them."""
    try:
        value = Decimal(share.text if isinstance(share, Literal) else "")
    except InvalidOperation:
        value = Decimal(-1)
    if not 0 <= value <= 1 or -int(value.as_tuple().exponent) > 18:
        raise CallError(
            f"{asked.name} takes one share, a constant from 0 to 1",
            "0.9 is the ninetieth of 100; "
            f"for several: array({asked.name}(x, 0.5), {asked.name}(x, 0.9))",
        )
    return Literal(f"CAST({value:f} AS DECIMAL(20,18))", "decimal(20,18)")


def _sketch(asked: Asked) -> AggregateCall:
    value, type_ = asked.args[0]
    size = SKETCH_SIZE
    if len(asked.args) > 1:
        error = _share(asked, asked.args[1][0])
        wanted = float(Decimal(error.text.removeprefix("CAST(").partition(" ")[0]))
        size = ceil(2 * log2(1.04 / wanted)) if wanted > 0 else SKETCH_SIZES[1]
        size = min(max(size, SKETCH_SIZES[0]), SKETCH_SIZES[1])
    if type_ in ("tinyint", "smallint"):
        value, type_ = cast(value, "int"), "int"
    if type_ in FLOATING:
        value = Call("+", (value, Literal("0D", "double")))  # -0.0 and 0.0 are one value
    parts = packed(v=value, size=Literal(str(size), "int"))
    return AggregateCall("approx_count_distinct", parts, "bigint", type_, False, asked.where)


def _pair(asked: Asked) -> AggregateCall:
    for _, type_ in asked.args:
        if not _is_number(type_) and type_ != "string":
            raise CallError(f"{asked.name} takes two numbers, got {type_}", "cast it to double")
    first, second = (cast(a, "double") if t == "string" else a for a, t in asked.args)
    if asked.function == "regr_count":
        both = Call("and", (Call("is_not_null", (first,)), Call("is_not_null", (second,))))
        return AggregateCall("count", None, "bigint", None, False, _and(asked.where, both))
    return AggregateCall(
        asked.function, packed(v=first, w=second), "double", "double", False, asked.where
    )


def _is_number(type_: str) -> bool:
    return type_ in INTEGERS or type_ in FLOATING or type_.startswith("decimal")


def _and(where: Expr | None, condition: Expr) -> Expr | None:
    return conjunction((*conjuncts(where), *conjuncts(condition)))


def _count(asked: Asked) -> AggregateCall:
    """count(*), count(x), count(x, y): rows in which every argument has a value."""
    args, distinct, where = asked.args, asked.distinct, asked.where
    if not args or (not distinct and all(isinstance(a, Literal) and t != "void" for a, t in args)):
        return AggregateCall("count", None, "bigint", None, False, where)
    if len(args) == 1:
        ((argument, type_),) = args
        return AggregateCall("count", argument, "bigint", type_, distinct, where)
    missing: Expr = Call("is_null", (args[0][0],))
    for arg, _ in args[1:]:
        missing = Call("or", (missing, Call("is_null", (arg,))))
    named = [part for i, (a, _) in enumerate(args) for part in (string(f"a{i}"), a)]
    row = Call("named_struct", tuple(named))
    fields = ",".join(f"a{i}:{t}" for i, (_, t) in enumerate(args))
    return AggregateCall(
        "count", Call("if", (missing, NULL, row)), "bigint", f"struct<{fields}>", distinct, where
    )


MEANINGS: dict[str, Callable[[Asked], AggregateCall]] = {
    "count": _count,
    "min": _extreme,
    "max": _extreme,
    "first": _placed,
    "last": _placed,
    "any_value": _placed,
    "count_if": _count_if,
    "bool_and": _all_or_any,
    "bool_or": _all_or_any,
    "bit_and": _bits,
    "bit_or": _bits,
    "bit_xor": _bits,
    "array_agg": _list,
    "string_agg": _list,
    "collect_set": _set,
    "max_by": _by,
    "min_by": _by,
    "mode": _mode,
    "histogram": _histogram,
    "percentile_cont": _quantile,
    "percentile_disc": _quantile,
    "approx_count_distinct": _sketch,
}
