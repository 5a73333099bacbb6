"""Bound queries: a plan with names, and how long its rows stay in the relation.

How a subquery is seen from outside: select, filter, union and join over windows keep their
intervals; what aggregates, is DISTINCT or becomes a stream by ISTREAM and its kin is a stream,
whose rows stay for ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from millstream.language.cql.binding.scope import Named
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import Span
from millstream.language.plan.expressions import Column, Expr, Time
from millstream.language.plan.nodes import (
    Aggregate,
    Distinct,
    Emit,
    Filter,
    Join,
    Matched,
    Node,
    Over,
    Project,
    Ranked,
    Ruled,
    Semijoin,
    Source,
    Union,
    Unnest,
    Windowed,
    inputs_of,
)
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.windows import MICROSECONDS, Grouped, Rows, Unbounded, Window

SLIDE_DEFAULT_US = MICROSECONDS


class Lifetime(Enum):
    """How long the rows of a bound query are in the relation."""

    OPEN = auto()  # for ever: a stream, or a relation over unbounded windows
    BOUNDED = auto()  # for an interval that ends
    MIXED = auto()  # a union of both
    CHANGES = auto()  # a table told by its changes


@dataclass(frozen=True, slots=True)
class Slide:
    """A SLIDE that nothing has used yet."""

    length_us: int
    span: Span
    start_span: Span | None = None  # of ALIGN START: starts of windows lie at its multiples
    offset_us: int = 0  # by which OFFSET moves all windows
    word: str = "SLIDE"  # how the text calls it


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound query or an item of FROM."""

    node: Node
    columns: tuple[Named, ...]
    lifetime: Lifetime
    slide: Slide | None = None
    streamed: bool = False  # from outside it is a stream, whatever its rows' intervals
    momentary: bool = False  # its rows last one instant: [NOW] is among its windows

    @property
    def fields(self) -> Schema:
        """The visible columns by name and type."""
        return tuple(Field(c.name, self.node.schema[c.position].type) for c in self.columns)


def as_stream(node: Node) -> Node:
    """The rows with their times alone: ISTREAM, where windows below make a difference."""
    bare = without_windows(node)
    if bare is not None:
        return bare
    return node if _plain(node) else Emit(node, "istream", SLIDE_DEFAULT_US)


def without_windows(node: Node) -> Node | None:
    """The same rows at the same times without windows of time; None where they matter.

    A window of time gives each row an interval that begins at its own time, so ISTREAM over it
    gives the rows back. Windows of rows hide some rows, joins and DISTINCT need the intervals.
    """
    match node:
        case Source() | Aggregate() | Emit() | Ranked() | Semijoin() | Over() | Matched() | Ruled():
            return node
        case Windowed(input=inner, window=window):
            return None if isinstance(window, Rows) else without_windows(inner)
        case Filter() | Project() | Unnest():
            inner_node = without_windows(node.input)
            return None if inner_node is None else replace(node, input=inner_node)
        case Union(inputs=inputs):
            bare = tuple(without_windows(i) for i in inputs)
            kept = tuple(b for b in bare if b is not None)
            return Union(kept) if len(kept) == len(bare) else None
        case _:
            return None


def _plain(node: Node) -> bool:
    """Whether all intervals are open by nature; an aggregate's results are replaced some time."""
    if isinstance(node, Windowed):
        return isinstance(node.window, Unbounded)
    if isinstance(node, Source | Emit | Ranked | Over | Matched):
        return True
    return not isinstance(node, Aggregate) and all(_plain(i) for i in inputs_of(node))


def item_rows(bound: Bound, window: Window | Grouped | None) -> Node:
    """The rows of an item of FROM, ready for its window."""
    return as_stream(bound.node) if window is not None or bound.streamed else bound.node


def join_input(rows: Node, window: Window | None, lifetime: Lifetime) -> Node:
    """An input of a join: with its window, or for ever where it has none."""
    if window is not None:
        return Windowed(rows, window)
    if lifetime is not Lifetime.OPEN:
        return rows
    bare = without_windows(rows)
    return rows if bare is None else Windowed(bare, Unbounded())


def exposing_time(node: Node) -> Node:
    """The same rows with their time as an ordinary last column."""
    if isinstance(node, Windowed):
        return Windowed(exposing_time(node.input), node.window)
    columns: tuple[Expr, ...] = (*(Column(i) for i in range(len(node.schema))), Time())
    return Project(node, columns, (*node.schema, Field("ts", "timestamp")))


def agreed_slide(text: Text, slides: Sequence[Slide | None], what: str) -> Slide | None:
    """The one SLIDE of several inputs; None where no input has any."""
    found = [slide for slide in slides if slide is not None]
    for slide in found[1:]:
        if slide.length_us != found[0].length_us:
            raise text.error(
                f"the SLIDEs of a {what} differ", slide.span, "give all the same, or only one"
            )
        if (slide.start_span is None) != (found[0].start_span is None):
            raise text.error(
                f"the windows of a {what} are aligned differently", slide.start_span or slide.span,
                "give all the same ALIGN, or only one of them SLIDE and ALIGN",
            )  # fmt: skip
        if slide.offset_us != found[0].offset_us:
            raise text.error(
                f"the OFFSETs of a {what} differ", slide.span, "give all the same, or only one"
            )
    return found[0] if found else None


def united(lifetimes: set[Lifetime]) -> Lifetime:
    return lifetimes.pop() if len(lifetimes) == 1 else Lifetime.MIXED


__all__ = [
    "SLIDE_DEFAULT_US",
    "Bound",
    "Distinct",
    "Join",
    "Lifetime",
    "Slide",
    "agreed_slide",
    "as_stream",
    "exposing_time",
    "item_rows",
    "join_input",
    "united",
    "without_windows",
]
