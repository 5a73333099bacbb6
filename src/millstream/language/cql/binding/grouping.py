"""How the windows under an aggregate make groups of rows, and what names mean above them."""

from dataclasses import dataclass, replace

from sqlglot import exp

from millstream.core.errors import CqlError
from millstream.language.cql.binding.expressions import Lowering, refuse_other_aggregate, span_of
from millstream.language.cql.binding.from_clause import From
from millstream.language.cql.binding.over.window_starts import beginning
from millstream.language.cql.binding.relations import SLIDE_DEFAULT_US, Lifetime, Slide
from millstream.language.cql.binding.scope import Scope, is_time
from millstream.language.cql.literals import interval
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import Span
from millstream.language.plan.expressions import Call, Column, Expr, Time, columns_of
from millstream.language.plan.nodes import Filter, Join, Node, Project, Union, Windowed
from millstream.language.plan.walks import windows_of
from millstream.language.plan.windows import (
    Calendar,
    Change,
    Grouped,
    Grouping,
    Instant,
    Now,
    Range,
    Rows,
    Running,
    Session,
    Sliding,
    Snapshot,
    Unbounded,
    Window,
)

WINDOW_NAMES = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A grouping with the rows under it, and a SLIDE that is left for ISTREAM and its kin."""

    grouping: Grouping
    rows: Node
    slide: Slide | None = None
    length_us: int | None = None  # of its windows, where all are of one length


def choose_grouping(text: Text, source: From) -> Chosen:
    """How the windows of FROM group its rows."""
    slide_us = source.slide.length_us if source.slide else SLIDE_DEFAULT_US
    window = _window(source)
    if source.lifetime is Lifetime.MIXED:
        raise text.error(
            "an aggregate over a union of rows with and without a window",
            _place(source), "give all of them a window",
        )  # fmt: skip
    match window:
        case Range(length):
            offset = _offset(text, source.slide, {length})
            return Chosen(
                Sliding(length, slide_us, offset), _unwindowed(source.rows), length_us=length
            )
        case Now():
            return Chosen(Instant(), _unwindowed(source.rows))
        case Rows():
            return Chosen(Change(), source.rows)
        case Session() | Sliding() | Calendar():
            return Chosen(window, source.rows)
        case _:
            pass
    if source.lifetime is Lifetime.BOUNDED:
        return _snapshot(text, source, slide_us)
    unbounded = source.item is not None and source.item.window is not None
    rows = _unwindowed(source.rows) if unbounded else source.rows
    return Chosen(Running(), rows, source.slide)


def _snapshot(text: Text, source: From, slide_us: int) -> Chosen:
    """An aggregate over a join or union: each window counts its rows of [e - range, e)."""
    windows = set(windows_of(source.rows))
    ranges = {w.length for w in windows if isinstance(w, Range)}
    offset = _offset(text, source.slide, ranges)
    alike = len(ranges) == 1 and all(isinstance(w, Range | Unbounded) for w in windows)
    return Chosen(
        Snapshot(slide_us, max(ranges, default=0), offset),
        _half_open(source.rows),
        length_us=next(iter(ranges)) if alike else None,
    )


def _offset(text: Text, slide: Slide | None, ranges: set[int]) -> int:
    """How far ends lie behind the multiples of SLIDE: starts lie on them with ALIGN START, and
    OFFSET moves both."""
    if slide is None or slide.start_span is None:
        return 0 if slide is None else slide.offset_us % slide.length_us
    offsets = {length % slide.length_us for length in ranges}
    if len(offsets) != 1:
        raise text.error(
            "ALIGN START cannot align the starts of all windows", slide.start_span,
            "give all the same RANGE, or leave out ALIGN START: ends are common to all windows",
        )  # fmt: skip
    return (offsets.pop() + slide.offset_us) % slide.length_us


def _half_open(rows: Node) -> Node:
    """The rows with ranges whose ends are not included, as an aggregate counts them."""
    match rows:
        case Windowed(window=Range() as window):
            return replace(rows, window=replace(window, half_open=True))
        case Filter() | Project():
            return replace(rows, input=_half_open(rows.input))
        case Join() | Union():
            return replace(rows, inputs=tuple(_half_open(below) for below in rows.inputs))
        case _:
            return rows


def _place(source: From) -> Span:
    return span_of(source.item.node) if source.item is not None else Span(0, 0)


def _window(source: From) -> Window | Grouped | None:
    """The one window that the rows' intervals come from, also one inside a plain subquery."""
    if source.item is None or source.item.window is not None:
        return None if source.item is None else source.item.window
    rows = source.rows
    while isinstance(rows, Filter | Project):
        rows = rows.input
    return rows.window if isinstance(rows, Windowed) else None


