"""The operator-based rival."""

import numpy as np
import pytest

from millstream.decide.balance.model.central_policy import CENTRAL, Observation
from millstream.decide.balance.model.correlation import CorrelationBased, normalised
from millstream.decide.balance.model.dataflow import Stream, build
from millstream.decide.balance.model.fragments import fragment_query
from millstream.decide.balance.model.operator_tree import Operator, QueryTree

UNITS = 12
FLOW = build(
    ("h0", "h1", "h2"),
    (Stream("s", "h0", 1.0),),
    [
        f
        for n in range(UNITS)
        for f in fragment_query(QueryTree(f"q{n}", (Operator("o", ("s",), 1, 1),)), {"s": 1.0})
    ],
)


def seen(
    history: np.ndarray, host: list[int] | None = None, speed: list[float] | None = None
) -> Observation:
    return Observation(
        0.0,
        FLOW,
        np.zeros(UNITS, dtype=np.int64) if host is None else np.array(host),
        np.ones(1),
        np.ones(3) if speed is None else np.array(speed),
        1e-4,
        np.zeros(UNITS),
        history,
        np.ones(UNITS, dtype=bool),
    )


def test_correlations() -> None:
    series = normalised(np.array([[1.0, 2.0, 5.0], [2.0, 1.0, 5.0], [3.0, 0.0, 5.0]]))
    assert (series[:, 0] @ series).tolist() == pytest.approx([1.0, -1.0, 0.0])


def test_the_heavier_of_a_pair_gives_until_they_are_level() -> None:
    history = np.full((5, UNITS), 0.1)
    moves, _ = CorrelationBased().decide(seen(history), None)
    assert len(moves) == 6
    assert {move.host for move in moves} == {2}  # the heaviest with the lightest, the middle rests
    assert {FLOW.hosts[move.host] for move in moves} == {"h2"}


def test_operators_that_correlate_with_their_node_leave_first() -> None:
    wave = np.array([1.0, 3.0, 1.0, 3.0])
    together, against = 0.05 * wave, 0.05 * wave[::-1]
    history = np.column_stack([together] * 10 + [against, against])
    moves, _ = CorrelationBased().decide(seen(history, [0] * UNITS, [1.0, 0.0, 1.0]), None)
    assert {move.unit for move in moves}.isdisjoint({10, 11})


def test_the_global_algorithm_spreads_what_rises_together() -> None:
    wave = np.array([1.0, 3.0, 1.0, 3.0])
    history = 0.05 * np.column_stack([wave] * 6 + [wave[::-1]] * 6)
    policy = CorrelationBased(global_start=True)
    moves, memory = policy.decide(seen(history), None)
    host = np.zeros(UNITS, dtype=np.int64)
    for move in moves:
        host[move.unit] = move.host
    kinds = [np.bincount(host[:6], minlength=3), np.bincount(host[6:], minlength=3)]
    assert [kind.tolist() for kind in kinds] == [[2, 2, 2], [2, 2, 2]]
    again, _ = policy.decide(seen(history, host.tolist()), memory)
    assert again == ()


@pytest.mark.parametrize("name", CENTRAL.names())
def test_central_policies_are_deterministic_leave_the_dead_alone_and_need_no_history(
    name: str,
) -> None:
    policy = CENTRAL.get(name)
    assert policy.decide(seen(np.zeros((0, UNITS))), None)[0] == ()
    history = np.random.default_rng(1).uniform(0, 0.2, (10, UNITS))
    first, _ = policy.decide(seen(history, speed=[1.0, 1.0, 0.0]), None)
    assert first == policy.decide(seen(history, speed=[1.0, 1.0, 0.0]), None)[0]
    assert all(move.host != 2 for move in first)
