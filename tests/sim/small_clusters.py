"""Small clusters that the tests of the simulator share."""

import numpy as np

from millstream.decide.balance.model.dataflow import Stream, build
from millstream.decide.balance.model.fragments import Fragment, fragment_query, single_operators
from millstream.sim.cluster.cluster import Setting
from millstream.sim.cluster.network import NetworkModel
from millstream.sim.workloads import Workload, random_queries


def fragments(
    hosts: int, queries: int, operators: int, rate: float, seed: int, **workload: object
) -> tuple[list[Stream], list[Fragment]]:
    streams = [Stream(f"s{n}", f"h{n % hosts}", rate) for n in range(2 * hosts)]
    trees = random_queries(
        Workload(queries=queries, operators=operators, **workload),  # type: ignore[arg-type]
        [stream.id for stream in streams],
        np.random.default_rng(seed),
    )
    rates = {stream.id: stream.rate for stream in streams}
    return streams, [f for tree in trees for f in fragment_query(tree, rates)]


def setting(
    *,
    hosts: int = 6,
    queries: int = 90,
    operators: int = 720,
    rate: float = 250.0,
    seed: int = 1,
    choice: str = "zipf",
    split: bool = False,
    network: NetworkModel | None = None,
    **changed: object,
) -> Setting:
    streams, units = fragments(hosts, queries, operators, rate, seed, choice=choice)
    flow = build(
        [f"h{n}" for n in range(hosts)], streams, single_operators(units) if split else units
    )
    return Setting(
        flow,
        np.ones(hosts),
        network or NetworkModel(),
        **{"placement": flow.unit_native, "duration_s": 30.0, **changed},  # type: ignore[arg-type]
    )
