"""How the window under an aggregate makes groups of rows, and what names mean above them."""

from dataclasses import replace

from sqlglot import exp

from millstream.cql.expressions import Lowering, span_of
from millstream.cql.from_clause import From
from millstream.cql.literals import interval
from millstream.cql.parser import Text
from millstream.cql.relations import SLIDE_DEFAULT_US, Lifetime, Slide
from millstream.cql.scope import Scope, is_time
from millstream.cql.syntax import Span
from millstream.errors import CqlError
from millstream.plan.expressions import Call, Column, Expr, Time, columns_of
from millstream.plan.nodes import Filter, Node, Project, Windowed
from millstream.plan.windows import (
    Change,
    Grouping,
    Instant,
    Now,
    Range,
    Rows,
    Running,
    Sliding,
    Snapshot,
    Window,
)

WINDOW_NAMES = ("window_start", "window_end")


def choose_grouping(text: Text, source: From) -> tuple[Grouping, Node, Slide | None]:
    """The grouping, the rows under it, and a SLIDE that is left for ISTREAM and its kin."""
    slide_us = source.slide.length_us if source.slide else SLIDE_DEFAULT_US
    window = _window(source)
    if source.lifetime is Lifetime.MIXED:
        raise text.error(
            "an aggregate over a union of rows with and without a window",
            _place(source), "give all of them a window",
        )  # fmt: skip
    match window:
        case Range(length):
            return Sliding(length, slide_us), _unwindowed(source.rows), None
        case Now():
            return Instant(), _unwindowed(source.rows), None
        case Rows():
            return Change(), source.rows, None
        case _:
            pass
    if source.lifetime is Lifetime.BOUNDED:
        return Snapshot(slide_us), source.rows, None
    unbounded = source.item is not None and source.item.window is not None
    rows = _unwindowed(source.rows) if unbounded else source.rows
    return Running(), rows, source.slide


def _place(source: From) -> Span:
    return span_of(source.item.node) if source.item is not None else Span(0, 0)


def _window(source: From) -> Window | None:
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

    def __init__(self, text: Text, over: Lowering, grouping: Grouping, scope: Scope) -> None:
        self._text, self._over, self._grouping, self._scope = text, over, grouping, scope
        self._keys: list[Expr] = []
        self._places: dict[int, Column] = {}

    @property
    def instant(self) -> bool:
        return isinstance(self._grouping, Instant)

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
        ends = node.name.lower() == "window_end"
        match self._grouping:
            case Sliding(length):
                return Time() if ends else Call("-", (Time(), interval(length)))
            case Snapshot() if ends:
                return Time()
            case _:
                raise self._text.error(
                    f"{node.name} has no meaning over this window", span_of(node),
                    "it belongs to [RANGE ...]; ts is the time of each result",
                )  # fmt: skip
