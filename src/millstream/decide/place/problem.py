"""The planning problem: hosts, links, distances, streams, operators, queries, bounds, weights.

One model for every planner: those with reuse (SQPR, sections II and III) read it by position
(`catalog`), those that place one tree in a network (seed 003, section 3.1) as vertices and a matrix
of distances (`network_tree`). Values are immutable and hold no placement; `check_problem` refuses
what no planner could read. The two JSON forms are in `problem_json`. This module decides nothing
and knows no planner.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, isnan

import numpy as np
import numpy.typing as npt

from millstream.core.errors import UsageError
from millstream.core.operator_graph import OperatorGraph

Matrix = npt.NDArray[np.float64]

# Amounts beyond these give sums and ratios that no float holds; as a capacity, more is no limit.
AMOUNT_MAX, AMOUNT_MIN = 1e50, 1e-50

# Sums of distances in different orders differ in the last bits; a bound is kept within this
# share of it, whatever the unit of the distances is.
BOUND_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Host:
    """What a host offers: zeta_h, beta_h in and out of SQPR, and memory."""

    id: str
    cpu: float
    bandwidth_in: float = inf
    bandwidth_out: float = inf
    memory: float = inf
    site: str = ""  # the manager that owns it, for planning in tiers


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream with its mean rate; a base stream has the host where it enters."""

    id: str
    rate: float
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """One way to compute a stream from others (S_o, s_o, gamma_o of SQPR)."""

    id: str
    inputs: tuple[str, ...]
    output: str
    cpu: float
    memory: float = 0.0


@dataclass(frozen=True, slots=True)
class Query:
    """A wish for a stream, where it is wanted, and how late it may be."""

    id: str
    stream: str
    deliver_to: str | None = None  # a host; without it, clients are served from anywhere
    latency_bound: float | None = None  # in the unit of the links' distances


@dataclass(frozen=True, slots=True)
class Link:
    source: str
    target: str
    bandwidth: float = inf
    distance: float = 0.0


