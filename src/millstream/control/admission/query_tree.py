"""A running query as a placement problem: what may move, what it reads, where its result goes.

From the manager's state to `NetworkTree` (seed 003, section 3.1) and back to words. Operators
that others read too, within the query or in another one, stay where they are and count as sources
for those above them; rates are bytes a second as they cross the network, measured where a stream
crosses already. A query without a place for its result may hand it over anywhere. Decides nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from millstream.control.admission.distances import distances_ms
from millstream.control.admission.estimates import Estimate, estimates
from millstream.control.admission.rules import answers, descriptions
from millstream.control.manager.connections import owner_of, placed_operators
from millstream.control.manager.state import Figures, ManagerState, Query
from millstream.core.errors import UsageError
from millstream.core.placement import Placement
from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.outcome import Options, Outcome, Placed
from millstream.decide.place.network.planner import plan
from millstream.decide.place.network.tree import NetworkTree, network_tree
from millstream.decide.place.problem import Matrix, Stream

PULL_WAYS = 3  # a reader hears that there are rows, asks for them, gets them
UNKNOWN_MS = 1.0  # between any two processors where nothing was measured: bytes alone count


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What all queries' problems have in common: worked out once, however many queries run."""

    known: Mapping[str, Estimate]
    rates: Mapping[str, float]  # bytes a second on the wire
    used: Mapping[str, int]  # by operator: how many queries run on it
    distances: dict[tuple[str, ...], Matrix | None]  # by nodes, as asked for

    def between(self, state: ManagerState, nodes: tuple[str, ...]) -> Matrix | None:
        if nodes not in self.distances:
            self.distances[nodes] = distances_ms(state, nodes)
        return self.distances[nodes]

    def apart(self, state: ManagerState, one: str, other: str) -> float:
        """How far two processors are from each other."""
        nodes = tuple(sorted(state.processors))
        if one == other or one not in nodes or other not in nodes:
            return 0.0
        known = self.between(state, nodes)
        return UNKNOWN_MS if known is None else float(known[nodes.index(one), nodes.index(other)])


def survey(state: ManagerState) -> Survey:
    known = estimates(state, {})
    used: dict[str, int] = {}
    for query in state.queries.values():
        for name in placed_operators(query):
            used[name] = used.get(name, 0) + 1
    return Survey(known, wire_rates(state, known), used, {})


@dataclass(frozen=True, slots=True, eq=False)
class QueryTree:
    """`problem` hands the result over at its proxy; `proxies` are all places where it may be."""

    query: str
    problem: NetworkTree
    proxies: tuple[str, ...]
    running: Placement  # the operators that may move, and where they are
    staying: tuple[str, ...]  # operators of the query that others read too
    streams: Mapping[str, str]  # sources of the problem to the streams they are
    state_bytes: Mapping[str, float]
    distances_known: bool
    measured: bool  # whether the rates of all that it reads are

    def present(self) -> NetworkTree:
        """As it runs: a result that may be handed over anywhere is where its operator is."""
        if self.problem.proxy in self.proxies and len(self.proxies) == 1:
            return self.problem
        here = self.running[self.problem.root]
        return self.towards(here if here in self.proxies else self.proxies[0])

    def towards(self, proxy: str) -> NetworkTree:
        return self.problem if proxy == self.problem.proxy else self.problem.towards(proxy)

    def planned(self, planner: str, options: Options | None = None) -> tuple[NetworkTree, Outcome]:
        """What a planner gives, at the place of the result where it costs least."""
        proxies = self.proxies
        if len(proxies) > 1 and planner == "optimal_tree" and self.problem.latency_bound is None:
            proxies = (self._cheapest_end(options),)
        found = [(p, plan(p, planner, options)) for p in map(self.towards, proxies)]
        here = self.running[self.problem.root]

        def rank(one: tuple[NetworkTree, Outcome]) -> tuple[bool, float, bool, str]:
            problem, outcome = one
            cost = outcome.cost if isinstance(outcome, Placed) else outcome.least_delay
            return not isinstance(outcome, Placed), cost, problem.proxy != here, problem.proxy

        return min(found, key=rank)

    def _cheapest_end(self, options: Options | None) -> str:
        """Where the result lies if it may lie anywhere: what leaves the last operator is free."""
        root = self.problem.root
        freed = self.present().with_rate(root, 0.0)
        outcome = plan(freed, "optimal_tree", options)
        assert isinstance(outcome, Placed)  # without a bound there is always one
        place = outcome.placement[root]
        return place if place in self.proxies else self.problem.proxy


