"""What of its inputs an operator still needs: what it has yet to read, what it may read again.

An operator has read everything before its cursor. Its windows reach back from there: the tail of an
input is what a later step can still need. Which segments those are follows from the operator's plan
and the watermarks at its cursors, never from the head's.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

from millstream.language.plan.nodes import (
    Aggregate,
    Emit,
    Filter,
    Join,
    Node,
    Over,
    Project,
    Ranked,
    Semijoin,
    Union,
    Windowed,
    inputs_of,
    is_relation,
)
from millstream.language.plan.products import outermost_window
from millstream.language.plan.windows import FOREVER, Rows, Sliding, longer, reach
from millstream.language.share.dataflow import (
    Kind,
    Operator,
    has_rows,
    interval_leaves,
    lasting,
    leaves,
    pane_length,
    relation_of,
    stream_of,
)
from millstream.store.ledger import Ledger
from millstream.store.segments import Segment

Marks = Mapping[str, int]  # the watermark of each input at the operator's cursor
# Kinds that read their own output back: it is kept, and its compaction keeps what they need.
SELF_READING: frozenset[Kind] = frozenset(
    {"distinct", "running", "table_semijoin", "table_rank", "table_over"}
)
# Kinds that keep what they cannot tell yet in streams of their own.
WITH_STATE: frozenset[Kind] = frozenset(
    {"interval", "semijoin", "running_emit", "session", "over", "calendar", "match"}
)


def pending(ledger: Ledger, operator: Operator) -> dict[str, list[Segment]]:
    """Segments each input has beyond the operator's cursor."""
    found = {}
    for stream in operator.inputs:
        following, _ = ledger.cursor(operator.id, stream)
        found[stream] = ledger.segments(stream, following)
    return found


def marks(ledger: Ledger, operator: Operator) -> dict[str, int]:
    """The watermark of each input at the operator's cursor."""
    return {s: ledger.cursor(operator.id, s)[1] for s in operator.inputs}


def reachable(operator: Operator, segment: Segment, at: Marks) -> bool:
    """Whether a later step of the operator can still need a segment that it has consumed."""
    return REACHES[operator.kind](operator, segment, at)


@lru_cache(maxsize=4096)
def reach_of(operator: Operator) -> tuple[object, ...]:
    """Equal for operators that need the same of a segment as long as their marks are the same."""
    match operator.kind, operator.core:
        case "map" | "partial" | "session" | "calendar", _:
            return ()
        case "combine", Aggregate() as node:
            return ("combine", pane_length(node), window_of(node).length)
        case "join", Join(inputs=members):
            windows = (outermost_window(m) for m in members)
            sides = (tuple(sorted(stream_of(leaf) for leaf in leaves(m))) for m in members)
            whole = all(len(union_branches(m)) == 1 for m in members)
            known = tuple(reach(w.window) if w else None for w in windows)
            return ("join", *zip(sides, known, strict=True)) if whole else (operator.id,)
        case _:
            return (operator.id,)


def _never(operator: Operator, segment: Segment, at: Marks) -> bool:  # noqa: ARG001
    """Each row on arrival, by itself or into the operator's own state."""
    return False


def _joined(operator: Operator, segment: Segment, at: Marks) -> bool:
    """A row stays until every other input's watermark has passed the end of its interval."""
    join = operator.core
    assert isinstance(join, Join)
    for position, member in enumerate(join.inputs):
        if segment.stream in {stream_of(leaf) for leaf in leaves(member)}:
            others = _horizon(join, position, at)
            if member_end(member, segment) > others:
                return True
    return False


def _horizon(join: Join, position: int, at: Marks) -> int:
    """The least watermark among the streams of the other members."""
    return min(
        at[stream_of(leaf)]
        for other, member in enumerate(join.inputs)
        if other != position
        for leaf in leaves(member)
    )


def _combined(operator: Operator, segment: Segment, at: Marks) -> bool:
    """A pane is needed until the watermark has passed the last window that holds it."""
    node = operator.core
    assert isinstance(node, Aggregate)
    pane_start = segment.ts_max - (pane_length(node) - 1)
    return pane_start + window_of(node).length > at[segment.stream]


def _at_instants(operator: Operator, segment: Segment, at: Marks) -> bool:
    """Rows at or after the watermark are still to be decided; others live to their end."""
    core = operator.core
    assert core is not None
    decided = min(at.values())
    if segment.ts_max >= decided:
        return True
    return any(
        member_end(member, segment) >= decided
        for member in _plain_members(relation_of(core))
        if segment.stream in {stream_of(leaf) for leaf in interval_leaves(member)}
    )


