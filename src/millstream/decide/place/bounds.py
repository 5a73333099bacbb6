"""How many queries any planner could admit: what planners are measured against.

`aggregate_host` is the paper's 'optimistic bound' (section V.A): one host with all CPU, first come,
first served, cheapest plan with reuse. It is no bound: a planner that re-plans admits more.
`proven_bound` is one: the best set of queries for the aggregate host, chosen with hindsight by a
solver, with what the network must carry wherever operators are; what the solver proves holds for
every planner. `best_set` is that set. None gives a placement.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import floor, inf

from millstream.decide.place.problem import Operator, Problem
from millstream.decide.place.solver import Model


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Queries that the aggregate host admits, in their order, and the CPU it then uses."""

    admitted: tuple[str, ...]
    before_first_refusal: int
    cpu: float


class _Sums:
    """Cheapest computation of streams when everything is at one place."""

    def __init__(self, problem: Problem) -> None:
        self.ways: dict[str, list[tuple[str, float, tuple[str, ...]]]] = {}
        for operator in problem.operators:
            self.ways.setdefault(operator.output, []).append(
                (operator.id, operator.cpu, operator.inputs)
            )
        self.there = {stream.id for stream in problem.streams if stream.host is not None}

    def cheapest(self, stream: str) -> tuple[float, frozenset[str]]:
        """Least CPU to add and the streams that come with it.

        Alternatives are valued as trees; a stream that a chosen tree reads twice is paid once.
        """
        prices: dict[str, float] = {}
        choice: dict[str, tuple[str, ...]] = {}
        own: dict[str, float] = {}

        def price(name: str) -> float:
            if name in self.there:
                return 0.0
            if name not in prices:
                prices[name] = inf
                for _, cpu, inputs in self.ways.get(name, ()):
                    total = cpu + sum(price(below) for below in inputs)
                    if total < prices[name]:
                        prices[name], choice[name], own[name] = total, inputs, cpu
            return prices[name]

        if price(stream) == inf:
            return inf, frozenset()
        new: set[str] = set()
        stack = [stream]
        while stack:
            name = stack.pop()
            if name not in self.there and name not in new:
                new.add(name)
                stack.extend(choice[name])
        return sum(own[name] for name in sorted(new)), frozenset(new)


def aggregate_host(problem: Problem) -> Aggregate:
    """First come, first served on one host with all CPU (SQPR, 'optimistic bound')."""
    offered = sum(host.cpu for host in problem.hosts)
    sums = _Sums(problem)
    admitted: list[str] = []
    first: int | None = None
    used = 0.0
    for query in problem.queries:
        cost, new = sums.cheapest(query.stream)
        if used + cost <= offered * (1 + 1e-12) + 1e-9:
            used += cost
            sums.there |= new
            admitted.append(query.id)
        elif first is None:
            first = len(admitted)
    return Aggregate(tuple(admitted), len(admitted) if first is None else first, used)


def standalone_costs(problem: Problem) -> dict[str, float]:
    """CPU of each query planned alone, the weight of an admission that no choice can inflate."""
    sums = _Sums(problem)
    return {query.id: sums.cheapest(query.stream)[0] for query in problem.queries}


def packing_rows(problem: Problem, most: int = 3) -> list[dict[float, float]]:
    """Rows that hold because operators are whole and hosts are many, where hosts are alike.

    A dual feasible function maps sizes (shares of a host) so that whatever fits one host maps to
    at most 1; the mapped sum over all operators is then at most the number of hosts. Here the
    functions u_k(x) = x if (k + 1) x is whole, else floor((k + 1) x) / k of Fekete and Schepers
    ('New classes of fast lower bounds for bin packing problems', 2001), for the k that weigh most.
    """
    offered = {host.cpu for host in problem.hosts}
    if len(offered) != 1 or not 0 < (cpu := offered.pop()) < inf:
        return []
    counts = Counter(operator.cpu for operator in problem.operators)
    rows: list[tuple[float, dict[float, float]]] = []
    plain = sum(count * size / cpu for size, count in counts.items())
    for k in range(1, 64):
        mapped = {size: _dual_feasible(size / cpu, k) for size in counts}
        weight = sum(count * mapped[size] for size, count in counts.items())
        if weight > plain * (1 + 1e-6):
            rows.append((weight, mapped))
    rows.sort(key=lambda item: -item[0])
    return [mapped for _, mapped in rows[:most]]


def _dual_feasible(share: float, k: int) -> float:
    """u_k of a share of a host; rounding errs on the side of a weaker row.

    >>> round(_dual_feasible(0.503 / 14, 27) * 14, 4), _dual_feasible(1 / 14, 27) * 14
    (0.5185, 1.0)
    """
    scaled = (k + 1) * share
    if abs(scaled - round(scaled)) < 1e-6:
        return min(share, round(scaled) / k)
    return floor(scaled - 1e-9) / k


