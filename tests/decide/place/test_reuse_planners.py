"""Every planner with reuse keeps the same contract; the default keeps more."""

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reuse_problems import pair_problem, random_problem

from millstream.core.errors import UsageError
from millstream.decide.place.bounds import aggregate_host, proven_bound, standalone_costs
from millstream.decide.place.check import check
from millstream.decide.place.planners import PLANNERS, Outcome, PlannerOptions, plan_all
from millstream.decide.place.problem import Host, Links, Operator, Problem, Query, Stream
from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner
from millstream.decide.place.reuse.state import PlanState
from millstream.decide.place.workload import LITERAL, TIGHT, generate, scaled

QUICK = tuple(name for name in PLANNERS.names() if name != "sqpr_milp")
SMALL = {"tight": scaled(TIGHT, 10), "literal": scaled(LITERAL, 10)}


@cache
def outcome(regime: str, planner: str, seed: int = 5) -> Outcome:
    return plan_all(generate(SMALL[regime], seed), planner)


def test_the_planners_are_known_by_name() -> None:
    names = {"sqpr", "sqpr_tiers", "sqpr_milp", "sqpr_batch", "heuristic", "soda"}
    assert set(PLANNERS.names()) == names


@pytest.mark.parametrize("planner", PLANNERS.names())
def test_one_join_is_admitted_where_its_inputs_meet(planner: str) -> None:
    found = plan_all(pair_problem(), planner).solution
    assert found.admitted == ("q1",)
    assert len(found.operators) == len(found.flows) == 1


@pytest.mark.parametrize("planner", PLANNERS.names())
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 100_000))
def test_random_problems_pass_the_checker_in_any_batch(planner: str, seed: int) -> None:
    problem = random_problem(seed, hosts=3, queries=5)
    batch = 1 + seed % 3
    solution = plan_all(problem, planner, batch=batch, timeout_s=0.2).solution  # checks itself
    assert len(solution.admitted) + len(solution.refused) == len(problem.queries)


@pytest.mark.parametrize("planner", PLANNERS.names())
def test_the_same_problem_gives_the_same_solution(planner: str) -> None:
    problem = random_problem(77, hosts=3, queries=4)
    assert plan_all(problem, planner).solution == plan_all(problem, planner).solution


@pytest.mark.parametrize("planner", PLANNERS.names())
def test_equal_queries_share_one_delivery(planner: str) -> None:
    problem = pair_problem(queries=(Query("q1", "a*b"), Query("q2", "a*b")))
    found = plan_all(problem, planner)
    assert found.solution.admitted == ("q1", "q2")
    assert len(found.solution.operators) == 1
    assert found.decisions[1].cpu == 0
    assert found.decisions[1].reused


@pytest.mark.parametrize("planner", PLANNERS.names())
def test_a_query_on_a_base_stream_needs_no_operator(planner: str) -> None:
    found = plan_all(pair_problem(queries=(Query("q1", "a"),)), planner).solution
    assert found.admitted == ("q1",)
    assert not found.operators
    assert not found.flows


@pytest.mark.parametrize("planner", PLANNERS.names())
def test_results_go_where_they_are_wanted(planner: str) -> None:
    problem = pair_problem(
        queries=(Query("q1", "a*b", deliver_to="h1"), Query("q2", "a*b", deliver_to="h2"))
    )
    found = plan_all(problem, planner).solution
    assert {(given.query, given.host) for given in found.delivered} == {("q1", "h1"), ("q2", "h2")}


@pytest.mark.parametrize("planner", PLANNERS.names())
@pytest.mark.parametrize(
    ("reason", "hosts"),
    [
        ("cpu", (Host("h1", 0.9), Host("h2", 0.9))),
        ("bandwidth_in", (Host("h1", 4.0, 5.0, 60.0), Host("h2", 4.0, 5.0, 60.0))),
        ("bandwidth_out", (Host("h1", 4.0, 60.0, 5.0), Host("h2", 4.0, 60.0, 5.0))),
    ],
)
def test_a_refusal_names_what_is_short(planner: str, reason: str, hosts: tuple[Host, ...]) -> None:
    found = plan_all(pair_problem(hosts=hosts), planner).solution
    assert not found.admitted
    assert not found.operators
    assert found.refused[0].reason == reason
    assert found.refused[0].host in ("h1", "h2")
    assert "needed" in found.refused[0].detail


