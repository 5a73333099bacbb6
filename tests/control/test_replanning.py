"""What runs is planned again when rates, processors or queries change, and only then."""

from dataclasses import replace
from typing import Any

import pytest

from control.test_making_room import cluster_of, decided, offer, places
from millstream.control.manager.events import Change, Drain, Drop, Submit
from millstream.control.protocol import commands as c
from millstream.control.protocol import replies as r
from millstream.sim.managed.managed_cluster import ManagedCluster
from millstream.sim.managed.virtual_processor import VirtualProcessor
from sim.managed_checkers import in_the_end

REASON = "cpu of p1 is exceeded"
UNMEASURED = VirtualProcessor.report  # what nobody has measured is a guess


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors tell what a step and a row cost, as real ones do."""

    def report(self: VirtualProcessor, command: c.Report) -> r.Reported:
        self.version = max(self.version, command.since) + 1
        line = {"fixed_s": 0.1, "row_s": 2e-6, "rows_in": 2_000.0, "rows_out": 1_000.0}
        return r.Reported(self.version, dict.fromkeys(self.operators(), line), {}, {}, {})

    monkeypatch.setattr(VirtualProcessor, "report", report)


def at_rate(cluster: ManagedCluster, rows: float, **table: Any) -> None:
    """Sources bring another number of rows a second from now on."""
    streams = {
        name: replace(s, table={**s.table, "rate": rows, **table})
        for name, s in cluster.state.streams.items()
    }
    cluster.state = replace(cluster.state, streams=streams)


def two_running(p2: float, **settings: Any) -> ManagedCluster:
    """Twice 0.022 on p1, which gives 0.07 away."""
    cluster = cluster_of(5.0, p2, replan_s=5.0, **settings)
    cluster.feed(Submit("small", "small"))
    cluster.feed(Submit("other", "other"))
    cluster.run(10)
    assert places(cluster) == {"o:small": "p1", "o:other": "p1"}
    offer(cluster, p1=0.07)
    cluster.run(30)
    assert not cluster.state.moves
    return cluster


def test_a_changed_rate_moves_one_operator_and_then_nothing() -> None:
    cluster = two_running(0.05)
    at_rate(cluster, 10_000)  # twice 0.04
    cluster.run(70)
    assert sorted(places(cluster).values()) == ["p1", "p2"]
    (move,) = cluster.state.moves.values()
    assert REASON in move.reason
    assert any("what runs is planned again: 1 operator moves" in s for s, _ in decided(cluster))
    cluster.run(1_900)
    assert len(cluster.state.moves) == 1  # a steady load moves nothing
    assert in_the_end(cluster) == []


def test_light_queries_make_room_for_others() -> None:
    cluster = cluster_of(5.0, 0.05, replan_s=5.0)
    cluster.feed(Submit("small", "small", weight=3.0))
    cluster.feed(Submit("other", "other"))
    cluster.run(10)
    offer(cluster, p1=0.07)
    at_rate(cluster, 10_000)
    cluster.run(70)
    assert places(cluster) == {"o:small": "p1", "o:other": "p2"}


def test_a_processor_with_more_room_relieves_others() -> None:
    cluster = two_running(0.0)
    at_rate(cluster, 10_000)
    cluster.run(70)
    assert not cluster.state.moves
    assert any("no move would help" in s and REASON in r for s, r in decided(cluster))
    offer(cluster, p2=0.05)
    cluster.run(120)
    assert sorted(places(cluster).values()) == ["p1", "p2"]


def test_a_dropped_query_lets_others_come_nearer() -> None:
    """Its stream enters at p1, where there was no room; then there is."""
    cluster = cluster_of(0.025, 0.05, replan_s=5.0, weight_network=50.0)
    cluster.feed(Submit("other", "other"))
    cluster.run(10)
    cluster.feed(Submit("small", "small"))
    cluster.run(30)
    assert places(cluster) == {"o:other": "p1", "o:small": "p2"}
    offer(cluster, p1=0.1)
    cluster.feed(Drop("other"))
    cluster.run(80)
    assert places(cluster) == {"o:small": "p1"}
    (move,) = cluster.state.moves.values()
    assert "query other was dropped" in move.reason
    assert "traffic and load cost" in move.reason
    assert in_the_end(cluster) == []


def test_nothing_moves_to_save_what_was_only_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VirtualProcessor, "report", UNMEASURED)
    cluster = cluster_of(0.025, 0.05, replan_s=5.0, weight_network=50.0)
    cluster.feed(Submit("other", "other"))
    cluster.run(10)
    cluster.feed(Submit("small", "small"))
    cluster.run(30)
    placed = places(cluster)
    offer(cluster, p1=0.1)
    cluster.feed(Drop("other"))
    cluster.run(80)
    assert places(cluster) == {"o:small": placed["o:small"]}
    assert not cluster.state.moves


def test_it_can_be_switched_off_and_files_without_a_rate_never_count() -> None:
    quiet = two_running(0.05)
    quiet.feed(Change(replace(quiet.state.settings, replan_s=0.0)))
    at_rate(quiet, 10_000)
    quiet.run(90)
    assert not quiet.state.moves
    files = two_running(0.05)
    at_rate(files, 0, path="rows.csv")
    files.run(90)
    assert not files.state.moves


def test_a_drained_processor_gives_its_operators_to_those_with_room() -> None:
    cluster = two_running(0.03)  # the pattern would send both there, and one has room
    cluster.feed(Drain("p1"))
    cluster.run(60)
    assert places(cluster) == {"o:small": "p2", "o:other": "p2"}  # drained it is, all the same
    back = cluster_of(5.0, 0.0, "p3", replan_s=0.0)
    offer(back, p3=0.1)
    back.feed(Submit("small", "small"))
    back.feed(Submit("other", "other"))
    back.run(10)
    assert places(back) == {"o:small": "p1", "o:other": "p1"}
    back.feed(Drain("p1"))
    back.run(60)
    assert places(back) == {"o:small": "p3", "o:other": "p3"}
