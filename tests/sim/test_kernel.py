"""Virtual time: order, cancellation, series, random streams."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.sim.kernel import Kernel, stream_seed


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(-2, 2)), max_size=40))
@settings(deadline=None)
def test_events_run_by_time_then_priority_then_order_of_call(plan: list[tuple[float, int]]) -> None:
    kernel = Kernel()
    ran: list[tuple[float, int, int]] = []
    for order, (time, priority) in enumerate(plan):
        key = (time, priority, order)
        kernel.at(time, lambda key=key: ran.append(key), priority=priority)
    assert kernel.run() == len(plan)
    assert ran == sorted(ran)


def test_run_until_includes_its_end_and_leaves_the_clock_there() -> None:
    kernel = Kernel()
    ran: list[float] = []
    for time in (1.0, 2.0, 2.5):
        kernel.at(time, lambda: ran.append(kernel.now))
    kernel.run(until=2.0)
    assert (ran, kernel.now, kernel.pending) == ([1.0, 2.0], 2.0, 1)
    kernel.run(until=10.0)
    assert (ran, kernel.now) == ([1.0, 2.0, 2.5], 10.0)


def test_a_cancelled_event_does_not_happen() -> None:
    kernel = Kernel()
    ran: list[str] = []
    event = kernel.after(1.0, lambda: ran.append("no"))
    kernel.after(0.5, event.cancel)
    kernel.run()
    assert ran == []


def test_a_series_beats_until_cancelled_even_by_itself() -> None:
    kernel = Kernel()
    beats: list[float] = []

    def beat() -> None:
        beats.append(kernel.now)
        if len(beats) == 3:
            series.cancel()

    series = kernel.every(2.0, beat, first=1.0)
    kernel.run(until=100.0)
    assert beats == [1.0, 3.0, 5.0]


def test_stop_and_bounded_runs_leave_the_clock_where_they_ended() -> None:
    kernel = Kernel()
    kernel.every(1.0, lambda: None)
    assert kernel.run(until=50.0, events_max=4) == 4
    assert kernel.now == 4.0
    kernel.at(6.5, kernel.stop)
    kernel.run(until=50.0)
    assert kernel.now == 6.5


@pytest.mark.parametrize("time", [-1.0, float("nan"), float("inf")])
def test_the_past_and_the_unreachable_are_refused(time: float) -> None:
    with pytest.raises(ValueError, match="an event at"):
        Kernel().at(time, lambda: None)


def test_random_streams_are_apart_and_repeat_by_seed() -> None:
    one, two = Kernel(7), Kernel(7)
    two.random("other").random()  # a draw elsewhere shifts nothing
    assert one.random("a").random() == two.random("a").random()
    assert one.generator("a").random() == two.generator("a").random()
    assert Kernel(8).random("a").random() != Kernel(7).random("a").random()
    assert stream_seed(7, "a") != stream_seed(7, "b")
