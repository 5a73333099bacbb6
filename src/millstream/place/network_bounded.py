"""The exact optimum under a latency bound: relax, prune, then search what is left.

1. The unbounded optimum is the answer if it keeps the bound, as it does whenever that is loose.
2. Else a dynamic programme over delays alone decides whether any placement keeps the bound, and
   which (operator, node) pairs can be part of one. Exact also where distances break the triangle
   inequality and a detour is faster than the direct way.
3. Multipliers price the delay of each source's path (`network_relaxation`), which gives lower
   bounds, better placements, and rules out pairs that cannot beat the best placement known.
4. What is left is searched exactly by labels (cost, delay) (`network_labels`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millstream.place.network_cheapest import cheapest_placement
from millstream.place.network_check import cost_and_delay
from millstream.place.network_in_network import in_network
from millstream.place.network_labels import Exhausted, search_labels
from millstream.place.network_outcome import Infeasible, Options, Outcome, Placed
from millstream.place.network_problem import (
    PlacementProblem,
    Vector,
    bound_limit,
)
from millstream.place.network_relaxation import Candidates, Relaxation, relax
from millstream.place.network_shipping import shipped

MULTIPLIER_ROUNDS = 40
POOL_SIZE = 12  # nodes a vertex in the first, small search for a good placement


@dataclass(frozen=True, slots=True)
class Reach:
    """Least delays: of a subtree with its operator at a node, and from there to the proxy."""

    below: Sequence[Vector]
    above: Sequence[Vector]


def optimal_within_bound(planner: str, problem: PlacementProblem, options: Options) -> Outcome:
    bound = problem.latency_bound
    assert bound is not None
    placement = cheapest_placement(problem)
    cost, delay = cost_and_delay(problem, placement)
    if delay <= bound_limit(bound):  # the bound does not bind
        return Placed(planner, placement, cost, delay, lower_bound=cost)
    reach = least_delays(problem)
    root = len(problem.tree) - 1
    least_delay = float(np.min(reach.below[root] + reach.above[root]))
    if least_delay > bound_limit(bound):
        return Infeasible(planner, bound, least_delay, "no placement at all is faster")
    allowed = tuple(
        np.flatnonzero(below + above <= bound_limit(bound))
        if vertex.node is None
        else np.array([vertex.node], dtype=np.intp)
        for vertex, below, above in zip(problem.tree, reach.below, reach.above, strict=True)
    )
    best = _first_placement(planner, problem, reach, options)
    candidates = Candidates(problem, allowed)
    priced = _priced(candidates, best, bound)
    if _closed(priced.lower_bound, priced.best.cost):
        return _optimum(priced.best)
    return _searched(priced, reach, bound, options)


def least_delays(problem: PlacementProblem) -> Reach:
    """Two passes over the tree; the way up depends on an operator's depth only."""
    towards = np.ascontiguousarray(problem.distance.T)
    below: list[Vector] = []
    depth = [0] * len(problem.tree)
    for vertex in problem.tree:
        slowest = np.zeros(len(problem.nodes))
        for child in vertex.children:
            leaf = problem.tree[child].node
            arriving = (
                problem.distance[leaf]
                if leaf is not None
                else shipped(below[child], 1.0, towards)[0]
            )
            np.maximum(slowest, arriving, out=slowest)
        if vertex.node is not None:
            slowest = np.full(len(problem.nodes), np.inf)
            slowest[vertex.node] = 0.0
        below.append(slowest)
    for position in range(len(problem.tree) - 1, -1, -1):
        for child in problem.tree[position].children:
            depth[child] = depth[position] + 1
    ways = [np.ascontiguousarray(problem.distance[:, problem.proxy_index])]
    for _ in range(max(depth)):
        farther = shipped(ways[-1], 1.0, problem.distance)[0]
        ways.append(ways[-1] if np.array_equal(farther, ways[-1]) else farther)
        if ways[-1] is ways[-2]:  # no detour helps: neither will a longer one
            ways.extend([ways[-1]] * (max(depth) + 1 - len(ways)))
            break
    return Reach(below, [ways[level] for level in depth])


