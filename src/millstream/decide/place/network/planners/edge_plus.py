"""Edge+ (seed 003, section 3.3): Edge with distances, and a fourth case that moves children.

The fourth case tries children at places of sources below them that lie no farther apart than the
configuration chosen so far, with the operator at each of these places in turn (the seed sums
distances from the first only; which child is first means nothing).
"""

from collections.abc import Sequence

import numpy as np

from millstream.decide.place.network.outcome import Options, Outcome
from millstream.decide.place.network.planners.greedy import (
    Scope,
    Table,
    cheapest,
    edge_candidates,
    edge_scope,
    improve_row,
    place_greedily,
)
from millstream.decide.place.network.tree import Indices, NetworkTree, Vector


def edge_plus(problem: NetworkTree, options: Options) -> Outcome:  # noqa: ARG001
    return place_greedily("edge_plus", problem, edge_scope, choose_edge_plus)


def choose_edge_plus(table: Table, children: Sequence[Table], scope: Scope) -> int:
    """The three cases of Edge, then the fourth within the separation they found."""
    candidates = edge_candidates(children, scope)
    first = cheapest(table, candidates)
    separation = sum(float(scope.distance[at[first], first]) for at in table.child_at)
    gather_children(table, children, scope, separation)
    return cheapest(table, sorted({*candidates, *table.leaves_at.tolist()}))


def gather_children(
    table: Table, children: Sequence[Table], scope: Scope, separation_max: float
) -> None:
    """Improves the rows of places below the operator by moving children towards each of them.

    For two children this is the seed's enumeration of all pairs. For more, each child takes the
    cheapest place by itself; where these lie too far apart together, the nearest places instead.
    """
    rows = table.leaves_at
    cheap = [_moved(child, rows, scope, separation_max, nearest=False) for child in children]
    total, apart, delay = _combined(cheap)
    if len(children) > 2:
        near = [_moved(child, rows, scope, separation_max, nearest=True) for child in children]
        near_total, near_apart, near_delay = _combined(near)
        too_far = apart > separation_max
        total = np.where(too_far, near_total, total)
        delay = np.where(too_far, near_delay, delay)
        apart = np.where(too_far, near_apart, apart)
        places = [np.where(too_far, n[1], c[1]) for n, c in zip(near, cheap, strict=True)]
    else:
        places = [moved[1] for moved in cheap]
    total = np.where(apart <= separation_max, total, np.inf) + table.outgoing[rows]
    for i in np.flatnonzero(total < table.cost[rows]):
        chosen = {number: int(place[i]) for number, place in enumerate(places)}
        improve_row(table, int(rows[i]), float(total[i]), float(delay[i]), chosen)


Moved = tuple[Vector, Indices, Vector, Vector]  # cost, place, distance, delay, a row each


def _moved(
    child: Table, rows: Indices, scope: Scope, separation_max: float, *, nearest: bool
) -> Moved:
    """Where a child would go among the places below it, for the operator at each of `rows`."""
    if len(child.leaves_at) == 1:  # a source, or all its sources on one node: no choice
        at = int(child.leaves_at[0])
        hop = scope.distance[at, rows]
        alone_cost = child.cost[at] + child.vertex.rate * scope.weight[at, rows]
        alone_delay = child.delay[at] + hop
        fits = (hop <= separation_max) & (alone_delay + scope.to_proxy[rows] <= scope.delay_max)
        return np.where(fits, alone_cost, np.inf), np.full(len(rows), at), hop, alone_delay
    from_places = np.ix_(child.leaves_at, rows)
    distance = scope.distance[from_places]
    cost = child.cost[child.leaves_at, None] + child.vertex.rate * scope.weight[from_places]
    delay = child.delay[child.leaves_at, None] + distance
    valid = (distance <= separation_max) & (delay + scope.to_proxy[None, rows] <= scope.delay_max)
    cost = np.where(valid, cost, np.inf)
    picked = np.argmin(np.where(np.isfinite(cost), distance, np.inf) if nearest else cost, axis=0)
    column = np.arange(len(rows))
    return (
        cost[picked, column],
        child.leaves_at[picked],
        distance[picked, column],
        delay[picked, column],
    )


def _combined(moved: Sequence[Moved]) -> tuple[Vector, Vector, Vector]:
    total: Vector = np.sum([part[0] for part in moved], axis=0)
    apart: Vector = np.sum([part[2] for part in moved], axis=0)
    delay: Vector = np.max([part[3] for part in moved], axis=0)
    return total, apart, delay
