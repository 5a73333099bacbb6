"""The independent checker finds every kind of fault, and nothing in a sound solution."""

from dataclasses import replace

import pytest
from network_instances import random_problem as tree_problem
from reuse_problems import pair_problem

from millstream.decide.place.check import check, direct_solution
from millstream.decide.place.network.outcome import Placed
from millstream.decide.place.network.planner import plan
from millstream.decide.place.planners import plan_all
from millstream.decide.place.problem import Host, Link, Links, Operator, Problem, Query, Stream
from millstream.decide.place.solution import (
    Delivered,
    Flow,
    PlacedOperator,
    Refusal,
    Solution,
    solution_from_json,
    solution_to_json,
)

GOOD = Solution(
    admitted=("q1",),
    operators=(PlacedOperator("o1", "h2"),),
    flows=(Flow("a", "h1", "h2"),),
    delivered=(Delivered("q1", "a*b", "h2"),),
)


def rules(problem: Problem, solution: Solution) -> set[str]:
    return {violation.rule for violation in check(problem, solution)}


def test_a_sound_solution_passes() -> None:
    assert check(pair_problem(), GOOD) == ()


def test_json_round_trip() -> None:
    assert solution_from_json(solution_to_json(GOOD)) == GOOD


@pytest.mark.parametrize(
    ("rule", "solution"),
    [
        ("unknown", replace(GOOD, operators=(PlacedOperator("o9", "h2"),))),
        ("unknown", replace(GOOD, flows=(Flow("a", "h1", "h9"),))),
        ("answer", replace(GOOD, refused=(Refusal("q1", "cpu", ""),))),
        ("answer", replace(GOOD, admitted=(), delivered=())),
        ("answer", replace(GOOD, admitted=("q1", "q1"))),
        ("delivery", replace(GOOD, delivered=())),
        ("delivery", replace(GOOD, delivered=(Delivered("q1", "a", "h1"),))),
        ("delivery", replace(GOOD, delivered=GOOD.delivered * 2)),
        ("source", replace(GOOD, flows=())),
        ("source", replace(GOOD, operators=())),
        ("source", replace(GOOD, flows=(*GOOD.flows, Flow("b", "h1", "h2")))),
        ("source", replace(GOOD, operators=GOOD.operators * 2)),
        ("source", replace(GOOD, delivered=(Delivered("q1", "a*b", "h1"),))),
        ("link", replace(GOOD, flows=(*GOOD.flows, Flow("a", "h1", "h1")))),
    ],
)
def test_each_fault_is_found(rule: str, solution: Solution) -> None:
    assert rule in rules(pair_problem(), solution)


@pytest.mark.parametrize(
    ("rule", "host"),
    [
        ("cpu", Host("h2", 0.9, 60.0, 60.0)),
        ("bandwidth_in", Host("h2", 4.0, 9.0, 60.0)),
        ("bandwidth_out", Host("h2", 4.0, 60.0, 0.05)),
    ],
)
def test_each_overload_is_found(rule: str, host: Host) -> None:
    problem = pair_problem(hosts=(Host("h1", 4.0, 60.0, 60.0), host))
    assert rules(problem, GOOD) == {rule}


def test_memory_is_checked() -> None:
    problem = pair_problem(
        hosts=(Host("h1", 4.0), Host("h2", 4.0, memory=1.0)),
        operators=(Operator("o1", ("a", "b"), "a*b", 1.0, memory=2.0),),
    )
    assert rules(problem, GOOD) == {"memory"}


@pytest.mark.parametrize(
    "links", [Links(bandwidth=9.0), Links(listed=(Link("h1", "h2", 9.0),)), Links(listed=())]
)
def test_links_are_checked(links: Links) -> None:
    assert rules(pair_problem(links=links), GOOD) == {"link"}


def test_a_stream_delivered_to_two_queries_counts_once() -> None:
    problem = pair_problem(
        hosts=(Host("h1", 4.0), Host("h2", 4.0, bandwidth_out=0.06)),
        queries=(Query("q1", "a*b"), Query("q2", "a*b")),
    )
    both = replace(
        GOOD, admitted=("q1", "q2"), delivered=(*GOOD.delivered, Delivered("q2", "a*b", "h2"))
    )
    assert rules(problem, both) == set()


def test_streams_that_sustain_each_other_have_no_source() -> None:
    problem = pair_problem(hosts=tuple(Host(f"h{n}", 4.0) for n in (1, 2, 3)))
    acausal = replace(
        GOOD,
        operators=(PlacedOperator("o1", "h3"),),
        flows=(Flow("b", "h3", "h1"), Flow("b", "h1", "h3"), Flow("a", "h1", "h3")),
        delivered=(Delivered("q1", "a*b", "h3"),),
    )
    assert {"source", "circle"} <= rules(problem, acausal)


def test_a_result_wanted_elsewhere_is_a_fault() -> None:
    problem = pair_problem(queries=(Query("q1", "a*b", deliver_to="h1"),))
    assert rules(problem, GOOD) == {"delivery"}


def test_latency_is_the_longest_way() -> None:
    links = Links(listed=(Link("h1", "h2", distance=30.0), Link("h2", "h1", distance=5.0)))
    late = pair_problem(links=links, queries=(Query("q1", "a*b", latency_bound=29.0),))
    in_time = pair_problem(links=links, queries=(Query("q1", "a*b", latency_bound=30.0),))
    assert rules(late, GOOD) == {"latency"}
    assert rules(in_time, GOOD) == set()


def test_a_query_on_a_base_stream_is_a_delivery() -> None:
    problem = pair_problem(queries=(Query("q1", "a"),))
    assert rules(problem, Solution(("q1",), delivered=(Delivered("q1", "a", "h1"),))) == set()


def test_zero_rates_still_need_a_source() -> None:
    problem = pair_problem(
        streams=(Stream("a", 0.0, "h1"), Stream("b", 0.0, "h2"), Stream("a*b", 0.0))
    )
    assert rules(problem, GOOD) == set()
    assert rules(problem, replace(GOOD, flows=())) == {"source"}


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_an_overload_is_found_in_any_unit(unit: float) -> None:
    problem = Problem(
        hosts=(Host("h", cpu=unit),),
        streams=(Stream("a", unit, "h"), Stream("b", unit)),
        operators=(Operator("o", ("a",), "b", 1.01 * unit),),
        queries=(Query("q", "b"),),
    )
    solution = Solution(("q",), (), (PlacedOperator("o", "h"),), (), (Delivered("q", "b", "h"),))
    assert [item.rule for item in check(problem, solution)] == ["cpu"]
    larger = replace(problem, hosts=(Host("h", cpu=1.01 * unit),))
    assert not check(larger, solution)


def test_the_same_checker_judges_the_placement_of_a_tree() -> None:
    """A planner with reuse on the problem of a tree, and a tree's placement: one judge for both."""
    tree = tree_problem(7, nodes_max=6)
    best = plan(tree)
    assert isinstance(best, Placed)
    assert check(tree.problem, direct_solution(tree.problem, best.placement)) == ()
    reused = plan_all(tree.problem).solution  # with a checker of its own before it answers
    assert reused.admitted == (tree.root,)
    assert check(tree.problem, replace(reused, delivered=())) != ()
    late = tree.with_bound(best.delay / 2)
    found = check(late.problem, direct_solution(late.problem, best.placement))
    assert [violation.rule for violation in found] == ["latency"]
