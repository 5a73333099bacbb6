"""Batches with hindsight, and the bound with the network in it."""

import pytest
from reuse_problems import every_solution, pair_problem, random_problem, tiny_problem

from millstream.decide.place.bounds import best_set, proven_bound
from millstream.decide.place.check import check
from millstream.decide.place.planners import plan_all
from millstream.decide.place.problem import Host, Operator, Problem, Query, Stream
from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.planners.sqpr_batch import BatchPlanner
from millstream.decide.place.workload import LITERAL, TIGHT, Workload, generate, scaled

# The first query takes all that the two others need.
GREEDY = Problem(
    hosts=(Host("h1", 2.0),),
    streams=(Stream("a", 1.0, "h1"), *(Stream(name, 0.1) for name in ("big", "x", "y"))),
    operators=(
        Operator("ob", ("a",), "big", 2.0),
        Operator("ox", ("a",), "x", 1.0),
        Operator("oy", ("a",), "y", 1.0),
    ),
    queries=(Query("q1", "big"), Query("q2", "x"), Query("q3", "y")),
)


def test_a_batch_is_looked_at_as_a_whole() -> None:
    assert plan_all(GREEDY, batch=3).solution.admitted == ("q1",), "all are plans of one size"
    outcome = plan_all(GREEDY, "sqpr_batch", batch=3)
    assert outcome.solution.admitted == ("q2", "q3")
    assert [refusal.query for refusal in outcome.solution.refused] == ["q1"]
    assert best_set(GREEDY, 5.0).streams == {"x", "y"}


def test_what_runs_already_costs_nothing_and_stays() -> None:
    planner = BatchPlanner(Catalog.of(GREEDY))
    assert planner.submit((Query("q1", "big"),))[0].admitted
    answers = planner.submit((Query("q2", "x"), Query("again", "big")))
    assert [answer.admitted for answer in answers] == [False, True]
    assert planner.state.served.keys() == {"q1", "again"}


@pytest.mark.parametrize("workload", [TIGHT, LITERAL], ids=["tight", "literal"])
def test_hindsight_closes_most_of_the_gap(workload: Workload) -> None:
    problem = generate(scaled(workload, 5), 11)
    bound = proven_bound(problem)
    batch = len(plan_all(problem, "sqpr_batch", batch=len(problem.queries)).solution.admitted)
    alone = len(plan_all(problem).solution.admitted)
    assert bound.proven
    assert alone < batch <= bound.admitted
    assert 1 - batch / bound.admitted <= 0.10


def scarce(problem: Problem, share: float) -> Problem:
    hosts = tuple(
        Host(h.id, h.cpu, h.bandwidth_in * share, h.bandwidth_out * share) for h in problem.hosts
    )
    return Problem(hosts, problem.streams, problem.operators, problem.queries)


@pytest.mark.parametrize("seed", range(40))
def test_no_planner_admits_more_than_the_bound_where_the_network_is_scarce(seed: int) -> None:
    problem = scarce(random_problem(seed, links="none"), 0.5)
    bound = proven_bound(problem)
    assert bound.admitted <= proven_bound(problem, network=False).admitted
    for planner in ("sqpr", "sqpr_batch", "heuristic"):
        outcome = plan_all(problem, planner, batch=len(problem.queries))
        assert check(problem, outcome.solution) == ()
        assert len(outcome.solution.admitted) <= bound.admitted


@pytest.mark.parametrize("seed", range(12))
def test_no_placement_at_all_serves_more_than_the_bound(seed: int) -> None:
    problem = scarce(tiny_problem(seed), 0.7)
    most = max(
        (len(s.admitted) for s in every_solution(problem) if check(problem, s) == ()), default=0
    )
    assert most <= proven_bound(problem).admitted


def test_the_network_is_in_the_bound() -> None:
    """Three streams that meet nowhere, and hosts that send one of them, or a result."""
    names = ("a", "b", "c")
    hosts = tuple(Host(f"h{n}", 10.0, 100.0, 10.5) for n in names)
    streams = [Stream(n, 10.0, f"h{n}") for n in names]
    pairs = [(x, y) for x in names for y in names if x < y]
    streams += [Stream(f"{x}{y}", 6.0) for x, y in pairs]
    operators = tuple(Operator(f"o{x}{y}", (x, y), f"{x}{y}", 0.1) for x, y in pairs)
    queries = tuple(Query(f"q{x}{y}", f"{x}{y}") for x, y in pairs)
    problem = Problem(hosts, tuple(streams), operators, queries)
    assert proven_bound(problem, network=False).admitted == 3
    assert proven_bound(problem).admitted == 2
    assert len(plan_all(problem).solution.admitted) == 1
    apart = pair_problem(hosts=(Host("h1", 4.0, 5.0, 60.0), Host("h2", 4.0, 4.0, 60.0)))
    assert proven_bound(apart).admitted == 0, "9 come in anywhere, 10 would have to"
