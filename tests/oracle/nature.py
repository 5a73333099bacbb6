"""What a query's result is: a stream or a relation, and how its rows got their intervals.

Decided from the query alone, by the rules of the semantics. `shape` tells where intervals come
from:

- range, now, rows, forever: one window, untouched since (`length` is the range's);
- mixed: joins and unions, whose intervals are of no single window;
- result: results of aggregates, DISTINCT and explicit ISTREAM, DSTREAM, RSTREAM: a stream of its
  own; read by another query without a window, its rows are there for ever.
"""

from dataclasses import dataclass, replace
from typing import Literal

from oracle.model import (
    SECOND,
    Emit,
    FromItem,
    Now,
    Query,
    Range,
    Rows,
    Select,
    Source,
    Sub,
    Unbounded,
    Union,
    Window,
)

Shape = Literal["range", "now", "rows", "forever", "mixed", "result"]
Grouping = Literal["sliding", "instant", "change", "snapshot", "running"]


@dataclass(frozen=True, slots=True)
class Nature:
    """Facts about a result that decide how it is read further."""

    shape: Shape
    relation: bool = False
    length: int = 0  # of a range
    slide: int | None = None  # as written; a second when absent
    positioned: bool = True  # rows still have the position of a source row
    instant: bool = False  # every interval is one microsecond, by a [NOW] input
    endless: bool = False  # some intervals may never end
    ranges: frozenset[int] = frozenset()  # lengths of the ranges that intervals come from
    align_start: bool = False  # windows of an aggregate start at multiples of the slide
    shift: int = 0  # how far an aggregate's ends lie behind those multiples

    @property
    def step(self) -> int:
        return self.slide or SECOND


def windowed(nature: Nature, window: Window) -> Nature:
    """A window starts new intervals from the rows' times; it keeps only the position."""
    if nature.relation:
        raise ValueError("a relation has no window")
    kept = Nature("forever", positioned=nature.positioned)
    match window:
        case Range(length, slide, align_start):
            return replace(
                kept,
                shape="range",
                length=length,
                slide=slide,
                ranges=frozenset({length}),
                align_start=align_start,
            )
        case Now():
            return replace(kept, shape="now", instant=True)
        case Unbounded(slide):
            return replace(kept, slide=slide, endless=True)
        case Rows():
            return replace(kept, shape="rows", endless=True)


def item_nature(source: FromItem) -> Nature:
    """What a FROM item gives."""
    match source:
        case Source():
            return windowed(Nature("forever"), source.window or Unbounded())
        case Sub():
            inner = query_nature(source.query)
            if source.window is not None:
                return windowed(inner, source.window)
            if inner.relation or inner.shape != "result":
                return inner
            return Nature("forever", positioned=inner.positioned, endless=True)


def grouping_of(inputs: list[Nature]) -> Grouping:
    """How an aggregate over these inputs forms its windows."""
    if any(nature.relation for nature in inputs) or all(n.shape == "forever" for n in inputs):
        return "running"
    if len(inputs) > 1:
        return "snapshot"
    match inputs[0].shape:
        case "range":
            return "sliding"
        case "now":
            return "instant"
        case "rows":
            return "change"
        case _:
            return "snapshot"


def _slide(inputs: list[Nature]) -> int | None:
    slides = {nature.slide for nature in inputs} - {None}
    if len(slides) > 1:
        raise ValueError("windows of one query differ in SLIDE: the oracle leaves that open")
    return next(iter(slides), None)


def shift_of(inputs: list[Nature]) -> int:
    """How far window ends lie behind multiples of the slide: a window's length, or nothing."""
    aligned = {nature.align_start for nature in inputs if nature.slide is not None}
    if True not in aligned:
        return 0
    if len(aligned) > 1:
        raise ValueError("windows of one query differ in ALIGN: that is refused")
    lengths = frozenset().union(*(nature.ranges for nature in inputs))
    step = _slide(inputs) or SECOND
    if len({length % step for length in lengths}) > 1:
        raise ValueError("ALIGN START of windows that cannot all start there: that is refused")
    return max(lengths)


def _mixed_ranges(parts: list[Nature]) -> tuple[frozenset[int], bool]:
    """Ranges of all parts of a join or union, and whether their windows are aligned at starts."""
    ranges: frozenset[int] = frozenset().union(*(part.ranges for part in parts))
    return ranges, any(part.align_start for part in parts)


def _select_nature(select: Select) -> Nature:
    if select.by_lifetime:
        return Nature("result", positioned=False, endless=True)
    inputs = [item_nature(source) for source in select.sources]
    slide = _slide(inputs)
    if any(nature.relation for nature in inputs):
        if len(inputs) > 1:
            raise ValueError("a relation is not joined")
        return Nature("result", relation=True, slide=slide, positioned=False)
    if select.aggregated:
        grouping = grouping_of(inputs)
        return Nature(
            "result",
            relation=grouping == "running",
            slide=slide,
            positioned=False,
            instant=grouping == "instant",
            endless=grouping == "change",
            shift=shift_of(inputs),
        )
    if len(inputs) == 1:
        nature = inputs[0]
    else:
        nature = Nature(
            "forever" if all(n.shape == "forever" for n in inputs) else "mixed",
            slide=slide,
            positioned=False,
            instant=any(n.instant for n in inputs),
            endless=all(n.endless for n in inputs),
        )
        ranges, align_start = _mixed_ranges(inputs)
        nature = replace(nature, ranges=ranges, align_start=align_start)
    return replace(nature, shape="result", positioned=False) if select.distinct else nature


def _union_nature(union: Union) -> Nature:
    branches = [query_nature(branch) for branch in union.branches]
    relations = {nature.relation for nature in branches}
    if len(relations) > 1:
        raise ValueError("a union of a stream and a relation")
    shapes = {nature.shape for nature in branches}
    shape: Shape = "mixed"
    if "result" in shapes:
        shape = "result"
    elif shapes == {"forever"}:
        shape = "forever"
    ranges, align_start = _mixed_ranges(branches)
    return Nature(
        shape,
        relation=relations == {True},
        slide=_slide(branches),
        positioned=False,
        instant=all(n.instant for n in branches),
        endless=any(n.endless for n in branches),
        ranges=ranges,
        align_start=align_start,
    )


def query_nature(query: Query) -> Nature:
    """What a query gives; its intervals are what an enclosing DSTREAM or RSTREAM sees."""
    match query:
        case Select():
            return _select_nature(query)
        case Union():
            return _union_nature(query)
        case Emit(kind, inner):
            nature = query_nature(inner)
            kept = kind == "ISTREAM" and nature.positioned
            return Nature("result", positioned=kept, endless=True)
