"""Makes a run of a scenario: builds cluster, queries and policy from the seed, runs, judges.

The same scenario, seed and commit give the same run. Random choices of the workload come from a
stream of their own, so that an added host or another policy does not change the queries.
"""

from dataclasses import dataclass

import numpy as np

from millstream.core.errors import UsageError
from millstream.decide.balance.model.arrangement import steady_rows
from millstream.decide.balance.model.dataflow import Dataflow, Floats, Stream, build
from millstream.decide.balance.model.fragments import Fragment, fragment_query, single_operators
from millstream.decide.balance.model.operator_tree import Operator, QueryTree
from millstream.sim.cluster.checkers import Problem, all_checkers
from millstream.sim.cluster.cluster import Cluster, RateChange, Run, Setting, load_deviation
from millstream.sim.cluster.network import NetworkModel
from millstream.sim.faults import Fault
from millstream.sim.kernel import stream_seed
from millstream.sim.policies import POLICIES
from millstream.sim.scenario import ChangePart, Scenario
from millstream.sim.what_if import Variant, host_names
from millstream.sim.workloads import Workload, random_queries

ROWS_MAX = 1e18  # a second, of any operator


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A run and the verdicts on it."""

    name: str
    seed: int
    setting: Setting
    run: Run
    failures: tuple[str, ...]  # of the scenario's own checks, and of the checkers


def run_variant(variant: Variant, seed: int, *, name: str = "", checked: bool = True) -> Outcome:
    setting = prepare(variant, seed)
    scenario = variant.scenario
    policy = POLICIES.get(scenario.policy.name)
    controllers = policy.make(scenario.policy.settings)
    checkers = all_checkers() if checked else []
    run = Cluster(setting, controllers, checkers, seed).run()
    failures = (*_told(run.problems), *expectations(scenario, run))
    return Outcome(name or scenario.name, seed, setting, run, failures)


def _told(problems: tuple[Problem, ...]) -> list[str]:
    """Each kind of problem once, with how often."""
    first: dict[str, Problem] = {}
    count: dict[str, int] = {}
    for problem in problems:
        first.setdefault(problem.checker, problem)
        count[problem.checker] = count.get(problem.checker, 0) + 1
    return [
        f"{name} at {problem.at_s:.1f} s: {problem.what} ({count[name]} in all)"
        for name, problem in first.items()
    ]


def expectations(scenario: Scenario, run: Run) -> list[str]:
    """Which of the scenario's checks do not hold."""
    checks = scenario.checks
    if not run.samples:
        asked = checks.model_dump(exclude={"over_s"}, exclude_none=True)
        return [f"{name} is {bound}, the run gives no sample" for name, bound in asked.items()]
    last = [s for s in run.samples if s.now_s > scenario.duration_s - checks.over_s]
    last = last or list(run.samples[-1:])  # where samples are further apart than the span
    found = {
        "worst_ratio_max": float(np.mean([s.ratio_worst for s in last])),
        "load_max": float(np.mean([s.loads.max() for s in last])),
        "load_deviation_max": float(np.mean([load_deviation(s.loads) for s in last])),
        "moves_max": float(sum(s.moves for s in last)),
    }
    failures = []
    for name, value in found.items():
        bound = getattr(checks, name)
        if bound is not None and not value <= bound:  # so that NaN does not pass
            failures.append(f"{name} is {bound}, the run gives {value:.3f}")
    return failures


def prepare(variant: Variant, seed: int) -> Setting:
    scenario = variant.scenario
    for kind, parts in (
        ("hosts", scenario.hosts),
        ("streams", scenario.streams),
        ("queries", scenario.queries),
    ):
        names = [part.id for part in parts]
        if len(set(names)) != len(names):
            raise UsageError(f"two {kind} have one name: {max(names, key=names.count)!r}")
    hosts, cpu = _hosts(variant)
    streams = _streams(scenario, hosts[: len(hosts) - variant.hosts_more])
    fragments = _fragments(scenario, streams, seed)
    if POLICIES.get(scenario.policy.name).unit == "operator":
        fragments = list(single_operators(fragments))
    flow = build(hosts, _at_factors(streams, variant), fragments)
    _refuse_floods(flow)
    part = scenario.network
    return Setting(
        flow,
        cpu,
        NetworkModel(part.medium, part.bandwidth_mbps, part.latency_ms, _row_bytes(streams)),
        flow.unit_native,
        duration_s=scenario.duration_s,
        tick_s=scenario.tick_ms / 1e3,
        sample_s=scenario.sample_s,
        pause_s=scenario.pause_ms / 1e3,
        changes=tuple(_change(change, flow, n, seed) for n, change in enumerate(scenario.changes)),
        faults=tuple(
            Fault(**{**part.model_dump(), "hosts": tuple(part.hosts)}) for part in scenario.faults
        ),
    )