def _first_placement(
    planner: str, problem: PlacementProblem, reach: Reach, options: Options
) -> Placed:
    """A placement that keeps the bound: In-Network's, else the fastest there is."""
    heuristic = in_network(problem, options)
    if isinstance(heuristic, Placed):
        return Placed(planner, heuristic.placement, heuristic.cost, heuristic.delay)
    root = len(problem.tree) - 1
    at = {root: int(np.argmin(reach.below[root] + reach.above[root]))}
    placement: dict[str, str] = {}
    for position in range(root, -1, -1):
        vertex = problem.tree[position]
        if vertex.node is not None:
            continue
        placement[vertex.id] = problem.nodes[at[position]]
        for child in vertex.children:
            if problem.tree[child].node is None:
                arriving = reach.below[child] + problem.distance[:, at[position]]
                at[child] = int(np.argmin(arriving))
    cost, delay = cost_and_delay(problem, placement)
    return Placed(planner, placement, cost, delay)


@dataclass(frozen=True, slots=True, eq=False)
class _Priced:
    """After the rounds of multipliers: the strongest prices, what they left, the best so far."""

    candidates: Candidates
    best: Placed
    lower_bound: float
    prices: Vector


def _priced(candidates: Candidates, best: Placed, bound: float) -> _Priced:
    relaxed = relax(candidates, np.zeros(len(candidates.problem.tree)), bound)
    best = _cheaper(candidates.problem, best, relaxed.placement, bound)
    strongest = relaxed
    step = 1.0
    for _ in range(MULTIPLIER_ROUNDS):
        candidates = candidates.without_hopeless(relaxed, best.cost)
        if _closed(strongest.lower_bound, best.cost) or candidates.settled() or step < 0.02:
            break
        relaxed = relax(candidates, _steeper(relaxed, best.cost, bound, step), bound)
        best = _cheaper(candidates.problem, best, relaxed.placement, bound)
        if relaxed.lower_bound > strongest.lower_bound:
            strongest = relaxed
        else:
            step *= 0.7
    return _Priced(candidates, best, strongest.lower_bound, strongest.prices)


def _searched(priced: _Priced, reach: Reach, bound: float, options: Options) -> Placed:
    """Labels over a small pool first, for a better placement to prune with, then over all."""
    best, whole = priced.best, priced.candidates
    pool = whole.best_few(relax(whole, priced.prices, bound), POOL_SIZE)
    try:
        for candidates in (pool, whole):
            relaxed = relax(candidates, priced.prices, bound)
            fitting = candidates.without_hopeless(relaxed, best.cost)
            relaxed = relax(fitting, priced.prices, bound)
            found = search_labels(fitting, relaxed, reach.above, best.cost, options.labels_max)
            if found is not None:
                best = _cheaper(whole.problem, best, found, bound)
    except Exhausted:
        lower = max(0.0, priced.lower_bound)
        return Placed(best.planner, best.placement, best.cost, best.delay, lower)
    return _optimum(best)


def _optimum(best: Placed) -> Placed:
    return Placed(best.planner, best.placement, best.cost, best.delay, lower_bound=best.cost)


def _closed(lower: float, cost: float) -> bool:
    return cost - lower <= 1e-11 * max(1.0, cost)


def _cheaper(
    problem: PlacementProblem, best: Placed, placement: dict[str, str], bound: float
) -> Placed:
    cost, delay = cost_and_delay(problem, placement)
    if delay <= bound_limit(bound) and cost < best.cost:
        return Placed(best.planner, placement, cost, delay)
    return best


def _steeper(relaxed: Relaxation, cost: float, bound: float, step: float) -> Vector:
    """Polyak's step: prices rise where a path is late and fall where it has time left."""
    late = np.where(relaxed.path_delay >= 0, relaxed.path_delay - bound, 0.0)
    late = np.where((relaxed.prices <= 0) & (late < 0), 0.0, late)
    norm = float(late @ late)
    if norm == 0.0:
        return relaxed.prices
    length = step * max(cost - relaxed.lower_bound, 1e-9 * max(1.0, cost)) / norm
    return np.maximum(0.0, relaxed.prices + length * late)
