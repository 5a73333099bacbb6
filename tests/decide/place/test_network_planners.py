"""Network-aware planners against exhaustive search and the independent checker."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from network_instances import every_placement, random_problem

from millstream.core.errors import UsageError
from millstream.decide.place.check import check_tree, cost_and_delay, traffic
from millstream.decide.place.network.outcome import Infeasible, Options, Placed
from millstream.decide.place.network.planner import NETWORK_PLANNERS, plan
from millstream.decide.place.network.planners.descent import descend
from millstream.decide.place.network.tree import NetworkTree, network_tree, tree_of
from millstream.decide.place.problem import Links, Stream, within

HEURISTICS = ("baseline", "edge", "edge_plus", "in_network", "descent")


def line_problem(latency_bound: float | None = None) -> NetworkTree:
    """Two sources at the far end of a line of four nodes, the proxy at the near end."""
    at = np.array([0.0, 10.0, 40.0, 50.0])
    return network_tree(
        ("p", "m", "a", "b"),
        np.abs(at[:, None] - at[None]),
        (Stream("s1", 10.0, "a"), Stream("s2", 8.0, "b")),
        (("join", ("s1", "s2"), 2.0),),
        "join",
        "p",
        latency_bound,
    )


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_optimal_tree_equals_exhaustive_search(first: int) -> None:
    for seed in range(first, first + 100):
        problem = random_problem(seed)
        figures = [cost_and_delay(problem, placement) for placement in every_placement(problem)]
        answer = plan(problem)
        assert isinstance(answer, Placed)
        least = min(cost for cost, _ in figures)
        assert answer.cost == pytest.approx(least, rel=1e-12, abs=1e-12), seed
        # A bound of every kind: impossible, the tightest possible, between, and loose.
        delays = sorted({delay for _, delay in figures})
        picks = {0, len(delays) // 3, len(delays) // 2, len(delays) - 1}
        for bound in [delays[0] - 0.5, *(delays[pick] for pick in sorted(picks))]:
            if bound < 0:
                continue
            bounded = problem.with_bound(bound)
            answer = plan(bounded)
            feasible = [cost for cost, delay in figures if within(delay, bound)]
            if not feasible:
                assert isinstance(answer, Infeasible), (seed, bound)
                assert answer.least_delay == pytest.approx(delays[0], rel=1e-12, abs=1e-12)
                continue
            assert isinstance(answer, Placed), (seed, bound)
            assert answer.cost == pytest.approx(min(feasible), rel=1e-9, abs=1e-9), (seed, bound)
            assert answer.optimal


@pytest.mark.parametrize("name", HEURISTICS)
def test_heuristics_cost_at_least_the_optimum_and_report_what_the_checker_finds(name: str) -> None:
    for seed in range(300):
        problem = random_problem(seed, nodes_max=9, operators_max=8)
        loosest = plan(problem, "baseline")
        assert isinstance(loosest, Placed)
        for bound in (None, loosest.delay, 1.3 * loosest.delay, 0.5 * loosest.delay):
            bounded = problem.with_bound(bound)
            answer = NETWORK_PLANNERS.get(name)(bounded, Options())
            best = plan(bounded)
            if isinstance(answer, Infeasible):
                assert bound is not None
                assert answer.least_delay > bound
                continue
            assert isinstance(best, Placed)
            assert check_tree(bounded, answer) == ()
            assert answer.cost >= best.cost - 1e-9 * max(1.0, best.cost)


@pytest.mark.parametrize("name", NETWORK_PLANNERS.names())
def test_planners_are_deterministic_and_leave_the_problem_alone(name: str) -> None:
    for seed in range(20):
        problem = random_problem(seed, nodes_max=8, operators_max=8)
        before = problem.distance.copy()
        assert plan(problem, name) == plan(problem, name)
        assert np.array_equal(problem.distance, before)


def test_a_line_is_placed_as_one_would_by_hand() -> None:
    assert plan(line_problem(), "baseline") == Placed("baseline", {"join": "p"}, 800.0, 50.0)
    # The heavier source's node: 8 rows travel 10, the result travels 40.
    expected = Placed("x", {"join": "a"}, 160.0, 50.0)
    for name in ("edge", "edge_plus", "in_network", "optimal_tree"):
        answer = plan(line_problem(), name)
        assert isinstance(answer, Placed)
        assert (answer.placement, answer.cost, answer.delay) == (
            expected.placement,
            expected.cost,
            expected.delay,
        )
    assert traffic(line_problem(), {"join": "a"}) == {("b", "a"): 8.0, ("a", "p"): 2.0}


def test_an_unreachable_bound_is_told_with_the_one_that_would_do() -> None:
    for name in NETWORK_PLANNERS.names():
        answer = plan(line_problem(49.0), name)
        assert isinstance(answer, Infeasible)
        assert answer.least_delay == 50.0
        assert answer.to_json()["infeasible"] is True


def test_a_detour_keeps_a_bound_that_the_direct_way_breaks() -> None:
    """Without the triangle inequality: the source is 9 from the proxy directly, 4 by way of m."""
    distance = np.array([[0.0, 2.0, 9.0], [2.0, 0.0, 2.0], [9.0, 2.0, 0.0]])
    problem = network_tree(
        ("p", "m", "a"),
        distance,
        (Stream("s", 1.0, "a"),),
        (("o", ("s",), 1.0),),
        "o",
        "p",
        5.0,
    )
    assert isinstance(plan(problem, "in_network"), Infeasible)
    answer = plan(problem)
    assert isinstance(answer, Placed)
    assert (answer.placement, answer.delay) == ({"o": "m"}, 4.0)


def test_edge_decides_by_rate_alone() -> None:
    """Edge moves to the heavier source whatever the distance; Edge+ sees that it does not pay."""
    at = np.array([0.0, 100.0, 1.0])
    problem = network_tree(
        ("p", "far", "near"),
        np.abs(at[:, None] - at[None]),
        (Stream("light", 9.0, "far"), Stream("heavy", 10.0, "near")),
        (("join", ("light", "heavy"), 8.0),),
        "join",
        "p",
    )
    by_rate, by_distance = plan(problem, "edge"), plan(problem, "edge_plus")
    assert isinstance(by_rate, Placed)
    assert isinstance(by_distance, Placed)
    assert by_rate.placement == {"join": "near"}
    assert by_distance.cost <= by_rate.cost
    # As if every distance were one: the choice must not change.
    unit = tree_of(replace(problem.problem, links=Links(distance=1.0 - np.eye(3))))
    unit_answer = plan(unit, "edge")
    assert isinstance(unit_answer, Placed)
    assert unit_answer.placement == by_rate.placement


def test_in_network_uses_a_node_between_the_sources_that_edge_plus_cannot() -> None:
    """A star: three far sources, a hub, a proxy behind the hub."""
    arms = {"p": 50.0, "a": 10.0, "b": 10.0, "hub": 0.0}
    names = tuple(arms)
    distance = np.array([[0.0 if i == j else arms[i] + arms[j] for j in names] for i in names])
    problem = network_tree(
        names,
        distance,
        (Stream("s1", 10.0, "a"), Stream("s2", 10.0, "b")),
        (("join", ("s1", "s2"), 10.0),),
        "join",
        "p",
    )
    inside, edge_plus = plan(problem, "in_network"), plan(problem, "edge_plus")
    assert isinstance(inside, Placed)
    assert isinstance(edge_plus, Placed)
    assert inside.placement == {"join": "hub"}
    assert inside.cost == 700.0
    assert edge_plus.cost == 800.0
    assert plan(problem, "in_network", Options(k=1)) == inside
    assert plan(problem, "in_network", Options(k=0)) != inside


def test_descent_is_never_dearer_than_in_network_and_often_cheaper() -> None:
    cheaper = 0
    for seed in range(80):
        problem = random_problem(seed, nodes_max=9, operators_max=8)
        start, better = plan(problem, "in_network"), plan(problem, "descent")
        assert isinstance(start, Placed)
        assert isinstance(better, Placed)
        assert better.cost <= start.cost * (1 + 1e-12)
        cheaper += better.cost < start.cost * (1 - 1e-6)
    assert cheaper > 5


def test_descent_moves_operators_that_only_pay_together() -> None:
    """A chain on the wrong node: each operator alone is better off staying with the other."""
    at = np.array([0.0, 50.0, 100.0])
    problem = network_tree(
        ("p", "m", "far"),
        np.abs(at[:, None] - at[None]),
        (Stream("s", 5.0, "m"),),
        (("lower", ("s",), 9.0), ("upper", ("lower",), 4.0)),
        "upper",
        "p",
    )
    stuck = {"lower": "far", "upper": "far"}
    assert descend(problem, stuck) == {"lower": "m", "upper": "m"}


def test_a_common_place_takes_operator_and_children() -> None:
    """Case 2 of section 3.2: both children have a source at c, so all three meet there."""
    places = {"p": (0, 0), "c": (100, 0), "x": (100, 60), "y": (100, -60)}
    names = tuple(places)
    points = np.array(list(places.values()), dtype=float)
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    sources = (
        Stream("s1", 5.0, "c"),
        Stream("s2", 6.0, "x"),
        Stream("s3", 5.0, "c"),
        Stream("s4", 6.0, "y"),
    )
    operators = (
        ("left", ("s1", "s2"), 4.0),
        ("right", ("s3", "s4"), 4.0),
        ("top", ("left", "right"), 1.0),
    )
    problem = network_tree(names, distance, sources, operators, "top", "p")
    for name in ("edge", "edge_plus", "in_network", "optimal_tree"):
        answer = plan(problem, name)
        assert isinstance(answer, Placed)
        assert set(answer.placement.values()) == {"c"}, name


def test_the_checker_finds_what_is_wrong() -> None:
    problem = line_problem(60.0)
    good = Placed("x", {"join": "a"}, 160.0, 50.0, 160.0)
    assert check_tree(problem, good) == ()
    for bad in (
        Placed("x", {}, 160.0, 50.0),
        Placed("x", {"join": "a", "other": "a"}, 160.0, 50.0),
        Placed("x", {"join": "nowhere"}, 160.0, 50.0),
        Placed("x", {"join": "a"}, 161.0, 50.0),
        Placed("x", {"join": "a"}, 160.0, 49.0),
        Placed("x", {"join": "a"}, 160.0, 50.0, 170.0),
    ):
        assert check_tree(problem, bad)
    (late,) = check_tree(problem.with_bound(40.0), good)
    assert late.rule == "latency"


def test_an_unknown_planner_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="edge_pluss"):
        plan(line_problem(), "edge_pluss")


def test_edge_plus_fourth_case_moves_a_child_and_places_at_either() -> None:
    """The pairs the fourth case enumerates, by brute force over all of them."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        points = rng.uniform(0, 10, (7, 2))
        distance = np.linalg.norm(points[:, None] - points[None], axis=2)
        nodes = tuple(f"n{i}" for i in range(7))
        rates = rng.uniform(1, 10, 4)
        sources = tuple(Stream(f"s{i}", float(rates[i]), nodes[i + 1]) for i in range(4))
        left, right = float(0.9 * rates[:2].sum()), float(0.9 * rates[2:].sum())
        operators = (
            ("l", ("s0", "s1"), left),
            ("r", ("s2", "s3"), right),
            ("t", ("l", "r"), 0.1),
        )
        problem = network_tree(nodes, distance, sources, operators, "t", "n0")
        answer = plan(problem, "edge_plus")
        assert isinstance(answer, Placed)
        # With children at any sources' nodes and the operator at one of the two, within the
        # separation of Edge's cases, nothing may be cheaper.
        cases = [
            cost_and_delay(problem, {"l": one, "r": two, "t": centre})[0]
            for one, two in itertools.product(nodes[1:3], nodes[3:5])
            for centre in (one, two)
            if distance[nodes.index(one), nodes.index(two)] <= _separation(problem, answer)
        ]
        assert not cases or answer.cost <= min(cases) + 1e-9


def _separation(problem: NetworkTree, answer: Placed) -> float:
    """The separation of the final configuration: never above that of Edge's cases."""
    at = {name: problem.nodes.index(node) for name, node in answer.placement.items()}
    return float(problem.distance[at["l"], at["t"]] + problem.distance[at["r"], at["t"]])
