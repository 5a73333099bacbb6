"""The optimum under a latency bound, at the seed's tree sizes, against an independent search."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.outcome import Infeasible, Options, Placed
from millstream.decide.place.network.planner import plan
from millstream.decide.place.network.tree import NetworkTree, Sent, network_tree, tree_of
from millstream.decide.place.problem import Links, Stream

Labels = list[tuple[float, float]]  # (delay, cost), the fastest first, each cheaper than before


def pareto(labels: Iterable[tuple[float, float]]) -> Labels:
    kept: Labels = []
    for delay, cost in sorted(labels):
        if not kept or cost < kept[-1][1]:
            kept.append((delay, cost))
    return kept


def exact_cost(problem: NetworkTree, bound: float) -> float | None:
    """Every undominated (delay, cost) of every subtree at every node; no bounds, no pruning."""
    size = len(problem.nodes)
    tables: list[list[Labels]] = []
    for vertex in problem.tree:
        if vertex.node is not None:
            tables.append([[(0.0, 0.0)] if v == vertex.node else [] for v in range(size)])
            continue
        table = []
        for here in range(size):
            merged: Labels = [(0.0, 0.0)]
            for child in vertex.children:
                rate = problem.tree[child].rate
                arriving = pareto(
                    (
                        delay + problem.distance[there, here],
                        cost + rate * problem.distance[there, here],
                    )
                    for there in range(size)
                    for delay, cost in tables[child][there]
                )
                merged = pareto(
                    (max(one[0], other[0]), one[1] + other[1])
                    for one in merged
                    for other in arriving
                )
            table.append(merged)
        tables.append(table)
    root = problem.tree[-1]
    final = [
        cost + root.rate * problem.distance[here, problem.proxy_index]
        for here in range(size)
        for delay, cost in tables[-1][here]
        if delay + problem.distance[here, problem.proxy_index] <= bound + 1e-9 * max(1, bound)
    ]
    return min(final, default=None)


def full_tree(seed: int, depth: int, size: int, *, whole: bool, metric: bool) -> NetworkTree:
    rng = np.random.default_rng([seed, depth, size])
    if metric:
        points = rng.uniform(0, 30, (size, 2))
        distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    else:
        distance = rng.uniform(1, 30, (size, size))
    if whole:  # whole numbers keep the fronts of the independent search short
        distance = np.ceil(distance)
    np.fill_diagonal(distance, 0.0)
    nodes = tuple(f"n{i}" for i in range(size))
    sources = tuple(
        Stream(f"s{i}", host=nodes[rng.integers(size)], rate=float(rng.uniform(1, 10)))
        for i in range(2**depth)
    )
    operators: list[Sent] = []
    level = [(source.id, source.rate) for source in sources]
    while len(level) > 1:
        above = []
        for (one, rate_one), (other, rate_other) in zip(level[::2], level[1::2], strict=True):
            rate = float(rng.uniform()) * (rate_one + rate_other)
            operators.append((f"o{len(operators)}", (one, other), rate))
            above.append((operators[-1][0], rate))
        level = above
    return network_tree(nodes, distance, sources, tuple(operators), level[0][0], nodes[0])


@pytest.mark.parametrize(
    ("depth", "size", "whole", "seeds"),
    [(3, 9, False, 6), (4, 7, True, 4), (5, 6, True, 3)],
)
@pytest.mark.parametrize("metric", [True, False])
def test_exact_at_the_seeds_tree_sizes(
    depth: int, size: int, whole: bool, seeds: int, metric: bool
) -> None:
    for seed in range(seeds):
        problem = full_tree(seed, depth, size, whole=whole, metric=metric)
        reach = plan(problem, "baseline")
        free = plan(problem)
        assert isinstance(reach, Placed)
        assert isinstance(free, Placed)
        for part in (0.0, 0.3, 0.7):
            bound = reach.delay + part * max(0.0, free.delay - reach.delay)
            answer = plan(problem.with_bound(bound))
            expected = exact_cost(problem, bound)
            assert isinstance(answer, Placed)
            assert answer.optimal
            assert answer.cost == pytest.approx(expected, rel=1e-9), (seed, part)


@pytest.mark.parametrize("factor", [1e-20, 1e20])
def test_exact_in_any_unit_of_distance(factor: float) -> None:
    for seed in range(6):
        problem = full_tree(seed, 3, 9, whole=False, metric=True)
        links = Links(distance=problem.distance * factor)
        other = tree_of(replace(problem.problem, links=links))
        reach, free = plan(problem, "baseline"), plan(problem)
        assert isinstance(reach, Placed)
        assert isinstance(free, Placed)
        bound = 0.7 * reach.delay + 0.3 * free.delay
        for planner in ("optimal_tree", "descent"):
            known = plan(problem.with_bound(bound), planner)
            answer = plan(other.with_bound(bound * factor), planner)
            assert isinstance(known, Placed)
            assert isinstance(answer, Placed)
            assert answer.cost == pytest.approx(known.cost * factor, rel=1e-9), seed
            assert answer.optimal is known.optimal


def test_the_price_of_a_bound_never_falls_as_it_tightens() -> None:
    problem = full_tree(7, 5, 40, whole=False, metric=True)
    free, reach = plan(problem), plan(problem, "baseline")
    assert isinstance(free, Placed)
    assert isinstance(reach, Placed)
    costs = []
    for bound in np.linspace(free.delay, reach.delay, 12):
        answer = plan(problem.with_bound(float(bound)))
        assert isinstance(answer, Placed)
        assert answer.optimal
        costs.append(answer.cost)
    assert costs == sorted(costs)
    assert costs[0] == pytest.approx(free.cost)
    assert costs[-1] > costs[0]


def test_at_the_work_limit_the_answer_is_valid_and_the_gap_is_told() -> None:
    problem = full_tree(2, 5, 60, whole=False, metric=True)
    free, reach = plan(problem), plan(problem, "baseline")
    assert isinstance(free, Placed)
    assert isinstance(reach, Placed)
    bounded = problem.with_bound(0.6 * reach.delay + 0.4 * free.delay)
    best = plan(bounded)
    limited = plan(bounded, "optimal_tree", Options(labels_max=1))
    assert isinstance(best, Placed)
    assert isinstance(limited, Placed)
    assert limited.lower_bound <= best.cost <= limited.cost
    assert not limited.optimal
    assert cost_and_delay(bounded, limited.placement) == pytest.approx(
        (limited.cost, limited.delay)
    )


def test_an_impossible_bound_names_the_least_delay() -> None:
    problem = full_tree(3, 3, 12, whole=False, metric=False)
    refusal = plan(problem.with_bound(0.0))
    assert isinstance(refusal, Infeasible)
    at_the_limit = plan(problem.with_bound(refusal.least_delay))
    assert isinstance(at_the_limit, Placed)
    assert at_the_limit.delay == pytest.approx(refusal.least_delay)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_exact_on_many_more_trees(first: int) -> None:
    for seed in range(first, first + 20):
        problem = full_tree(seed, 3 + seed % 2, 8, whole=bool(seed % 2), metric=bool(seed % 3))
        reach, free = plan(problem, "baseline"), plan(problem)
        assert isinstance(reach, Placed)
        assert isinstance(free, Placed)
        for part in (0.0, 0.2, 0.5, 0.8):
            bound = reach.delay + part * max(0.0, free.delay - reach.delay)
            answer = plan(problem.with_bound(bound))
            assert isinstance(answer, Placed)
            assert answer.cost == pytest.approx(exact_cost(problem, bound), rel=1e-9)
