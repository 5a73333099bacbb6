"""What a network-aware planner answers: a placement with its figures, or why there is none."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.core.placement import Placement
from millstream.decide.place.network.tree import NetworkTree
from millstream.decide.place.problem import bound_limit


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of the planners; each reads what concerns it."""

    k: int = 32  # configurations In-Network keeps for an operator (seed: a setting, no value)
    labels_max: int = 2_000_000  # work limit of the exact search under a latency bound


@dataclass(frozen=True, slots=True)
class Placed:
    """A placement of every operator; `lower_bound` is proven, equal to `cost` for an optimum."""

    planner: str
    placement: Placement
    cost: float
    delay: float
    lower_bound: float = 0.0

    @property
    def optimal(self) -> bool:
        return self.cost <= self.lower_bound * (1 + 1e-9)  # both are 0 where nothing crosses

    def to_json(self) -> dict[str, Any]:
        return {
            "placement": dict(self.placement),
            "cost": self.cost,
            "delay": self.delay,
            "lower_bound": self.lower_bound,
            "optimal": self.optimal,
        }


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No placement that this planner can find keeps the latency bound."""

    planner: str
    latency_bound: float
    least_delay: float  # the bound with which it would work
    detail: str

    def to_json(self) -> dict[str, Any]:
        return {
            "placement": None,
            "infeasible": True,
            "latency_bound": self.latency_bound,
            "least_delay": self.least_delay,
            "detail": self.detail,
        }


Outcome = Placed | Infeasible


def proxy_out_of_reach(planner: str, problem: NetworkTree) -> Infeasible | None:
    """The seed's feasibility test (section 3.5): everything at the proxy must keep the bound."""
    if problem.latency_bound is None:
        return None
    reach = {
        vertex.id: float(problem.distance[vertex.node, problem.proxy_index])
        for vertex in problem.tree
        if vertex.node is not None
    }
    farthest = max(reach, key=lambda name: (reach[name], name))
    if reach[farthest] <= bound_limit(problem.latency_bound):
        return None
    late = int(np.sum(np.array(list(reach.values())) > bound_limit(problem.latency_bound)))
    return Infeasible(
        planner,
        problem.latency_bound,
        reach[farthest],
        f"source {farthest!r} is {reach[farthest]:g} from the proxy"
        + (f" and {late - 1} more are too far" if late > 1 else ""),
    )
