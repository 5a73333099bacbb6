"""Planning of what runs: one owner a stream, moves with room at every moment, nothing dropped."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from millstream.decide.place.check import check
from millstream.decide.place.live.making_room import admit
from millstream.decide.place.live.owned import operators_at, relocate, running_state
from millstream.decide.place.live.relays import Routes, lightened, routes_of
from millstream.decide.place.live.relief import overloaded, relieved
from millstream.decide.place.problem import Host, Operator, Problem, Query, Stream
from millstream.decide.place.reuse.state import PlanState
from millstream.decide.place.solution import Solution
from millstream.decide.place.workload import LITERAL, TIGHT, Workload, generate, scaled


def solution(state: PlanState) -> Solution:
    return Solution(tuple(state.served), (), state.placed(), state.flows(), state.delivered())


def valid(problem: Problem, running: Mapping[str, str]) -> bool:
    """The independent checker on what runs, with every stream from its owner."""
    made = {o.output for o in problem.operators if o.id in running}
    served = tuple(q for q in problem.queries if q.stream in made)
    known = replace(problem, queries=served)
    return check(known, solution(running_state(known, running))) == ()


def one_way(problem: Problem) -> Problem:
    """Every computed stream in one way alone."""
    ways = {o.output: o for o in reversed(problem.operators)}
    return replace(problem, operators=tuple(ways.values()))


@pytest.mark.parametrize("workload", [TIGHT, LITERAL], ids=["tight", "literal"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_moment_of_every_plan_is_valid(workload: Workload, seed: int) -> None:
    problem = one_way(generate(scaled(workload, 3), seed))
    running: dict[str, str] = {}
    taken: list[Query] = []
    moves = 0
    for query in problem.queries:
        now = replace(problem, queries=(*taken, query))
        answer = admit(partial(running_state, now, dict(running)), query, set(running))
        if not answer.decision.admitted:
            assert answer.decision.refusal is not None
            assert answer.decision.refusal.reason != "no_plan"
            continue
        for group in answer.moves:  # one after the other
            running |= group
            moves += len(group)
            assert valid(replace(problem, queries=tuple(taken)), running)
        kept = set(running.items())
        running = dict(answer.places)
        assert kept <= set(running.items())  # nothing else moves
        taken.append(query)
        assert valid(now, running)
    assert moves
    assert len(running) == len(set(running))


PAIR = Problem(
    hosts=(Host("h1", 1.0), Host("h2", 0.5)),
    streams=(Stream("a", 1.0, "h1"), Stream("b", 1.0), Stream("c", 1.0), Stream("d", 1.0)),
    operators=(
        Operator("ob", ("a",), "b", 0.3),
        Operator("oc", ("b",), "c", 0.4),
        Operator("od", ("a",), "d", 0.8),
    ),
    queries=(Query("qc", "c"),),
)
RUNNING = {"ob": "h1", "oc": "h1"}


def test_a_moved_operator_takes_its_inputs_and_leaves_the_rest() -> None:
    state = running_state(PAIR, RUNNING)
    at = state.catalog.operator_at
    assert relocate(state, {at["oc"]: 1}) is None
    assert operators_at(state) == {at["ob"]: 0, at["oc"]: 1}
    assert [(f.stream, f.source, f.target) for f in state.flows()] == [("b", "h1", "h2")]
    assert state.delivered()[0].host == "h2"
    state.rollback(0)
    assert operators_at(state) == {at["ob"]: 0, at["oc"]: 0}
    assert not state.flows()


def test_a_move_without_room_while_it_is_under_way_is_none() -> None:
    state = running_state(PAIR, RUNNING)
    at = state.catalog.operator_at
    short = relocate(state, {at["ob"]: 1, at["oc"]: 1})
    assert short is not None
    assert (short.resource, short.host) == ("cpu", 1)


def test_an_overloaded_host_is_relieved_by_what_is_just_enough() -> None:
    state = running_state(replace(PAIR, hosts=(Host("h1", 0.5), Host("h2", 0.5))), RUNNING)
    assert overloaded(state) == (("cpu", 0),)
    names = state.catalog.operator_ids
    (move,) = relieved(state, {"ob", "oc"}, {})
    assert {names[o]: h for o, h in move.items()} == {"ob": 1}
    assert overloaded(state) == ()
    heavy = running_state(replace(PAIR, hosts=(Host("h1", 0.5), Host("h2", 0.5))), RUNNING)
    (move,) = relieved(heavy, {"ob", "oc"}, {"ob": 5.0})
    assert {names[o]: h for o, h in move.items()} == {"oc": 1}


def moved(
    now: Problem, running: dict[str, str], routes: Routes, group: Mapping[str, str]
) -> Routes:
    """Who sends copies on after a move, which has room while it is under way."""
    state = running_state(now, running, routes)
    catalog = state.catalog
    wanted = {catalog.operator_at[o]: catalog.host_at[h] for o, h in group.items()}
    assert relocate(state, wanted) is None
    return routes_of(state)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_every_moment_with_relays_is_valid(seed: int) -> None:
    problem = one_way(generate(scaled(TIGHT, 4), seed))
    running: dict[str, str] = {}
    routes: Routes = {}
    taken: list[Query] = []
    alone = 0
    for query in problem.queries:
        now = replace(problem, queries=(*taken, query))
        answer = admit(partial(running_state, now, dict(running), routes), query, set(running))
        alone += admit(partial(running_state, now, dict(running)), query, ()).decision.admitted
        if not answer.decision.admitted:
            continue
        for group in answer.moves:
            served = replace(problem, queries=tuple(taken))
            routes = moved(served, running, routes, group)
            running |= group
            assert check(served, solution(running_state(served, running, routes))) == ()
        running = dict(answer.places)
        assert answer.state is not None
        routes = routes_of(answer.state)
        taken.append(query)
        state = running_state(now, running, routes)
        assert routes_of(state) == routes, "what is planned is what stands"
        assert check(now, solution(state)) == ()
        reading = {
            (name, running[o.id]) for o in now.operators if o.id in running for name in o.inputs
        }
        assert {(s, r) for s, r in routes} | {(s, v) for (s, _), v in routes.items()} <= reading
    assert routes
    assert len(taken) > alone, "relays let more in"


STAR = Problem(
    hosts=(Host("h1", 1.0, bandwidth_out=2.5), Host("h2", 1.0), Host("h3", 1.0), Host("h4", 1.0)),
    streams=(Stream("a", 1.0, "h1"), *(Stream(f"r{n}", 0.1) for n in (2, 3, 4))),
    operators=tuple(Operator(f"o{n}", ("a",), f"r{n}", 0.5) for n in (2, 3, 4)),
    queries=tuple(Query(f"q{n}", f"r{n}") for n in (2, 3, 4)),
)
SPREAD = {"o2": "h2", "o3": "h3", "o4": "h4"}


def test_who_sends_too_much_leaves_copies_to_readers_with_room() -> None:
    state = running_state(STAR, SPREAD, {})
    assert routes_of(state) == {}
    lightened(state)
    assert len(routes_of(state)) == 1
    assert check(STAR, solution(state)) == ()
    state.rollback(0)
    assert routes_of(state) == {}
    assert (state.out_used[0], state.uses[0, 0]) == (3.0, 3)
    without = running_state(STAR, SPREAD)
    lightened(without)
    assert routes_of(without) == {}, "where nobody may send anything on"


@pytest.mark.parametrize(
    "told",
    [
        {("a", "h2"): "h3", ("a", "h3"): "h2"},
        {("a", "h2"): "h2"},
        {("a", "h1"): "h2"},
        {("a", "h9"): "h2", ("b", "h2"): "h3", ("r2", "h3"): "h2"},
    ],
)
def test_routes_that_lead_nowhere_are_left_out(told: Routes) -> None:
    state = running_state(STAR, SPREAD, told)
    assert len(routes_of(state)) <= 1
    for host in (1, 2, 3):
        assert (0, 0) in [(s, h) for s, h in state.supports(0, host) if h == 0]


def test_a_relay_whose_own_reader_moves_away_is_none_any_more() -> None:
    told = {("a", "h3"): "h2", ("a", "h4"): "h3"}
    state = running_state(STAR, SPREAD, told)
    at = state.catalog.operator_at
    assert relocate(state, {at["o2"]: 2}) is None
    assert ("a", "h2") not in {(f.stream, f.target) for f in state.flows()}
    assert routes_of(state) == {("a", "h4"): "h3"}
    assert check(STAR, solution(state)) == ()
