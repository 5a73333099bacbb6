"""Chains of filters and projections as conditions and columns over the rows below them.

What two queries do to one stream row by row is compared, indexed and computed together in this
form. Conditions keep their order: each sees only rows for which those before it are true.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal as OneOf

from millstream.language.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    Time,
    conjuncts,
    substitute,
)
from millstream.language.plan.nodes import Emit, Filter, Node, Project, Source, Windowed
from millstream.language.plan.windows import BEGINNING, Now, Range, Rows, Unbounded

TIME_US = Call("unix_micros", (Time(),))  # the row's time as a number


@dataclass(frozen=True, slots=True)
class Rowwise:
    """What a chain makes of one row of its leaf."""

    leaf: Node  # a base stream without start, or what another operator gives
    conditions: tuple[Expr, ...]
    columns: tuple[Expr, ...]
    # how long a row stays: its window, as the leaf says, or for ever
    interval: Range | Now | Unbounded | OneOf["own", "endless"]


def rowwise(node: Node, is_leaf: Callable[[Node], bool]) -> Rowwise | None:
    """The chain over one leaf; None where there is more than a chain (a union, rows)."""
    match node:
        case Source():
            plain = node if node.start == BEGINNING else replace(node, start=BEGINNING)
            return Rowwise(plain, start_conditions(node.start), _all(node), "own")
        case _ if is_leaf(node):
            return Rowwise(node, (), _all(node), "own")
        case Filter():
            below = rowwise(node.input, is_leaf)
            if below is None:
                return None
            terms = (substitute(t, below.columns) for t in conjuncts(node.predicate))
            return replace(below, conditions=(*below.conditions, *terms))
        case Project():
            below = rowwise(node.input, is_leaf)
            if below is None:
                return None
            return replace(below, columns=tuple(substitute(c, below.columns) for c in node.columns))
        case Windowed(window=Range() | Now() | Unbounded() as window):
            below = rowwise(node.input, is_leaf)
            return None if below is None else replace(below, interval=window)
        case Windowed(window=Rows()):
            return None
        case Emit(kind="istream"):
            below = rowwise(node.input, is_leaf)
            return None if below is None else replace(below, interval="endless")
        case _:
            return None


def start_conditions(start: int) -> tuple[Expr, ...]:
    """Only rows from a query's start on."""
    if start == BEGINNING:
        return ()
    return (Call(">=", (TIME_US, Literal(f"{start}L", "bigint"))),)


def _all(node: Node) -> tuple[Expr, ...]:
    return tuple(Column(i) for i in range(len(node.schema)))
