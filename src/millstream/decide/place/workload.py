"""Workloads of SQPR's evaluation as planning problems, drawn from a seed.

Section V.A: hosts with ten base streams of 10 Mbps each, twenty queries a host that are two-,
three- and four-way joins in equal parts over base streams chosen by Zipf's law. What the paper
leaves open is a setting: the rate of a join's result is a selectivity, fixed for each set of base
streams, times the sum of their rates, and a join costs its input rates divided by 20. The same
seed gives the same problem on every machine. Nothing here plans.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, combinations
from math import inf
from random import Random
from zlib import crc32

from millstream.decide.place.problem import Host, Links, Operator, Problem, Query, Stream, Weights


@dataclass(frozen=True, slots=True)
class Workload:
    hosts: int = 50
    base_streams: int = 500
    queries: int = 1000
    arities: tuple[int, ...] = (2, 3, 4)
    zipf: float = 1.0
    rate: float = 10.0  # of a base stream, in Mbps
    selectivity: tuple[float, float] = (0.001, 0.005)
    rate_per_cpu: float = 20.0  # input rate that one unit of CPU joins
    cpu: float = 14.0
    bandwidth: float = 60.0  # of a host, each way
    link_bandwidth: float = inf
    sites: int = 1
    weights: Weights = field(default_factory=Weights)


TIGHT = Workload()
LITERAL = replace(TIGHT, bandwidth=1000.0, link_bandwidth=1000.0)
# Section V.B: 15 hosts on a 10 Mbps LAN, 300 streams of 10 kbps, each host takes 15 joins.
CLUSTER = Workload(
    hosts=15,
    base_streams=300,
    queries=250,
    arities=(2, 3),
    rate=0.01,
    rate_per_cpu=0.02,
    cpu=15.0,
    bandwidth=10.0,
    link_bandwidth=10.0,
    weights=Weights(cpu=0.1, balance=10.0),
)
REGIMES = {"tight": TIGHT, "literal": LITERAL, "cluster": CLUSTER}


def scaled(workload: Workload, hosts: int) -> Workload:
    """The same workload for another number of hosts: streams and queries grow with it."""
    return replace(
        workload,
        hosts=hosts,
        base_streams=workload.base_streams * hosts // workload.hosts,
        queries=workload.queries * hosts // workload.hosts,
    )


def generate(workload: Workload, seed: int) -> Problem:
    """The problem that this seed stands for."""
    random = Random(f"{seed}:{workload.hosts}:{workload.base_streams}")
    hosts = tuple(_host(workload, number) for number in range(workload.hosts))
    places = [number % workload.hosts for number in range(workload.base_streams)]
    random.shuffle(places)  # uniformly distributed over the hosts
    base = tuple(
        Stream(f"b{number}", workload.rate, hosts[place].id) for number, place in enumerate(places)
    )
    sets = _joined_sets(workload, random)
    streams, operators = _joins(workload, sets, seed)
    return Problem(
        hosts=hosts,
        streams=base + streams,
        operators=operators,
        queries=tuple(
            Query(f"q{number}", join_name(members)) for number, members in enumerate(sets)
        ),
        links=Links(bandwidth=workload.link_bandwidth),
        weights=workload.weights,
    )


def join_name(members: Sequence[int]) -> str:
    """The id of the join of these base streams.

    >>> join_name((3, 7))
    'b3*b7'
    """
    return "*".join(f"b{number}" for number in members)


def _host(workload: Workload, number: int) -> Host:
    site = f"site{number * workload.sites // workload.hosts}" if workload.sites > 1 else ""
    return Host(f"h{number}", workload.cpu, workload.bandwidth, workload.bandwidth, site=site)


def _joined_sets(workload: Workload, random: Random) -> list[tuple[int, ...]]:
    weights = [1 / (rank + 1) ** workload.zipf for rank in range(workload.base_streams)]
    cumulated = list(accumulate(weights))
    arities = [
        workload.arities[number % len(workload.arities)] for number in range(workload.queries)
    ]
    random.shuffle(arities)
    sets = []
    for arity in arities:
        members: set[int] = set()
        while len(members) < arity:
            members.add(bisect_left(cumulated, random.random() * cumulated[-1]))
        sets.append(tuple(sorted(members)))
    return sets


def _joins(
    workload: Workload, sets: Sequence[tuple[int, ...]], seed: int
) -> tuple[tuple[Stream, ...], tuple[Operator, ...]]:
    """Every join that can appear in a plan of a query, with every way to split it in two."""
    rates: dict[tuple[int, ...], float] = {}
    streams: list[Stream] = []
    operators: list[Operator] = []
    low, high = workload.selectivity

    def rate(members: tuple[int, ...]) -> float:
        return workload.rate if len(members) == 1 else rates[members]

    for members in sets:
        for size in range(2, len(members) + 1):
            for subset in combinations(members, size):
                if subset in rates:
                    continue
                name = join_name(subset)
                share = crc32(f"{seed}/{name}".encode()) / 2**32
                rates[subset] = (low + share * (high - low)) * workload.rate * size
                streams.append(Stream(name, rates[subset]))
                for number, (left, right) in enumerate(_splits(subset)):
                    cpu = (rate(left) + rate(right)) / workload.rate_per_cpu
                    inputs = (join_name(left), join_name(right))
                    operators.append(Operator(f"{name}/{number}", inputs, name, cpu))
    return tuple(streams), tuple(operators)


def _splits(members: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Each way to split a set into two, once: the first member stays left."""
    first, rest = members[0], members[1:]
    for size in range(len(rest)):
        for more in combinations(rest, size):
            yield (first, *more), tuple(name for name in rest if name not in more)
