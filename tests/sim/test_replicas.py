"""Homes that are kept at several processors: nothing that anybody was told is lost with one."""

from dataclasses import replace

import pytest

from millstream.control.manager.events import DeclareStream, Remove, StartStreams, Submit
from millstream.control.snapshot.of_manager import snapshot_of
from millstream.core.errors import MillstreamError
from millstream.sim.managed.managed_cluster import QUICK, table, tree
from millstream.sim.managed.replicated_cluster import ReplicatedCluster
from sim.managed_checkers import always
from sim.replicated_runs import judged, random_run

PLANS = {"text": tree("q", ("o:f", "s:a"))}


def quiet(processors: int, replicas: int, lost_after_s: float = 0.0) -> ReplicatedCluster:
    """A cluster without troubles of its own, one query over one stream, pushed to by a producer."""
    names = tuple(f"p{n}" for n in range(1, processors + 1))
    settings = replace(QUICK, replicas=replicas, lost_after_s=lost_after_s)
    cluster = ReplicatedCluster(5, names, PLANS, None, settings)
    cluster.run(3.0)
    cluster.feed(DeclareStream(table("a"), processor="p1"))
    cluster.feed(Submit("q", "text", from_beginning=True))
    cluster.feed(StartStreams())
    cluster.push("a", 30)
    cluster.run(15.0)
    return cluster


@pytest.mark.parametrize("seed", [1, 9, 14, 19, 21, 33, 36, 252, 10002, 10013, 10040])
def test_nothing_is_lost_with_a_machine(seed: int) -> None:
    cluster = random_run(seed)
    assert not judged(cluster), judged(cluster)


@pytest.mark.soak
@pytest.mark.parametrize("tens", range(40))
def test_nothing_is_lost_with_many_machines(tens: int) -> None:
    for seed in range(1000 + 10 * tens, 1010 + 10 * tens):
        cluster = random_run(seed)
        assert not judged(cluster), (seed, judged(cluster))
        cluster.close()


def test_what_was_answered_is_there_when_its_processor_is_not() -> None:
    cluster = quiet(3, 2)
    before = cluster.acknowledged["a"]
    assert before > 5
    cluster.burn("p1")
    cluster.run(20.0)
    assert cluster.ask(Remove("p1", lost=True)) == ""
    cluster.run(45.0)
    assert not always(cluster)
    assert cluster.takeovers == 1
    rows = [row for segment in cluster.truth.logs["s:a"][-1] for row in segment]
    assert rows == [f"a{n}" for n in range(1, 31)]
    assert cluster.acknowledged["a"] == 30
    assert [r for s in cluster.received["q"].values() for r in s] == [
        f"s:a|{n}|a{n}" for n in range(1, 31)
    ]
    assert not cluster.state.lost, "nothing was given up"


def test_an_heir_that_is_lost_at_once_has_an_heir() -> None:
    """The first heir goes before anybody has a copy of what it took over."""
    cluster = quiet(5, 3, lost_after_s=6.0)
    before = cluster.acknowledged["a"]
    cluster.burn("p1")
    while cluster.takeovers == 0 or cluster.state.replications["p1"].phase:
        assert cluster.kernel.now < 60.0
        cluster.run(cluster.kernel.now + 0.05)
    cluster.burn(cluster.processors["p1"].heir)
    cluster.burn("p1")
    cluster.run(120.0)
    assert before > 5
    assert cluster.takeovers == 3, "its home twice, and that of the first heir"
    assert not always(cluster)
    rows = [row for segment in cluster.truth.logs["s:a"][-1] for row in segment]
    assert rows == [f"a{n}" for n in range(1, 31)]
    assert not cluster.state.lost, "nothing was given up"


def test_it_goes_on_by_itself_after_a_while() -> None:
    cluster = quiet(3, 2, lost_after_s=8.0)
    cluster.burn("p1")
    cluster.run(40.0)
    assert cluster.takeovers == 1
    assert cluster.acknowledged["a"] == 30


def test_the_managers_memory_goes_in_the_same_moment() -> None:
    """It hears from the follower that there was such a home, and how it was kept."""
    cluster = quiet(3, 2, lost_after_s=8.0)
    before = cluster.acknowledged["a"]
    cluster.burn_manager(1.0)
    cluster.burn("p1")
    cluster.run(70.0)
    assert before > 5
    assert cluster.takeovers == 1
    assert not always(cluster)
    assert cluster.acknowledged["a"] == 30
    rows = [row for segment in cluster.truth.logs["s:a"][-1] for row in segment]
    assert rows == [f"a{n}" for n in range(1, 31)]
    assert not cluster.state.lost, "nothing was given up"


@pytest.mark.parametrize("seed", [31000, 31002])
def test_managers_burn_while_machines_do(seed: int) -> None:
    cluster = random_run(seed, burning=True)
    assert not judged(cluster), judged(cluster)


def test_who_is_cut_off_tells_nobody_anything() -> None:
    cluster = quiet(3, 2, lost_after_s=8.0)
    before = cluster.acknowledged["a"]
    cluster.isolate("p1", 60.0)
    cluster.run(19.0)
    assert cluster.acknowledged["a"] == before, "its follower did not hear of it"
    cluster.run(80.0)
    assert cluster.acknowledged["a"] == 30, "whoever stands in its place answers"
    assert not always(cluster), "the one that was cut off is refused when it comes back"


def test_too_few_followers_are_told_and_nothing_is_answered() -> None:
    cluster = quiet(2, 2)
    before = cluster.acknowledged["a"]
    assert before > 5
    cluster.burn("p2")
    cluster.run(30.0)
    assert cluster.acknowledged["a"] in (before, before + 1)
    told = snapshot_of(cluster.state).overview.alarms
    assert {("replicas", "p1")} <= {(a.kind, a.subject) for a in told}


def test_one_replica_takes_none_of_these_paths() -> None:
    cluster = quiet(3, 1)
    assert cluster.acknowledged["a"] > 5
    assert not cluster.state.replications
    for processor in cluster.processors.values():
        assert "keep_replicas" not in processor.carried_out
        assert not processor.keeper.replicas
        assert "execute" not in vars(processor.ledger._db)


def test_a_stream_or_a_query_may_ask() -> None:
    for asked in ("stream", "query"):
        cluster = ReplicatedCluster(5, ("p1", "p2", "p3"), PLANS, None, QUICK)
        cluster.run(3.0)
        more = {"replicas": 3} if asked == "stream" else {}
        cluster.feed(DeclareStream(table("a", **more), processor="p1"))
        cluster.feed(Submit("q", "text", from_beginning=True, replicas=1 if more else 3))
        cluster.feed(StartStreams())
        cluster.run(10.0)
        assert cluster.state.replications["p1"].wanted == 2
        assert len(cluster.state.replications["p1"].followers) == 2
    with pytest.raises(MillstreamError, match="1, 2 or 3"):
        cluster.feed(DeclareStream(table("b", replicas=4)))
