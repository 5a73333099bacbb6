"""Goals in virtual time: weights, limits, and rate against delay change who waits."""

import pytest

from millstream.decide.schedule import Quality
from millstream_lab.raindrop.goals import (
    FRESH,
    LIMIT,
    LIMIT_S,
    _given,
    delays,
    favouring,
    fixed_priority,
    lines,
    unlike,
)
from millstream_lab.raindrop.runs import specification

SECONDS = 40.0


def test_a_weight_lowers_the_delay_of_its_query_and_of_no_other() -> None:
    plan = lines(2, 1.0)
    plain = delays(plan, Quality(FRESH), "cost_aware", 3, SECONDS)
    for mine, other in (("q0", "q1"), ("q1", "q0")):
        found = delays(plan, favouring(mine, 1000.0), "cost_aware", 3, SECONDS)
        assert found[mine].mean < plain[mine].mean / 4
        assert found[other].mean > plain[other].mean


def test_ten_to_one_halves_the_delay_of_one_of_ten_and_hardly_touches_the_others() -> None:
    plan = lines(10, 1.1)
    before = delays(plan, Quality(FRESH), "cost_aware", 3, SECONDS)
    after = delays(plan, favouring("q0", 10.0), "cost_aware", 3, SECONDS)
    assert after["q0"].p95 <= before["q0"].p95 / 2
    rest = [query for query in before if query != "q0"]
    assert sum(after[q].p95 for q in rest) <= 1.15 * sum(before[q].p95 for q in rest)


@pytest.mark.parametrize(("queries", "load"), [(2, 1.2), (4, 1.5)])
def test_a_limit_is_met_where_a_fixed_priority_meets_it(queries: int, load: float) -> None:
    plan = lines(queries, load, bursts=True)
    first = delays(plan, fixed_priority("q0"), "cost_aware", 3, SECONDS)
    found = delays(plan, favouring("q0", 1.0, LIMIT), "cost_aware", 3, SECONDS)
    plain = delays(plan, Quality(FRESH), "cost_aware", 3, SECONDS)
    assert first["q0"].p95 <= LIMIT_S < plain["q0"].p95
    assert found["q0"].p95 <= LIMIT_S


def test_delay_and_rate_are_given_as_asked_for_under_overload() -> None:
    plan = unlike(1.3)
    shares = (0.99, 0.7, 0.3, 0.01)
    given = [
        _given(plan, specification(delay=share, rate=1 - share), "cost_aware", 3, 60)
        for share in shares
    ]
    assert [delay for delay, _ in given] == sorted(delay for delay, _ in given)
    assert [rate for _, rate in given] == sorted(rate for _, rate in given)
    assert given[1][0] < 0.95 * given[2][0]
    assert given[2][1] > 1.02 * given[1][1]
