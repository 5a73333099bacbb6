"""Ranks on top of a bound select: of the rows of each instant, or of all rows so far.

Results of windows are ranked by instant: the window's bounds, or `ts`, stand among what a rank
partitions by, or the rows are those of `[NOW]`; ORDER BY with LIMIT means each window by itself.
Tables, and rows that never leave, are ranked as they are so far, and the result is a table.
"""

from collections.abc import Sequence
from dataclasses import replace

from millstream.core.errors import CqlError
from millstream.language.cql.binding.ranking.clauses import Rank, Ranking
from millstream.language.cql.binding.relations import Bound, Lifetime, as_stream
from millstream.language.cql.binding.scope import Named
from millstream.language.cql.parsing.parser import Text
from millstream.language.plan.expressions import Call, Column, Expr, Literal, Time
from millstream.language.plan.nodes import (
    Aggregate,
    Emit,
    Filter,
    Node,
    Project,
    Ranked,
    Windowed,
)
from millstream.language.plan.windows import Calendar, Instant, Rows, Sliding, Snapshot

NEEDS_INSTANT = (
    "rank the rows of each window: PARTITION BY window_end, ... over an aggregate of "
    "[RANGE ... SLIDE ...], or of each instant: FROM (SELECT ...) [NOW]"
)


def with_ranks(text: Text, ranking: Ranking, bound: Bound) -> Bound:
    """The select with its ranks; hidden columns are seen no more."""
    count = len(bound.columns) - ranking.hidden
    visible, hidden = list(bound.columns[:count]), bound.columns[count:]
    source = bound.node
    node: Node = source if bound.lifetime is Lifetime.CHANGES else as_stream(source)
    instants = all(_by_instant(rank, hidden, bound) for rank in ranking.ranks)
    so_far = bound.lifetime is Lifetime.OPEN and not instants
    running = bound.lifetime is Lifetime.CHANGES or so_far
    width = len(node.schema)
    for rank in ranking.ranks:
        keys = [Column(hidden[i].position) for i in rank.partition]
        fixed = [] if running else [k for k in keys if _at_instant(source, k)]
        if not (running or _by_instant(rank, hidden, bound)):
            where = "LIMIT" if rank.of_window else rank.function.upper()
            raise _needs_instant(text, rank, f"of all rows so far ({where})")
        order = tuple((Column(hidden[i].position), way) for i, way in rank.order)
        by = tuple(k for k in keys if k not in fixed)
        node = Ranked(node, rank.function, by, order, running)
        for place, column in enumerate(visible):
            if rank.output and column.name == rank.output:
                visible[place] = replace(column, position=width)
        width += 1
    for number, rank in enumerate(ranking.ranks):
        if rank.bound is not None:
            operator, limit = rank.bound
            at = Column(len(source.schema) + number)
            node = Filter(node, Call(operator, (at, Literal(str(limit), "int"))))
    if running:
        return Bound(node, tuple(visible), Lifetime.CHANGES, bound.slide)
    return Bound(node, tuple(visible), Lifetime.OPEN, bound.slide, streamed=True)


def _by_instant(rank: Rank, hidden: Sequence[Named], bound: Bound) -> bool:
    """Whether a rank is one among the rows of an instant."""
    if rank.of_window:
        return _of_window(bound.node) or bound.momentary
    keys = (Column(hidden[i].position) for i in rank.partition)
    return bound.momentary or any(_at_instant(bound.node, key) for key in keys)


def _needs_instant(text: Text, rank: Rank, what: str) -> CqlError:
    return text.error(f"a rank {what}", rank.span, NEEDS_INSTANT)


def _at_instant(node: Node, expr: Expr) -> bool:
    """Whether rows of one value have one time: the time itself, or a bound of the window."""
    match expr:
        case Time() | Call("-", (Time(), Literal())):
            return True
        case Column(index):
            match node:
                case Project():
                    return _at_instant(node.input, node.columns[index])
                case Filter() | Emit(kind="istream"):
                    return _at_instant(node.input, expr)
                case Windowed():
                    return not isinstance(node.window, Rows) and _at_instant(node.input, expr)
                case _:
                    return False
        case _:
            return False


def _of_window(node: Node) -> bool:
    """Whether rows are the results of windows, in which each has its own time."""
    match node:
        case Project() | Filter() | Emit(kind="istream"):
            return _of_window(node.input)
        case Aggregate():
            return isinstance(node.grouping, Sliding | Snapshot | Instant | Calendar)
        case _:
            return False