def query_tree(state: ManagerState, name: str, seen: Survey | None = None) -> QueryTree:
    """The problem of a running query; a `UsageError` where nothing of it can be placed anew."""
    seen = seen or survey(state)
    query = state.queries.get(name)
    if query is None:
        raise UsageError(f"there is no query {name}")
    if query.phase != "running" or not query.result:
        raise UsageError(f"query {name} is {query.phase}", hint="it is placed anew while it runs")
    free = _movable(state, query, seen)
    if query.result not in free:
        raise UsageError(
            f"all of query {name} is shared with others", detail="what several read stays"
        )
    bound = None if query.latency_s is None else query.latency_s * 1000
    proxies = sites(state, query.deliver_to)
    return problem_of(state, query, query.result, free, proxies, bound, seen)


def problem_of(
    state: ManagerState,
    query: Query,
    root: str,
    free: set[str],
    proxies: tuple[str, ...],
    bound: float | None,
    seen: Survey,
) -> QueryTree:
    """The problem of what leads to a root, as far down as operators are free to move."""
    rates = seen.rates
    inputs, sources, streams = _reading(state, query, root, free, rates)
    operators = [(o, inputs[o], rates.get(o, 0.0)) for o in inputs]
    running = {o: state.operators[o].processor for o in inputs}
    fixed = {s.host for s in sources if s.host is not None}
    nodes = _nodes(state, {*fixed, *running.values(), *proxies})
    known = seen.between(state, nodes)
    matrix = UNKNOWN_MS * (1.0 - np.eye(len(nodes))) if known is None else known
    problem = network_tree(nodes, matrix, sources, operators, root, proxies[0], bound)
    base = seen.known
    return QueryTree(
        query.name,
        problem,
        proxies,
        running,
        tuple(o for o in query.operators if o not in running),
        streams,
        {o: _state_bytes(state, o) for o in running},
        known is not None,
        all(base[s].measured for s in streams.values() if s in base),
    )


def sites(state: ManagerState, site: str) -> tuple[str, ...]:
    """Processors at which a result may be handed over: those of a site, or any that answers."""
    there = [
        p.id
        for p in descriptions(state)
        if not site or site in (p.id, str(p.properties.get("site", "")))
    ]
    if not there:
        raise UsageError(f"no processor answers at {site}" if site else "no processor answers")
    return tuple(sorted(there))


def _nodes(state: ManagerState, needed: set[str]) -> tuple[str, ...]:
    silent = sorted(name for name in needed if not answers(state, name))
    if silent:
        raise UsageError(f"processor {silent[0]} does not answer", hint="try again later")
    return tuple(sorted({*needed, *(p.id for p in descriptions(state))}))


def _movable(state: ManagerState, query: Query, seen: Survey) -> set[str]:
    """Operators that nobody else uses, and that one operator of the query reads."""
    read = Counter(stream for o in query.operators for stream in state.operators[o].inputs)
    return {o for o in query.operators if seen.used.get(o) == 1 and read[o] <= 1}


