"""A processor is gone for good with its home: its work begins again, nobody keeps for it."""

from dataclasses import replace

import pytest
from managed_runs import random_run

from millstream.control.manager.events import (
    DeclareStream,
    Drain,
    Drop,
    Joined,
    Remove,
    RequestMove,
    StartStreams,
    Submit,
)
from millstream.control.manager.state import Figures
from millstream.control.snapshot.of_manager import snapshot_of
from millstream.edge.manager import answers
from millstream.sim.managed.managed_cluster import ManagedCluster, table, tree
from sim.managed_checkers import in_the_end

PLANS = {
    "one": tree("one", ("o:f", "s:a"), ("o:j", "o:f", "s:b"), ("o:r", "o:j")),
    "two": tree("two", ("o:g", "s:b")),
}


def running() -> ManagedCluster:
    cluster = ManagedCluster(1, ("p1", "p2", "p3"), PLANS)
    cluster.run(0.5)
    cluster.declare("a", "b", rows=60)
    for name in ("one", "two"):
        cluster.feed(Submit(name, name, from_beginning=True))
    cluster.feed(StartStreams())
    cluster.run(8)
    return cluster


def kept_for(cluster: ManagedCluster, name: str) -> list[str]:
    return [
        stream for p in cluster.processors.values()
        for stream in p.ledger.consumers_of("processor").get(name, ())
    ]  # fmt: skip


def test_what_a_lost_processor_had_begins_again_with_a_mark() -> None:
    cluster = running()
    victim = cluster.state.operators["o:r"].processor
    assert "not silent" in cluster.ask(Remove(victim, lost=True))
    cluster.lose(victim)
    cluster.run(11)
    told = answers.query(cluster.state, "one")
    assert told["state"] == "stalled", "within seconds"
    assert victim in told["reason"]
    cluster.run(16)
    other = next(iter(cluster.processors))
    assert "remove --lost" in cluster.ask(RequestMove(("o:r",), other, "a test"))
    assert "remove --lost" in cluster.ask(Drain(victim))
    assert cluster.ask(Remove(victim, lost=True)) == ""
    assert answers.query(cluster.state, "one")["state"] == "lost"
    cluster.run(120)
    assert in_the_end(cluster) == []
    assert kept_for(cluster, victim) == []
    one = answers.query(cluster.state, "one")
    assert one["state"] == "running"
    assert f"what only {victim} had is gone" in one["lost"]
    alarms = snapshot_of(cluster.state).overview.alarms
    assert [a.kind for a in alarms if a.subject == "one"] == ["gap"]
    assert list(answers.status(cluster.state, _no_traffic(), 0.0)["lost"]) == [victim]
    cluster.feed(Drop("one"))
    cluster.run(150)
    cluster.feed(Submit("one", "one", from_beginning=True))
    cluster.run(180)
    assert answers.query(cluster.state, "one")["state"] == "running", "and not placing for ever"
    assert answers.query(cluster.state, "one")["lost"] == ""


def test_a_query_that_had_nothing_there_goes_on_as_it_was() -> None:
    cluster = running()
    places = {cluster.state.operators[o].processor for o in ("o:f", "o:j", "o:r")}
    places |= {s.processor for s in cluster.state.streams.values()}
    away = sorted(cluster.processors.keys() - places - {cluster.state.operators["o:g"].processor})
    if not away:
        cluster.feed(RequestMove(("o:r",), "p3", "a test"))
        cluster.run(20)
        away = ["p3"]
    before = len(cluster.truth.logs["o:g"])
    cluster.lose(away[0])
    cluster.run(40)
    cluster.feed(Remove(away[0], lost=True))
    cluster.run(120)
    assert in_the_end(cluster) == []
    assert len(cluster.truth.logs["o:g"]) == before, "its stream was never begun again"
    assert cluster.state.queries["two"].lost == ""


def test_a_query_goes_on_from_where_its_sources_were() -> None:
    """What enters again from files is not counted twice, unless the query wants the beginning."""
    cluster = running()
    cluster.feed(Submit("three", "two"))
    cluster.run(12)
    known = cluster.state.statistics
    streams = {s: Figures(0.0, {"watermark_us": 777.0}) for s in ("s:a", "s:b")}
    cluster.state = replace(cluster.state, statistics=replace(known, streams=streams))
    victim = cluster.state.streams["b"].processor
    cluster.lose(victim)
    cluster.run(30)
    cluster.feed(Remove(victim, lost=True))
    cluster.run(90)
    assert cluster.state.queries["three"].start == 777
    start = cluster.state.queries["two"].start
    assert start is not None
    assert start < 100


def test_a_lost_processor_that_comes_back_is_not_believed() -> None:
    cluster = running()
    victim = cluster.state.operators["o:r"].processor
    cluster.lose(victim)
    cluster.run(16)
    cluster.feed(Remove(victim, lost=True))
    assert "declared lost" in cluster.ask(Joined(cluster.dead[victim].join()))


@pytest.mark.parametrize("seed", [*range(15), 81])
def test_one_is_lost_while_everything_goes_wrong(seed: int) -> None:
    cluster = random_run(seed, losing=True)
    assert in_the_end(cluster) == [], f"random_run({seed}, losing=True)"
    for name in cluster.dead:
        assert kept_for(cluster, name) == []


@pytest.mark.parametrize("seed", [31032, 31035])
def test_one_is_lost_while_streams_move(seed: int) -> None:
    """31032: a reader had not followed a stream that had moved on. 31035: a stream was sealed, and
    its new owner had not taken over."""
    cluster = random_run(seed, losing=True, streams=True, burning=seed == 31032)
    assert in_the_end(cluster) == [], f"random_run({seed}, losing=True, streams=True)"


@pytest.mark.parametrize("seed", [31001, 31020, 31030, 31036])
def test_one_is_lost_and_so_is_the_managers_memory(seed: int) -> None:
    cluster = random_run(seed, losing=True, burning=True)
    assert in_the_end(cluster) == [], f"random_run({seed}, losing=True, burning=True)"
    for name in cluster.dead:
        assert kept_for(cluster, name) == []


def test_a_manager_with_an_empty_home_hears_of_one_that_is_gone_and_gives_it_up() -> None:
    """Only those who shared its queries knew it."""
    cluster = running()
    victim = cluster.state.operators["o:r"].processor
    cluster.burn_manager(1.0)
    cluster.lose(victim)
    cluster.run(cluster.kernel.now + 20)
    assert cluster.state.live[victim].state == "silent"
    assert "has not said yet whether d enters there" in cluster.ask(DeclareStream(table("d")))
    assert cluster.ask(Remove(victim, lost=True)) == ""
    cluster.run(cluster.kernel.now + 40)
    marked = [q.name for q in cluster.state.queries.values() if q.lost]
    assert "one" in marked
    assert {q.phase for q in cluster.state.queries.values()} == {"running"}
    assert cluster.ask(DeclareStream(table("d"))) == ""
    cluster.run(cluster.kernel.now + 60)
    assert in_the_end(cluster) == []
    assert kept_for(cluster, victim) == []


def _no_traffic() -> object:
    from millstream.edge.manager.driver import Traffic  # noqa: PLC0415

    return Traffic()
