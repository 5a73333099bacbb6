"""The expected-value model against the exact simulation, row by row."""

import numpy as np
import pytest
from small_clusters import fragments

from millstream.decide.balance.model.dataflow import build
from millstream.sim.cluster.cluster import Cluster, Setting
from millstream.sim.cluster.network import NetworkModel
from millstream_lab.placement.exact import RowSimulation

LATENCY_MS = 0.1
WIDE = NetworkModel("switched", 1e6, LATENCY_MS)


def compare(rate: float, queries: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Model over exact: loads by host, delays by path, evaluation times by path."""
    hosts = [f"h{n}" for n in range(3)]
    streams, units = fragments(3, queries, queries * 8, rate, seed)
    flow = build(hosts, streams, units)
    placement = flow.unit_native.copy()
    random = np.random.default_rng(seed)
    moved = random.random(len(placement)) < 0.3
    placement[moved] = random.integers(0, 3, int(moved.sum()))
    cluster = Cluster(Setting(flow, np.ones(3), WIDE, placement, duration_s=5.0), [])
    cluster.run()
    exact = RowSimulation(
        units,
        {stream.id: stream.rate for stream in streams},
        {stream.id: stream.host for stream in streams},
        {unit.id: hosts[at] for unit, at in zip(units, placement, strict=True)},
        latency_s=LATENCY_MS / 1e3,
        seed=seed,
    )
    delays = exact.run(20.0, warm_up_s=1.0)
    loads = exact.loads()
    load = np.array([cluster.hosts.busy[n] / loads[name] for n, name in enumerate(hosts)])
    processing_s, communication_s = cluster.flows.path_delays_s(cluster.now_s)
    model_s = processing_s + communication_s
    delay, evaluation = [], []
    for n, start in enumerate(flow.path_starts):
        stream = flow.streams[flow.edge_stream[flow.path_edges[start]]].id
        seen = delays.get((flow.queries[flow.path_query[n]], stream))
        if seen is not None and seen.count >= 200:
            delay.append(model_s[n] * seen.count / seen.delay_s)
            evaluation.append(cluster.flows.path_p_s[n] * seen.count / seen.evaluation_s)
    return load, np.array(delay), np.array(evaluation)


@pytest.mark.parametrize(("rate", "queries", "seed"), [(100.0, 30, 1), (250.0, 40, 2)])
def test_loads_and_delays_agree(rate: float, queries: int, seed: int) -> None:
    load, delay, evaluation = compare(rate, queries, seed)
    assert load == pytest.approx(1.0, abs=0.05)
    assert len(delay) > 20
    assert evaluation == pytest.approx(1.0, abs=0.15)
    assert delay.mean() == pytest.approx(1.0, abs=0.08)
    # Single paths: rows of one batch that meet again at another host are not independent.
    assert np.quantile(delay, 0.1) > 0.75
    assert np.quantile(delay, 0.9) < 1.2
