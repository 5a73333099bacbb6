"""The true minimum over all nodes, by dynamic programming over (operator, node).

Without a latency bound the cheapest subtree with its operator at a node is a sum over children of
a minimum over their nodes: exact, in time (edges between operators) x (nodes squared), whether or
not distances obey the triangle inequality. The seed (003, section 3.2) calls a relative of the
problem NP-complete and offers heuristics only; for trees and this objective that does not apply.
With a bound the exact search of `network_bounded` takes over.
"""

import numpy as np

from millstream.place.network_bounded import optimal_within_bound
from millstream.place.network_check import cost_and_delay
from millstream.place.network_outcome import Options, Outcome, Placed
from millstream.place.network_problem import Indices, Matrix, PlacementProblem, Vector

# Rows of the distance matrix that are combined at a time: the scratch stays in the CPU's cache.
BLOCK_NUMBERS = 32_768


def optimal_tree(problem: PlacementProblem, options: Options) -> Outcome:
    if problem.latency_bound is not None:
        return optimal_within_bound("optimal_tree", problem, options)
    placement = cheapest_placement(problem)
    cost, delay = cost_and_delay(problem, placement)
    return Placed("optimal_tree", placement, cost, delay, lower_bound=cost)


def cheapest_placement(problem: PlacementProblem) -> dict[str, str]:
    """The dynamic programme; the lowest node wins among equals."""
    towards = np.ascontiguousarray(problem.distance.T)  # [to, from]: minima run along rows
    costs: list[Vector] = []
    chosen: dict[int, Indices] = {}  # child vertex: its node for each node of its parent
    for vertex in problem.tree:
        cost = np.zeros(len(problem.nodes))
        for child in vertex.children:
            leaf = problem.tree[child]
            if leaf.node is not None:
                cost += leaf.rate * problem.distance[leaf.node]
            else:
                least, chosen[child] = shipped(costs[child], leaf.rate, towards)
                cost += least
                costs[child] = cost[:0]  # no longer needed
        costs.append(cost)
    root = problem.tree[-1]
    if root.node is not None:
        return {}
    total = costs[-1] + root.rate * problem.distance[:, problem.proxy_index]
    at = {len(problem.tree) - 1: int(np.argmin(total))}
    placement: dict[str, str] = {}
    for position in range(len(problem.tree) - 1, -1, -1):
        vertex = problem.tree[position]
        if vertex.node is not None:
            continue
        placement[vertex.id] = problem.nodes[at[position]]
        for child in vertex.children:
            if child in chosen:
                at[child] = int(chosen[child][at[position]])
    return placement


def shipped(cost: Vector, rate: float, towards: Matrix) -> tuple[Vector, Indices]:
    """For every node, the least of a child's cost plus shipping to it, and from which node."""
    size = len(cost)
    block = max(1, BLOCK_NUMBERS // size)
    least = np.empty(size)
    origin = np.empty(size, dtype=np.intp)
    scratch = np.empty((block, size))
    for start in range(0, size, block):
        stop = min(start + block, size)
        work = scratch[: stop - start]
        np.multiply(towards[start:stop], rate, out=work)
        work += cost
        np.argmin(work, axis=1, out=origin[start:stop])
        least[start:stop] = work[np.arange(stop - start), origin[start:stop]]
    return least, origin
