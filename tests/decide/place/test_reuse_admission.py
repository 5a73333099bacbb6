"""Admission between a manager's events: queries, hosts and measurements come and go."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reuse_problems import pair_problem, random_problem

from millstream.core.errors import UsageError
from millstream.decide.place.admission import Admission
from millstream.decide.place.moves import Step, safe_steps
from millstream.decide.place.planners import plan_all
from millstream.decide.place.problem import Host, Operator, Problem, Query, Stream
from millstream.decide.place.replan import Measured
from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner, SqprSettings
from millstream.decide.place.reuse.rebuild import recounted
from millstream.decide.place.reuse.state import PlanState
from millstream.decide.place.workload import TIGHT, generate, scaled


def admission_of(problem: Problem) -> Admission:
    admission = Admission(problem.hosts, problem.links, problem.weights)
    admission.learn(problem.streams, problem.operators)
    return admission


def snapshot(admission: Admission) -> tuple[object, ...]:
    state = admission.state
    return (
        dict(state.source),
        dict(state.served),
        {held: set(names) for held, names in state.clients.items()},
        {stream: set(held) for stream, held in state.holders.items() if held},
        state.cpu_used.tolist(),
        state.in_used.tolist(),
        state.out_used.tolist(),
        {key: count for key, count in state.uses.items() if count},
    )


def test_a_submission_tells_what_it_adds_and_what_it_reuses() -> None:
    problem = pair_problem(
        streams=(*pair_problem().streams, Stream("sum", 0.01)),
        operators=(*pair_problem().operators, Operator("o2", ("a*b",), "sum", 0.5)),
    )
    admission = admission_of(problem)
    first = admission.submit(Query("q1", "a*b"))
    assert first.cpu == pytest.approx(1.0)
    assert first.bandwidth == pytest.approx(10.06)
    assert first.started == (("o1", first.host),)
    second = admission.submit(Query("q2", "sum"))
    assert second.cpu == pytest.approx(0.5)
    assert ("a*b", first.host) in second.reused


def test_a_dry_run_changes_nothing() -> None:
    problem = generate(scaled(TIGHT, 8), 1)
    admission = admission_of(problem)
    for number, query in enumerate(problem.queries):
        before = snapshot(admission)
        told = admission.submit(query, dry_run=True)
        assert snapshot(admission) == before
        done = admission.submit(query)
        if number < 40:
            assert told.admitted == done.admitted
            assert told.started == done.started


def test_mistakes_are_told_and_change_nothing() -> None:
    admission = admission_of(pair_problem())
    admission.submit(Query("q1", "a*b"))
    before = snapshot(admission)
    for wrong in (
        Query("q1", "a*b"),
        Query("q2", "nothing"),
        Query("q3", "a*b", deliver_to="h9"),
    ):
        with pytest.raises(UsageError):
            admission.submit(wrong)
    with pytest.raises(UsageError, match="unknown query"):
        admission.remove("q9")
    with pytest.raises(UsageError, match="unknown host"):
        admission.lose_host("h9")
    with pytest.raises(UsageError, match="in a cycle"):
        admission.learn((Stream("x", 1.0),), (Operator("o9", ("x",), "x", 1.0),))
    assert snapshot(admission) == before


def test_removing_a_query_frees_what_it_alone_used() -> None:
    problem = generate(scaled(TIGHT, 6), 2)
    admission = admission_of(problem)
    served = [query for query in problem.queries if admission.submit(query).admitted]
    for query in served:
        steps = admission.remove(query.id)
        assert all(step.kind in ("stop", "cut", "deliver") for step in steps)
    assert admission.state.source == {}
    assert admission.state.cpu_used == pytest.approx(0.0)
    assert admission.state.out_used == pytest.approx(0.0, abs=1e-9)


def test_what_would_fit_is_a_share_of_the_cost() -> None:
    admission = admission_of(pair_problem(hosts=(Host("h1", 0.6), Host("h2", 0.3))))
    query = Query("q1", "a*b")
    assert not admission.submit(query).admitted
    assert admission.what_would_fit(query) == 0.5
    assert admission.catalog.cpu == [1.0]
    poor = admission_of(pair_problem(hosts=(Host("h1", 0.0), Host("h2", 0.0))))
    assert poor.what_would_fit(query) is None


def test_a_lost_host_moves_what_fits_elsewhere_and_reports_the_rest() -> None:
    admission = admission_of(
        pair_problem(
            hosts=(Host("h1", 4.0), Host("h2", 4.0), Host("h3", 4.0)),
            streams=(*pair_problem().streams, Stream("only-a", 1.0)),
            operators=(*pair_problem().operators, Operator("o2", ("a",), "only-a", 1.0)),
        )
    )
    admission.submit(Query("q1", "a*b"))
    decision = admission.submit(Query("q2", "only-a"))
    assert admission.missing_hosts(decision) == ()
    outcome = admission.lose_host("h2")
    assert [lost.query for lost in outcome.lost] == ["q1"]  # b enters at h2 alone
    assert outcome.lost[0].refusal is not None
    assert set(admission.queries) == {"q2"}
    admission.add_host(Host("h2", 4.0))
    assert admission.submit(Query("q1", "a*b")).admitted


def test_a_host_that_vanished_before_deployment_is_noticed() -> None:
    admission = admission_of(
        pair_problem(
            hosts=(Host("h1", 0.0), Host("h2", 0.0), Host("h3", 4.0), Host("h4", 3.0)),
        )
    )
    decision = admission.submit(Query("q1", "a*b"))
    assert decision.host is not None
    outcome = admission.lose_host(decision.host)
    assert admission.missing_hosts(decision) == (decision.host,)
    assert outcome.moved == ("q1",)
    assert not outcome.lost


def test_a_lost_place_of_delivery_is_a_clear_refusal() -> None:
    admission = admission_of(
        pair_problem(hosts=(Host("h1", 4.0), Host("h2", 4.0), Host("h3", 1.0)))
    )
    admission.submit(Query("q1", "a*b", deliver_to="h3"))
    outcome = admission.lose_host("h3")
    assert outcome.lost[0].refusal is not None
    assert outcome.lost[0].refusal.reason == "host"


def test_measured_use_beyond_the_threshold_is_planned_again() -> None:
    admission = admission_of(
        pair_problem(
            hosts=(Host("h1", 2.0, 60, 60), Host("h2", 2.0, 60, 60), Host("h3", 6.0, 20, 20))
        )
    )
    where = admission.submit(Query("q1", "a*b")).host
    calm = admission.measure(Measured(cpu={"o1": 1.1}))
    assert not calm.reasons
    stormy = admission.measure(Measured(cpu={"o1": 5.0}))
    assert "cpu of o1" in stormy.reasons["q1"]
    assert stormy.moved == ("q1",)
    assert not stormy.short
    assert [step.kind for step in stormy.steps if step.subject == "o1"] == ["move", "stop"]
    assert where != "h3"
    assert admission.solution().delivered[0].host == "h3"


def test_a_query_that_fits_nowhere_keeps_its_place_and_is_reported() -> None:
    admission = admission_of(pair_problem())
    admission.submit(Query("q1", "a*b"))
    outcome = admission.measure(Measured(cpu={"o1": 50.0}))
    assert outcome.short == ("q1",)
    assert "q1" in admission.state.served
    assert outcome.steps == ()


def test_a_starving_query_is_planned_again() -> None:
    admission = admission_of(pair_problem())
    admission.submit(Query("q1", "a*b"))
    assert admission.measure(Measured(starving=("q1",))).reasons == {"q1": "it starves"}


def test_less_capacity_moves_work_away() -> None:
    admission = admission_of(
        pair_problem(hosts=(Host("h1", 4.0), Host("h2", 4.0), Host("h3", 4.0)))
    )
    host = admission.submit(Query("q1", "a*b")).host
    assert host is not None
    outcome = admission.change_host(Host(host, 0.5))
    assert outcome.moved == ("q1",)
    assert admission.solution().operators[0].host != host


# --- moves in a safe order ------------------------------------------------------------------------


def replay(old: PlanState, new: PlanState, steps: tuple[Step, ...]) -> None:
    """Carries steps out one by one; every result must have a source at every moment."""
    catalog = old.catalog
    cells = {(*held, origin) for held, origin in old.source.items()}
    served = dict(old.served)
    host_at, stream_at, operator_at = catalog.host_at, catalog.stream_at, catalog.operator_at

    def grounded() -> set[tuple[int, int]]:
        there = {(s, h) for s, h in enumerate(catalog.base) if h >= 0}
        growing = True
        while growing:
            growing = False
            for stream, host, origin in cells:
                needs = (
                    [(name, host) for name in catalog.inputs[origin]]
                    if origin >= 0
                    else [(stream, ~origin)]
                )
                if (stream, host) not in there and all(held in there for held in needs):
                    there.add((stream, host))
                    growing = True
        return there

    for step in steps:
        host = host_at[step.host]
        match step.kind:
            case "run" | "move":
                operator = operator_at[step.subject]
                cells.add((catalog.output[operator], host, operator))
            case "ship":
                assert step.source is not None
                cells.add((stream_at[step.subject], host, ~host_at[step.source]))
            case "stop":
                operator = operator_at[step.subject]
                cells.remove((catalog.output[operator], host, operator))
            case "cut":
                assert step.source is not None
                cells.remove((stream_at[step.subject], host, ~host_at[step.source]))
            case "deliver":
                served[step.subject] = (served[step.subject][0], host)
        there = grounded()
        for query in old.served:
            if query in new.served:
                assert served[query] in there, (query, step)
        cpu: dict[int, float] = {}
        for _, place, origin in cells:
            if origin >= 0:
                cpu[place] = cpu.get(place, 0.0) + catalog.cpu[origin]
        if not any(item.crowded for item in steps):
            for place, used in cpu.items():
                assert used <= catalog.cpu_offered[place] + 1e-6
    assert cells == {(*held, origin) for held, origin in new.source.items()}
    assert {query: served[query] for query in new.served} == new.served


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 100_000))
def test_moves_keep_every_result_alive(seed: int) -> None:
    problem = random_problem(seed, hosts=4, queries=8, links="none")
    planner = SqprPlanner(Catalog.of(problem), SqprSettings(sweep_from=0.0))
    for query in problem.queries:
        planner.submit((query,))
    old = recounted(planner.state)
    planner.curve = replace(planner.curve, steepness=2.0, network=20.0)  # another taste
    planner.sweep(50)
    replay(old, planner.state, safe_steps(old, planner.state))


def test_sweeps_of_a_workload_are_safe_moves() -> None:
    problem = generate(scaled(TIGHT, 6), 8)
    planner = SqprPlanner(Catalog.of(problem))
    moves = 0
    for query in problem.queries:
        planner.submit((query,))
        old = recounted(planner.state)
        planner.rest()
        steps = safe_steps(old, planner.state)
        moves += len(steps)
        replay(old, planner.state, steps)
    assert moves > 20


def test_background_work_is_given_as_steps() -> None:
    problem = generate(scaled(TIGHT, 6), 9)
    admission = admission_of(problem)
    seen: list[Step] = []
    for query in problem.queries:
        admission.submit(query)
        seen.extend(admission.rest())
    assert seen


# --- tiers ----------------------------------------------------------------------------------------


def test_tiers_plan_inside_sites() -> None:
    workload = replace(scaled(TIGHT, 20), sites=4)
    problem = generate(workload, 3)
    assert len({host.site for host in problem.hosts}) == 4
    tiers = plan_all(problem, "sqpr_tiers").solution
    flat = plan_all(problem, "sqpr").solution
    blind = plan_all(problem, "heuristic").solution
    assert len(tiers.admitted) > len(blind.admitted)
    assert len(tiers.admitted) > 0.8 * len(flat.admitted)


# --- the journal ----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 100_000))
def test_a_rollback_restores_everything(seed: int) -> None:
    problem = random_problem(seed, hosts=3, queries=8)
    admission = admission_of(problem)
    for query in problem.queries[:5]:
        admission.submit(query)
    before = snapshot(admission)
    state = admission.state
    mark = state.mark()
    for query in list(state.served):
        state.withdraw(query)
    assert state.source == {}
    for query in problem.queries[5:]:
        admission.planner._decide(query)
    state.rollback(mark)
    assert snapshot(admission) == before
