"""The naive plan: every stream goes to the proxy and everything runs there (seed 003, 6.1)."""

from millstream.place.check import cost_and_delay
from millstream.place.network_outcome import Options, Outcome, Placed, proxy_out_of_reach
from millstream.place.network_tree import NetworkTree


def baseline(problem: NetworkTree, options: Options) -> Outcome:  # noqa: ARG001
    refusal = proxy_out_of_reach("baseline", problem)
    if refusal is not None:
        return refusal
    placement = {operator.id: problem.proxy for operator in problem.operators}
    cost, delay = cost_and_delay(problem, placement)
    return Placed("baseline", placement, cost, delay)
