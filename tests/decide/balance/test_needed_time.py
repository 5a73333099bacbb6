"""Time that operators need does not depend on how often they happened to run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.decide.balance.needed_time import Rates, after_window, needed

COST = (0.1, 1e-4)
CYCLE_S = 5.0


def settled(steps: int, rows: int, windows: int = 200) -> Rates:
    """After many windows of half a second, all alike."""
    rates = Rates()
    for _ in range(windows):
        rates = after_window(rates, {"o": steps}, {"o": rows}, 0.5, alpha=0.8, present={"o"})
    return rates


def test_many_small_steps_need_what_few_large_ones_need() -> None:
    eager, lazy = settled(4, 500), settled(1, 500)
    assert eager.rows["o"] == pytest.approx(1_000)
    assert needed(eager, "o", COST, CYCLE_S) == pytest.approx(needed(lazy, "o", COST, CYCLE_S))
    # without a cycle every step counts
    assert needed(eager, "o", COST, 0.0) == pytest.approx(8 * 0.1 + 0.1)


@given(st.integers(0, 5), st.integers(0, 5_000))
def test_never_more_than_was_spent(steps: int, rows: int) -> None:
    taken = rows if steps else 0
    spent = (COST[0] * steps + COST[1] * taken) / 0.5
    assert needed(settled(steps, taken), "o", COST, CYCLE_S) <= spent + 1e-9


def test_who_has_gone_is_forgotten() -> None:
    rates = after_window(settled(1, 10), {}, {}, 0.5, alpha=0.8, present=set())
    assert rates == Rates()
    assert needed(rates, "o", COST, CYCLE_S) == 0.0
    assert after_window(settled(1, 10), {"o": 1}, {}, 0.0, alpha=0.8, present={"o"}).steps
