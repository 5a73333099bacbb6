"""In-Network (seed 003, section 3.4): Edge+ and, beyond the edge, the k best-located other nodes.

A node is a candidate when it lies nearer to each child's place than the children lie to each
other; of these the k with the least total distance to the children are tried. As the seed's set
is printed it is empty for i = j and for co-located children and everything for a single child:
we take i != j, and the candidates of Edge+ alone in those cases.
"""

from collections.abc import Sequence

import numpy as np

from millstream.decide.place.network.outcome import Options, Outcome
from millstream.decide.place.network.planners.edge_plus import choose_edge_plus
from millstream.decide.place.network.planners.greedy import (
    Chooser,
    Scope,
    Table,
    cheapest,
    network_scope,
    place_greedily,
)
from millstream.decide.place.network.tree import Indices, NetworkTree


def in_network(problem: NetworkTree, options: Options) -> Outcome:
    return place_greedily("in_network", problem, network_scope, chooser(options.k))


def chooser(k: int) -> Chooser:
    def choose_in_network(table: Table, children: Sequence[Table], scope: Scope) -> int:
        at_the_edge = choose_edge_plus(table, children, scope)
        inside = between(table, children, scope)
        if len(inside) > k:
            apart = scope.distance[[child.best for child in children]][:, inside].sum(axis=0)
            inside = inside[np.argsort(apart, kind="stable")[:k]]
        return cheapest(table, sorted({*inside.tolist(), at_the_edge}))

    return choose_in_network


def between(table: Table, children: Sequence[Table], scope: Scope) -> Indices:
    """The candidate set phi, without nodes whose row breaks the latency bound."""
    places = sorted({child.best for child in children})
    inside = np.isfinite(table.cost)
    if len(places) < 2:
        return np.empty(0, dtype=np.intp)
    for here in places:
        nearest = min(float(scope.distance[here, there]) for there in places if there != here)
        inside &= scope.distance[here] < nearest
    return np.flatnonzero(inside)
