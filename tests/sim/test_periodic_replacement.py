"""Periodic re-placement in virtual time: queries move when it pays, once, and for a reason."""

from dataclasses import replace
from itertools import pairwise

import pytest

from millstream.control.admission.replacement import proposals
from millstream.control.manager.events import Change, DeclareStream, RequestMove, Submit
from millstream.control.protocol import commands as c
from millstream.control.protocol import replies as r
from millstream.sim.managed.managed_cluster import QUICK, ManagedCluster, table, tree
from millstream.sim.managed.virtual_processor import VirtualProcessor

NAMES = ("p1", "p2", "p3")
PLANS = {
    "join": tree("join", ("o:f", "s:a"), ("o:j", "o:f", "s:b")),
    "same": tree("same", ("o:f", "s:a"), ("o:g", "o:f")),
}


class Network:
    """What processors will measure: a line p1 - p2 - p3, and rates that may change."""

    def __init__(self) -> None:
        self.distance = {("p1", "p2"): 10.0, ("p2", "p3"): 10.0, ("p1", "p3"): 20.0}
        self.rows = {"s:a": 1000.0, "s:b": 500.0, "o:f": 100.0, "o:j": 10.0, "o:g": 50.0}
        self.state_bytes = 0.0
        self.seen: dict[str, tuple[float, float]] = {}  # by stream: rows so far, when

    def total(self, stream: str, now: float) -> float:
        rows, since = self.seen.get(stream, (0.0, 0.0))
        rows += self.rows[stream] * (now - since)
        self.seen[stream] = rows, now
        return rows


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    """Virtual processors report rates and distances as real ones do."""
    known = Network()
    inputs = {o.id: o.inputs for plan in PLANS.values() for o in plan.operators}

    def report(self: VirtualProcessor, command: c.Report) -> r.Reported:
        self.version = max(self.version, command.since) + 1
        now = self.around.kernel.now  # type: ignore[attr-defined]
        owned = [s for s in known.rows if s in self.owned()]
        totals = {s: known.total(s, now) for s in owned}
        streams = {s: {"rows": n, "bytes": 100 * n, "held_rows": n} for s, n in totals.items()}
        operators = {}
        for o in self.operators():
            rows_in = sum(known.seen.get(i, (0.0, 0.0))[0] for i in inputs[o])
            operators[o] = {
                "rows_in": rows_in, "rows_out": totals.get(o, 0.0), "steps": now,
                "seconds": 0.01 * now, "state_bytes": known.state_bytes,
            }  # fmt: skip
        far = {
            f"distance_ms.{b if a == self.name else a}": ms
            for (a, b), ms in known.distance.items()
            if self.name in (a, b)
        }
        return r.Reported(self.version, operators, streams, {}, {"load": 0.1, **far})

    monkeypatch.setattr(VirtualProcessor, "report", report)
    return known


def cluster_of(**more: object) -> ManagedCluster:
    settings = replace(QUICK, replace_s=20.0, replace_gain=0.1, **more)  # type: ignore[arg-type]
    cluster = ManagedCluster(1, NAMES, PLANS, settings=settings)
    cluster.run(0.5)
    for name, place in (("a", "p1"), ("b", "p2")):
        cluster.sources[name] = 60
        cluster.feed(DeclareStream(table(name), place, start=True))
    cluster.feed(Submit("q", "join", deliver_to="p3"))
    cluster.run(12)
    assert cluster.state.queries["q"].phase == "running"
    return cluster


def places(cluster: ManagedCluster) -> dict[str, str]:
    return {o.id: o.processor for o in cluster.state.operators.values()}


def put(cluster: ManagedCluster, **where: str) -> None:
    """Puts operators somewhere, and waits until they have been there for a while."""
    for operator, place in where.items():
        if cluster.state.operators[f"o:{operator}"].processor != place:
            cluster.feed(RequestMove((f"o:{operator}",), place, "the test wants it there"))
            cluster.run(cluster.kernel.now + 5)
    assert places(cluster) == {f"o:{o}": p for o, p in where.items()}


def decided(cluster: ManagedCluster) -> list[str]:
    return [d.sentence for d in cluster.state.decisions if "placed anew" in d.sentence]


def test_a_badly_placed_query_moves_once_and_says_why(network: Network) -> None:
    cluster = cluster_of(replace=False)
    put(cluster, f="p3", j="p3")
    cluster.feed(Change(replace(cluster.state.settings, replace=True)))
    cluster.run(cluster.kernel.now + 120)
    # the filter at its source; the join where b, its larger input, comes from
    assert places(cluster) == {"o:f": "p1", "o:j": "p2"}
    (sentence,) = [d for d in decided(cluster) if "is placed anew" in d]
    assert "from p3 to p1" in sentence
    assert "from p3 to p2" in sentence
    (reason,) = [d.reason for d in cluster.state.decisions if d.sentence == sentence]
    assert reason.startswith("traffic x distance falls by")
    moves = len(cluster.state.moves)
    cluster.run(cluster.kernel.now + 300)
    assert len(cluster.state.moves) == moves  # nothing swings


