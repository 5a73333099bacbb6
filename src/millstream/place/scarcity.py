"""How scarce each resource is over all hosts. Sums only; decides nothing."""

import numpy as np

from millstream.place.state import CPU, IN, MEMORY, OUT, PlanState


def utilisation(state: PlanState) -> float:
    """Of the resource that is scarcest over all hosts."""
    return max(share_used(state, resource) for resource in (CPU, IN, OUT))


def share_used(state: PlanState, resource: str) -> float:
    """Use of a resource over all hosts, where it is limited."""
    catalog = state.catalog
    if resource == CPU:
        used, offered = state.cpu_used, catalog.cpu_offered
    elif resource == IN:
        used, offered = state.in_used, catalog.in_offered
    elif resource == OUT:
        used, offered = state.out_used, catalog.out_offered
    elif resource == MEMORY:
        used, offered = state.memory_used, catalog.memory_offered
    else:
        return 0.0
    total = float(offered.sum())
    return float(used.sum()) / total if 0 < total < np.inf else 0.0
