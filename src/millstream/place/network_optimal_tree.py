"""The true minimum over all nodes, by dynamic programming over (operator, node).

Without a latency bound the cheapest subtree with its operator at a node is a sum over children of
a minimum over their nodes: exact, in time (edges between operators) x (nodes squared), whether or
not distances obey the triangle inequality. The seed (003, section 3.2) calls a relative of the
problem NP-complete and offers heuristics only; for trees and this objective that does not apply.
With a bound the exact search of `network_bounded` takes over.
"""

from millstream.place.check import cost_and_delay
from millstream.place.network_bounded import optimal_within_bound
from millstream.place.network_cheapest import cheapest_placement
from millstream.place.network_outcome import Options, Outcome, Placed
from millstream.place.network_tree import NetworkTree


def optimal_tree(problem: NetworkTree, options: Options) -> Outcome:
    if problem.latency_bound is not None:
        return optimal_within_bound("optimal_tree", problem, options)
    placement = cheapest_placement(problem)
    cost, delay = cost_and_delay(problem, placement)
    return Placed("optimal_tree", placement, cost, delay, lower_bound=cost)
