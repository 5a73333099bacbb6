"""Arrival patterns: rates, bursts, the real trace, repetition by seed."""

import numpy as np
import pytest

from millstream.sim.arrivals import ChangingPoisson, Constant, WorldCup, worldcup_counts
from millstream.sim.kernel import Kernel

PATTERNS = [Constant(50.0), ChangingPoisson(50.0), WorldCup(50.0)]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: type(p).__name__)
def test_times_are_sorted_in_range_and_repeat_by_seed(pattern: Constant) -> None:
    def times(seed: int) -> np.ndarray:
        return pattern.times(40.0, Kernel(seed).generator("s"))

    one = times(1)
    assert np.all(np.diff(one) >= 0)
    assert one.min() >= 0
    assert one.max() < 40
    assert np.array_equal(one, times(1))


def test_constant_arrivals_come_at_equal_distances() -> None:
    times = Constant(4.0).times(2.0, Kernel().generator("s"))
    assert times.tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]


def test_the_mean_changes_every_period_and_bursts_double_it() -> None:
    pattern = ChangingPoisson(100.0, burst=2.0, burst_chance=0.5, spread=0.0, period_s=5.0)
    means = pattern.means(500.0, Kernel(3).generator("s"))
    assert len(means) == 100
    assert set(means.tolist()) == {100.0, 200.0}
    times = ChangingPoisson(100.0).times(1000.0, Kernel(3).generator("s"))
    assert len(times) / 1000 == pytest.approx(ChangingPoisson(100.0).mean_rate, rel=0.1)


def test_the_world_cup_trace_is_real_and_scaled() -> None:
    counts = worldcup_counts()
    assert len(counts) == 16 * 24 * 60
    assert counts[0] == 12794  # 20 June 1998, 0:00
    assert counts.max() > 10 * counts.min()
    minutes = len(counts)
    times = WorldCup(2.0, minute_s=1.0, start_minute=0).times(minutes, Kernel(1).generator("s"))
    assert len(times) / minutes == pytest.approx(2.0, rel=0.02)
    # A minute of the trace is a second here: the busiest stretch is the trace's own.
    played = np.histogram(times, bins=16 * 24, range=(0, minutes))[0]
    real = counts.reshape(-1, 60).sum(axis=1)
    assert np.corrcoef(played, real)[0, 1] > 0.9