@pytest.mark.parametrize("planner", PLANNERS.names())
def test_a_stream_that_nothing_computes_is_refused_as_such(planner: str) -> None:
    found = plan_all(pair_problem(operators=()), planner).solution
    assert found.refused[0].reason == "no_plan"


@pytest.mark.parametrize("planner", PLANNERS.names())
def test_a_missing_link_is_told_as_one(planner: str) -> None:
    """The inputs enter at two hosts, and nothing leads from one to the other."""
    apart = pair_problem(links=Links(listed=()))
    (refusal,) = plan_all(apart, planner).solution.refused
    assert refusal.reason == "link"
    assert "would fit" in refusal.detail


DEEP = 1_500  # more than Python lets functions call each other


@pytest.mark.parametrize("planner", QUICK)
@pytest.mark.parametrize("bound", [None, 10.0])
def test_a_deep_plan_is_placed_or_refused(planner: str, bound: float | None) -> None:
    names = [f"s{number}" for number in range(DEEP + 1)]
    ways = tuple(Operator(f"o{name}", (read,), name, 0.1) for read, name in pairwise(names))
    streams = (Stream("s0", 1.0, "h0"), *(Stream(name, 1.0) for name in names[1:]))
    wish = Query("q", names[-1], latency_bound=bound)
    apart = Links(distance=np.array([[0.0, 1.0], [1.0, 0.0]])) if bound else Links()
    for cpu, admitted in ((DEEP, ("q",)), (10.0, ())):
        hosts = (Host("h0", cpu), Host("h1", cpu))
        found = plan_all(Problem(hosts, streams, ways, (wish,), apart), planner).solution
        assert found.admitted == admitted
        assert all(refusal.reason == "cpu" for refusal in found.refused)


@pytest.mark.parametrize("planner", PLANNERS.names())
def test_no_queries_give_an_empty_solution(planner: str) -> None:
    found = plan_all(pair_problem(queries=()), planner).solution
    assert found.admitted == ()


def test_a_batch_is_at_least_one_query() -> None:
    with pytest.raises(UsageError):
        plan_all(pair_problem(), batch=0)
    with pytest.raises(UsageError, match="did you mean sqpr"):
        plan_all(pair_problem(), "sqprr")


def test_a_relay_carries_what_the_origin_cannot_send_twice() -> None:
    """Figure 2(b) of SQPR: whoever holds a stream may send it on."""
    hosts = (
        Host("h0", 0.0, 60.0, 10.0),
        Host("h1", 1.0, 60.0, 60.0),
        Host("h2", 1.0, 60.0, 60.0),
    )
    streams = (
        Stream("a", 10.0, "h0"),
        Stream("b", 20.0, "h1"),
        Stream("c", 20.0, "h2"),
        Stream("ab", 0.1),
        Stream("ac", 0.1),
    )
    operators = (Operator("o1", ("a", "b"), "ab", 1.0), Operator("o2", ("a", "c"), "ac", 1.0))
    problem = Problem(hosts, streams, operators, (Query("q1", "ab"), Query("q2", "ac")))
    for planner in ("sqpr", "sqpr_milp"):
        found = plan_all(problem, planner).solution
        assert found.admitted == ("q1", "q2"), planner
        senders = {flow.source for flow in found.flows if flow.stream == "a"}
        assert "h0" in senders
        assert senders & {"h1", "h2"}


