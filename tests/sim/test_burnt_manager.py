"""A manager whose home is gone, or older than what has happened since: nothing runs otherwise."""

from dataclasses import replace

import pytest
from managed_runs import random_run

from millstream.control.manager.events import Drop, Joined, RequestMove, StartStreams, Submit
from millstream.control.moves.table import Phase
from millstream.control.protocol.commands import HOME_TAKEN, Join, Report
from millstream.control.protocol.envelope import Envelope
from millstream.core.errors import RefusedError, UsageError
from millstream.sim.managed.managed_cluster import QUICK, ManagedCluster, tree
from sim.managed_checkers import always, in_the_end

PLANS = {
    "one": tree("one", ("o:f", "s:a"), ("o:j", "o:f", "s:b"), ("o:r", "o:j")),
    "two": tree("two", ("o:f", "s:a"), ("o:g", "o:f")),
    "three": tree("three", ("o:k", "s:b")),
}


def running(rows: int = 90) -> ManagedCluster:
    cluster = ManagedCluster(1, ("p1", "p2", "p3"), PLANS)
    cluster.run(0.5)
    cluster.declare("a", "b", rows=rows)
    for name in ("one", "two"):
        cluster.feed(Submit(name, name, from_beginning=True))
    cluster.feed(StartStreams())
    cluster.run(8)
    assert {q.phase for q in cluster.state.queries.values()} == {"running"}
    return cluster


def placement(cluster: ManagedCluster) -> dict[str, str]:
    return {o.id: o.processor for o in cluster.state.operators.values()}


def test_an_empty_home_is_filled_from_what_processors_have() -> None:
    cluster = running()
    before = cluster.state
    places = placement(cluster)
    cluster.burn_manager(1.0)
    cluster.run(8 + 15)
    after = cluster.state
    assert after.queries.keys() == before.queries.keys()
    assert {q.phase for q in after.queries.values()} == {"running"}
    assert placement(cluster) == places
    assert {n: replace(s, epoch=0) for n, s in after.streams.items()} == {
        n: replace(s, epoch=0) for n, s in before.streams.items()
    }
    assert after.epoch > before.epoch
    cluster.run(90)
    assert in_the_end(cluster) == []
    hosted = [c for p in cluster.processors.values() for c in p.carried_out if c == "unhost"]
    assert hosted == []


def test_an_old_backup_learns_what_came_and_what_went() -> None:
    cluster = running()
    cluster.back_up()
    cluster.feed(Drop("two"))
    cluster.run(16)
    cluster.feed(Submit("three", "three"))
    cluster.run(24)
    assert sorted(cluster.state.queries) == ["one", "three"]
    cluster.kill_manager(0.5)  # a life that the backup knows nothing of
    cluster.run(30)
    cluster.burn_manager(1.0, restored=True)
    cluster.run(60)
    assert sorted(cluster.state.queries) == ["one", "three"]
    cluster.run(120)
    assert in_the_end(cluster) == []


@pytest.mark.parametrize(("learned", "silent"), [(True, False), (False, True)])
def test_a_dropped_query_does_not_come_back_with_an_old_backup(learned: bool, silent: bool) -> None:
    """Neither one that this manager once found on processors, nor while somebody is silent."""
    cluster = running()
    if learned:
        cluster.burn_manager(1.0)
        cluster.run(23)
        assert all(q.found for q in cluster.state.queries.values())
    cluster.back_up()
    place = cluster.state.operators["o:g"].processor
    cluster.feed(Drop("two"))
    cluster.run(35)
    assert sorted(cluster.state.queries) == ["one"]
    cluster.burn_manager(1.0, restored=True)
    if silent:
        cluster.pause(next(p for p in sorted(cluster.processors) if p != place), 15.0)
    cluster.run(48)
    assert sorted(cluster.state.queries) == ["one"]
    cluster.run(100)
    assert in_the_end(cluster) == []


