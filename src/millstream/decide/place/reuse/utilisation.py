"""How scarce each resource is over all hosts. Sums only; decides nothing."""

import numpy as np

from millstream.decide.place.reuse.state import CPU, IN, LINK, OUT, PlanState


def utilisation(state: PlanState) -> float:
    """Of the resource that is scarcest over all hosts."""
    return max(share_used(state, resource) for resource in (CPU, IN, OUT))


def share_used(state: PlanState, resource: str) -> float:
    """Use of a resource over all hosts, where it is limited."""
    if resource == LINK:
        return 0.0
    used, offered = state.use(resource)
    total = float(offered.sum())
    return float(used.sum()) / total if 0 < total < np.inf else 0.0
