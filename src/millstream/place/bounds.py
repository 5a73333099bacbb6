"""How many queries any planner could admit: what planners are measured against.

`aggregate_host` is the paper's 'optimistic bound' (section V.A): one host with all CPU, first come,
first served, cheapest plan with reuse. It is no bound: a planner that re-plans admits more.
`proven_bound` is one: the best set of queries for the aggregate host, chosen with hindsight by a
solver, CPU only; what the solver proves holds for every planner. Neither gives a placement.
"""

from collections import Counter
from dataclasses import dataclass
from math import floor, inf

from millstream.place.problem import Problem
from millstream.place.solver import Model


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


@dataclass(frozen=True, slots=True)
class ProvenBound:
    """No planner admits more; `proven` says whether a set of that size exists without network."""

    admitted: int
    proven: bool
    seconds: float


def proven_bound(problem: Problem, seconds: float = 60.0) -> ProvenBound:
    """Upper bound on admissions: the aggregate host, offline, CPU only."""
    model = Model()
    base = {stream.id for stream in problem.streams if stream.host is not None}
    wanted = Counter(query.stream for query in problem.queries)
    there = {
        stream.id: model.variable(float(wanted[stream.id]))
        for stream in problem.streams
        if stream.id not in base
    }
    free = sum(count for stream, count in wanted.items() if stream in base)
    makers: dict[str, dict[int, float]] = {name: {} for name in there}
    budget: dict[int, float] = {}
    for operator in problem.operators:
        run = model.variable(whole=False)
        budget[run] = operator.cpu
        makers[operator.output][run] = 1.0
        for name in operator.inputs:
            if name in there:
                model.row({run: 1.0, there[name]: -1.0}, high=0.0)
    for name, variable in there.items():
        model.row({variable: 1.0, **dict.fromkeys(makers[name], -1.0)}, high=0.0)
    model.row(budget, high=sum(host.cpu for host in problem.hosts))
    answer = model.solve(seconds=seconds)
    return ProvenBound(free + floor(answer.bound + 1e-6), answer.proven, answer.seconds)
