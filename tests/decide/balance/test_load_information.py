"""The low-pass filter, alpha from the seed's inequality, and when partners are told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.errors import UsageError
from millstream.decide.balance.load_information import (
    Fluctuation,
    LoadInformation,
    closed_window,
    largest_alpha,
    relative_estimate,
    shifted,
    smallest_alpha,
)

fluctuations = st.builds(
    Fluctuation, st.integers(1, 8), st.integers(0, 8), st.floats(1.05, 6.0, allow_nan=False)
)


def filtered(alpha: float, fluctuation: Fluctuation) -> float:
    """The filter itself: a ramp of m1 windows from 1 to l, then m2 windows at l."""
    estimate = 1.0
    m1 = fluctuation.rise_windows
    for n in range(1, m1 + fluctuation.hold_windows + 1):
        measured = 1 + (fluctuation.factor - 1) * min(n, m1) / m1
        estimate = alpha * estimate + (1 - alpha) * measured
    return estimate


@given(st.floats(0, 1), fluctuations)
def test_the_closed_form_is_the_filter(alpha: float, fluctuation: Fluctuation) -> None:
    assert relative_estimate(alpha, fluctuation) == pytest.approx(filtered(alpha, fluctuation))


def test_the_seeds_example_gives_nine_tenths() -> None:
    assert smallest_alpha(Fluctuation(1, 1, 2.0), 1.2) == pytest.approx(0.8**0.5)  # 0.894


@given(fluctuations, st.floats(1.05, 3.0))
def test_the_smallest_alpha_ignores_the_fluctuation_both_ways_and_less_does_not(
    fluctuation: Fluctuation, kappa: float
) -> None:
    alpha = smallest_alpha(fluctuation, kappa)
    down = Fluctuation(fluctuation.rise_windows, fluctuation.hold_windows, 1 / fluctuation.factor)
    assert filtered(alpha, fluctuation) <= kappa + 1e-6
    assert filtered(alpha, down) >= 1 / kappa - 1e-6
    if alpha > 1e-3:
        less = alpha * 0.99
        seen = filtered(less, fluctuation) > kappa or filtered(less, down) < 1 / kappa
        assert seen


def test_the_largest_alpha_still_sees_a_lasting_change_in_time() -> None:
    alpha = largest_alpha(2.0, 1.2, 10)
    assert 2.0 - alpha**10 == pytest.approx(1.2)
    with pytest.raises(UsageError, match="never broadcast"):
        largest_alpha(1.1, 1.2, 10)


@pytest.mark.parametrize(
    ("fluctuation", "kappa"),
    [(Fluctuation(0, 1, 2.0), 1.2), (Fluctuation(1, 1, 1.0), 1.2), (Fluctuation(), 1.0)],
)
def test_senseless_parameters_are_refused(fluctuation: Fluctuation, kappa: float) -> None:
    with pytest.raises(UsageError):
        smallest_alpha(fluctuation, kappa)


def close(known: LoadInformation, load: float, now_s: float) -> tuple[LoadInformation, bool]:
    return closed_window(known, load, now_s, alpha=0.5, kappa=1.2, silence_s_max=3.0)


def test_a_node_tells_at_first_then_at_a_factor_of_kappa_up_or_down() -> None:
    known, told = close(LoadInformation(), 0.5, 0.1)
    assert told
    assert known.load == 0.5
    known, told = close(known, 0.6, 0.2)  # 0.55: a factor of 1.1
    assert not told
    known, told = close(known, 0.7, 0.3)  # 0.625: 1.25
    assert told
    known, told = close(known, 0.2, 0.4)
    assert told
    assert known.broadcast == pytest.approx(0.4125)


def test_silence_is_bounded() -> None:
    known, _ = close(LoadInformation(), 0.5, 0.0)
    known, told = close(known, 0.5, 2.9)
    assert not told
    known, told = close(known, 0.5, 3.0)
    assert told


def test_idle_noise_is_not_news() -> None:
    known, _ = close(LoadInformation(), 0.0, 0.0)
    _, told = close(known, 1e-9, 0.1)
    assert not told


def test_a_fragment_that_came_or_went_counts_at_once() -> None:
    assert shifted(LoadInformation(load=0.5), 0.2).load == pytest.approx(0.7)
    assert shifted(LoadInformation(load=0.1), -0.2).load == 0.0
