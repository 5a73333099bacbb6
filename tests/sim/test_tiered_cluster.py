"""A manager of managers in virtual time: one answer, whoever is killed."""

import pytest

from millstream.control.manager import tiers
from millstream.control.manager.events import (
    DeclareStream,
    Drop,
    Event,
    RequestMove,
    StartStreams,
    Submit,
)
from millstream.core.errors import UsageError
from millstream.sim.managed.managed_cluster import Trouble, table, tree
from sim.tiered_cluster import TieredCluster

PLANS = {
    "one": tree("one", ("o:f", "s:a"), ("o:j", "o:f", "s:b"), ("o:r", "o:j")),
    "two": tree("two", ("o:f", "s:a"), ("o:g", "o:f")),
    "three": tree("three", ("o:h", "s:b"), ("o:k", "o:h", "o:f"), ("o:f", "s:a")),
}
LOWER = {"m1": ("p1", "p2"), "m2": ("p3", "p4"), "m3": ("p5",)}
ROWS = 60


def tiered(seed: int, trouble: Trouble | None = None) -> TieredCluster:
    cluster = TieredCluster(seed, LOWER, PLANS, trouble)
    cluster.run(2.0)
    for name in ("a", "b"):
        cluster.sources[name] = ROWS
        say(cluster, DeclareStream(table(name)))
    for name in ("one", "two"):
        say(cluster, Submit(name, name, from_beginning=True))
    say(cluster, StartStreams())
    return cluster


def say(cluster: TieredCluster, event: Event) -> None:
    """A user tries until the manager is there."""
    while not cluster.manager_up:
        cluster.run(cluster.kernel.now + 0.5)
    cluster.feed(event)


def rows_of(cluster: TieredCluster, stream: str) -> int:
    return sum(len(rows) for rows in cluster.truth.logs.get(stream, [[]])[-1])


def test_a_query_runs_across_managers() -> None:
    cluster = tiered(1)
    cluster.run(60.0)
    assert cluster.problems() == []
    assert len({o.processor for o in cluster.state.operators.values()}) > 1
    assert rows_of(cluster, "o:r") == 2 * ROWS
    assert rows_of(cluster, "o:g") == ROWS
    cluster.feed(Drop("one"))
    cluster.run(90.0)
    assert cluster.problems() == []
    hosted = {
        o for m in cluster.lower.values() for p in m.processors.values()
        for o in p.operators()
    }  # fmt: skip
    assert hosted == {"o:f", "o:g"}


def test_who_reads_again_is_introduced_again() -> None:
    cluster = tiered(1)
    cluster.run(60.0)
    for name in ("one", "two"):
        say(cluster, Drop(name))
    cluster.run(90.0)
    left = {s.id: s.introduced for m in cluster.lower.values() for s in m.state.outside.values()}
    assert not any(left.values()), "nobody reads anything"
    for name in ("one", "two"):
        say(cluster, Submit(name, name, from_beginning=True))
    cluster.run(120.0)
    assert cluster.problems() == []
    reading = [(s, m) for m in cluster.lower.values() for s in m.state.outside.values()]
    assert reading
    assert all(tiers.all_introduced(m.state, s.id) for s, m in reading)


def test_a_query_runs_only_when_it_does_below() -> None:
    """With the answer the streams that it reads are let go of: nothing may be on its way then."""
    cluster = tiered(2)
    while any(q.phase != "running" for q in cluster.state.queries.values()):
        cluster.run(cluster.kernel.now + 0.01)
        assert cluster.kernel.now < 30.0
    below = [q.phase for m in cluster.lower.values() for q in m.state.queries.values()]
    assert set(below) == {"running"}


def test_what_reads_from_beyond_a_manager_stays_where_it_is() -> None:
    cluster = tiered(1)
    cluster.run(60.0)
    tried = 0
    for below in cluster.lower.values():
        for operator in below.state.operators.values():
            others = set(below.processors) - {operator.processor}
            if others and below.state.outside.keys() & set(operator.inputs):
                asked = RequestMove((operator.id,), min(others), "for a test")
                with pytest.raises(UsageError, match="from outside this manager's cluster"):
                    below.feed(asked)
                tried += 1
    assert tried
    assert not any(below.state.moves for below in cluster.lower.values())


@pytest.mark.parametrize("seed", range(20))
def test_messages_lost_and_managers_killed(seed: int) -> None:
    trouble = Trouble(
        until_s=40.0, loss=0.05, repeat=0.1, kill_manager_every_s=15.0, kill_every_s=20.0, cut=0.2,
        elsewhere=0.0,
    )  # fmt: skip
    cluster = tiered(seed, trouble)
    cluster.run(160.0)
    assert cluster.problems() == []
    assert rows_of(cluster, "o:r") == 2 * ROWS
    assert rows_of(cluster, "o:g") == ROWS
