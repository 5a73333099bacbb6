"""The independent checker: does a solution keep every promise of the model?

Reads a problem and a solution and lists violations of C1 to C4 and of (III.4) to (III.7) of SQPR
with its errata mended: a real source for every operator and flow, no stream in a circle, CPU,
memory, bandwidth of hosts and links, one delivery for every admitted query, latency bounds. It
judges the placement of any planner, of a tree in a network as well, whose cost and delay it works
out edge by edge (`check_tree`). It imports the model only and shares no code with any planner, so a
planner's mistake cannot hide.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from millstream.core.placement import Placement
from millstream.decide.place.network.outcome import Placed
from millstream.decide.place.network.tree import NetworkTree
from millstream.decide.place.problem import Operator, Problem, within
from millstream.decide.place.solution import Delivered, Flow, PlacedOperator, Solution

SLACK = 1e-6  # relative: sums of floating-point rates
ROUNDING = 1e-9  # as a share, since the units of rates and distances are the user's


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str  # a short name: "source", "cpu", "link", ...
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.detail}"


def check(problem: Problem, solution: Solution) -> tuple[Violation, ...]:
    """All violations, in a fixed order; none means the solution may be used."""
    unknown = tuple(_unknown_names(problem, solution))
    if unknown:
        return unknown  # sums over unknown things would mean nothing
    return (
        *_answers(problem, solution),
        *_sources(problem, solution),
        *_circles(solution),
        *_host_loads(problem, solution),
        *_link_loads(problem, solution),
        *_latencies(problem, solution),
    )


def _unknown_names(problem: Problem, solution: Solution) -> Iterator[Violation]:
    hosts = {host.id for host in problem.hosts}
    streams = {stream.id for stream in problem.streams}
    operators = {operator.id for operator in problem.operators}
    queries = {query.id for query in problem.queries}
    named = (
        *(("query", name, "admitted") for name in solution.admitted),
        *(("query", refusal.query, "refused") for refusal in solution.refused),
        *(("operator", placed.operator, "operators") for placed in solution.operators),
        *(("host", placed.host, "operators") for placed in solution.operators),
        *(("stream", flow.stream, "flows") for flow in solution.flows),
        *(("host", flow.source, "flows") for flow in solution.flows),
        *(("host", flow.target, "flows") for flow in solution.flows),
        *(("query", given.query, "delivered") for given in solution.delivered),
        *(("stream", given.stream, "delivered") for given in solution.delivered),
        *(("host", given.host, "delivered") for given in solution.delivered),
    )
    known = {"host": hosts, "stream": streams, "operator": operators, "query": queries}
    for kind, name, section in named:
        if name not in known[kind]:
            yield Violation("unknown", section, f"there is no {kind} {name!r}")


def _answers(problem: Problem, solution: Solution) -> Iterator[Violation]:
    """C1 and (III.4): every query has one answer, every admitted one a delivery of its stream."""
    admitted = set(solution.admitted)
    refused = {refusal.query for refusal in solution.refused}
    if len(admitted) != len(solution.admitted):
        yield Violation("answer", "admitted", "a query is admitted twice")
    for query in problem.queries:
        if query.id in admitted and query.id in refused:
            yield Violation("answer", f"query {query.id}", "admitted and refused")
        if query.id not in admitted and query.id not in refused:
            yield Violation("answer", f"query {query.id}", "neither admitted nor refused")
    by_id = {query.id: query for query in problem.queries}
    deliveries: dict[str, int] = defaultdict(int)
    for given in solution.delivered:
        deliveries[given.query] += 1
        query = by_id[given.query]
        if given.query not in admitted:
            yield Violation("delivery", f"query {given.query}", "delivered but not admitted")
        if given.stream != query.stream:
            yield Violation(
                "delivery", f"query {given.query}", f"wants {query.stream}, gets {given.stream}"
            )
        if query.deliver_to is not None and given.host != query.deliver_to:
            yield Violation(
                "delivery",
                f"query {given.query}",
                f"wanted at {query.deliver_to}, delivered at {given.host}",
            )
    for name in solution.admitted:
        if deliveries[name] != 1:
            yield Violation("delivery", f"query {name}", f"delivered {deliveries[name]} times")


def _sources(problem: Problem, solution: Solution) -> Iterator[Violation]:
    """C2 to C4: what is not reached from base streams does not exist."""
    arrival = _arrivals(problem, solution, defaultdict(float))
    by_id = {operator.id: operator for operator in problem.operators}
    if len(set(solution.operators)) != len(solution.operators):
        yield Violation("source", "operators", "an operator is placed twice on one host")
    if len(set(solution.flows)) != len(solution.flows):
        yield Violation("source", "flows", "a stream flows twice between the same hosts")
    for placed in solution.operators:
        for name in by_id[placed.operator].inputs:
            if (name, placed.host) not in arrival:
                yield Violation(
                    "source",
                    f"operator {placed.operator} at {placed.host}",
                    f"its input {name} never arrives there",
                )
    for flow in solution.flows:
        if (flow.stream, flow.source) not in arrival:
            yield Violation(
                "source",
                f"flow of {flow.stream} from {flow.source} to {flow.target}",
                f"{flow.source} does not have it",
            )
    for given in solution.delivered:
        if (given.stream, given.host) not in arrival:
            yield Violation(
                "source", f"query {given.query}", f"{given.host} does not have {given.stream}"
            )


def _arrivals(
    problem: Problem, solution: Solution, distance: Mapping[tuple[str, str], float]
) -> dict[tuple[str, str], float]:
    """When each (stream, host) is first reached, starting from base streams only.

    A label-setting search: an operator's output is there when its last input is, a flow's stream
    when its sender had it plus the distance. What a circle alone sustains is never reached.
    """
    readers: dict[tuple[str, str], list[tuple[Operator, str]]] = defaultdict(list)
    by_id = {operator.id: operator for operator in problem.operators}
    missing: dict[tuple[str, str], int] = {}
    for placed in solution.operators:
        operator = by_id[placed.operator]
        inputs = set(operator.inputs)
        missing[operator.id, placed.host] = len(inputs)
        for name in inputs:
            readers[name, placed.host].append((operator, placed.host))
    onward: dict[tuple[str, str], list[str]] = defaultdict(list)
    for flow in solution.flows:
        onward[flow.stream, flow.source].append(flow.target)
    queue = [(0.0, item.id, item.host) for item in problem.streams if item.host is not None]
    heapq.heapify(queue)
    reached: dict[tuple[str, str], float] = {}
    while queue:
        at, stream, host = heapq.heappop(queue)
        if (stream, host) in reached:
            continue
        reached[stream, host] = at
        for target in onward.get((stream, host), ()):
            heapq.heappush(queue, (at + distance[host, target], stream, target))
        for operator, place in readers.get((stream, host), ()):
            missing[operator.id, place] -= 1
            if missing[operator.id, place] == 0:
                heapq.heappush(queue, (at, operator.output, place))
    return reached


def _circles(solution: Solution) -> Iterator[Violation]:
    """(III.7): a stream flows downhill, never in a circle."""
    targets: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for flow in solution.flows:
        targets[flow.stream][flow.source].append(flow.target)
    for stream, onward in targets.items():
        incoming: dict[str, int] = defaultdict(int)
        for receivers in onward.values():
            for target in receivers:
                incoming[target] += 1
        free = [host for host in onward if incoming[host] == 0]
        gone = 0
        while free:
            host = free.pop()
            for target in onward.get(host, ()):
                gone += 1
                incoming[target] -= 1
                if incoming[target] == 0:
                    free.append(target)
        if gone < sum(len(receivers) for receivers in onward.values()):
            yield Violation("circle", f"stream {stream}", "flows in a circle")


def _over(used: float, offered: float) -> bool:
    return used > offered * (1 + SLACK)


def _host_loads(problem: Problem, solution: Solution) -> Iterator[Violation]:
    """(III.6b), (III.6c), (III.6d) and memory; a delivered stream counts once for its host."""
    rate = {stream.id: stream.rate for stream in problem.streams}
    by_id = {operator.id: operator for operator in problem.operators}
    used: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for placed in solution.operators:
        used["cpu"][placed.host] += by_id[placed.operator].cpu
        used["memory"][placed.host] += by_id[placed.operator].memory
    for flow in solution.flows:
        used["bandwidth_in"][flow.target] += rate[flow.stream]
        used["bandwidth_out"][flow.source] += rate[flow.stream]
    for stream, place in sorted({(given.stream, given.host) for given in solution.delivered}):
        used["bandwidth_out"][place] += rate[stream]
    busy = {name for hosts in used.values() for name in hosts}
    for host in (host for host in problem.hosts if host.id in busy):
        for resource in ("cpu", "memory", "bandwidth_in", "bandwidth_out"):
            amount, offered = used[resource][host.id], getattr(host, resource)
            if _over(amount, offered):
                yield Violation(resource, f"host {host.id}", f"{amount:.6g} of {offered:.6g} used")


def _link_loads(problem: Problem, solution: Solution) -> Iterator[Violation]:
    """(III.6a), and no flow where there is no link."""
    rate = {stream.id: stream.rate for stream in problem.streams}
    listed = problem.links.listed
    offered = (
        None if listed is None else {(link.source, link.target): link.bandwidth for link in listed}
    )
    used: dict[tuple[str, str], float] = defaultdict(float)
    for flow in solution.flows:
        if flow.source == flow.target:
            yield Violation("link", f"flow of {flow.stream}", f"from {flow.source} to itself")
        used[flow.source, flow.target] += rate[flow.stream]
    for (source, target), amount in used.items():
        where = f"link {source} -> {target}"
        if offered is not None and (source, target) not in offered:
            yield Violation("link", where, "there is no such link")
            continue
        room = problem.links.bandwidth if offered is None else offered[source, target]
        if _over(amount, room):
            yield Violation("link", where, f"{amount:.6g} of {room:.6g} used")


def _latencies(problem: Problem, solution: Solution) -> Iterator[Violation]:
    """A result is as late as the longest of its ways through the network."""
    bounds = {query.id: query.latency_bound for query in problem.queries}
    if all(bound is None for bound in bounds.values()):
        return
    arrival = _arrivals(problem, solution, _distances(problem, solution))
    for given in solution.delivered:
        bound = bounds[given.query]
        late = arrival.get((given.stream, given.host), inf)
        if not within(late, bound):
            yield Violation("latency", f"query {given.query}", f"{late:.6g} above {bound:.6g}")


def _distances(problem: Problem, solution: Solution) -> dict[tuple[str, str], float]:
    """Of the pairs of hosts between which something flows; nought where none is given."""
    distance: dict[tuple[str, str], float] = defaultdict(float)
    for link in problem.links.listed or ():
        distance[link.source, link.target] = link.distance
    if problem.links.distance is not None:
        at = {host.id: number for number, host in enumerate(problem.hosts)}
        for flow in solution.flows:
            hop = problem.links.distance[at[flow.source], at[flow.target]]
            distance[flow.source, flow.target] = float(hop)
    return distance


def direct_solution(problem: Problem, placement: Placement) -> Solution:
    """What a placement of every operator means: streams go straight to where they are read."""
    at = _places(problem, placement)
    wanted = [(name, placement.get(o.id)) for o in problem.operators for name in o.inputs]
    wanted += [(query.stream, query.deliver_to) for query in problem.queries]
    flows = dict.fromkeys(
        Flow(name, at[name], there)
        for name, there in wanted
        if there is not None and name in at and at[name] != there
    )
    return Solution(
        admitted=tuple(query.id for query in problem.queries),
        operators=tuple(PlacedOperator(name, host) for name, host in placement.items()),
        flows=tuple(flows),
        delivered=tuple(
            Delivered(query.id, query.stream, query.deliver_to or at[query.stream])
            for query in problem.queries
        ),
    )


def check_tree(tree: NetworkTree, answer: Placed) -> tuple[Violation, ...]:
    """Everything that is wrong with the placement of a tree, and with what is said of it."""
    wrong = check(tree.problem, direct_solution(tree.problem, answer.placement))
    unplaced = [o.id for o in tree.operators if o.id not in answer.placement]
    if wrong or unplaced:
        return (*(Violation("operator", name, "is not placed") for name in unplaced), *wrong)
    return tuple(_figures(tree, answer))


def _figures(tree: NetworkTree, answer: Placed) -> Iterator[Violation]:
    cost, delay = cost_and_delay(tree, answer.placement)
    if abs(cost - answer.cost) > ROUNDING * cost:
        yield Violation("cost", answer.planner, f"is {cost}, not {answer.cost}")
    if abs(delay - answer.delay) > ROUNDING * delay:
        yield Violation("delay", answer.planner, f"is {delay}, not {answer.delay}")
    if answer.lower_bound > cost * (1 + ROUNDING):
        yield Violation("lower bound", answer.planner, f"{answer.lower_bound} exceeds {cost}")


def cost_and_delay(tree: NetworkTree, placement: Placement) -> tuple[float, float]:
    """What a placement of a tree costs, and how long its slowest path takes.

    Cost is the sum over tree edges of the child's rate times the distance to its parent, the edge
    from the root to the proxy included; delay is the longest way from a source to the proxy.
    """
    index = {node: i for i, node in enumerate(tree.nodes)}
    inputs = {operator.id: operator.inputs for operator in tree.operators}
    rate = tree.rates()
    node = _places(tree.problem, placement)
    cost = delay = 0.0
    pending = [(tree.root, tree.proxy, 0.0)]
    while pending:
        name, towards, delay_above = pending.pop()
        hop = float(tree.distance[index[node[name]], index[towards]])
        cost += rate[name] * hop
        if name in inputs:
            pending.extend((child, node[name], delay_above + hop) for child in inputs[name])
        else:
            delay = max(delay, delay_above + hop)
    return cost, delay


def judged(
    planner: str, tree: NetworkTree, placement: Placement, lower_bound: float = 0.0
) -> Placed:
    """A planner's placement of a tree with what it costs and takes."""
    return Placed(planner, placement, *cost_and_delay(tree, placement), lower_bound)


def traffic(tree: NetworkTree, placement: Placement) -> dict[tuple[str, str], float]:
    """What crosses between each two nodes, in the unit of the rates."""
    node = _places(tree.problem, placement)
    rate = tree.rates()
    edges = [(child, node[o.id]) for o in tree.operators for child in o.inputs]
    flows: dict[tuple[str, str], float] = {}
    for child, target in [*edges, (tree.root, tree.proxy)]:
        if node[child] != target:
            flows[node[child], target] = flows.get((node[child], target), 0.0) + rate[child]
    return flows


def _places(problem: Problem, placement: Placement) -> dict[str, str]:
    """Where every stream is: base streams where they enter, others where they are made."""
    at = {stream.id: stream.host for stream in problem.streams if stream.host is not None}
    return at | {o.output: placement[o.id] for o in problem.operators if o.id in placement}
