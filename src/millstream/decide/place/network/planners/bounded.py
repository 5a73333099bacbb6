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

from millstream.decide.place.check import judged
from millstream.decide.place.network.outcome import Infeasible, Options, Outcome, Placed
from millstream.decide.place.network.planners.cheapest import cheapest
from millstream.decide.place.network.planners.descent import descend
from millstream.decide.place.network.planners.in_network import in_network
from millstream.decide.place.network.planners.labels import Exhausted, search_labels
from millstream.decide.place.network.planners.relaxation import Candidates, Relaxation, relax
from millstream.decide.place.network.shipping import shipped
from millstream.decide.place.network.tree import NetworkTree, Vector
from millstream.decide.place.problem import bound_limit, within

FIRST_ROUNDS = 8  # of prices over all candidates
LATER_ROUNDS = 15  # of prices over those left by a guess
MANY_CANDIDATES = 5_000  # with more, further rounds cost more than they save
GUESSES = (0.01, 0.03, 0.08)  # above the lower bound, tried before the best placement known


@dataclass(frozen=True, slots=True)
class Reach:
    """Least delays: of a subtree with its operator at a node, and from there to the proxy."""

    below: Sequence[Vector]
    above: Sequence[Vector]


def optimal_tree(problem: NetworkTree, options: Options) -> Outcome:
    """The true minimum over all nodes.

    The seed (003, section 3.2) calls a relative of the problem NP-complete and offers heuristics
    only; for trees and this objective that does not apply.
    """
    planner, bound = "optimal_tree", problem.latency_bound
    free = cheapest(planner, problem)
    if bound is None or free.delay <= bound_limit(bound):  # the bound does not bind
        return free
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
    candidates = Candidates.of(problem, allowed)
    return _searched(candidates, best, reach, options)


def least_delays(problem: NetworkTree) -> Reach:
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


def _first_placement(planner: str, problem: NetworkTree, reach: Reach, options: Options) -> Placed:
    """A good placement that keeps the bound: In-Network's or the fastest there is, improved."""
    heuristic = in_network(problem, options)
    if isinstance(heuristic, Placed):
        return judged(planner, problem, descend(problem, heuristic.placement))
    root = len(problem.tree) - 1

    def nearest(position: int, node: int, child: int) -> int:
        below = reach.below[problem.tree[position].children[child]]
        return int(np.argmin(below + problem.distance[:, node]))

    first = int(np.argmin(reach.below[root] + reach.above[root]))
    fastest = {
        problem.tree[position].id: problem.nodes[node]
        for position, node in problem.unrolled(first, nearest)
    }
    return judged(planner, problem, descend(problem, fastest))


@dataclass(frozen=True, slots=True, eq=False)
class _Priced:
    """After some rounds of prices: the strongest relaxation, what it leaves, the best so far."""

    candidates: Candidates
    strongest: Relaxation
    best: Placed


def _priced(
    candidates: Candidates, start: Vector, target: float, best: Placed, rounds: int
) -> _Priced:
    """Prices adjusted round by round; candidates that cannot lead below `target` are dropped."""
    problem = candidates.problem
    relaxed = relax(candidates, start, problem.latency_bound or 0.0)
    strongest = relaxed
    step = 1.0
    for _ in range(rounds):
        best = _cheaper(problem, best, relaxed.placement)
        target = min(target, best.cost)
        if _closed(strongest.lower_bound, target) or candidates.settled() or step < 0.05:
            break
        candidates = candidates.without_hopeless(relaxed, target)
        relaxed = relax(candidates, _steeper(relaxed, target, step), problem.latency_bound or 0.0)
        if relaxed.lower_bound > strongest.lower_bound:
            strongest = relaxed
        else:
            step *= 0.7
    best = _cheaper(problem, best, relaxed.placement)
    return _Priced(candidates, strongest, best)


def _searched(candidates: Candidates, best: Placed, reach: Reach, options: Options) -> Placed:
    """Guesses what the optimum may cost at most and searches below; a hit is the optimum.

    A guess just above the lower bound leaves few candidates, so that a wrong one costs little.
    The last guess is the cost of the best placement known, which cannot be wrong.
    """
    problem = candidates.problem
    first = _priced(candidates, np.zeros(len(problem.tree)), best.cost, best, FIRST_ROUNDS)
    best, lower = first.best, first.strongest.lower_bound
    whole = first.candidates
    relaxed = relax(whole, first.strongest.prices, problem.latency_bound or 0.0)
    for guess in (*(max(lower, 0.0) * (1 + part) for part in GUESSES), best.cost):
        if _closed(lower, best.cost):
            break
        target = min(guess, best.cost)
        if target < lower:
            continue
        few = whole.without_hopeless(relaxed, target)
        rounds = LATER_ROUNDS if few.count() < MANY_CANDIDATES else 2
        priced = _priced(few, first.strongest.prices, target, best, rounds)
        best = priced.best
        if not _closed(priced.strongest.lower_bound, min(target, best.cost)):
            try:
                found = _labelled(priced, target, reach, options)
            except Exhausted:
                return Placed(best.planner, best.placement, best.cost, best.delay, max(0.0, lower))
            if found is not None:
                best = _cheaper(problem, best, found)
        if best.cost <= target:
            break
        lower = max(lower, target)  # nothing is cheaper than the guess
    return Placed(best.planner, best.placement, best.cost, best.delay, lower_bound=best.cost)


def _labelled(
    priced: _Priced, target: float, reach: Reach, options: Options
) -> dict[str, str] | None:
    """The cheapest placement below `target` among what the prices left."""
    bound = priced.candidates.problem.latency_bound or 0.0
    limit = min(target, priced.best.cost)
    relaxed = relax(priced.candidates, priced.strongest.prices, bound)
    if relaxed.lower_bound > limit:
        return None
    fitting = priced.candidates.without_hopeless(relaxed, limit)
    if fitting is not priced.candidates:
        relaxed = relax(fitting, priced.strongest.prices, bound)
    return search_labels(fitting, relaxed, reach.above, limit, options.labels_max)


def _closed(lower: float, cost: float) -> bool:
    return cost - max(lower, 0.0) <= 1e-11 * cost


def _cheaper(problem: NetworkTree, best: Placed, placement: dict[str, str]) -> Placed:
    other = judged(best.planner, problem, placement)
    better = within(other.delay, problem.latency_bound) and other.cost < best.cost
    return other if better else best


def _steeper(relaxed: Relaxation, cost: float, step: float) -> Vector:
    """Polyak's step: prices rise where a path is late and fall where it has time left."""
    bound = relaxed.bound
    late = np.where(relaxed.path_delay >= 0, relaxed.path_delay - bound, 0.0)
    late = np.where((relaxed.prices <= 0) & (late < 0), 0.0, late)
    norm = float(late @ late)
    if norm == 0.0:
        return relaxed.prices
    length = step * max(cost - relaxed.lower_bound, 1e-9 * cost) / norm
    return np.maximum(0.0, relaxed.prices + length * late)