def test_a_move_that_only_its_new_owner_has_ended_comes_to_an_end() -> None:
    """The word that a move is complete reached one of two, then the manager's home was gone."""
    cluster = running()
    source = cluster.state.operators["o:f"].processor
    target = next(p for p in sorted(cluster.processors) if p != source)
    cluster.feed(RequestMove(("o:f",), target, "a test"))
    (move,) = cluster.state.moves
    old, new = (cluster.processors[name].ownership for name in (source, target))
    while (known := new.move(move)) is None or known.phase is not Phase.OWNED:
        cluster.run(cluster.kernel.now + 0.05)
        assert cluster.kernel.now < 60
    cluster.processors[target].processor.new_owner.complete(move)
    cluster.burn_manager(1.0)
    cluster.run(90)
    assert [o.move(move).phase for o in (old, new)] == [Phase.DONE, Phase.DONE]
    assert in_the_end(cluster) == []


def test_of_two_managers_one_takes_effect() -> None:
    cluster = running()
    rival = ManagedCluster(
        2, (), PLANS, settings=replace(QUICK), beside=cluster
    )  # its home is empty, and it hears of the same processors
    rival.processors = cluster.processors
    rival.state = replace(rival.state, lineage="rival")
    for name in cluster.processors:
        rival._announce(name)
    cluster.run(20)
    assert rival.state.superseded
    assert not cluster.state.superseded
    cluster.manager_up = False  # for good: the other one takes over
    cluster.run(60)
    assert not rival.state.superseded
    assert {q.phase for q in rival.state.queries.values()} == {"running"}
    cluster.manager_up = True
    cluster.run(70)
    assert cluster.state.superseded
    assert not always(cluster)


def test_one_message_with_a_late_epoch_is_not_the_end() -> None:
    cluster = running()
    nonsense = Envelope(900_000, 7, "p2", (Report(0),), lineage="somebody")
    cluster.processors["p2"].control(nonsense)
    cluster.run(40)
    assert cluster.state.epoch == 900_001
    cluster.run(100)
    assert in_the_end(cluster) == []


def test_a_home_in_the_place_of_another_is_not_taken_for_it() -> None:
    cluster = running()
    cluster.feed(Joined(Join("p1", "virtual://p1/1", 1, home="this")))
    fresh = Join("p1", "virtual://p1/9", 1, home="that")
    with pytest.raises(RefusedError, match="is known with another home") as error:
        cluster.feed(Joined(fresh))
    assert error.value.code == "other_home"
    with pytest.raises(RefusedError, match="was seen") as error:
        cluster.feed(Joined(replace(fresh, epoch=0, home="this")))
    assert error.value.code == HOME_TAKEN
    with pytest.raises(UsageError, match="opened so often"):
        cluster.feed(Joined(replace(fresh, epoch=1 << 60, home="this")))
    cluster.run(90)
    assert in_the_end(cluster) == []


@pytest.mark.parametrize("seed", [*range(20), 65, 82, 167, 179, 231, 278, 288])
def test_managers_burn_while_everything_else_goes_wrong(seed: int) -> None:
    cluster = random_run(seed, burning=True)
    assert in_the_end(cluster) == [], f"random_run({seed}, burning=True)"


def test_nothing_is_placed_anew_before_all_have_said_what_they_have() -> None:
    """Who answers again has not yet told that it runs what nobody else does."""
    cluster = random_run(900009, burning=True, streams=True)
    assert in_the_end(cluster) == []


def test_a_query_dropped_while_one_was_away_does_not_come_back_with_an_empty_home() -> None:
    """One of its processors still has it; who let go of it says so. One of the same name that was
    submitted later stays."""
    cluster = running()
    away = cluster.state.operators["o:f"].processor
    other = next(p for p in sorted(cluster.processors) if p != away)
    cluster.feed(RequestMove(("o:g",), other, "a test"))
    cluster.run(20)
    assert (placement(cluster)["o:f"], placement(cluster)["o:g"]) == (away, other)
    cluster.kill(away, 9.0)
    cluster.feed(Drop("two"))
    cluster.run(cluster.kernel.now + 4)
    cluster.burn_manager(1.0)
    cluster.run(cluster.kernel.now + 40)
    assert sorted(cluster.state.queries) == ["one"]
    cluster.feed(Submit("two", "two", from_beginning=True))
    cluster.run(cluster.kernel.now + 15)
    cluster.burn_manager(1.0)
    cluster.run(cluster.kernel.now + 40)
    running_now = [q.name for q in cluster.state.queries.values() if q.phase == "running"]
    assert sorted(running_now) == ["one", "two"]
    assert in_the_end(cluster) == []
