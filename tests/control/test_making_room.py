"""Room for a query: what runs moves live, in a safe order, within a budget, and says why."""

from dataclasses import replace
from typing import Any

import pytest

from millstream.control.admission.planning_state import HEADROOM
from millstream.control.manager.events import Change, DeclareStream, Drop, Submit
from millstream.control.protocol.replies import Compiled, CompiledOperator
from millstream.sim.managed.managed_cluster import QUICK, ManagedCluster, table
from sim.managed_checkers import in_the_end

# By the catalog of estimates: a map of 0.02 + 2e-6 a row, a join of 0.02 + 2e-5 a row, in CPU.
RATE = 1_000


def plan(*operators: tuple[str, str, str]) -> Compiled:
    """(operator, kind, input) rows; the last gives the result."""
    return Compiled(
        tuple(CompiledOperator(o, kind, o, tuple(i.split())) for o, kind, i in operators),
        operators[-1][0],
        (("row", "string"),),
        False,
        tuple(dict.fromkeys(s for *_, i in operators for s in i.split() if s.startswith("s:"))),
    )


PLANS = {
    "small": plan(("o:small", "map", "s:a")),  # 0.022
    "other": plan(("o:other", "map", "s:b")),  # 0.022
    "large": plan(("o:large", "join", "s:a s:b")),  # 0.06
}


def cluster_of(p1: float, p2: float, *more: str, **settings: Any) -> ManagedCluster:
    """Two processors with so much CPU to give away, and perhaps more of them."""
    cluster = ManagedCluster(
        1, ("p1", "p2", *more), PLANS, settings=replace(QUICK, placer="sqpr", **settings)
    )
    cluster.run(0.5)
    for name in ("a", "b"):
        cluster.sources[name] = 30
        cluster.feed(DeclareStream(table(name, rate=RATE), "p1"))
    offer(cluster, p1=p1, p2=p2)
    return cluster


def offer(cluster: ManagedCluster, **cpu: float) -> None:
    known = dict(cluster.state.processors)
    for name, given_away in cpu.items():
        known[name] = replace(known[name], properties={"cpu": given_away / HEADROOM})
    cluster.state = replace(cluster.state, processors=known)


def decided(cluster: ManagedCluster) -> list[tuple[str, str]]:
    return [(d.sentence, d.reason) for d in cluster.state.decisions]


def places(cluster: ManagedCluster) -> dict[str, str]:
    return {o.id: o.processor for o in cluster.state.operators.values()}


def test_a_query_is_taken_after_a_running_operator_has_moved() -> None:
    """0.048 and 0.03 are free beside what runs, 0.06 are needed, and 0.022 can go."""
    cluster = cluster_of(0.07, 0.03)
    cluster.feed(Submit("small", "small"))
    cluster.run(10)
    assert places(cluster) == {"o:small": "p1"}
    cluster.feed(Submit("large", "large"))
    cluster.run(40)
    assert cluster.state.queries["large"].phase == "running"
    assert places(cluster) == {"o:small": "p2", "o:large": "p1"}
    told = decided(cluster)
    assert ("o:small goes from p1 to p2", "query large needs the room") in told
    assert any(s.startswith("room is made for query large: 1 running") for s, _ in told)
    assert in_the_end(cluster) == []


def test_it_is_refused_where_no_move_helps() -> None:
    cluster = cluster_of(0.07, 0.02)  # nothing has room for what would have to go
    cluster.feed(Submit("small", "small"))
    cluster.run(10)
    cluster.feed(Submit("large", "large"))
    cluster.run(40)
    refusal = cluster.state.refusals["large"]
    assert refusal.code == "cpu"
    assert "needed" in refusal.message
    assert "would fit" in refusal.message
    assert refusal.hint
    assert not cluster.state.moves
    assert places(cluster) == {"o:small": "p1"}


def test_a_dry_run_tells_the_moves_and_makes_none() -> None:
    cluster = cluster_of(0.07, 0.03)
    cluster.feed(Submit("small", "small"))
    cluster.run(10)
    cluster.feed(Submit("large", "large", dry_run=True))
    cluster.run(20)
    told = cluster.state.considered["large"]
    assert told["verdict"] == "admitted"
    assert told["moves"] == [{"o:small": "p2"}]
    assert not cluster.state.moves


def test_without_a_budget_what_runs_stays() -> None:
    cluster = cluster_of(0.07, 0.03, moves_a_minute=0.0)
    cluster.feed(Submit("small", "small"))
    cluster.run(10)
    cluster.feed(Submit("large", "large"))
    cluster.run(30)
    assert cluster.state.refusals["large"].code == "cpu"
    cluster.feed(Change(replace(cluster.state.settings, moves_a_minute=6.0)))
    cluster.feed(Submit("large", "large"))
    cluster.run(60)
    assert cluster.state.queries["large"].phase == "running"


def two_in_the_way(budget: float) -> ManagedCluster:
    """0.026 and 0.05 are free, 0.06 are needed, and twice 0.022 must go."""
    cluster = cluster_of(5.0, 0.05, moves_a_minute=budget)
    cluster.feed(Submit("small", "small"))
    cluster.feed(Submit("other", "other"))
    cluster.run(10)
    assert places(cluster) == {"o:small": "p1", "o:other": "p1"}
    offer(cluster, p1=0.07)
    return cluster


@pytest.mark.parametrize(("budget", "apart_s"), [(1.0, 60.0), (0.5, 120.0)])
def test_moves_keep_their_budget(budget: float, apart_s: float) -> None:
    cluster = two_in_the_way(budget)
    cluster.feed(Submit("large", "large"))
    cluster.run(10 + apart_s - 10)
    assert len(cluster.state.moves) == 1
    assert cluster.state.queries["large"].awaits_room
    cluster.run(10 + apart_s + 40)
    assert len(cluster.state.moves) == 2
    assert cluster.state.queries["large"].phase == "running"
    assert in_the_end(cluster) == []


def test_who_waits_for_room_is_refused_when_nothing_may_move_any_more() -> None:
    cluster = two_in_the_way(1.0)
    cluster.feed(Submit("large", "large"))
    cluster.run(30)
    assert cluster.state.queries["large"].awaits_room
    cluster.feed(Change(replace(cluster.state.settings, moves_a_minute=0.0)))
    cluster.run(60)
    assert cluster.state.refusals["large"].code == "cpu"
    assert in_the_end(cluster) == []


def test_who_waits_for_room_can_be_dropped() -> None:
    cluster = two_in_the_way(1.0)
    cluster.feed(Submit("large", "large"))
    cluster.run(30)
    cluster.feed(Drop("large"))
    cluster.run(120)
    assert "large" not in cluster.state.queries
    assert not cluster.state.relocations
    assert len(cluster.state.moves) == 1
    assert in_the_end(cluster) == []
