"""What a subquery for a value gives where it has no rows: counts are 0, everything else is NULL."""

from millstream.language.cql.binding.tables.forgiving import ARITHMETIC, DIVISIONS, guarded
from millstream.language.plan.expressions import (
    TOTAL,
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    substitute,
    total,
    walk,
)
from millstream.language.plan.nodes import Aggregate

COUNTS = ("count", "approx_count_distinct")  # 0 over no rows
NUMERIC = (*ARITHMETIC, *DIVISIONS)


def or_nothing(value: Expr, node: Aggregate, type_: str) -> Expr:
    """A value over an aggregate whose row may be missing: its counts are 0 then, the rest NULL.

    A table that has rows is empty for a moment, before its operator has read them, and
    `count(*) / count(DISTINCT k)` must not fail by that: a division by such a 0 is NULL.
    """
    columns: list[Expr] = [Column(i) for i in range(len(node.fields))]
    counts = [
        number
        for number, call in enumerate(node.calls, start=len(node.keys))
        if call.function in COUNTS
    ]
    if not counts:
        return value
    there = Call("is_not_null", (columns[counts[0]],))
    for number in counts:
        columns[number] = Call("coalesce", (columns[number], Literal("0L", "bigint")))
    if total(value):
        return substitute(value, tuple(columns))
    nothing: Expr = Literal(f"CAST(NULL AS {type_})", type_)
    if _harmless(value):
        nothing = substitute(guarded(value), tuple(columns))
    return Call("if", (there, value, nothing))


def _harmless(value: Expr) -> bool:
    """Whether a value cannot raise over no rows: numbers that are 0 or NULL, and constants."""
    return all(
        isinstance(e, Column | Literal)
        or (isinstance(e, Call) and (e.name in TOTAL or e.name in NUMERIC))
        or (isinstance(e, Cast) and _is_number(e.arg))
        for e in walk(value)
    )


def _is_number(expr: Expr) -> bool:
    match expr:
        case Column():
            return True  # a count, or NULL
        case Literal():
            return not expr.text.startswith("'")
        case Cast():
            return _is_number(expr.arg)
        case Call():
            return expr.name in NUMERIC
        case _:
            return False
