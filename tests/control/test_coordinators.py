"""The distributed placement protocol: mapping, backtracking, bounds, faults, fail-over."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.control.coordinators.coordinator import step
from millstream.control.coordinators.mapping import Table, map_operator, places
from millstream.control.coordinators.overlay import Overlay
from millstream.control.coordinators.state import (
    PeerState,
    Received,
    Refuse,
    Report,
    Send,
    Submit,
    Tick,
    Timing,
    ToPeer,
    Withdraw,
)
from millstream.control.coordinators.zones import Tree, TreeOperator, TreeSource, tree_of, zones
from millstream.control.protocol.coordinator_messages import (
    Configuration,
    InvalidateMap,
    Map,
    Measured,
    OperatorMapped,
    OperatorRemapped,
    Settings,
    ZoneOperator,
)
from millstream.control.protocol.envelope import Envelope
from millstream.core.codec import from_json, to_json
from millstream.core.errors import UsageError
from millstream.decide.place.network.outcome import Options, Placed
from millstream.decide.place.network.planner import plan
from millstream.decide.place.network.tree import NetworkTree
from millstream.decide.place.problem import within
from millstream.sim.topologies.arrangements import SCENARIOS, arrange
from millstream.sim.topologies.families import Topology, transit_stub
from millstream.sim.topologies.transit_stub import TransitStub
from millstream.sim.topologies.trees import TreeModel, random_tree
from millstream_lab.network.overlay_run import (
    Distributed,
    Faults,
    OverlayRun,
    place_distributed,
)

ALGORITHMS = ("edge", "edge_plus", "in_network")
SMALL = TransitStub(transit_domains=5, stub_nodes=(2, 3))


def small_network() -> Topology:
    return transit_stub(1, SMALL)


def problem_of(seed: int, depth: int, arrangement: str = "uniform") -> NetworkTree:
    topology = small_network()
    rng = np.random.default_rng(seed)
    places = arrange(topology, SCENARIOS.get(arrangement), 2**depth, rng)
    return random_tree(topology, places, TreeModel(), depth, rng)


def all_peers(problem: NetworkTree) -> Overlay:
    """An overlay in which every node of the problem takes part."""
    return Overlay(problem.nodes, np.asarray(problem.distance))


def run_of(problem: NetworkTree, algorithm: str, **parts: object) -> OverlayRun:
    run = OverlayRun(all_peers(problem), **parts)  # type: ignore[arg-type]
    asked = Settings("t", 1, problem.proxy, algorithm, latency_bound=problem.latency_bound)  # type: ignore[arg-type]
    run.submit(tree_of(problem, "t"), asked)
    return run


def operators_only(run: OverlayRun, problem: NetworkTree) -> dict[str, str]:
    names = {operator.id for operator in problem.operators}
    return {name: host for name, host in run.placement("t").items() if name in names}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("levels", [1, 2, 9])
def test_every_operator_gets_one_host_and_the_root_knows_the_cost(
    algorithm: str, levels: int
) -> None:
    for seed in range(6):
        problem = problem_of(seed, 3)
        base = plan(problem, "baseline")
        assert isinstance(base, Placed)
        for bound in (None, 1.2 * base.delay, 3.0 * base.delay):
            bounded = problem.with_bound(bound)
            run = OverlayRun(all_peers(bounded))
            asked = Settings("t", 1, bounded.proxy, algorithm, latency_bound=bound)  # type: ignore[arg-type]
            run.submit(tree_of(bounded, "t"), asked, levels)
            run.run()
            (report,) = run.outcomes
            assert isinstance(report, Report)
            placement = operators_only(run, bounded)
            assert set(placement) == {operator.id for operator in bounded.operators}
            answer = place_distributed(bounded, all_peers(bounded), asked, levels)
            assert isinstance(answer, Distributed)
            assert answer.placement == placement
            assert within(answer.delay, bound)
            if algorithm != "edge":  # edge counts rates, not distances
                assert report.cost == pytest.approx(answer.cost)
            if bound is not None:
                assert report.delay == pytest.approx(answer.delay)
            best = plan(bounded)
            assert isinstance(best, Placed)
            assert answer.cost >= best.cost - 1e-9


@pytest.mark.parametrize(("k", "levels"), [(0, 9), (7, 9), (7, 1)])
def test_coordinators_that_know_every_peer_place_as_the_centralised_planner(
    k: int, levels: int
) -> None:
    """Then nothing is unknown, whatever the zones: the two implementations must agree."""
    for seed in range(10):
        problem = problem_of(seed, 3, ("uniform", "cluster")[seed % 2])
        base = plan(problem, "baseline")
        assert isinstance(base, Placed)
        for bound in (None, 1.15 * base.delay):
            bounded = problem.with_bound(bound)
            asked = Settings("t", 1, problem.proxy, "in_network", k=k, candidates=problem.nodes)
            answer = place_distributed(bounded, all_peers(bounded), asked, levels)
            central = plan(bounded, "in_network", Options(k=k))
            assert isinstance(answer, Distributed)
            assert isinstance(central, Placed)
            assert answer.cost == pytest.approx(central.cost), (seed, bound)


@given(st.integers(0, 10_000), st.sampled_from(ALGORITHMS))
@settings(max_examples=40, deadline=None)
def test_reordered_and_repeated_messages_change_nothing(seed: int, algorithm: str) -> None:
    problem = problem_of(seed % 7, 3, "cluster")
    calm = run_of(problem, algorithm)
    calm.run()
    wild = run_of(problem, algorithm, seed=seed, faults=Faults(repetition=0.5, jitter_ms=3000.0))
    wild.run()
    assert operators_only(wild, problem) == operators_only(calm, problem)


@pytest.mark.parametrize("seed", range(8))
def test_lost_messages_are_made_up_for_by_new_epochs(seed: int) -> None:
    """While messages are lost anything may be missing; one mapping later all is well again."""
    problem = problem_of(seed, 2)
    run = run_of(
        problem,
        "in_network",
        seed=seed,
        faults=Faults(loss=0.05, repetition=0.1, jitter_ms=500.0),
        timing=Timing(measure_s=3.0, mapping_s=20.0, replace_s=60.0, attempts_max=100),
    )
    run.run(until_s=300.0, tick_s=1.0)
    assert len(run.outcomes) > 1
    run.faults = Faults()
    run.run(until_s=700.0, tick_s=1.0)
    run.run()  # a mapping under way has the old hosts beside the new ones until it stands
    assert isinstance(run.outcomes[-1], Report)
    assert set(operators_only(run, problem)) == {operator.id for operator in problem.operators}


def test_silent_peers_do_not_stop_a_mapping() -> None:
    """Distances that cannot be measured are taken from the way back, or the place is left out."""
    problem = problem_of(3, 3)
    sources = {source.node for source in problem.sources}
    silent = frozenset(node for node in problem.nodes if node not in sources | {problem.proxy})
    run = run_of(problem, "in_network", faults=Faults(silent=silent))
    run.run(until_s=60.0, tick_s=1.0)
    assert isinstance(run.outcomes[-1], Report)
    assert set(operators_only(run, problem)) == {operator.id for operator in problem.operators}


@pytest.mark.parametrize("when_s", [0.3, 1.0, 2.5, 60.0])
def test_a_failed_coordinator_or_host_is_replaced(when_s: float) -> None:
    problem = problem_of(5, 3)
    spared = {source.node for source in problem.sources} | {problem.proxy}
    overlay = all_peers(problem)
    inner = zones(tree_of(problem, "t"))[1:]
    victim = next(
        (owner for owner in (overlay.owner(zone.id) for zone in inner) if owner not in spared),
        None,
    )
    assert victim is not None
    run = run_of(problem, "in_network", timing=Timing(mapping_s=30.0))
    run.run(until_s=when_s)
    run.fail(victim)
    run.run(until_s=when_s + 120.0, tick_s=1.0)
    last = run.outcomes[-1]
    assert isinstance(last, Report)
    assert last.epoch >= 2
    placement = operators_only(run, problem)  # also: no operator on two hosts
    assert set(placement) == {operator.id for operator in problem.operators}
    assert victim not in placement.values()


def test_a_failed_source_is_told_to_the_application() -> None:
    problem = problem_of(5, 2)
    run = run_of(problem, "edge_plus")
    run.run()
    lost = next(s.node for s in problem.sources if s.node != problem.proxy)
    run.fail(lost)
    run.run(until_s=run.kernel.now + 10.0)
    last = run.outcomes[-1]
    assert isinstance(last, Refuse)
    assert last.reason == "source"


def test_an_impossible_bound_is_refused_by_the_proxy() -> None:
    problem = problem_of(5, 3)
    base = plan(problem, "baseline")
    assert isinstance(base, Placed)
    run = run_of(problem.with_bound(0.9 * base.delay), "in_network")
    run.run()
    (refusal,) = run.outcomes
    assert isinstance(refusal, Refuse)
    assert refusal.reason == "latency"


def test_a_tree_is_placed_again_periodically_and_old_hosts_forget() -> None:
    problem = problem_of(5, 3)
    run = run_of(problem, "in_network", timing=Timing(replace_s=60.0))
    run.run(until_s=30.0)
    first = operators_only(run, problem)
    # The network changes: everything near the proxy is suddenly far, and the reverse.
    changed = run.overlay.distance.max() - run.overlay.distance
    np.fill_diagonal(changed, 0.0)
    run.overlay = Overlay(run.overlay.peers, changed)
    run.run(until_s=110.0, tick_s=1.0)
    epochs = [outcome.epoch for outcome in run.outcomes if isinstance(outcome, Report)]
    assert epochs == [1, 2]
    second = operators_only(run, problem)
    assert set(second) == set(first)
    assert second != first


def test_a_withdrawn_tree_leaves_nothing_behind() -> None:
    problem = problem_of(5, 3)
    run = run_of(problem, "in_network")
    run.run()
    run.feed(problem.proxy, Withdraw("t"))
    run.run()
    assert run.placement("t") == {}
    assert all(not state.zones and not state.trees for state in run.peers.values())


def test_messages_survive_json() -> None:
    """Every message of a whole run, through the codec."""
    problem = problem_of(4, 3)
    seen = []
    run = run_of(problem.with_bound(1e9), "in_network")
    original = OverlayRun._arrive

    def spy(self: OverlayRun, target: str, message: object, *rest: object) -> None:
        seen.append(message)
        original(self, target, message, *rest)  # type: ignore[arg-type]

    OverlayRun._arrive = spy  # type: ignore[method-assign,assignment]
    try:
        run.run()
    finally:
        OverlayRun._arrive = original  # type: ignore[method-assign]
    kinds = {message.do for message in seen}  # type: ignore[attr-defined]
    assert {"ADD_SUBTREE", "MAP", "OPERATOR_MAPPED", "MEASURE", "MEASURED"} <= kinds
    for message in seen:
        envelope = Envelope(1, 0, "p", (message,), "q", "processor")  # type: ignore[arg-type]
        assert from_json(Envelope, to_json(envelope)) == envelope
    with pytest.raises(UsageError, match="malformed"):
        from_json(Envelope, {**to_json(envelope), "messages": [{"do": "MAP"}]})


def star_tree() -> Tree:
    return Tree(
        "t",
        (TreeSource("a", "x", 1.0), TreeSource("b", "y", 2.0), TreeSource("c", "x", 3.0)),
        (TreeOperator("lower", ("a", "b"), 1.0), TreeOperator("upper", ("lower", "c"), 1.0)),
        "upper",
    )


def test_zones_cut_the_tree_and_know_the_places_above() -> None:
    upper, lower = zones(star_tree())
    assert (upper.id, upper.upstream, upper.boundary) == ("upper", None, ("lower", "c"))
    assert (lower.id, lower.upstream, lower.boundary) == ("lower", "upper", ("a", "b"))
    assert upper.operators[0].common == ("x",)
    assert lower.wanted == ("x",)
    (whole,) = zones(star_tree(), levels=2)
    assert [operator.id for operator in whole.operators] == ["lower", "upper"]
    assert whole.boundary == ("a", "b", "c")
    with pytest.raises(UsageError, match="not a tree"):
        replace(star_tree(), root="lower")


def test_the_proxy_hands_out_zones_and_wakes_sources() -> None:
    asked = Settings("t", 1, "p", "edge")
    _, actions = step(PeerState("p"), Submit(star_tree(), asked))
    kinds = [action.message.do for action in actions if isinstance(action, Send)]
    assert kinds == ["ADD_SUBTREE"] * 2 + ["OPERATOR_MAPPED", "MAP"] * 3
    assert isinstance(actions[0], Send)
    assert actions[0].to == ToPeer("p")


def test_hosts_follow_the_highest_revision_whatever_the_order() -> None:
    asked = Settings("t", 1, "p", "edge")
    here = Configuration("h", 1.0)
    mapped = Received(OperatorMapped(asked, "o", 3, here))
    older = Received(InvalidateMap(asked, "o", 2))
    newer = Received(InvalidateMap(asked, "o", 4))
    state, _ = step(PeerState("h"), newer)
    state, _ = step(state, mapped)
    assert state.running("t") == {}
    state, _ = step(PeerState("h"), mapped)
    state, _ = step(state, older)
    assert set(state.running("t")) == {"o"}
    state, _ = step(state, newer)
    assert state.running("t") == {}
    state, _ = step(state, Received(OperatorMapped(replace(asked, epoch=2), "o", 1, here)))
    assert set(state.running("t")) == {"o"}


def test_a_coordinator_follows_the_latest_wish_for_its_operator() -> None:
    """The zone above changed its mind twice; its messages overtook each other."""
    problem = problem_of(2, 3)
    run = run_of(problem, "edge_plus")
    run.run()
    zone = zones(tree_of(problem, "t"))[1]
    name = run.overlay.owner(zone.id)
    state = run.peers[name]
    known = state.zones["t", zone.id]
    here, there = list(known.tables[zone.id].rows)[:2]
    asked = known.settings
    later = known.remapped_at + 5
    state, _ = step(state, Received(OperatorRemapped(asked, zone.id, here, later + 1)))
    assert state.zones["t", zone.id].assigned[zone.id] == here
    after, actions = step(state, Received(OperatorRemapped(asked, zone.id, there, later)))
    assert (after, actions) == (state, ())
    unknown = OperatorRemapped(asked, zone.id, "nowhere", later + 2)
    assert step(state, Received(unknown)) == (state, ())


def test_edge_plus_gathers_children_at_places_below_them() -> None:
    """The fourth case: both children leave their best places and meet where they lie close."""
    at = {"A": 0.0, "B": 50.0, "D": 50.1, "C": 100.0, "p": 500.0}
    view = {(one, other): abs(at[one] - at[other]) for one in at for other in at}

    def child(name: str, best: str, other: str) -> Table:
        rows = {best: Configuration(best, 0.0), other: Configuration(other, 5.0)}
        return Table(name, 1.0, best, rows, (best, other))

    children = [child("left", "A", "B"), child("right", "C", "D")]
    operator = ZoneOperator("o", 1.0, ("left", "right"), ())
    for algorithm, cost in (("edge_plus", 10.1), ("in_network", 10.1), ("edge", 1.0)):
        asked = Settings("t", 1, "p", algorithm)  # type: ignore[arg-type]
        where = places(operator, children, asked, (), ())
        table = map_operator(operator, children, asked, view, at=where, candidates=(), root=False)
        assert table is not None
        assert table.rows[table.best].cost == pytest.approx(cost)
        if algorithm != "edge":
            assert table.rows[table.best].children == ("B", "D")


def test_what_no_epoch_confirms_lapses_at_its_host() -> None:
    asked = Settings("t", 1, "p", "edge")
    timing = Timing(replace_s=10.0, mapping_s=5.0)
    told = Received(OperatorMapped(asked, "o", 1, Configuration("h", 1.0)), now_s=100.0)
    state, _ = step(PeerState("h", timing), told)
    state, _ = step(state, Tick(100.0 + timing.lease_s))
    assert set(state.running("t")) == {"o"}
    state, _ = step(state, Tick(101.0 + timing.lease_s))
    assert state.running("t") == {}
    forever, _ = step(PeerState("h"), told)
    forever, _ = step(forever, Tick(1e9))
    assert set(forever.running("t")) == {"o"}


def test_stale_and_unknown_messages_do_nothing() -> None:
    old, new = Settings("t", 1, "p", "edge"), Settings("t", 2, "p", "edge")
    report = Map(new, "a", 1.0, Configuration("x", 0.0), ("lower", "upper"), descendants=("x",))
    state, _ = step(PeerState("c"), Received(report))
    again, actions = step(state, Received(replace(report, settings=old, operator="b")))
    assert (again, actions) == (state, ())
    for message in (
        Measured(new, "lower", "nobody", ()),
        OperatorRemapped(old, "lower", "x", 1),
        OperatorRemapped(new, "lower", "x", 1),
    ):
        after, actions = step(state, Received(message))
        assert actions == ()
        assert after.zones == state.zones
