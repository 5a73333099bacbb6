"""Re-placing a running tree only when it pays."""

import numpy as np
from network_instances import random_problem

from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.planner import plan
from millstream.decide.place.network.replacement import Patience, reconsider
from millstream.decide.place.network.tree import NetworkTree, network_tree
from millstream.decide.place.problem import Stream


def line(gap: float, latency_bound: float | None = None) -> NetworkTree:
    """Proxy, two sources on a line; `gap` is the distance between the sources."""
    at = np.array([0.0, 40.0, 40.0 + gap])
    return network_tree(
        ("p", "a", "b"),
        np.abs(at[:, None] - at[None]),
        (Stream("s1", 6.0, "a"), Stream("s2", 10.0, "b")),
        (("join", ("s1", "s2"), 3.0),),
        "join",
        "p",
        latency_bound,
    )


def test_nothing_moves_when_the_plan_is_still_best() -> None:
    decision = reconsider(line(10.0), {"join": "b"})
    assert decision.moves == {}
    assert decision.reason == "nothing better is known"
    assert decision.placement == {"join": "b"}


def test_a_large_saving_moves_and_says_why() -> None:
    decision = reconsider(line(10.0), {"join": "p"})
    assert decision.moves == {"join": ("p", "b")}
    assert decision.cost_then < decision.cost_now
    assert decision.reason.startswith("cost falls")


def test_a_small_saving_does_not() -> None:
    # At a: 10 * 10 + 3 * 40 = 220; at b: 6 * 10 + 3 * 50 = 210.
    decision = reconsider(line(10.0), {"join": "a"})
    assert decision.moves == {}
    assert "too small" in decision.reason
    eager = Patience(saving_least=0.01)
    assert reconsider(line(10.0), {"join": "a"}, patience=eager).moves


def test_state_that_is_dear_to_move_stays() -> None:
    heavy = Patience(horizon_s=10.0, state_size={"join": 1e6})
    decision = reconsider(line(10.0), {"join": "p"}, patience=heavy)
    assert decision.moves == {}
    assert decision.reason.startswith("moving costs")


def test_a_broken_bound_is_mended_whatever_it_costs() -> None:
    problem = line(10.0, latency_bound=55.0)
    heavy = Patience(horizon_s=1.0, state_size={"join": 1e9})
    at_b = cost_and_delay(problem, {"join": "b"})[1]
    assert at_b == 60.0
    decision = reconsider(problem, {"join": "b"}, patience=heavy)
    assert decision.moves
    assert cost_and_delay(problem, decision.placement)[1] <= 55.0
    hopeless = reconsider(line(10.0, latency_bound=45.0), {"join": "b"})
    assert hopeless.moves == {}
    assert "no placement" in hopeless.reason


def test_the_decision_is_what_the_planner_wants_or_what_runs() -> None:
    for seed in range(60):
        problem = random_problem(seed, nodes_max=6, operators_max=6)
        running = {operator.id: problem.proxy for operator in problem.operators}
        decision = reconsider(problem, running)
        wanted = plan(problem).placement  # type: ignore[union-attr]
        assert decision.placement in (running, wanted)
        assert decision.cost_then <= decision.cost_now
        after = dict(running) | {name: to for name, (_, to) in decision.moves.items()}
        assert after == decision.placement
