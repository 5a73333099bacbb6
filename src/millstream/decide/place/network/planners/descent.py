"""Local search from a given placement: one operator, or one group on a node, moved at a time.

Every step takes the cheapest node for an operator (or for a connected group of operators that
share a node, which single moves cannot shift) with all others fixed, among the nodes that keep
the latency bound. Ends where no such step helps. Costs a vector over the nodes a step, so it is
cheap even where the exact search is not. The planner `descent` starts from In-Network's placement;
the exact search under a bound starts from its result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millstream.core.placement import Placement
from millstream.decide.place.check import judged
from millstream.decide.place.network.outcome import Infeasible, Options, Outcome
from millstream.decide.place.network.planners.in_network import in_network
from millstream.decide.place.network.tree import NetworkTree, Vector
from millstream.decide.place.problem import bound_limit

ROUNDS_MAX = 8


def descent(problem: NetworkTree, options: Options) -> Outcome:
    """In-Network, then local search: milliseconds, and near the optimum."""
    start = in_network(problem, options)
    if isinstance(start, Infeasible):
        return Infeasible("descent", start.latency_bound, start.least_delay, start.detail)
    return judged("descent", problem, descend(problem, start.placement))


@dataclass(slots=True)
class _Walk:
    """Where every vertex lies at present, and the delays that follow from it."""

    problem: NetworkTree
    at: list[int]
    parent: list[int]  # the last vertex's parent is itself; its edge goes to the proxy
    below: list[float]
    above: list[float]

    def refresh(self) -> None:
        distance, tree = self.problem.distance, self.problem.tree
        for position, vertex in enumerate(tree):
            self.below[position] = max(
                (
                    self.below[child] + float(distance[self.at[child], self.at[position]])
                    for child in vertex.children
                ),
                default=0.0,
            )
        root = len(tree) - 1
        self.above[root] = float(distance[self.at[root], self.problem.proxy_index])
        for position in range(root - 1, -1, -1):
            upper = self.parent[position]
            hop = float(distance[self.at[position], self.at[upper]])
            self.above[position] = self.above[upper] + hop

    def outwards(self, top: int) -> tuple[int, float]:
        """Where a group sends to, and how long it takes from there."""
        if top == len(self.problem.tree) - 1:
            return self.problem.proxy_index, 0.0
        upper = self.parent[top]
        return self.at[upper], self.above[upper]

    def costs(self, group: Sequence[int], top: int) -> Vector:
        """What the group's edges cost with all of it at each node; infinite where it is late."""
        distance, tree = self.problem.distance, self.problem.tree
        inside = set(group)
        target, onwards = self.outwards(top)
        cost = tree[top].rate * distance[:, target]
        delay = np.zeros(len(cost))
        for position in group:
            for child in tree[position].children:
                if child not in inside:
                    arriving = distance[self.at[child]]
                    cost = cost + tree[child].rate * arriving
                    np.maximum(delay, self.below[child] + arriving, out=delay)
        if self.problem.latency_bound is not None:
            late = delay + distance[:, target] + onwards > bound_limit(self.problem.latency_bound)
            cost = np.where(late, np.inf, cost)
        return np.asarray(cost)


def descend(problem: NetworkTree, placement: Placement) -> dict[str, str]:
    """A placement no dearer than the one given, which must keep the bound."""
    tree = problem.tree
    index = {node: i for i, node in enumerate(problem.nodes)}
    at = [index[placement[v.id]] if v.node is None else v.node for v in tree]
    parent = list(range(len(tree)))
    for position, vertex in enumerate(tree):
        for child in vertex.children:
            parent[child] = position
    walk = _Walk(problem, at, parent, [0.0] * len(tree), [0.0] * len(tree))
    walk.refresh()
    operators = [position for position, vertex in enumerate(tree) if vertex.node is None]
    for _ in range(ROUNDS_MAX):
        singles = [_moved(walk, [position], position) for position in operators]
        together = [_moved(walk, group, group[-1]) for group in _groups(walk, operators)]
        if not any(singles) and not any(together):
            break
    return {tree[position].id: problem.nodes[walk.at[position]] for position in operators}


def _moved(walk: _Walk, group: Sequence[int], top: int) -> bool:
    costs = walk.costs(group, top)
    best, now = int(np.argmin(costs)), walk.at[top]
    # By more than rounding, or two equal places would take turns.
    if not costs[best] < costs[now] * (1 - 1e-9):
        return False
    for position in group:
        walk.at[position] = best
    walk.refresh()
    return True


def _groups(walk: _Walk, operators: Sequence[int]) -> list[list[int]]:
    """Connected operators on one node, at least two; the topmost stands last in each."""
    members: dict[int, list[int]] = {}
    top: dict[int, int] = {}
    for position in reversed(operators):
        upper = walk.parent[position]
        joined = upper != position and upper in top and walk.at[upper] == walk.at[position]
        top[position] = top[upper] if joined else position
        members.setdefault(top[position], []).append(position)
    return [sorted(group) for group in members.values() if len(group) > 1]
