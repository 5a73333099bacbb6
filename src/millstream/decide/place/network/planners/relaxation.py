"""The latency bound priced instead of kept: lower bounds and what they rule out.

A price on each source's path delay (a Lagrange multiplier) turns the bounded problem into the
unbounded one with higher rates: an edge then carries its rate plus the prices of all sources
below it, since a path's delay is the sum of its edges' distances. `relax` solves that by the same
dynamic programme, downwards too, so that for every (operator, node) the cheapest relaxed
placement through it is known; what exceeds the best real placement can be dropped for good.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millstream.decide.place.network.shipping import fetched, shipped
from millstream.decide.place.network.tree import Indices, NetworkTree, Vector
from millstream.decide.place.problem import Matrix

# A pair is dropped only if it is worse by more than rounding can explain.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The nodes still possible for each vertex, and the distances between those of neighbours."""

    problem: NetworkTree
    nodes: tuple[Indices, ...]
    towards: tuple[Matrix, ...]  # for each vertex: [parent's node, own node]

    @staticmethod
    def of(problem: NetworkTree, nodes: tuple[Indices, ...]) -> "Candidates":
        tree = problem.tree
        whole = np.ascontiguousarray(problem.distance.T)
        towards = [np.empty((0, 0))] * len(tree)
        for position, vertex in enumerate(tree):
            for child in vertex.children:
                own, upper = nodes[child], nodes[position]
                full = len(own) == len(upper) == len(whole)  # then all edges share one matrix
                towards[child] = whole if full else whole[np.ix_(upper, own)]
        towards[-1] = whole[problem.proxy_index, nodes[-1]][None, :]
        return Candidates(problem, nodes, tuple(towards))

    def count(self) -> int:
        return sum(len(nodes) for nodes in self.nodes)

    def settled(self) -> bool:
        return all(len(nodes) <= 1 for nodes in self.nodes)

    def without_hopeless(self, relaxed: "Relaxation", cost: float) -> "Candidates":
        """Drops the nodes through which nothing cheaper than `cost` can lead."""
        limit = max(cost, relaxed.lower_bound) + ROUNDING * cost
        kept = [np.flatnonzero(through <= limit) for through in relaxed.through]
        shrunk = [len(keep) < len(own) for keep, own in zip(kept, self.nodes, strict=True)]
        if not any(shrunk):
            return self
        towards = list(self.towards)
        for position, vertex in enumerate(self.problem.tree):
            for child in vertex.children:
                if shrunk[child] or shrunk[position]:
                    towards[child] = towards[child][np.ix_(kept[position], kept[child])]
        towards[-1] = towards[-1][:, kept[-1]]
        nodes = tuple(own[keep] for own, keep in zip(self.nodes, kept, strict=True))
        return Candidates(self.problem, nodes, tuple(towards))


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """What `relax` found; lists run parallel to the tree, vectors to a vertex's candidates."""

    prices: Vector  # of each vertex's path delay; zero except at sources
    price_below: Vector  # the sum of the prices of the sources below
    bound: float
    constant: float  # the bound times all prices: subtracted from every relaxed cost
    inside: Sequence[Vector]
    outside: Sequence[Vector]
    arriving: Sequence[Vector]  # the child's least share in its parent's `inside`
    through: Sequence[Vector]  # the least relaxed cost with the vertex at that node
    lower_bound: float
    placement: dict[str, str]
    path_delay: Vector  # of each source to the proxy in `placement`; -1 for operators


def relax(candidates: Candidates, prices: Vector, bound: float) -> Relaxation:
    problem = candidates.problem
    tree = problem.tree
    price_below = prices.copy()
    for position, vertex in enumerate(tree):
        price_below[position] += sum(price_below[child] for child in vertex.children)
    weight = np.array([vertex.rate for vertex in tree]) + price_below
    constant = bound * float(prices.sum())

    inside: list[Vector] = []
    arriving: list[Vector] = [np.empty(0)] * len(tree)
    origin: list[Indices] = [np.empty(0, dtype=np.intp)] * len(tree)
    for position, vertex in enumerate(tree):
        cost = np.zeros(len(candidates.nodes[position]))
        for child in vertex.children:
            towards = candidates.towards[child]
            if tree[child].node is not None:  # a source stays where it is
                arriving[child] = weight[child] * towards[:, 0]
                origin[child] = np.zeros(len(towards), dtype=np.intp)
            else:
                arriving[child], origin[child] = shipped(
                    inside[child], float(weight[child]), towards
                )
            cost += arriving[child]
        inside.append(cost)

    outside: list[Vector] = [np.empty(0)] * len(tree)
    outside[-1] = float(weight[-1]) * candidates.towards[-1][0]
    for position in range(len(tree) - 1, -1, -1):
        whole = outside[position] + inside[position]
        for child in tree[position].children:
            if tree[child].node is not None:  # its only node is in every placement
                outside[child] = np.array([np.min(whole)])
                continue
            rest = whole - arriving[child]
            outside[child] = fetched(rest, float(weight[child]), candidates.towards[child])
    through = [i + o - constant for i, o in zip(inside, outside, strict=True)]
    placement, delay = _trace(candidates, origin, int(np.argmin(through[-1])))
    return Relaxation(
        prices,
        price_below,
        bound,
        constant,
        inside,
        outside,
        arriving,
        through,
        float(np.min(through[-1])),
        placement,
        delay,
    )


def _trace(
    candidates: Candidates, origin: Sequence[Indices], root_row: int
) -> tuple[dict[str, str], Vector]:
    problem = candidates.problem
    tree = problem.tree
    row = {len(tree) - 1: root_row}
    placement: dict[str, str] = {}
    to_proxy = np.zeros(len(tree))
    to_proxy[-1] = candidates.towards[-1][0, root_row]
    for position in range(len(tree) - 1, -1, -1):
        vertex = tree[position]
        if vertex.node is None:
            node = int(candidates.nodes[position][row[position]])
            placement[vertex.id] = problem.nodes[node]
            for child in vertex.children:
                row[child] = int(origin[child][row[position]])
                hop = candidates.towards[child][row[position], row[child]]
                to_proxy[child] = to_proxy[position] + hop
    leaves = np.array([vertex.node is not None for vertex in tree])
    return placement, np.where(leaves, to_proxy, -1.0)
