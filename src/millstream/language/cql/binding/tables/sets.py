"""INTERSECT and EXCEPT of tables, of all rows so far, and of the rows of each instant.

Without ALL each row stands once: the distinct rows of the first side that the second has, or has
not, by an operator that tells NULL from nothing. With ALL a row stands as often as both sides
together say: both are counted in one aggregate. Rows with [NOW] are compared with those of the same
instant, and what is left is a stream.
"""

from millstream.language.plan.expressions import Call, Column, Expr, Literal, conjunction
from millstream.language.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Node,
    Project,
    Semijoin,
    Union,
    Unnest,
    Windowed,
)
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.windows import Instant, Now, Running

ZERO, ONE = Literal("0L", "bigint"), Literal("1L", "bigint")
COUNTS = (Field("ours", "bigint"), Field("theirs", "bigint"))


def set_rows(left: Node, right: Node, start: int, *, common: bool, every: bool) -> Node:
    """The rows of one table that another has as well (`common`), or has not; once, or `every`.

    Both have the same columns; rows of the second that are no table yet are all rows so far.
    """
    if every:
        return _counted(left, right, start, Running(), common=common)
    fields = left.schema
    columns = _columns(fields)
    once = Aggregate(left, columns, (), Running(), fields, start)
    same = (Call("<=>", (c, Column(len(fields) + c.index))) for c in columns)
    return Semijoin((once, right), conjunction(tuple(same)), anti=not common)


def instant_set_rows(left: Node, right: Node, start: int, *, common: bool, every: bool) -> Node:
    """The same of two streams, instant by instant."""
    if every:
        return _counted(left, right, start, Instant(), common=common)
    fields = left.schema
    columns = _columns(fields)
    once = Aggregate(left, columns, (), Instant(), fields, start)
    same = (Call("<=>", (c, Column(len(fields) + c.index))) for c in columns)
    sides = (Windowed(once, Now()), Windowed(right, Now()))
    return Semijoin(sides, conjunction(tuple(same)), anti=not common)


def _columns(fields: Schema) -> tuple[Column, ...]:
    return tuple(Column(i) for i in range(len(fields)))


def _counted(
    left: Node, right: Node, start: int, grouping: Running | Instant, *, common: bool
) -> Node:
    fields = left.schema
    columns, width = _columns(fields), len(fields)
    sides = tuple(
        Project(rows, (*columns, *signs), (*fields, *COUNTS))
        for rows, signs in ((left, (ONE, ZERO)), (right, (ZERO, ONE)))
    )
    calls = tuple(AggregateCall("sum", Column(width + i), "bigint", "bigint") for i in (0, 1))
    counted = Aggregate(Union(sides), columns, calls, grouping, (*fields, *COUNTS), start)
    ours, theirs = Column(width), Column(width + 1)
    times: Expr = Call("least", (ours, theirs)) if common else Call("-", (ours, theirs))
    there = Filter(counted, Call(">", (times, ZERO)))
    copies = Unnest(there, Call("sequence", (ONE, times)), (Field("copy", "bigint"),))
    return Project(copies, columns, fields)
