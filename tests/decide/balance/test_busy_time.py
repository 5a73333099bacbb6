"""Busy time: no second of a step is lost, no load exceeds one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.decide.balance.busy_time import BusyTime, after_window

SECONDS = st.lists(st.floats(0, 5), min_size=1, max_size=10)


@settings(deadline=None, max_examples=30)
@given(SECONDS)
def test_all_seconds_are_counted_in_the_end(steps: list[float]) -> None:
    known, counted = BusyTime(), 0.0
    for seconds in [*steps, *[0.0] * 60]:
        known, load = after_window(known, {"o": seconds}, 1.0, alpha=0.9, present={"o"})
        assert 0 <= load <= 1
        counted += load
    assert counted == pytest.approx(sum(steps))


def test_shares_follow_the_filter_and_leave_with_their_operator() -> None:
    known = BusyTime()
    for _ in range(100):
        known, load = after_window(known, {"a": 0.3, "b": 0.1}, 1.0, alpha=0.8, present={"a", "b"})
    assert known.operators == {"a": pytest.approx(0.3), "b": pytest.approx(0.1)}
    assert load == pytest.approx(sum(known.operators.values()))
    known, _ = after_window(known, {}, 1.0, alpha=0.8, present={"b"})
    assert known.operators == {"b": pytest.approx(0.08)}


def test_a_window_without_length_changes_nothing() -> None:
    known = BusyTime(1.0, {"a": 0.5})
    assert after_window(known, {"a": 1.0}, 0.0, alpha=0.5, present={"a"}) == (known, 0.0)