def _refuse_floods(flow: Dataflow) -> None:
    """Selectivities above 1 multiply along a query, in the end beyond the range of numbers."""
    rates = np.array([max(stream.rate, 1.0) for stream in flow.streams])
    with np.errstate(over="ignore", invalid="ignore"):
        made = steady_rows(flow, rates) * flow.out_rows
    for edge in np.flatnonzero(~(made <= ROWS_MAX))[:1]:
        query = flow.queries[flow.unit_query[flow.edge_unit[edge]]]
        raise UsageError(
            f"query {query!r} would make more than {ROWS_MAX:g} rows a second",
            hint="lower the selectivities or the rates",
        )


def _row_bytes(streams: list[Stream]) -> float:
    return float(np.mean([stream.row_bytes for stream in streams]))


def _hosts(variant: Variant) -> tuple[list[str], Floats]:
    scenario = variant.scenario
    names = host_names(variant)
    cpu = [host.cpu for host in scenario.hosts]
    cpu = cpu or [scenario.cluster.cpu] * scenario.cluster.hosts
    while len(cpu) < len(names):
        cpu.append(float(np.mean(cpu)))
    return names, np.array(cpu)


def _streams(scenario: Scenario, hosts: list[str]) -> list[Stream]:
    if scenario.streams:
        for part in scenario.streams:
            if part.host not in hosts:
                raise UsageError(f"stream {part.id!r} arrives at an unknown host {part.host!r}")
        return [Stream(p.id, p.host, p.rate, p.row_bytes) for p in scenario.streams]
    cluster = scenario.cluster
    count = len(hosts) * cluster.streams_a_host
    return [
        Stream(f"s{n}", hosts[n % len(hosts)], cluster.rate, cluster.row_bytes)
        for n in range(count)
    ]


def _at_factors(streams: list[Stream], variant: Variant) -> list[Stream]:
    """Streams at the rates of a question; fragments were cut at the rates before it."""
    factors: dict[str, float] = {}
    for name, factor in variant.stream_factors:
        factors[name] = factors.get(name, 1.0) * factor
    unknown = set(factors) - {stream.id for stream in streams}
    if unknown:
        raise UsageError(f"unknown stream {min(unknown)!r}")
    return [Stream(s.id, s.host, s.rate * factors.get(s.id, 1.0), s.row_bytes) for s in streams]


def _fragments(scenario: Scenario, streams: list[Stream], seed: int) -> list[Fragment]:
    rates = {stream.id: stream.rate for stream in streams}
    if scenario.queries:
        trees = tuple(
            QueryTree(
                query.id,
                tuple(
                    Operator(
                        o.id,
                        tuple(o.inputs),
                        o.cost_us / 1e6,
                        o.selectivity,
                        o.window_s,
                        o.physical,
                    )
                    for o in query.operators
                ),
            )
            for query in scenario.queries
        )
    else:
        random = np.random.default_rng(stream_seed(seed, "workload"))
        trees = random_queries(
            Workload(**scenario.workload.model_dump()), [s.id for s in streams], random
        )
    for tree in trees:
        for name in tree.streams:
            if name not in rates:
                raise UsageError(
                    f"query {tree.id!r} reads {name!r}, which is not a stream or an operator of it"
                )
    return [fragment for tree in trees for fragment in fragment_query(tree, rates)]


def _change(change: ChangePart, flow: Dataflow, number: int, seed: int) -> RateChange:
    names = [stream.id for stream in flow.streams]
    unknown = [name for name in change.streams if name not in names]
    unknown += [host for host in change.hosts if host not in flow.hosts]
    if unknown:
        raise UsageError(f"a change names an unknown stream or host {unknown[0]!r}")
    hosts = set(change.hosts)
    if change.random_hosts:
        random = np.random.default_rng(stream_seed(seed, f"change {number}"))
        with_streams = sorted({stream.host for stream in flow.streams})
        count = min(change.random_hosts, len(with_streams))
        hosts |= {with_streams[n] for n in random.choice(len(with_streams), count, replace=False)}
    chosen = tuple(
        n
        for n, stream in enumerate(flow.streams)
        if stream.id in change.streams or stream.host in hosts
    )
    return RateChange(change.at_s, chosen, change.factor, change.until_s)
