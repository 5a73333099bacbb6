"""Algorithm 2: receiver-initiated requests, and how much is given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.decide.balance.decision import (
    Demand,
    KnownLoad,
    all_overloaded,
    export_budget,
    generate_request,
    in_order,
)

loads = st.floats(0, 1)


@given(loads, st.dictionaries(st.sampled_from("abcdef"), loads))
def test_a_request_asks_the_heaviest_for_half_the_difference_if_clearly_below_average(
    own: float, others: dict[str, float]
) -> None:
    wish = generate_request(own, {k: KnownLoad(v) for k, v in others.items()}, kappa=1.2)
    average = (own + sum(others.values())) / (len(others) + 1)
    if not others or 1.2 * own >= average or max(others.values()) <= own:
        assert wish is None
        return
    assert wish is not None
    assert others[wish.of] == max(others.values())
    assert wish.amount == pytest.approx((others[wish.of] - own) / 2)


@given(loads, loads, st.floats(0.5, 4), st.floats(0.5, 4))
def test_with_unlike_processors_the_amount_makes_loads_equal(
    own: float, other: float, cpu: float, other_cpu: float
) -> None:
    wish = generate_request(own, {"a": KnownLoad(other, other_cpu)}, 1.01, cpu)
    if wish is not None:
        assert other - wish.amount == pytest.approx(own + wish.amount * other_cpu / cpu)


def test_the_largest_request_is_served_first_and_of_one_sender_only_the_latest() -> None:
    demands = [Demand("a", 0.1, 1), Demand("b", 0.2, 4), Demand("a", 0.3, 2), Demand("b", 0.2, 4)]
    assert in_order(demands) == [Demand("a", 0.3, 2), Demand("b", 0.2, 4)]


def test_no_more_than_half_of_the_load_at_the_rounds_start_leaves() -> None:
    assert export_budget(0.8, 0.0) == 0.4
    assert export_budget(0.8, 0.5) == 0.0


def test_strangers_are_probed_only_when_nobody_near_can_help() -> None:
    high, low = KnownLoad(0.95), KnownLoad(0.5)
    assert all_overloaded(0.95, {"a": high, "b": high}, 0.9)
    assert not all_overloaded(0.95, {"a": high, "b": low}, 0.9)
    assert not all_overloaded(0.5, {"a": high}, 0.9)
    assert all_overloaded(0.95, {}, 0.9)  # alone and overloaded
