"""The independent judge of network-aware placements.

Works from the problem's records alone, edge by edge, with none of the planners' code: cost is the
sum over tree edges of the child's rate times the distance to its parent, the edge from the root
to the proxy included; delay is the longest way from a source to the proxy.
"""

from collections.abc import Mapping

from millstream.place.network_outcome import Placed
from millstream.place.network_problem import PlacementProblem, within

ROUNDING = 1e-9  # as a share, since the units of rates and distances are the user's


def cost_and_delay(problem: PlacementProblem, placement: Mapping[str, str]) -> tuple[float, float]:
    """What a placement costs and how long its slowest path takes."""
    index = {node: i for i, node in enumerate(problem.nodes)}
    inputs = {operator.id: operator.inputs for operator in problem.operators}
    rate = problem.rates()
    node = {source.id: source.node for source in problem.sources} | dict(placement)
    cost = delay = 0.0
    pending = [(problem.root, problem.proxy, 0.0)]
    while pending:
        name, towards, delay_above = pending.pop()
        hop = float(problem.distance[index[node[name]], index[towards]])
        cost += rate[name] * hop
        if name in inputs:
            pending.extend((child, node[name], delay_above + hop) for child in inputs[name])
        else:
            delay = max(delay, delay_above + hop)
    return cost, delay


def path_delays(problem: PlacementProblem, placement: Mapping[str, str]) -> dict[str, float]:
    """How long each source's rows take to the proxy; its slowest path if it is read twice."""
    index = {node: i for i, node in enumerate(problem.nodes)}
    node = {source.id: source.node for source in problem.sources} | dict(placement)

    def hop(origin: str, target: str) -> float:
        return float(problem.distance[index[origin], index[target]])

    onwards = {problem.root: hop(node[problem.root], problem.proxy)}
    pending = [problem.root]
    inputs = {operator.id: operator.inputs for operator in problem.operators}
    while pending:
        name = pending.pop()
        for child in inputs.get(name, ()):
            delay = onwards[name] + hop(node[child], node[name])
            onwards[child] = max(delay, onwards.get(child, 0.0))
            pending.append(child)
    return {source.id: onwards[source.id] for source in problem.sources if source.id in onwards}


def traffic(
    problem: PlacementProblem, placement: Mapping[str, str]
) -> dict[tuple[str, str], float]:
    """What crosses between each two nodes, in the unit of the rates."""
    node = {source.id: source.node for source in problem.sources} | dict(placement)
    rate = problem.rates()
    edges = [(child, node[o.id]) for o in problem.operators for child in o.inputs]
    flows: dict[tuple[str, str], float] = {}
    for child, target in [*edges, (problem.root, problem.proxy)]:
        if node[child] != target:
            flows[node[child], target] = flows.get((node[child], target), 0.0) + rate[child]
    return flows


def violations(problem: PlacementProblem, answer: Placed) -> list[str]:
    """Everything that is wrong with an answer; empty when it may be used."""
    wanted = {operator.id for operator in problem.operators}
    known = set(problem.nodes)
    wrong = [
        f"operator {name!r} is {'not placed' if name in wanted else 'unknown'}"
        for name in sorted(wanted ^ set(answer.placement))
    ]
    wrong += [
        f"operator {name!r} lies on unknown node {answer.placement[name]!r}"
        for name in sorted(wanted & set(answer.placement))
        if answer.placement[name] not in known
    ]
    if wrong:
        return wrong
    cost, delay = cost_and_delay(problem, answer.placement)
    if abs(cost - answer.cost) > ROUNDING * cost:
        wrong.append(f"cost is {cost}, not {answer.cost}")
    if abs(delay - answer.delay) > ROUNDING * delay:
        wrong.append(f"delay is {delay}, not {answer.delay}")
    if not within(delay, problem.latency_bound):
        wrong.append(f"delay {delay} exceeds the latency bound {problem.latency_bound}")
    if answer.lower_bound > cost * (1 + ROUNDING):
        wrong.append(f"lower bound {answer.lower_bound} exceeds the cost {cost}")
    return wrong