@pytest.mark.parametrize("regime", SMALL)
def test_the_default_admits_more_than_its_rivals(regime: str) -> None:
    best = outcome(regime, "sqpr")
    weights = standalone_costs(generate(SMALL[regime], 5))
    for rival in QUICK:
        if rival.startswith("sqpr"):
            continue
        other = outcome(regime, rival)
        assert len(best.solution.admitted) > len(other.solution.admitted)
        assert best.before_first_refusal > other.before_first_refusal
        mine = sum(weights[name] for name in best.solution.admitted)
        assert mine > sum(weights[name] for name in other.solution.admitted)


@pytest.mark.parametrize("regime", SMALL)
def test_nobody_admits_more_than_the_proven_bound(regime: str) -> None:
    problem = generate(SMALL[regime], 5)
    bound = proven_bound(problem)
    assert bound.proven
    assert len(aggregate_host(problem).admitted) <= bound.admitted
    for planner in QUICK:
        assert len(outcome(regime, planner).solution.admitted) <= bound.admitted


def test_sweeps_and_repairs_never_drop_an_admitted_query() -> None:
    problem = generate(SMALL["tight"], 3)
    planner = SqprPlanner(Catalog.of(problem))
    admitted: set[str] = set()
    for query in problem.queries:
        before = set(planner.state.served)
        decision = planner.submit((query,))[0]
        if decision.admitted:
            admitted.add(query.id)
        else:
            assert set(planner.state.served) == before
        planner.rest()
        assert set(planner.state.served) == admitted
    assert planner.replanned > 0
    assert admitted


def test_a_refused_query_changes_nothing() -> None:
    problem = generate(SMALL["tight"], 4)
    planner = SqprPlanner(Catalog.of(problem))
    refusals = 0
    for query in problem.queries:
        before = (dict(planner.state.source), dict(planner.state.served))
        used = planner.state.cpu_used.copy()
        if not planner.submit((query,))[0].admitted:
            refusals += 1
            assert (planner.state.source, planner.state.served) == before
            assert (planner.state.cpu_used == used).all()
    assert refusals > 10


def test_packing_uses_fewer_hosts_and_balance_spreads() -> None:
    workload = replace(SMALL["literal"], queries=20)
    used: dict[str, list[float]] = {}
    from millstream.decide.place.problem import GOALS  # noqa: PLC0415

    for goal in ("pack", "least", "balance"):
        problem = replace(generate(workload, 2), weights=GOALS[goal])
        found = plan_all(problem, "sqpr")
        assert len(found.solution.admitted) == 20
        used[goal] = sorted(found.planner.state.cpu_used.tolist())
    busy = {goal: sum(1 for amount in amounts if amount > 0) for goal, amounts in used.items()}
    assert busy["pack"] < busy["balance"]
    assert max(used["balance"]) < max(used["pack"])


def test_checker_agrees_with_what_the_state_counts() -> None:
    found = outcome("tight", "sqpr")
    problem = generate(SMALL["tight"], 5)
    by_id = {operator.id: operator.cpu for operator in problem.operators}
    total = sum(by_id[placed.operator] for placed in found.solution.operators)
    assert total == pytest.approx(found.planner.state.cpu_used.sum())
    assert check(problem, found.solution) == ()


def one_host(unit: float, room: float) -> Problem:
    """Seven queries, each with an operator of its own, on a host with room for all, or less."""
    costs = [unit * (0.1 + 0.37 * number) for number in range(7)]
    names = [f"b{number}" for number in range(7)]
    return Problem(
        hosts=(Host("h", cpu=sum(reversed(costs)) * room, bandwidth_out=sum(reversed(costs))),),
        streams=(Stream("a", unit, "h"), *map(Stream, names, costs)),
        operators=tuple(
            Operator(f"o{name}", ("a",), name, cost)
            for name, cost in zip(names, costs, strict=True)
        ),
        queries=tuple(Query(f"q{name}", name) for name in names),
    )