@dataclass(frozen=True, slots=True)
class ProvenBound:
    """No planner admits more; `proven` says whether a set of that size exists without network."""

    admitted: int
    proven: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class BestSet:
    """Streams of queries that are best served, with hindsight, on hosts taken together."""

    streams: frozenset[str]
    bound: float  # queries for streams that are computed: no more can be served
    proven: bool
    seconds: float


def proven_bound(
    problem: Problem, seconds: float = 60.0, *, packing: bool = True, network: bool = True
) -> ProvenBound:
    """Upper bound on admissions: all hosts' CPU, offline, and what the network must carry.

    Without `packing` operators may be divided among hosts, and without `network` nothing is sent;
    both give a weaker bound.
    """
    best = best_set(problem, seconds, packing=packing, network=network)
    base = {stream.id for stream in problem.streams if stream.host is not None}
    free = sum(query.stream in base for query in problem.queries)
    return ProvenBound(free + floor(best.bound + 1e-6), best.proven, best.seconds)


def best_set(
    problem: Problem, seconds: float, *, packing: bool = True, network: bool = True
) -> BestSet:
    """The queries to serve if all hosts were one, but for rows that hold because they are not."""
    model = Model()
    base = {stream.id for stream in problem.streams if stream.host is not None}
    wanted = Counter(query.stream for query in problem.queries)
    there = {
        stream.id: model.variable(float(wanted[stream.id]))
        for stream in problem.streams
        if stream.id not in base
    }
    makers: dict[str, dict[int, float]] = {name: {} for name in there}
    runs: dict[int, Operator] = {}
    for operator in problem.operators:
        if operator.output not in there:
            continue  # a stream that enters somewhere needs nobody to compute it
        run = model.variable(whole=False)
        runs[run] = operator
        makers[operator.output][run] = 1.0
        for name in operator.inputs:
            if name in there:
                model.row({run: 1.0, there[name]: -1.0}, high=0.0)
    for name, variable in there.items():
        model.row({variable: 1.0, **dict.fromkeys(makers[name], -1.0)}, high=0.0)
    cpu = sum(host.cpu for host in problem.hosts)
    model.row({run: operator.cpu for run, operator in runs.items()}, high=cpu)
    for weights in packing_rows(problem) if packing else ():
        model.row(
            {run: weights[o.cpu] for run, o in runs.items() if weights[o.cpu]},
            high=float(len(problem.hosts)),
        )
    if network:
        served = {name: there[name] for name in wanted if name in there}
        _network_rows(model, problem, runs, served)
    answer = model.solve(seconds=seconds)
    taken = (
        {name for name, variable in there.items() if answer.values[variable] > 0.5}
        if (answer.values)
        else set()
    )
    return BestSet(frozenset(taken & wanted.keys()), answer.bound, answer.proven, answer.seconds)


def _network_rows(
    model: Model, problem: Problem, runs: Mapping[int, Operator], served: Mapping[str, int]
) -> None:
    """What every placement must send, with a variable for how often a base stream is sent at all.

    Who joins two base streams of different hosts has one of them sent. What reads a base stream is
    where it enters, or at a host that it is sent to. All that is sent, and every result, leaves
    some host; all that is sent comes in somewhere.
    """
    home = {s.id: s.host for s in problem.streams if s.host is not None}
    rate = {stream.id: stream.rate for stream in problem.streams}
    offered = {host.id: host.cpu for host in problem.hosts}
    roomiest = max(offered.values(), default=0.0)
    read: dict[str, dict[int, float]] = {}
    apart: list[tuple[int, str, str]] = []
    for run, operator in runs.items():
        entering = [name for name in dict.fromkeys(operator.inputs) if name in home]
        for name in entering:
            read.setdefault(name, {})[run] = operator.cpu
        apart += [
            (run, one, other)
            for one, other in combinations(entering, 2)
            if home[one] != home[other]
        ]
    sent = {name: model.variable(high=inf, whole=False) for name in read}
    for run, one, other in apart:
        model.row({run: 1.0, sent[one]: -1.0, sent[other]: -1.0}, high=0.0)
    if roomiest < inf:
        for name, cpu in read.items():
            model.row({**cpu, sent[name]: -roomiest}, high=offered.get(str(home[name]), 0.0))
    crossing = {sent[name]: rate[name] for name in sent if rate[name]}
    leaving = sum(host.bandwidth_out for host in problem.hosts)
    if leaving < inf:
        results = {served[name]: rate[name] for name in served if rate[name]}
        model.row({**crossing, **results}, high=leaving)
    coming = sum(host.bandwidth_in for host in problem.hosts)
    if coming < inf:
        model.row(crossing, high=coming)
