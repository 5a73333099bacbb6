"""The set-ups of seed 002, section 4, shared by its experiments.

32 nodes with three streams each of 250 rows a second and 100 bytes, 100 Mbps, 500 queries with
5,750 operators; quick runs are a quarter of that. Only set-ups and averages here, no claims.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from millstream.decide.balance.model.arrangement import arrange, steady_rows, traffic_bytes
from millstream.sim.cluster.cluster import Run, load_deviation
from millstream.sim.scenario import (
    ChangePart,
    ClusterPart,
    NetworkPart,
    PolicyPart,
    Scenario,
    WorkloadPart,
)
from millstream.sim.scenario_run import Outcome, run_variant
from millstream.sim.what_if import Variant
from millstream_lab.claims import Rows, mean, values

SURGE_AT_S, SURGE_UNTIL_S, SURGE_END_S = 20.0, 50.0, 80.0
Change = dict[str, Any]


def scenario(
    *,
    quick: bool,
    choice: str,
    policy: str,
    settings: Change | None = None,
    operators_a_query: float = 11.5,
    duration_s: float = 60.0,
    changes: list[ChangePart] | None = None,
) -> Scenario:
    """The seed's configuration, or a quarter of it."""
    hosts, queries = (8, 125) if quick else (32, 500)
    # A quarter of the nodes puts a quarter of the traffic on the shared medium.
    bandwidth = 100.0 * hosts / 32
    return Scenario(
        name="placement",
        duration_s=duration_s,
        cluster=ClusterPart(hosts=hosts),
        network=NetworkPart(bandwidth_mbps=bandwidth),
        workload=WorkloadPart.model_validate(
            {"queries": queries, "operators": round(queries * operators_a_query), "choice": choice}
        ),
        policy=PolicyPart(name=policy, settings=settings or {}),
        changes=changes or [],
    )


def surge(*, quick: bool, policy: str) -> Scenario:
    """Section 4.2, second experiment: balanced, then the streams of four random nodes x 3."""
    change = ChangePart(
        at_s=SURGE_AT_S, until_s=SURGE_UNTIL_S, factor=3.0, random_hosts=1 if quick else 4
    )
    return scenario(
        quick=quick, choice="dealt", policy=policy, duration_s=SURGE_END_S, changes=[change]
    )


def run(made: Scenario, seed: int) -> Run:
    return outcome(made, seed).run


def outcome(made: Scenario, seed: int) -> Outcome:
    return run_variant(Variant(made), seed, checked=False)


def wanted_mbps(done: Outcome) -> float:
    """What the final placement would send over the network if that could carry anything."""
    flow = done.setting.flow
    rates = np.array([stream.rate for stream in flow.streams])
    placed = arrange(flow, done.run.placement)
    return traffic_bytes(placed, steady_rows(flow, rates)) * 8e-6


def seeds(seed: int, count: int) -> list[int]:
    """Seeds of the repetitions; those of two calls with neighbouring seeds do not meet."""
    return [seed * 1000 + n for n in range(count)]


def deviation(run_: Run, from_s: float, until_s: float = float("inf")) -> float:
    found = [load_deviation(s.loads) for s in run_.samples if from_s < s.now_s <= until_s]
    return float(np.mean(found))


def convergence_s(run_: Run, over_s: float = 10.0) -> float:
    """When the deviation of load has come within a tenth (or 0.01) of where it ends, for good."""
    end = run_.samples[-1].now_s
    last = deviation(run_, end - over_s)
    reached = end
    for sample in reversed(run_.samples):
        if load_deviation(sample.loads) > max(1.1 * last, last + 0.01):
            break
        reached = sample.now_s
    return reached


def traffic_mbps(run_: Run, from_s: float = 0.0, until_s: float = float("inf")) -> float:
    """Rows and moved state."""
    return run_.mean("data_mbps", from_s, until_s) + run_.mean("state_mbps", from_s, until_s)


def average(rows: Rows, key: str, **where: object) -> float:
    """Mean of a column over the rows that match."""
    return mean(rows, key, **where)


def averages(rows: Rows, key: str, by: str, **where: object) -> dict[Any, float]:
    return {value: average(rows, key, **{by: value}, **where) for value in values(rows, by)}


Progress = Callable[[str], None]
