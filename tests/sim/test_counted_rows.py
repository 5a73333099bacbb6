"""Counted rows: equations 3.1 to 3.3 by hand, and joins that give the same however they lag."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream_lab.dcape.counted_rows import Costs, CountedQueue, WindowState, unary, window_join

COSTS = Costs(omega_s=1.0, rho_s=10.0, pair_s=100.0, psi_s=1000.0, step_s=0.0)


def test_a_queue_parts_batches_and_keeps_order() -> None:
    queue = CountedQueue()
    queue.put([(1.0, 3.0), (2.0, 4.0)])
    assert queue.take(5) == [(1.0, 3.0), (2.0, 2.0)]
    assert (queue.rows, queue.oldest) == (2.0, 2.0)
    assert queue.take(9) == [(2.0, 2.0)]
    assert (queue.rows, queue.oldest) == (0.0, None)


def test_a_unary_step_costs_equation_3_2() -> None:
    operator = unary("o", per_input=0.5)
    operator.queues[0].put([(0.0, 8.0)])
    step = operator.step(6, COSTS)
    assert step.seconds == 6 * (1 + 10) + 3 * 1
    assert (step.rows_in, step.rows_out, operator.queue_rows) == (6.0, 3.0, 2.0)


def test_a_join_step_costs_equation_3_3_in_the_printed_order() -> None:
    join = window_join("j", 10.0, (1.0, 1.0))
    join.states[0].put([(0.0, 2.0), (5.0, 3.0)])
    join.states[1].put([(5.0, 4.0)])
    join.queues[0].put([(12.0, 1.0)])
    join.queues[1].put([(13.0, 2.0)])
    step = join.step(99, COSTS)
    # Read 3; purge looks at 9 rows and forgets the 2 of time 0; left looks at 4, right at 3 + 1.
    pairs = 1 * 4 + 2 * (3 + 1)
    assert step.seconds - step.rows_out == pytest.approx(3 + 9 * 1000 + pairs * 100)
    assert join.state_rows == 3 + 1 + 4 + 2


def test_a_state_forgets_and_counts_within_a_window() -> None:
    state = WindowState()
    state.put([(float(t), 1.0) for t in range(2000)])
    state.purge(1500.0)
    assert state.rows == 500
    assert state.within(1490.0, 1510.0, left=True) == 10
    assert state.within(1500.0, 1510.0, left=False) == 10


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.booleans(), min_size=250, max_size=250))
def test_a_join_gives_twice_its_input_however_it_lags(runs: list[bool]) -> None:
    """Pairs are found once each: output does not depend on when steps run."""
    join = window_join("j", 10.0, (40.0, 20.0))
    given_rows = 0.0
    for tick, run in enumerate([*runs, True]):
        join.queues[0].put([(tick * 0.5, 20.0)])
        join.queues[1].put([(tick * 0.5, 10.0)])
        if run:
            given_rows += join.step(1e9, Costs()).rows_out
    full = 2 * 30 * len(runs)
    missing = 2 * 30 * 10  # half a window's worth while the states fill
    assert given_rows == pytest.approx(full - missing, rel=0.03)
