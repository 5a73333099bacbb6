"""Which segments a new owner of an operator still has to fetch: a decision from two lists.

Two processors may have merged a stream's segments differently. What the old owner has and the new
one lacks is fetched; what both have is left; where the two cut the same numbers differently, the
old owner's segments take the place of the local ones as soon as every local reader has passed them,
which is when compaction might have merged them as well. Until then the answer is to wait.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.store.segments import Segment


@dataclass(frozen=True, slots=True)
class Lack:
    """What to fetch, what it replaces, and whether something has to wait."""

    fetch: tuple[Segment, ...] = ()
    replaced: tuple[Segment, ...] = ()
    waiting: bool = False

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.fetch)


def lack_of(
    needed: Sequence[Segment],
    local: Sequence[Segment],
    *,
    cursors: Iterable[int],
    position: int | None,
    passed: int,
) -> Lack:
    """What a copy lacks of the segments that an operator needs.

    `cursors` are where the moved operators stand; `position` is the next number that the copy gets
    by pulling, None where there is no copy yet; local readers want nothing below `passed`.
    """
    places = sorted(cursors)
    lowest = places[0] if places else 0
    wanted = [g for g in needed if g.rows or g.last >= lowest]
    waiting = False
    if position is not None:
        waiting = any(g.first < position <= g.last for g in wanted)
        # an old owner that is behind has yet to pull what this processor has let go of
        behind = bool(places) and not _unbroken(lowest, position, (*wanted, *local))
        waiting = waiting or behind
        wanted = [g for g in wanted if g.last < position]
    waiting = waiting or any(s.first < c <= s.last for c in places for s in local)
    fetch: list[Segment] = []
    replaced: list[Segment] = []
    for theirs, ours in _overlapping(wanted, local):
        if all(_covered(g, ours) for g in theirs):
            continue
        if all(s.last < passed and _covered(s, theirs) for s in ours):
            fetch += theirs
            replaced += ours
        else:
            waiting = True
    return Lack(tuple(fetch), tuple(replaced), waiting)


def _overlapping(
    wanted: Sequence[Segment], local: Sequence[Segment]
) -> list[tuple[list[Segment], list[Segment]]]:
    """Groups of segments whose numbers overlap, those with something wanted."""
    marked = [(s.first, s.last, 0, s) for s in wanted] + [(s.first, s.last, 1, s) for s in local]
    marked.sort(key=lambda entry: entry[:3])
    groups: list[tuple[list[Segment], list[Segment]]] = []
    end = -1
    for first, last, side, segment in marked:
        if not groups or first > end:
            groups.append(([], []))
        groups[-1][side].append(segment)
        end = max(end, last)
    return [group for group in groups if group[0]]


def _unbroken(first: int, end: int, segments: Sequence[Segment]) -> bool:
    """Whether segments hold every number from one on, before another."""
    following = first
    for segment in sorted(segments, key=lambda s: s.first):
        if segment.first <= following <= segment.last:
            following = segment.last + 1
    return following >= end


def _covered(segment: Segment, others: Sequence[Segment]) -> bool:
    """Whether every number of a segment is one of the others'."""
    return _unbroken(segment.first, segment.last + 1, others)