def _reading(
    state: ManagerState, query: Query, root: str, free: set[str], rates: Mapping[str, float]
) -> tuple[dict[str, tuple[str, ...]], tuple[Stream, ...], dict[str, str]]:
    """From the root downwards: inputs of what may move, and what is read as it is."""
    inputs: dict[str, tuple[str, ...]] = {}
    sources: list[Stream] = []
    streams: dict[str, str] = {}
    pending = [root]
    while pending:
        name = pending.pop()
        read: list[str] = []
        for stream in state.operators[name].inputs:
            if stream in free:
                read.append(stream)
                pending.append(stream)
                continue
            at = owner_of(state, stream)
            if at not in state.processors:
                raise UsageError(
                    f"query {query.name} reads {stream} from outside this manager's cluster"
                )
            again = sum(known == stream for known in streams.values())
            source = f"{stream}#{again + 1}" if again else stream
            streams[source] = stream
            sources.append(Stream(source, rates.get(stream, 0.0), at))
            read.append(source)
        inputs[name] = tuple(read)
    return inputs, tuple(sources), streams


def wire_rates(state: ManagerState, known: Mapping[str, Estimate]) -> dict[str, float]:
    """Bytes a second of every stream as it would cross: as measured lately, else as estimated."""
    found = {}
    for stream, estimate in known.items():
        rows, width = _rows(state, stream), _width(state, stream)
        rows = estimate.rows_out if rows is None else rows
        usual = estimate.bytes_out / estimate.rows_out if estimate.rows_out else 0.0
        found[stream] = rows * (usual if width is None else width)
    return found


def _rows(state: ManagerState, stream: str) -> float | None:
    """Rows a second that an operator gave, or a base stream brought, in the last while."""
    base = stream.startswith("s:")
    table = state.statistics.streams if base else state.statistics.operators
    figures = table.get(stream)
    return figures.steady.get("rows" if base else "rows_out") if figures is not None else None


def _width(state: ManagerState, stream: str) -> float | None:
    """Bytes a row of a stream: where it crosses already, else in the segments of its owner."""
    edges = state.statistics.edges
    rows = size = 0.0
    for reader in state.processors:
        figures = edges.get(f"{stream}>{reader}")
        if figures is not None:
            rows += figures.steady.get("rows", 0.0)
            size += figures.steady.get("bytes", 0.0)
    if rows > 0 and size > 0:
        return size / rows
    held = state.statistics.streams.get(stream)
    if held is not None and held.values.get("held_rows") and held.values.get("bytes"):
        return held.values["bytes"] / held.values["held_rows"]
    return None


def _state_bytes(state: ManagerState, operator: str) -> float:
    figures: Figures | None = state.statistics.operators.get(operator)
    return figures.values.get("state_bytes", 0.0) if figures is not None else 0.0


@dataclass(frozen=True, slots=True)
class Promise:
    """What a placement of a query will cost: traffic x distance, the slowest way, every crossing.

    `crossings` are (stream, from, to, bytes a second); the way of the result to its place, which
    whoever subscribes there takes, is the last one where there is any.
    """

    cost: float
    delay_ms: float
    crossings: tuple[tuple[str, str, str, float], ...]

    @property
    def arrival_ms(self) -> float:
        """The least time of a row on the slowest way, as it is pulled from hop to hop."""
        return PULL_WAYS * self.delay_ms

    @property
    def bytes_per_s(self) -> float:
        return sum(rate for *_, rate in self.crossings)


def promise(tree: QueryTree, problem: NetworkTree, placement: Placement) -> Promise:
    """The checker's word on a placement, and what crosses between which processors."""
    cost, delay = cost_and_delay(problem, placement)
    return Promise(cost, delay, tuple(_crossings(tree, problem, placement)))


def _crossings(
    tree: QueryTree, problem: NetworkTree, placement: Placement
) -> Iterator[tuple[str, str, str, float]]:
    at = {source.id: source.node for source in problem.sources} | dict(placement)
    rates = problem.rates()
    seen: set[tuple[str, str]] = set()
    for operator in problem.operators:
        for child in operator.inputs:
            stream, here, there = tree.streams.get(child, child), at[child], at[operator.id]
            if here != there and (stream, there) not in seen:
                seen.add((stream, there))
                yield stream, here, there, rates[child]
    if at[problem.root] != problem.proxy:
        yield problem.root, at[problem.root], problem.proxy, rates[problem.root]