def _undecided_partners(operator: Operator, segment: Segment, at: Marks) -> bool:
    """Rows of the first input live to their end; those of the second as long after theirs as a row
    that met them may wait for its end."""
    core = operator.core
    assert isinstance(core, Semijoin)
    decided = min(at.values())
    if segment.ts_max >= decided:
        return True
    left, right = core.inputs
    return any(
        longer(member_end(member, segment), waits) >= decided
        for side, waits in ((left, 0), (right, longer(lasting(left), 1)))
        for member in _plain_members(side)
        if segment.stream in {stream_of(leaf) for leaf in interval_leaves(member)}
    )


def _plain_members(node: Node) -> tuple[Node, ...]:
    """Members whose rows are read from their stream as long as they live."""
    match node:
        case Windowed(window=Rows()):
            return ()
        case Join() | Union() | Filter() | Project() if has_rows(node):
            return tuple(m for child in inputs_of(node) for m in _plain_members(child))
        case _:
            return (node,)


def _undecided(operator: Operator, segment: Segment, at: Marks) -> bool:  # noqa: ARG001
    """Rows wait for the watermark."""
    return segment.ts_max >= min(at.values())


def _near_undecided(operator: Operator, segment: Segment, at: Marks) -> bool:
    """Rows wait for the watermark, and longer where a later row's frame of time reaches them.

    Frames of rows take what lies before the watermark from the operator's state.
    """
    assert isinstance(operator.core, Over)
    return segment.ts_max >= min(at.values()) - time_reach(operator.core)


def _of_a_table(operator: Operator, segment: Segment, at: Marks) -> bool:  # noqa: ARG001
    """An input that is a relation is needed as a table for ever."""
    assert isinstance(operator.core, Aggregate)
    return is_relation(operator.core.input)


def _always(operator: Operator, segment: Segment, at: Marks) -> bool:  # noqa: ARG001
    """A row of a table may meet others as long as it is there."""
    return True


def _of_a_ranking(operator: Operator, segment: Segment, at: Marks) -> bool:  # noqa: ARG001
    """The first rows of a stream are in the operator's own output; a table can lose them."""
    core = operator.core
    assert isinstance(core, Ranked)
    return core.limit is None or is_relation(core.input)


def _before_a_multiple(operator: Operator, segment: Segment, at: Marks) -> bool:
    """Rows wait for the first multiple at or after their time."""
    assert isinstance(operator.core, Emit)
    slide = operator.core.slide
    return -(-segment.ts_max // slide) * slide >= min(at.values())


def _beside(operator: Operator, segment: Segment, at: Marks) -> bool:  # noqa: ARG001
    """Rules are read at every step; rows come by once."""
    return segment.stream in operator.sides


REACHES: dict[Kind, Callable[[Operator, Segment, Marks], bool]] = {
    "map": _never,
    "join": _joined,
    "partial": _never,
    "combine": _combined,
    "interval": _at_instants,
    "semijoin": _undecided_partners,
    "distinct": _undecided,
    "running": _of_a_table,
    "running_emit": _before_a_multiple,
    "session": _never,
    "calendar": _never,
    "rank": _undecided,
    "over": _near_undecided,
    "match": _undecided,
    "table_join": _always,
    "table_semijoin": _always,
    "table_rank": _of_a_ranking,
    "table_over": _always,
    "rules": _beside,
}


def time_reach(node: Over) -> int:
    """How far before the watermark rows are needed again: to the frame's start of the first row
    that is undecided."""
    frames = (f for f in node.frames if f.by == "time" and not f.unbounded)
    return waiting(node) - min((0, *(f.first for f in frames)))


def waiting(node: Over) -> int:
    """How far the watermark has to be past a row, in microseconds, before its frames are whole."""
    return max((0, *(f.last for f in node.frames if f.by == "time")))


# -- windows of plans -----------------------------------------------------------------------------


def member_end(member: Node, segment: Segment) -> int:
    """The latest end of an interval among a segment's rows, seen through a member's window."""
    branches = union_branches(member)
    if len(branches) > 1:
        reading = (b for b in branches if segment.stream in {stream_of(f) for f in leaves(b)})
        return max(member_end(branch, segment) for branch in reading)
    window = outermost_window(member)
    if window is None:
        return segment.until_max if segment.until_max > segment.ts_max else FOREVER
    length = reach(window.window)
    return FOREVER if length == FOREVER else segment.ts_max + length + 1


def union_branches(node: Node) -> tuple[Node, ...]:
    """The sides of a union below filters and projections, which change no interval."""
    while isinstance(node, Filter | Project):
        node = node.input
    if isinstance(node, Union):
        return tuple(b for side in node.inputs for b in union_branches(side))
    return (node,)


def window_of(node: Aggregate) -> Sliding:
    return node.grouping if isinstance(node.grouping, Sliding) else Sliding(1, 1)
