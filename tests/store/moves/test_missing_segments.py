"""What a new owner fetches: never too little, never a row twice, whoever merged what."""

import random

from hypothesis import given
from hypothesis import strategies as st

from millstream.store.moves.missing_segments import lack_of
from millstream.store.segments import Segment

FAR = 1 << 40


def segment(first: int, last: int | None = None, rows: int = 1) -> Segment:
    return Segment("s", first, last or first, "f", None, rows, 1, 0, 0, 0, 0, 0.0)


def numbers(segments: list[Segment]) -> list[tuple[int, int]]:
    return sorted((s.first, s.last) for s in segments)


def test_without_a_copy_everything_is_fetched() -> None:
    needed = [segment(1, 4), segment(5), segment(6)]
    lack = lack_of(needed, [], cursors=[6], position=None, passed=FAR)
    assert numbers(list(lack.fetch)) == [(1, 4), (5, 5), (6, 6)]
    assert not lack.waiting


def test_what_is_here_is_left_and_what_comes_by_pulling_waits_for_that() -> None:
    needed = [segment(1), segment(2), segment(3)]
    lack = lack_of(needed, [segment(2)], cursors=[3], position=3, passed=FAR)
    assert numbers(list(lack.fetch)) == [(1, 1)]
    assert lack.replaced == ()
    assert not lack.waiting


def test_segments_merged_there_replace_single_ones_once_all_readers_have_passed() -> None:
    needed, local = [segment(1, 4)], [segment(3), segment(4)]
    waits = lack_of(needed, local, cursors=[5], position=9, passed=4)
    assert waits.waiting
    assert waits.fetch == ()
    lack = lack_of(needed, local, cursors=[5], position=9, passed=5)
    assert numbers(list(lack.fetch)) == [(1, 4)]
    assert numbers(list(lack.replaced)) == [(3, 3), (4, 4)]


def test_a_cursor_inside_a_segment_that_was_merged_here_waits() -> None:
    assert lack_of([segment(3)], [segment(1, 4)], cursors=[3], position=9, passed=FAR).waiting
    assert not lack_of([segment(5)], [segment(1, 5)], cursors=[6], position=6, passed=FAR).waiting


def test_an_old_owner_that_is_behind_what_is_left_here_is_waited_for() -> None:
    """Its cursor stands at 1 and it has pulled nothing; here all below 5 was let go of."""
    assert lack_of([], [segment(5)], cursors=[1], position=6, passed=FAR).waiting
    assert not lack_of([segment(1, 4)], [segment(5)], cursors=[1], position=6, passed=FAR).waiting


def test_a_tail_segment_without_rows_is_not_needed() -> None:
    needed = [segment(1, rows=0), segment(2, rows=0)]
    lack = lack_of(needed, [], cursors=[2], position=9, passed=FAR)
    assert numbers(list(lack.fetch)) == [(2, 2)], "the one at the cursor tells a watermark"


@given(st.integers(0, 10_000))
def test_merged_in_any_way_on_both_sides(seed: int) -> None:
    """After fetching, every needed number is here exactly once, unless something waits."""
    chance = random.Random(seed)
    head = chance.randrange(2, 16)
    needed = _cut(chance, 1, head)
    local = [s for s in _cut(chance, 1, head) if chance.random() < 0.7]
    cursor = chance.choice([s.first for s in needed] + [head])
    position = chance.choice([None, head])
    passed = chance.choice([head, head, chance.randrange(1, head + 1)])
    lack = lack_of(needed, local, cursors=[cursor], position=position, passed=passed)
    assert all(s in local for s in lack.replaced)
    assert all(s.last < passed for s in lack.replaced), "nobody is still to read them"
    after = [s for s in local if s not in lack.replaced] + list(lack.fetch)
    held = [n for s in after for n in range(s.first, s.last + 1)]
    assert len(held) == len(set(held)), "no number twice"
    if not lack.waiting:
        wanted = {n for s in needed for n in range(s.first, s.last + 1)}
        assert wanted <= set(held), "no number is missing"
        assert not any(s.first < cursor <= s.last for s in after)


def _cut(chance: random.Random, first: int, following: int) -> list[Segment]:
    found = []
    while first < following:
        last = min(following - 1, first + chance.choice((0, 0, 1, 3)))
        found.append(segment(first, last))
        first = last + 1
    return found
