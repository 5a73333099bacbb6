"""Which operators could be computed in one job, and what each of them is in there.

Operators of one class read the same streams and differ in what a shared job can tell apart:
filters, projections, starts, windows of joins and of sliding aggregates, aggregate functions.
Whether two operators of a class do run together depends on where their cursors stand, which is the
engine's business.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from millstream.language.plan.calls import BY_ORDER
from millstream.language.plan.expressions import total
from millstream.language.plan.keys import digest, expression_key
from millstream.language.plan.nodes import Aggregate, Join, Source
from millstream.language.plan.windows import Instant, Now, Range, Sliding, reach
from millstream.language.share.dataflow import Operator, is_core, pane_length, stream_of
from millstream.language.share.rowwise import TIME_US, Rowwise, rowwise
from millstream.language.share.shared_panes import PaneMember, WindowMember, pane_member
from millstream.language.share.shared_plan import JoinMember, Member, has_time, join_member

WINDOWS_ALIKE = 8  # windows of joins that share are at most so many times as long as others
Part = Member | JoinMember | PaneMember | WindowMember


@dataclass(frozen=True, slots=True)
class Candidate:
    """An operator as a member of its class."""

    operator: Operator
    family: str  # the class: equal for operators that one job can compute
    part: Part


@lru_cache(maxsize=4096)
def candidate(operator: Operator) -> Candidate | None:
    """The operator's class; None where it can only run alone."""
    found = {
        "map": _map,
        "join": _join,
        "partial": _panes,
        "combine": _windows,
    }.get(operator.kind, _alone)(operator)
    if found is None:
        return None
    family, part = found
    return Candidate(operator, f"{operator.kind}:{digest(*family)}", part)


Found = tuple[tuple[str, ...], Part] | None


def _alone(_: Operator) -> Found:
    return None


def _map(operator: Operator) -> Found:
    rows = rowwise(operator.node, is_core)
    if rows is None or not isinstance(rows.interval, str) or len(operator.inputs) != 1:
        return None
    member = Member(operator.id, rows, operator.node.schema)
    return (stream_of(rows.leaf), rows.leaf.fingerprint, rows.interval), member


def _join(operator: Operator) -> Found:
    join = operator.core
    assert isinstance(join, Join)
    top = rowwise(operator.node, lambda node: node is join)
    sides = [rowwise(i, is_core) for i in join.inputs]
    known = [s for s in sides if s is not None]
    if top is None or top.interval != "own" or len(known) != len(sides):
        return None
    if any(has_time(s) for s in known):
        return None
    order = sorted(range(len(known)), key=lambda p: (stream_of(known[p].leaf), p))
    member = join_member(operator.id, top, join, known, order, operator.node.schema)
    intervals = _intervals([known[p] for p in order])
    keys = sorted(expression_key(k) for k in member.keys)
    leaves = [known[p].leaf.fingerprint for p in order]
    return (*leaves, *intervals, "by", *keys), member


def _intervals(sides: Sequence[Rowwise]) -> list[str]:
    """Windows may differ where all sides have one; else they are part of the class."""
    if any(isinstance(s.interval, str) for s in sides):
        return [repr(s.interval) for s in sides]
    return ["window" if isinstance(s.interval, Range | Now) else "unbounded" for s in sides]


def _pane_part(node: Aggregate, stream: str) -> tuple[tuple[str, ...], PaneMember] | None:
    rows = rowwise(node.input, is_core)
    if rows is None:
        return None
    member = pane_member(stream, node, rows)
    if not all(total(k) for k in member.keys):
        return None  # a key that raises would raise for rows of others
    if not isinstance(rows.leaf, Source) and any(c.function in BY_ORDER for c in member.calls):
        return None  # rows without a position are ordered by the columns that their query selects
    keys = [expression_key(k) for k in member.keys]
    return (rows.leaf.fingerprint, *keys), member


def _panes(operator: Operator) -> Found:
    assert isinstance(operator.core, Aggregate)
    return None if len(operator.inputs) != 1 else _pane_part(operator.core, operator.id)


def _windows(operator: Operator) -> Found:
    core = operator.core
    assert isinstance(core, Aggregate)
    found = _pane_part(core, operator.inputs[0])
    top = rowwise(operator.node, lambda node: node is core)
    if found is None or top is None or top.interval != "own":
        return None
    family, panes = found
    match core.grouping:
        case Sliding(length, slide, offset, cumulates):
            window = f"{length}/{slide}/{offset}{'/cumulates' if cumulates else ''}"
        case Instant():
            window = "now"
        case _:
            return None
    types = [f.type for f in core.fields[: len(core.keys)]]
    member = WindowMember(operator.id, panes, core, top, operator.node.schema)
    return (*family, window, str(pane_length(core)), *types), member


def split_by_sides(members: Iterable[Candidate]) -> list[list[Candidate]]:
    """Members of one class that should share; only joins may be better apart.

    The shared join takes from each side what any member takes, and pairs within the longest
    window. If one member filters nothing, all others of its window come for free; else only those
    that filter the same sides go together. Windows of very unlike lengths do not.
    """
    found = list(members)
    groups: list[list[Candidate]] = []
    for alike in _by_length(found):
        shapes = [_filtered_sides(c.part) for c in alike]
        if () in shapes:
            groups.append(alike)
            continue
        sides: dict[tuple[int, ...], list[Candidate]] = {}
        for member, shape in zip(alike, shapes, strict=True):
            sides.setdefault(shape, []).append(member)
        groups += sides.values()
    return groups


def _by_length(members: Sequence[Candidate]) -> list[list[Candidate]]:
    """Runs of members whose longest windows differ by a factor of eight at most."""
    groups: list[list[Candidate]] = []
    shortest = 0
    for member in sorted(members, key=lambda c: _longest(c.part)):
        if not groups or _longest(member.part) > WINDOWS_ALIKE * shortest + 1:
            groups.append([])
            shortest = _longest(member.part)
        groups[-1].append(member)
    return groups


def _longest(part: Part) -> int:
    if not isinstance(part, JoinMember):
        return 0
    return max((reach(w) for w in part.windows if isinstance(w, Range)), default=0)


def _filtered_sides(part: Part) -> tuple[int, ...]:
    if not isinstance(part, JoinMember):
        return ()
    return tuple(
        p
        for p, side in enumerate(part.sides)
        if any(TIME_US not in getattr(t, "args", ()) for t in side.conditions)
    )