def _unwindowed(rows: Node) -> Node:
    """The rows without the window that the grouping stands for."""
    match rows:
        case Filter() | Project():
            return replace(rows, input=_unwindowed(rows.input))
        case Windowed(input=inner):
            return inner
        case _:
            return rows


class GroupResolver:
    """Names above an aggregate: its keys, its calls, the time and bounds of its window."""

    def __init__(self, text: Text, over: Lowering, chosen: Chosen, scope: Scope) -> None:
        self._text, self._over, self._chosen, self._scope = text, over, chosen, scope
        self._keys: list[Expr] = []
        self._places: dict[int, Column] = {}

    @property
    def instant(self) -> bool:
        return isinstance(self._chosen.grouping, Instant)

    def ready(self, keys: list[Expr], places: dict[int, Column]) -> None:
        self._keys, self._places = keys, places

    def names_window(self, node: exp.Expr) -> bool:
        """`window_start` or `window_end`, where no column has that name."""
        return self.unknown(node) and node.name.lower() in WINDOW_NAMES

    def unknown(self, node: exp.Expr) -> bool:
        """A single name that no column of FROM has."""
        return (
            isinstance(node, exp.Column)
            and len(node.parts) == 1
            and not self._scope.knows(node.name)
            and not is_time(node.name)
        )

    def resolve(self, node: exp.Expr) -> Expr | None:
        if id(node) in self._places:
            return self._places[id(node)]
        refuse_other_aggregate(self._text, node)
        if self.names_window(node):
            return self._bound(node)
        below = self._quietly(node)
        if below is None:
            return None
        if below in self._keys:
            return Column(self._keys.index(below))
        if isinstance(node, exp.Column):
            if columns_of(below):
                raise self._text.error(
                    f"column {node.name} is neither grouped nor aggregated", span_of(node),
                    f"add it to GROUP BY, or take last({node.name})",
                )  # fmt: skip
            return below
        return None

    def _quietly(self, node: exp.Expr) -> Expr | None:
        """The node as an expression over the rows below; None where it is none."""
        mark = len(self._over.trail)
        try:
            return self._over.lower(node)
        except CqlError:
            if isinstance(node, exp.Column):
                raise
            return None
        finally:
            del self._over.trail[mark:]

    def _bound(self, node: exp.Expr) -> Expr:
        if self.instant:  # a window of one microsecond
            end = Call("+", (Time(), interval(1)))
            return end if node.name.lower() == "window_end" else Time()
        if not isinstance(self._chosen.grouping, Grouped | Snapshot):
            raise self._text.error(
                f"{node.name} has no meaning over this window", span_of(node),
                "it belongs to windows of time; ts is the time of each result",
            )  # fmt: skip
        if node.name.lower() == "window_end":
            return Time()
        began = beginning(self._chosen.grouping)
        if began is not None:
            return began
        if self._chosen.length_us is None:
            raise self._text.error(
                f"{node.name} has no meaning over windows that begin at different times",
                span_of(node), "give all windows the same RANGE; window_end is common to all",
            )  # fmt: skip
        return Call("-", (Time(), interval(self._chosen.length_us)))
