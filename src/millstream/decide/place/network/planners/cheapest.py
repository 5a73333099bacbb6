"""The cheapest placement without a latency bound: the dynamic programme of `optimal_tree`.

The cheapest subtree with its operator at a node is a sum over children of a minimum over their
nodes; leaves are fixed. Exact for any distances, also asymmetric ones, in time (edges between
operators) x (nodes squared).
"""

from collections.abc import Sequence

import numpy as np

from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.outcome import Placed
from millstream.decide.place.network.shipping import shipped
from millstream.decide.place.network.tree import Indices, NetworkTree, Vector


def cheapest(planner: str, problem: NetworkTree) -> Placed:
    placement = cheapest_placement(problem)
    cost, delay = cost_and_delay(problem, placement)
    return Placed(planner, placement, cost, delay, lower_bound=cost)


def cheapest_placement(problem: NetworkTree, ends: Sequence[int] = ()) -> dict[str, str]:
    """The dynamic programme; the lowest node wins among equals.

    `ends` are the nodes where the root's stream is read, where that is not the proxy alone.
    """
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
    read_at = list(ends) or [problem.proxy_index]
    total = costs[-1] + root.rate * problem.distance[:, read_at].sum(axis=1)
    placed = problem.unrolled(
        int(np.argmin(total)),
        lambda position, node, child: int(chosen[problem.tree[position].children[child]][node]),
    )
    return {problem.tree[position].id: problem.nodes[node] for position, node in placed}
