"""Admission on its way through the manager: dry runs, refusals, queues, sites."""

from dataclasses import replace

from millstream.control.manager.events import Submit
from millstream.sim.managed.managed_cluster import QUICK, ManagedCluster, tree
from sim.managed_checkers import in_the_end

PLANS = {
    "one": tree("one", ("o:f", "s:a"), ("o:j", "o:f", "s:b"), ("o:r", "o:j")),
    "two": tree("two", ("o:f", "s:a"), ("o:g", "o:f")),
}


def planned_cluster() -> ManagedCluster:
    cluster = ManagedCluster(1, ("p1", "p2"), PLANS, settings=replace(QUICK, placer="sqpr"))
    cluster.run(0.5)
    cluster.declare("a", "b", rows=30)
    return cluster


def test_a_dry_run_changes_nothing() -> None:
    cluster = planned_cluster()
    cluster.feed(Submit("one", "one", dry_run=True))
    cluster.run(5)
    told = cluster.state.considered["one"]
    assert told["verdict"] == "admitted"
    assert set(told["places"]) == {"o:f", "o:j", "o:r"}
    assert not cluster.state.queries
    assert not cluster.state.operators
    assert not any(p.ownership.hosted() for p in cluster.processors.values())


def test_a_text_that_names_a_query_is_compiled_with_its_definition() -> None:
    base, reader = "SELECT k FROM a", "SELECT k FROM base"
    whole = f"{reader}\n;\nCREATE VIEW `base` AS {base}"
    plans = {base: tree(base, ("o:f", "s:a")), whole: tree(whole, ("o:f", "s:a"), ("o:g", "o:f"))}
    cluster = ManagedCluster(1, ("p1", "p2"), plans, settings=QUICK)
    cluster.run(0.5)
    cluster.declare("a", rows=30)
    cluster.feed(Submit("base", base))
    cluster.run(10)
    for until_s in (20, 30):  # said twice
        cluster.feed(Submit("reader", reader))
        cluster.run(until_s)
    assert cluster.state.queries["reader"].cql == whole
    assert cluster.state.queries["reader"].phase == "running"
    assert in_the_end(cluster) == []


def test_a_queued_query_runs_when_there_is_room() -> None:
    cluster = planned_cluster()
    small = {n: replace(p, properties={"cpu": 0.0}) for n, p in cluster.state.processors.items()}
    cluster.state = replace(cluster.state, processors=small)
    cluster.feed(Submit("two", "two"))
    cluster.feed(Submit("one", "one", queue=True))
    cluster.run(6)
    assert cluster.state.refusals["two"].code == "cpu"
    assert cluster.state.queries["one"].phase == "queued"
    large = {n: replace(p, properties={"cpu": 8.0}) for n, p in small.items()}
    cluster.state = replace(cluster.state, processors=large)
    cluster.run(40)
    assert cluster.state.queries["one"].phase == "running"
    assert cluster.state.queries["one"].admission["cpu"] > 0
    assert in_the_end(cluster) == []