def test_changed_distances_and_rates_are_followed(network: Network) -> None:
    cluster = cluster_of()
    cluster.run(cluster.kernel.now + 100)
    assert places(cluster) == {"o:f": "p1", "o:j": "p2"}
    network.rows.update({"s:b": 20.0, "o:f": 900.0})  # now the filter's output is the larger one
    cluster.run(cluster.kernel.now + 150)
    assert places(cluster) == {"o:f": "p1", "o:j": "p1"}
    # and where that way has become short and all else is far, the join goes on
    network.rows.update({"s:b": 800.0, "o:j": 300.0})
    network.distance.update({("p1", "p2"): 40.0, ("p1", "p3"): 2.0, ("p2", "p3"): 10.0})
    cluster.run(cluster.kernel.now + 150)
    assert places(cluster)["o:j"] == "p3"


def test_small_gains_and_dear_moves_are_left_alone(network: Network) -> None:
    cluster = cluster_of()
    cluster.run(cluster.kernel.now + 100)
    assert places(cluster) == {"o:f": "p1", "o:j": "p2"}
    moves = len(cluster.state.moves)
    # p1 would be 5 % better for the join by now: too little to trust
    network.rows.update({"s:b": 500.0, "o:f": 530.0})
    cluster.run(cluster.kernel.now + 100)
    assert len(cluster.state.moves) == moves
    (kept,) = proposals(cluster.state)
    assert "too small to trust" in kept.sentence
    # a large gain, but the state to be carried over is worth more than it saves in 20 s
    network.rows.update({"s:b": 100.0, "o:f": 900.0})
    network.state_bytes = 1e9
    cluster.run(cluster.kernel.now + 100)
    assert len(cluster.state.moves) == moves
    (kept,) = proposals(cluster.state)
    assert "moving costs" in kept.sentence
    network.state_bytes = 0.0
    cluster.run(cluster.kernel.now + 100)
    assert len(cluster.state.moves) == moves + 1


def test_rates_that_swing_do_not_take_operators_with_them(network: Network) -> None:
    cluster = cluster_of()
    cluster.run(cluster.kernel.now + 100)
    for number in range(20):
        high, low = (900.0, 20.0) if number % 2 else (20.0, 900.0)
        network.rows.update({"s:b": high, "o:f": low})
        cluster.run(cluster.kernel.now + 40)
    begun = sorted(m.begun_s for m in cluster.state.moves.values())[1:]
    assert len(begun) > 3  # it does follow, but rests for three looks after every move
    assert min(later - before for before, later in pairwise(begun)) >= 60


def test_a_dry_run_tells_once_and_moves_nothing(network: Network) -> None:
    cluster = cluster_of(replace=False)
    put(cluster, f="p3", j="p3")
    moves = len(cluster.state.moves)
    cluster.run(cluster.kernel.now + 200)
    assert len(cluster.state.moves) == moves
    assert len(decided(cluster)) == 1
    assert "would be placed anew" in decided(cluster)[0]


def test_a_broken_bound_moves_at_once_and_a_shared_operator_stays(network: Network) -> None:
    cluster = cluster_of()
    cluster.run(cluster.kernel.now + 100)
    cluster.feed(Submit("second", "same"))  # shares the filter
    cluster.run(cluster.kernel.now + 30)
    assert cluster.state.queries["second"].phase == "running"
    shared = places(cluster)["o:f"]
    network.distance.update({("p1", "p2"): 100.0, ("p2", "p3"): 100.0, ("p1", "p3"): 30.0})
    late = replace(cluster.state.queries["q"], latency_s=0.11)
    cluster.state = replace(cluster.state, queries={**cluster.state.queries, "q": late})
    cluster.run(cluster.kernel.now + 60)
    assert places(cluster)["o:f"] == shared
    assert places(cluster)["o:j"] == "p3"  # 100 ms from p2 and 30 from p1; by way of p1: 130
    placed = "query q is placed anew"
    reasons = [d.reason for d in cluster.state.decisions if d.sentence.startswith(placed)]
    assert "exceeds the bound" in reasons[-1]


def test_a_processor_without_room_gets_nothing(network: Network) -> None:
    cluster = cluster_of(replace=False)
    put(cluster, f="p3", j="p3")
    cluster.run(cluster.kernel.now + 70)
    known = cluster.state.processors
    small = {**known, "p1": replace(known["p1"], properties={"cpu": 1e-6})}
    cluster.state = replace(cluster.state, processors=small)
    (kept,) = proposals(cluster.state)
    assert "p1 has no room" in kept.sentence
