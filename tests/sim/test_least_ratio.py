"""The policy that lowers the worst ratio directly, its model, and what it gains over the seed's."""

import numpy as np
import pytest
from small_clusters import setting

from millstream.decide.balance.balancer import Settings
from millstream.decide.balance.model.central_policy import Observation
from millstream.decide.balance.model.dataflow import Ints
from millstream.decide.balance.model.least_ratio import LeastRatio, Settled
from millstream.decide.balance.model.ratio_model import RatioModel
from millstream.sim.centralised import Centralised
from millstream.sim.cluster.checkers import all_checkers
from millstream.sim.cluster.cluster import Cluster, Controller, Run
from millstream.sim.decentralised import Decentralised
from millstream.sim.faults import Fault

SETTING = setting(seed=3)
RATES = np.array([stream.rate for stream in SETTING.flow.streams])
TRANSFER_S = 1.08e-4  # latency and transmission of the default network


def model() -> RatioModel:
    return RatioModel(SETTING.flow, RATES, SETTING.host_cpu, TRANSFER_S)


def observation(
    host: Ints, speed: np.ndarray | None = None, backlog: np.ndarray | None = None
) -> Observation:
    units = len(SETTING.flow.units)
    return Observation(
        0.0,
        SETTING.flow,
        host,
        RATES,
        SETTING.host_cpu if speed is None else speed,
        TRANSFER_S,
        np.zeros(units) if backlog is None else backlog,
        np.ones((3, units)),
        np.ones(units, dtype=bool),
    )


def after(host: Ints, seen: Observation, policy: LeastRatio) -> tuple[Ints, object, int]:
    moves, memory = policy.decide(seen, None)
    host = host.copy()
    for move in moves:
        assert move.reason
        host[move.unit] = move.host
    return host, memory, len(moves)


@pytest.mark.parametrize("seed", range(3))
def test_the_estimate_is_the_steady_state_of_the_simulation(seed: int) -> None:
    base = setting(choice="dealt", seed=seed, duration_s=20.0)
    random = np.random.default_rng(seed)
    host = base.placement.copy()
    moved = random.random(len(host)) < 0.3
    host[moved] = random.integers(0, 6, int(moved.sum()))
    placed = setting(choice="dealt", seed=seed, duration_s=20.0, placement=host)
    last = Cluster(placed, []).run().samples[-1]
    rates = np.array([stream.rate for stream in base.flow.streams])
    found = RatioModel(base.flow, rates, base.host_cpu, TRANSFER_S).estimate(host)
    assert found.load == pytest.approx(last.offered, rel=1e-6)
    assert found.worst == pytest.approx(last.ratio_worst, rel=0.02)
    assert found.traffic * 8e-6 == pytest.approx(last.data_mbps, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_changes_of_traffic_are_differences_of_estimates(seed: int) -> None:
    random = np.random.default_rng(seed)
    known = model()
    host = random.integers(0, 6, len(SETTING.placement))
    units = random.choice(len(host), 12, replace=False)
    changes = known.traffic_changes(units, host, known.readers(host))
    before = known.estimate(host).traffic
    for row, unit in enumerate(units):
        for target in range(6):
            there = host.copy()
            there[unit] = target
            expected = known.estimate(there).traffic - before
            assert changes[row, target] == pytest.approx(expected, abs=1e-6)


def test_it_relieves_then_lowers_the_worst_ratio_then_rests() -> None:
    policy, host, memory = LeastRatio(), SETTING.placement, None
    known = model()
    start = known.estimate(host)
    for _ in range(40):
        moves, memory = policy.decide(observation(host), memory)
        host = host.copy()
        for move in moves:
            host[move.unit] = move.host
        if isinstance(memory, Settled):
            break
    end = known.estimate(host)
    assert isinstance(memory, Settled)
    assert end.worst < start.worst / 4
    assert end.load.max() - end.load.mean() <= policy.tolerance * 1.5
    again, same = policy.decide(observation(host), memory)
    assert (again, same) == ((), memory)


def test_dead_hosts_keep_what_they_have_and_get_nothing() -> None:
    speed = SETTING.host_cpu.copy()
    speed[2] = 0.0
    host, _, count = after(SETTING.placement, observation(SETTING.placement, speed), LeastRatio())
    assert count > 0
    assert ((host == 2) == (SETTING.placement == 2)).all()


def test_rows_that_wait_are_load_too() -> None:
    even = LeastRatio(tolerance=0.3)
    backlog = np.zeros(len(SETTING.placement))
    host, _, _ = after(SETTING.placement, observation(SETTING.placement), even)
    crowd = np.flatnonzero(host == 4)
    backlog[crowd] = 1.0
    relieved, _, _ = after(host, observation(host, backlog=backlog), even)
    assert (relieved == 4).sum() < (host == 4).sum()


def run(controller: Controller, **changed: object) -> Run:
    here = setting(**{"seed": 3, "duration_s": 40.0, **changed})  # type: ignore[arg-type]
    return Cluster(here, [controller], all_checkers(), 3).run()


def test_it_beats_the_seeds_policy_at_no_more_traffic() -> None:
    larger = {"hosts": 12, "queries": 180, "operators": 1800, "duration_s": 30.0}
    theirs = run(Decentralised(Settings()), **larger)
    ours = run(Centralised(LeastRatio(traffic_weight=1.5)), **larger)
    assert ours.problems == ()
    assert ours.mean("ratio_worst", 20) < 0.8 * theirs.mean("ratio_worst", 20)
    both = [r.mean("data_mbps") + r.mean("state_mbps") for r in (ours, theirs)]
    assert both[0] <= both[1]


def test_it_survives_faults() -> None:
    faults = (
        Fault("crash", 5.0, 12.0, ("h1",)),
        Fault("slow_host", 8.0, 20.0, ("h2",), factor=2.0),
        Fault("partition", 14.0, 18.0, ("h0", "h3")),
    )
    result = run(Centralised(LeastRatio()), faults=faults)
    assert result.problems == ()
    assert result.samples[-1].ratio_worst < 100
