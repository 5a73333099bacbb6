"""Edge (seed 003, section 3.2): places among sources and proxy, decided by rates alone.

It knows no distances: an edge costs its rate, or nothing within one node. What comes out is
reported at rate times distance like every plan. Distances enter only to keep a latency bound.
"""

from collections.abc import Sequence

from millstream.place.network_greedy import (
    Scope,
    Table,
    cheapest,
    edge_candidates,
    edge_scope,
    place_greedily,
)
from millstream.place.network_outcome import Options, Outcome, proxy_out_of_reach
from millstream.place.network_tree import NetworkTree


def edge(problem: NetworkTree, options: Options) -> Outcome:  # noqa: ARG001
    refusal = proxy_out_of_reach("edge", problem)
    if refusal is not None:
        return refusal
    return place_greedily("edge", problem, edge_scope(problem, aware=False), choose_edge)


def choose_edge(table: Table, children: Sequence[Table], scope: Scope) -> int:
    """Equation 6."""
    return cheapest(table, edge_candidates(children, scope))
