"""The family of network-aware planners, chosen by name, and the one way to run them.

`plan` runs a planner and lets the checker judge its answer before anybody may use it. A planner
is a function of (problem, options); it is deterministic and keeps no state.
"""

from collections.abc import Callable
from dataclasses import replace

from millstream.core.errors import InternalError
from millstream.core.registry import Registry
from millstream.decide.place.check import check_tree, judged
from millstream.decide.place.network.outcome import Options, Outcome, Placed, proxy_out_of_reach
from millstream.decide.place.network.planners.bounded import optimal_tree
from millstream.decide.place.network.planners.descent import descent
from millstream.decide.place.network.planners.edge_plus import edge_plus
from millstream.decide.place.network.planners.greedy import edge
from millstream.decide.place.network.planners.in_network import in_network
from millstream.decide.place.network.tree import NetworkTree

NetworkPlanner = Callable[[NetworkTree, Options], Outcome]


def baseline(problem: NetworkTree, options: Options) -> Outcome:  # noqa: ARG001
    """The naive plan: every stream goes to the proxy and everything runs there (seed 003, 6.1)."""
    placement = {operator.id: problem.proxy for operator in problem.operators}
    return proxy_out_of_reach("baseline", problem) or judged("baseline", problem, placement)


NETWORK_PLANNERS: Registry[NetworkPlanner] = Registry("placement planner")
NETWORK_PLANNERS.add("baseline", baseline)
NETWORK_PLANNERS.add("edge", edge)
NETWORK_PLANNERS.add("edge_plus", edge_plus)
NETWORK_PLANNERS.add("in_network", in_network)
NETWORK_PLANNERS.add("descent", descent)
NETWORK_PLANNERS.add("optimal_tree", optimal_tree)

# The exact planner is fast enough to be the default; the heuristics are there to compare with.
DEFAULT_NETWORK_PLANNER = "optimal_tree"


def plan(
    problem: NetworkTree,
    planner: str = DEFAULT_NETWORK_PLANNER,
    options: Options | None = None,
) -> Outcome:
    """Places a tree with the named planner; what it answers has passed the checker."""
    outcome = NETWORK_PLANNERS.get(planner)(problem, options or Options())
    if isinstance(outcome, Placed):
        wrong = check_tree(problem, outcome)
        if wrong:
            raise InternalError(
                f"planner {planner!r} gave a wrong placement",
                detail="; ".join(map(str, wrong)),
            )
        ordered = {operator.id: outcome.placement[operator.id] for operator in problem.operators}
        return replace(outcome, placement=ordered)
    return outcome
