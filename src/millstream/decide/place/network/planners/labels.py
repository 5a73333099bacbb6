"""Exact search under a latency bound: for each (operator, node) all undominated (cost, delay).

Labels of children are shipped to each node of their parent and merged: costs add, delays take the
maximum. A label is kept only if no other at its node is both cheaper and faster, if it can reach
the proxy in time, and if its relaxed completion (`network_relaxation`) can beat the best known
placement; the price of the sources below counts with the label's own delay, which is sharper
than the relaxation alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.decide.place.network.planners.relaxation import ROUNDING, Candidates, Relaxation
from millstream.decide.place.network.tree import Indices, Vector
from millstream.decide.place.problem import Matrix, bound_limit


class Exhausted(Exception):  # noqa: N818  (a limit that was reached, told to the caller alone)
    """The search made more labels than it may."""


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """One vertex: in which row of its candidates, at what cost and delay, from which labels."""

    row: Indices
    cost: Vector
    delay: Vector
    origin: Indices  # [label, child]: the label of the child; two-dimensional


@dataclass(frozen=True, slots=True)
class Arrival:
    """A child's undominated labels at one node of its parent, the fastest first."""

    cost: Vector
    delay: Vector
    label: Indices


@dataclass(frozen=True, slots=True, eq=False)
class Shipment:
    """A child's labels at every node of its parent: [operator's node, label]."""

    cost: Matrix
    delay: Matrix
    keep: npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Search:
    candidates: Candidates
    relaxed: Relaxation
    above: Sequence[Vector]  # least delay to the proxy, by node of the network
    cost_max: float
    delay_max: float
    labels_left: int

    def slowest(self, position: int) -> Vector:
        """The delay that a label at each candidate may have at most."""
        return self.delay_max - self.above[position][self.candidates.nodes[position]]


def search_labels(
    candidates: Candidates,
    relaxed: Relaxation,
    above: Sequence[Vector],
    cost_known: float,
    labels_max: int,
) -> dict[str, str] | None:
    """The cheapest placement within the bound among the candidates, if it beats `cost_known`."""
    bound = candidates.problem.latency_bound
    assert bound is not None
    limit = cost_known * (1 + ROUNDING)
    search = _Search(candidates, relaxed, above, limit, bound_limit(bound), labels_max)
    labels: list[Labels] = []
    for position, vertex in enumerate(candidates.problem.tree):
        if vertex.node is not None:
            one = np.zeros(1, dtype=np.intp)
            labels.append(Labels(one, np.zeros(1), np.zeros(1), np.zeros((1, 0), dtype=np.intp)))
        else:
            labels.append(_merged(search, position, labels))
        if not len(labels[-1].row):
            return None
    last = labels[-1]
    root = candidates.problem.tree[-1]
    total = last.cost + root.rate * candidates.towards[-1][0, last.row]
    best = int(np.argmin(total))
    return _trace(candidates, labels, best) if total[best] < cost_known else None


def _merged(search: _Search, position: int, labels: Sequence[Labels]) -> Labels:
    """The labels of an operator from those of its children, node by node."""
    children = search.candidates.problem.tree[position].children
    shipments = [_shipment(search, position, child, labels[child]) for child in children]
    alive = np.logical_and.reduce([shipment.keep.any(axis=1) for shipment in shipments])
    rows: list[Indices] = []
    costs: list[Vector] = []
    delays: list[Vector] = []
    origins: list[Indices] = []
    price = float(search.relaxed.price_below[position])
    completion = search.relaxed.outside[position] - search.relaxed.constant
    for row in np.flatnonzero(alive).tolist():
        cost, delay, origin = _joined([_arrival(shipment, row) for shipment in shipments])
        keep = cost + price * delay + completion[row] <= search.cost_max
        if keep.any():
            costs.append(cost[keep])
            delays.append(delay[keep])
            origins.append(origin[keep])
            rows.append(np.full(int(keep.sum()), row, dtype=np.intp))
    if not rows:
        return Labels(
            np.zeros(0, dtype=np.intp),
            np.zeros(0),
            np.zeros(0),
            np.zeros((0, len(children)), dtype=np.intp),
        )
    made = Labels(
        np.concatenate(rows),
        np.concatenate(costs),
        np.concatenate(delays),
        np.concatenate(origins),
    )
    search.labels_left -= len(made.row)
    if search.labels_left < 0:
        raise Exhausted
    return made


def _shipment(search: _Search, position: int, child: int, labels: Labels) -> Shipment:
    """A child's labels shipped to each node of the operator; kept if they can still win."""
    vertex = search.candidates.problem.tree[child]
    hop: Matrix = search.candidates.towards[child][:, labels.row]
    cost = labels.cost + vertex.rate * hop
    delay = labels.delay + hop
    relaxed = search.relaxed
    # What the rest of the tree costs at least with the operator at this node, this child aside.
    rest = relaxed.outside[position] + relaxed.inside[position] - relaxed.arriving[child]
    price = float(relaxed.price_below[child])
    promise = cost + price * delay + (rest - relaxed.constant)[:, None]
    keep = (promise <= search.cost_max) & (delay <= search.slowest(position)[:, None])
    return Shipment(cost, delay, keep)


def _arrival(shipment: Shipment, row: int) -> Arrival:
    """The undominated labels at one node: sorted by delay, each cheaper than all before it."""
    label = np.flatnonzero(shipment.keep[row])
    cost, delay = shipment.cost[row, label], shipment.delay[row, label]
    if len(label) > 1:
        order = np.lexsort((cost, delay))
        cost = cost[order]
        front = np.ones(len(label), dtype=bool)
        front[1:] = cost[1:] < np.minimum.accumulate(cost)[:-1]
        cost, delay, label = cost[front], delay[order][front], label[order][front]
    return Arrival(cost, delay, label)


def _joined(arrivals: Sequence[Arrival]) -> tuple[Vector, Vector, Indices]:
    """All children at one node: for each delay that matters the cheapest label of every child."""
    if all(len(arrival.cost) == 1 for arrival in arrivals):  # at sources, and often above
        cost_sum = sum(float(arrival.cost[0]) for arrival in arrivals)
        slowest = max(float(arrival.delay[0]) for arrival in arrivals)
        first = np.array([[arrival.label[0] for arrival in arrivals]], dtype=np.intp)
        return np.array([cost_sum]), np.array([slowest]), first
    start = max(float(arrival.delay[0]) for arrival in arrivals)
    times = np.unique(np.concatenate([arrival.delay for arrival in arrivals]))
    times = times[times >= start]
    picks = [np.searchsorted(arrival.delay, times, side="right") - 1 for arrival in arrivals]
    cost = np.zeros(len(times))
    for arrival, pick in zip(arrivals, picks, strict=True):
        cost += arrival.cost[pick]
    origin = np.stack(
        [arrival.label[pick] for arrival, pick in zip(arrivals, picks, strict=True)], axis=1
    )
    return cost, times, origin


def _trace(candidates: Candidates, labels: Sequence[Labels], best: int) -> dict[str, str]:
    problem = candidates.problem
    chosen = problem.unrolled(
        best, lambda position, label, child: int(labels[position].origin[label, child])
    )
    return {
        problem.tree[position].id: problem.nodes[
            int(candidates.nodes[position][labels[position].row[label]])
        ]
        for position, label in chosen
    }