@dataclass(frozen=True, slots=True)
class Links:
    """What lies between hosts: one bandwidth for every pair, or a list of links.

    With a list, hosts without a link between them cannot send to each other directly. Distances
    are those of the links, or of all pairs: `distance[i, j]` is from the host at position i to the
    one at j, and may differ from the way back.
    """

    bandwidth: float = inf  # kappa for every pair, when there is no list
    listed: tuple[Link, ...] | None = None
    distance: Matrix | None = field(default=None, compare=False)

    @property
    def unlimited(self) -> bool:
        return self.listed is None and self.bandwidth == inf


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights lambda of (III.3), applied to objectives scaled to 0..1.

    Network use is divided by the sum of outgoing bandwidth, CPU use by the sum of CPU, the
    fullest host by the largest CPU (the printed lambda_3 and lambda_4 scale by other sums).
    A negative balance packs: few hosts work, idle ones can be switched off.
    """

    admit: float = 1000.0
    network: float = 1.0
    cpu: float = 1.0
    balance: float = 1.0


LEAST_RESOURCES = Weights(balance=0.0)
BALANCE = Weights(cpu=0.1, balance=10.0)
PACK = Weights(balance=-1.0)
GOALS: Mapping[str, Weights] = {
    "default": Weights(),
    "least": LEAST_RESOURCES,
    "balance": BALANCE,
    "pack": PACK,
}


@dataclass(frozen=True, slots=True)
class Problem:
    hosts: tuple[Host, ...]
    streams: tuple[Stream, ...]
    operators: tuple[Operator, ...] = ()
    queries: tuple[Query, ...] = ()
    links: Links = field(default_factory=Links)
    weights: Weights = field(default_factory=Weights)
    timeout_s: float | None = None

    @property
    def graph(self) -> OperatorGraph[Operator]:
        return OperatorGraph(self.operators)


def within(delay: float, bound: float | None) -> bool:
    """Whether a delay keeps a bound.

    >>> within(0.1 + 0.2, 0.3), within(1.0, None), within(1.1, 1.0)
    (True, True, False)
    """
    return bound is None or delay <= bound_limit(bound)


def bound_limit(bound: float) -> float:
    """The greatest delay that `within` accepts."""
    return bound * (1 + BOUND_TOLERANCE)


def check_problem(problem: Problem) -> Problem:
    """The same problem, or a `UsageError` that names what is wrong with it."""
    if not problem.hosts:
        raise UsageError(
            "the problem has no hosts",
            detail="every query would be refused",
            hint="give at least one entry under hosts",
        )
    hosts = _unique("host", (host.id for host in problem.hosts))
    streams = _unique("stream", (stream.id for stream in problem.streams))
    _unique("operator", (operator.id for operator in problem.operators))
    _unique("query", (query.id for query in problem.queries))
    for host in problem.hosts:
        for name in ("cpu", "bandwidth_in", "bandwidth_out", "memory"):
            _amount(f"{name} of host {host.id!r}", getattr(host, name), unlimited=True)
    for stream in problem.streams:
        _amount(f"rate of stream {stream.id!r}", stream.rate)
        if stream.host is not None:
            _known("host", stream.host, hosts, f"stream {stream.id!r}")
    _check_operators(problem, streams)
    for query in problem.queries:
        _known("stream", query.stream, streams, f"query {query.id!r}")
        if query.deliver_to is not None:
            _known("host", query.deliver_to, hosts, f"query {query.id!r}")
        if query.latency_bound is not None:
            _amount(f"latency bound of query {query.id!r}", query.latency_bound)
    _check_links(problem.links, hosts)
    for name in ("admit", "network", "cpu", "balance"):
        value = getattr(problem.weights, name)
        if isnan(value) or abs(value) == inf or (value < 0 and name != "balance"):
            raise UsageError(
                f"weight {name} is {value}",
                detail="objectives are multiplied by their weights",
                hint="a finite number, 0 or more" if name != "balance" else "a finite number",
            )
        if value:
            _in_range(f"weight {name}", abs(value))
    if problem.timeout_s is not None:
        _amount("timeout_s", problem.timeout_s)
    return problem


def _check_operators(problem: Problem, streams: frozenset[str]) -> None:
    base = {stream.id for stream in problem.streams if stream.host is not None}
    for operator in problem.operators:
        where = f"operator {operator.id!r}"
        if not operator.inputs:
            raise UsageError(
                f"{where} reads no stream", hint="a stream without inputs is a base stream"
            )
        for name in operator.inputs:
            _known("stream", name, streams, where)
        _known("stream", operator.output, streams, where)
        if operator.output in base:
            raise UsageError(
                f"{where} computes the base stream {operator.output!r}",
                hint="give the computed stream another id, or take its host away",
            )
        _amount(f"cpu of {where}", operator.cpu)
        _amount(f"memory of {where}", operator.memory)
    cycle = find_cycle(problem.graph)
    if cycle:
        raise UsageError(
            "streams are computed from each other in a cycle",
            detail=" -> ".join(cycle),
            hint="every stream must come from base streams in finitely many steps",
        )


def _check_links(links: Links, hosts: frozenset[str]) -> None:
    _amount("bandwidth of links", links.bandwidth, unlimited=True)
    seen: set[tuple[str, str]] = set()
    for link in links.listed or ():
        where = f"link {link.source!r} -> {link.target!r}"
        _known("host", link.source, hosts, where)
        _known("host", link.target, hosts, where)
        _amount(f"bandwidth of {where}", link.bandwidth, unlimited=True)
        _amount(f"distance of {where}", link.distance)
        if (link.source, link.target) in seen:
            raise UsageError(
                f"{where} is given twice",
                detail="of two amounts for one link it is not clear which holds",
                hint="give one entry with all its bandwidth; the way back is a link of its own",
            )
        seen.add((link.source, link.target))


def find_cycle(graph: OperatorGraph[Operator]) -> list[str]:
    """Streams that depend on themselves, in order, or nothing.

    >>> ways = (Operator("o", ("a",), "b", 1.0), Operator("p", ("b",), "a", 1.0))
    >>> find_cycle(OperatorGraph(ways))
    ['a', 'b', 'a']
    """
    reads: dict[str, list[str]] = {}
    for name in graph.circle:
        reads.setdefault(graph.by_id[name].output, []).extend(graph.by_id[name].inputs)
    if not reads:
        return []
    path = [min(reads)]
    while path[-1] not in path[:-1]:  # what is above a circle leads down into it
        path.append(next(name for name in reads[path[-1]] if name in reads))
    return path[path.index(path[-1]) :]


def _unique(kind: str, names: Iterable[str]) -> frozenset[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"{kind} {name!r} is given twice", hint=f"every {kind} has its own id")
        seen.add(name)
    return frozenset(seen)


def _known(kind: str, name: str, names: frozenset[str], where: str) -> None:
    if name not in names:
        raise UsageError(
            f"unknown {kind} {name!r}", detail=f"named by {where}", hint=f"declare it under {kind}s"
        )


def _amount(what: str, value: float, *, unlimited: bool = False) -> None:
    if isnan(value) or value < 0 or (value == inf and not unlimited):
        detail = "" if unlimited else "an amount that has no limit cannot be planned with"
        hint = "a number, 0 or more; leave it out for no limit" if unlimited else ""
        raise UsageError(
            f"{what} is {value}",
            detail=detail if value == inf else "",
            hint=hint or "a finite number, 0 or more",
        )
    if 0 < value < inf:
        _in_range(what, value)


def _in_range(what: str, value: float) -> None:
    if not AMOUNT_MIN <= value <= AMOUNT_MAX:
        raise UsageError(
            f"{what} is {value}",
            detail=f"sums and ratios of amounts beyond {AMOUNT_MIN:g} to {AMOUNT_MAX:g} are none",
            hint="give it in another unit, or 0",
        )