@pytest.mark.parametrize("planner", QUICK)
@pytest.mark.parametrize("unit", [3e-12, 3e-7, 1.0, 1047128548.0508986])
def test_what_fits_does_not_depend_on_the_unit(planner: str, unit: float) -> None:
    assert len(plan_all(one_host(unit, 1.0), planner).solution.admitted) == 7
    assert len(plan_all(one_host(unit, 0.999), planner).solution.admitted) == 6


def _missing(detail: str) -> list[tuple[str, str]]:
    """What a refusal says would fit: how much more, and of what."""
    told = re.match(r"(.+?): .* free; (\S+) more(?: with (.*?))?, or", detail)
    assert told is not None, detail
    others = [part.split(" of ", 1) for part in (told[3] or "").split(" and ") if part]
    return [(told[2], told[1]), *((amount, what) for amount, what in others)]


@pytest.mark.parametrize("first", [0, 200])
def test_what_a_refusal_says_would_fit_does(first: int) -> None:
    """A plan may lack several things at once, at several hosts and links: all are told."""
    several = 0
    for seed in range(first, first + 200):
        problem = random_problem(seed, queries=12)
        planner = PLANNERS.get("sqpr")(Catalog.of(problem), PlannerOptions())
        state = planner.state
        catalog, links = state.catalog, state.links
        amounts = {
            "cpu": catalog.cpu_offered,
            "bandwidth_in": catalog.in_offered,
            "bandwidth_out": catalog.out_offered,
            "memory": catalog.memory_offered,
        }
        for query in problem.queries:
            (decision,) = planner.submit((query,))
            planner.rest()
            if decision.refusal is None or " more" not in decision.refusal.detail:
                continue
            wanted = _missing(decision.refusal.detail)
            for amount, what in wanted:
                if what.startswith("link"):
                    assert links.offered is not None
                    _, source, _, target = what.split()
                    key = catalog.host_at[source], catalog.host_at[target]
                    links.offered[key] += float(amount)
                else:
                    resource, host = what.split(" of host ")
                    amounts[resource][catalog.host_at[host]] += float(amount)
            assert planner.submit((query,))[0].admitted, decision.refusal
            several += len(wanted) > 1
            break
    assert several > 3


def test_the_heuristic_names_what_binds_and_not_what_is_endless() -> None:
    """Where memory was short, it said that endless bandwidth was."""
    full = pair_problem(
        hosts=(Host("h1", 4.0, memory=0.5), Host("h2", 4.0, memory=0.5)),
        operators=(Operator("o1", ("a", "b"), "a*b", 1.0, 1.0),),
    )
    (refusal,) = plan_all(full, "heuristic").solution.refused
    assert (refusal.reason, refusal.host) == ("memory", "h1")


def test_tiers_plan_inside_sites() -> None:
    workload = replace(scaled(TIGHT, 20), sites=4)
    problem = generate(workload, 3)
    assert len({host.site for host in problem.hosts}) == 4
    tiers = plan_all(problem, "sqpr_tiers").solution
    flat = plan_all(problem, "sqpr").solution
    blind = plan_all(problem, "heuristic").solution
    assert len(tiers.admitted) > len(blind.admitted)
    assert len(tiers.admitted) > 0.8 * len(flat.admitted)


def snapshot(state: PlanState) -> tuple[object, ...]:
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


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 100_000))
def test_a_rollback_restores_everything(seed: int) -> None:
    problem = random_problem(seed, hosts=3, queries=8)
    planner = SqprPlanner(Catalog.of(problem))
    for query in problem.queries[:5]:
        planner.submit((query,))
    state = planner.state
    before, mark = snapshot(state), state.mark()
    for stream, host in [held for held, origin in state.source.items() if origin < 0]:
        others = [h for h in state.holders[stream] if h != host]
        state.reroute(stream, host, others[seed % len(others)])
    for query in list(state.served):
        state.withdraw(query)
    for query in problem.queries[5:]:
        planner._decide(query)
    state.rollback(mark)
    assert snapshot(state) == before
