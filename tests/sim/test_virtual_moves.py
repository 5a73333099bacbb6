"""Live moves: they take time, load the network, and are whole or undone."""

import numpy as np
import pytest
from small_clusters import setting

from millstream.sim.cluster.checkers import all_checkers
from millstream.sim.cluster.cluster import Cluster
from millstream.sim.cluster.network import NetworkModel
from millstream.sim.faults import Fault


class Mover:
    """Asks for one move at a time."""

    control_bytes = 0.0
    messages = 0

    def __init__(self, *wishes: tuple[float, int, int]) -> None:
        self.wishes = wishes
        self.started: list[bool] = []
        self.heard: list[tuple[int, int, int]] = []

    def start(self, cluster: Cluster) -> None:
        def begin(unit: int, to: int) -> None:
            self.started.append(cluster.moves.start(unit, to, cluster.now_s, "a wish"))

        for at_s, unit, to in self.wishes:
            cluster.kernel.at(at_s, lambda unit=unit, to=to: begin(unit, to))

    def moved(self, unit: int, source: int, target: int) -> None:
        self.heard.append((unit, source, target))

    def crashed(self, host: int) -> None: ...
    def restarted(self, host: int) -> None: ...


BASE = setting(choice="dealt", duration_s=10.0)
JOINS = int(np.argmax([sum(o.window_s for o in unit.operators) for unit in BASE.flow.units]))
HOME = int(BASE.placement[JOINS])
OTHER = (HOME + 1) % 6


def go(mover: Mover, **changed: object) -> Cluster:
    cluster = Cluster(setting(choice="dealt", duration_s=10.0, **changed), [mover], all_checkers())
    result = cluster.run()
    assert result.problems == ()
    return cluster


def test_a_move_copies_the_state_then_switches() -> None:
    mover = Mover((2.05, JOINS, OTHER))
    cluster = go(mover, network=NetworkModel(bandwidth_mbps=10.0))
    (record,) = cluster.moves.log
    assert record.outcome == "done"
    assert record.state_bytes > 10_000
    assert record.ended_s > record.started_s
    assert mover.heard == [(JOINS, HOME, OTHER)]
    assert cluster.flows.placed.unit_host[JOINS] == OTHER
    assert sum(s.state_mbps for s in cluster.samples) == pytest.approx(record.state_bytes * 8e-6)


def test_a_unit_moves_once_at_a_time_and_never_to_where_it_is() -> None:
    mover = Mover((2.0, JOINS, OTHER), (2.0, JOINS, OTHER), (2.0, 0, int(BASE.placement[0])))
    cluster = go(mover)
    assert mover.started == [True, False, False]
    assert len(cluster.moves.log) == 1


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault("crash", 2.2, None, (f"h{OTHER}",)), "undone: the new host failed"),
        (Fault("crash", 2.2, None, (f"h{HOME}",)), "undone: the old host failed"),
        (Fault("cut_link", 2.2, None, (f"h{HOME}", f"h{OTHER}")), "undone: the hosts lost each"),
    ],
)
def test_a_failure_before_the_switch_undoes_the_move(fault: Fault, outcome: str) -> None:
    mover = Mover((2.0, JOINS, OTHER), (3.0, JOINS, OTHER))
    cluster = go(mover, network=NetworkModel(bandwidth_mbps=2.0), faults=(fault,))
    assert cluster.moves.log[0].outcome.startswith(outcome)
    assert cluster.flows.placed.unit_host[JOINS] == HOME
    assert mover.started == [True, False]  # nor can it start while the failure lasts
    assert mover.heard == []


def test_rows_wait_while_a_unit_switches_and_no_longer() -> None:
    long_pause = go(Mover((2.0, JOINS, OTHER)), pause_s=3.0, sample_s=0.5)
    short = go(Mover((2.0, JOINS, OTHER)), sample_s=0.5)
    at = [s.now_s for s in long_pause.samples].index(3.0)
    assert long_pause.samples[at].ratio_worst > 100 * short.samples[at].ratio_worst
    assert long_pause.samples[-1].ratio_worst == pytest.approx(
        short.samples[-1].ratio_worst, rel=0.01
    )
