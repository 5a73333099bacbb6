"""A cluster in virtual time: deterministic, conserving, balancing, surviving faults."""

import numpy as np
import pytest
from small_clusters import setting

from millstream.decide.balance.balancer import Settings
from millstream.decide.balance.model.central_policy import CENTRAL
from millstream.decide.balance.model.correlation import CorrelationBased
from millstream.sim.centralised import Centralised
from millstream.sim.cluster.checkers import all_checkers
from millstream.sim.cluster.cluster import Cluster, RateChange, Run, Setting, load_deviation
from millstream.sim.cluster.network import NetworkModel
from millstream.sim.decentralised import Decentralised
from millstream.sim.faults import Fault


def run(setting: Setting, seed: int = 1, selection: str = "flow_aware") -> Run:
    controllers = [Decentralised(Settings(selection=selection))] if selection else []
    result = Cluster(setting, controllers, all_checkers(), seed).run()
    assert result.problems == ()
    return result


def test_a_run_is_a_function_of_setting_and_seed() -> None:
    a, b, c = (run(setting(), seed) for seed in (1, 1, 2))
    assert [s.ratio_worst for s in a.samples] == [s.ratio_worst for s in b.samples]
    assert a.moves == b.moves
    assert a.moves != c.moves


def test_balancing_lowers_deviation_and_worst_ratio() -> None:
    static, balanced = run(setting(), selection=""), run(setting())
    assert not static.moves
    before, after = static.samples[-1], balanced.samples[-1]
    assert load_deviation(after.loads) < load_deviation(before.loads) / 2
    assert after.ratio_worst < before.ratio_worst / 4
    assert load_deviation(np.array([0.5])) == 0.0


def test_without_balancing_nothing_is_said() -> None:
    static = run(setting(), selection="")
    assert static.messages == 0
    assert all(s.control_kbps == 0 for s in static.samples)


def test_a_rate_change_comes_and_goes() -> None:
    surge = RateChange(10.0, (0, 1, 2), 3.0, until_s=20.0)
    result = run(setting(choice="dealt", changes=(surge,)), selection="")
    offered = [float(s.offered.mean()) for s in result.samples]
    assert offered[14] > 1.2 * offered[8]
    assert offered[29] == pytest.approx(offered[8], rel=0.01)


def test_overload_grows_and_drains_without_losing_a_row() -> None:
    surge = RateChange(5.0, tuple(range(12)), 4.0, until_s=10.0)
    result = run(setting(choice="dealt", duration_s=40.0, changes=(surge,)), selection="")
    waiting = [s.waiting_rows for s in result.samples]
    assert waiting[9] > 100 * waiting[3]
    assert waiting[39] == pytest.approx(waiting[3], rel=0.05)


def test_unlike_hosts_get_unlike_work() -> None:
    base = setting(choice="dealt", duration_s=40.0)
    fast = Setting(
        base.flow,
        np.array([3.0, 1.0, 1.0, 1.0, 1.0, 1.0]) * 0.6,
        base.network,
        base.placement,
        duration_s=40.0,
    )
    last = run(fast).samples[-1]
    assert last.loads.max() < 1.7 * last.loads.mean()
    units = np.bincount(run(fast).placement, minlength=6)
    assert units[0] > units[1:].mean()


@pytest.mark.parametrize("split", [False, True])
def test_central_policies_run(split: bool) -> None:
    controller = Centralised(CENTRAL.get("operator_based"), period_s=2.0)
    result = Cluster(setting(split=split), [controller], all_checkers(), 1).run()
    assert result.problems == ()
    assert load_deviation(result.samples[-1].loads) < 0.1
    assert controller.messages > 0


def test_the_global_start_moves_at_once() -> None:
    controller = Centralised(CorrelationBased(global_start=True), period_s=2.0)
    result = Cluster(setting(duration_s=10.0), [controller], all_checkers(), 1).run()
    assert result.problems == ()
    assert "global" in result.moves[0].reason


FAULTS = {
    "crash": Fault("crash", 5.0, 12.0, ("h1",)),
    "crash for good": Fault("crash", 5.0, None, ("h1",)),
    "slow host": Fault("slow_host", 5.0, 15.0, ("h2",), factor=3.0),
    "slow link": Fault("slow_link", 2.0, 20.0, ("h0", "h1"), factor=50.0, bandwidth_mbps=0.01),
    "cut link": Fault("cut_link", 2.0, 10.0, ("h0", "h1")),
    "partition": Fault("partition", 3.0, 10.0, ("h0", "h1", "h2")),
    "clock": Fault("clock", 0.0, None, ("h0", "h3"), offset_s=-100.0, drift=0.2),
    "loss": Fault("loss", 0.0, 20.0, probability=0.3),
    "repeat": Fault("repeat", 0.0, 20.0, probability=0.5),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_fault_breaks_an_invariant(name: str, seed: int) -> None:
    result = run(setting(faults=(FAULTS[name],)), seed)
    if name != "crash for good":
        assert result.samples[-1].loads.max() < 1


def test_all_faults_at_once() -> None:
    faults = tuple(fault for name, fault in FAULTS.items() if name != "crash for good")
    result = run(setting(faults=faults, duration_s=60.0))
    assert result.samples[-1].loads.max() < 1


def test_a_crash_undoes_moves_and_the_ratio_shows_it() -> None:
    fault = Fault("crash", 10.0, 15.0, ("h1",))
    result = run(setting(choice="dealt", faults=(fault,)), selection="")
    ratio = [s.ratio_worst for s in result.samples]
    assert ratio[13] > 100 * ratio[8]
    assert ratio[29] == pytest.approx(ratio[8], rel=0.1)


def test_a_full_medium_delays_rows_and_carries_no_more_than_it_can() -> None:
    narrow = NetworkModel(bandwidth_mbps=0.5)
    result = run(setting(choice="dealt", network=narrow), selection="")
    last = result.samples[-1]
    assert last.data_mbps <= 0.5 * 1.001
    assert last.ratio_communication > 1000
    switched = NetworkModel("switched", 0.5)
    assert run(setting(choice="dealt", network=switched), selection="").samples[-1].data_mbps > 0.5


def test_a_small_tick_gives_the_same_steady_state() -> None:
    coarse = run(setting(choice="dealt"), selection="").samples[-1]
    fine = run(setting(choice="dealt", tick_s=0.02), selection="").samples[-1]
    assert fine.ratio_worst == pytest.approx(coarse.ratio_worst, rel=0.01)
    assert fine.data_mbps == pytest.approx(coarse.data_mbps, rel=0.01)
