"""Distances and latency bounds in planners with reuse."""

import re
from dataclasses import replace
from itertools import pairwise, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reuse_problems import pair_problem, random_problem

from millstream.decide.place.check import check
from millstream.decide.place.planners import PLANNERS, plan_all
from millstream.decide.place.problem import Host, Link, Links, Operator, Problem, Query, Stream
from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner


def located(problem: Problem, seed: int) -> Problem:
    """The same problem on a map: points in a square, distances between all hosts, some bounds."""
    random = Random(seed)
    points = {host.id: (random.random(), random.random()) for host in problem.hosts}
    links = tuple(
        Link(a, b, 30.0, 100 * ((pa[0] - pb[0]) ** 2 + (pa[1] - pb[1]) ** 2) ** 0.5)
        for (a, pa), (b, pb) in product(points.items(), repeat=2)
        if a != b
    )
    queries = tuple(
        replace(
            query,
            deliver_to=random.choice((None, None, *points)),
            latency_bound=random.choice((None, 0.0, 20.0, 60.0, 150.0)),
        )
        for query in problem.queries
    )
    return replace(problem, links=Links(listed=links), queries=queries)


@pytest.mark.parametrize("planner", PLANNERS.names())
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 100_000))
def test_bounds_hold_whatever_the_planner(planner: str, seed: int) -> None:
    problem = located(random_problem(seed, hosts=3, queries=4), seed)
    assert check(problem, plan_all(problem, planner, timeout_s=0.2).solution) == ()


def test_soda_delivers_what_is_there_already() -> None:
    """A stream that an operator reads where it is wanted is not shipped there again."""
    problem = located(random_problem(3828, hosts=3, queries=4), 3828)
    assert check(problem, plan_all(problem, "soda").solution) == ()


def line(*, bound: float | None = None) -> Problem:
    """Three hosts on a line, 10 and 30 apart; the fast way costs more CPU."""
    distance = {("h0", "h1"): 10.0, ("h1", "h2"): 30.0, ("h0", "h2"): 40.0}
    links = tuple(
        Link(a, b, 100.0, far) for pair, far in distance.items() for a, b in (pair, pair[::-1])
    )
    return Problem(
        hosts=tuple(Host(f"h{n}", 4.0, 100.0, 100.0) for n in range(3)),
        streams=(Stream("a", 10.0, "h0"), Stream("b", 10.0, "h1"), Stream("ab", 0.1)),
        operators=(Operator("join", ("a", "b"), "ab", 1.0),),
        queries=(Query("q1", "ab", deliver_to="h2", latency_bound=bound),),
        links=Links(listed=links),
    )


def test_rows_travel_the_shortest_way_when_nothing_else_matters() -> None:
    found = plan_all(line(), "sqpr").solution
    assert {placed.host for placed in found.operators} <= {"h0", "h1"}
    assert len(found.flows) == 2  # one input to the other, the small result to h2


@pytest.mark.parametrize(("bound", "admitted"), [(40.0, True), (39.0, False), (100.0, True)])
def test_a_bound_that_no_plan_keeps_is_refused_as_such(bound: float, admitted: bool) -> None:
    found = plan_all(line(bound=bound), "sqpr").solution
    assert bool(found.admitted) == admitted
    if not admitted:
        assert found.refused[0].reason == "latency"
        assert "a bound of 40 would fit" in found.refused[0].detail


def test_a_late_stream_is_not_reused_by_a_query_in_a_hurry() -> None:
    problem = line()
    relaxed = Query("q1", "ab", deliver_to="h2")
    hurried = Query("q2", "ab", latency_bound=10.0)
    found = plan_all(replace(problem, queries=(relaxed, hurried)), "sqpr").solution
    assert found.admitted == ("q1", "q2")
    assert {given.query: given.host for given in found.delivered}["q2"] in ("h0", "h1")


def test_a_dearer_plan_is_taken_to_be_in_time() -> None:
    """The cheap way runs through a far cheap host; a bound forces the near, dear one."""
    far = {("h1", "h2"): 1.0, ("h1", "h3"): 50.0, ("h2", "h3"): 50.0}
    links = tuple(Link(a, b, 1000.0, d) for p, d in far.items() for a, b in (p, p[::-1]))
    hosts = (Host("h1", 0.5, 900, 900), Host("h2", 1.0, 900, 900), Host("h3", 1000.0, 900, 900))
    problem = pair_problem(hosts=hosts, links=Links(listed=links))
    free = plan_all(problem, "sqpr").solution
    tight = plan_all(
        replace(problem, queries=(Query("q1", "a*b", latency_bound=2.0),)), "sqpr"
    ).solution
    assert free.operators[0].host == "h3"
    assert tight.operators[0].host == "h2"


@pytest.mark.parametrize("seed", range(12))
def test_distance_alone_gives_the_best_tree(seed: int) -> None:
    """Without limits the default planner finds the cheapest tree of rate times distance."""
    random = Random(seed)
    hosts = tuple(Host(f"h{n}", 1e9) for n in range(4))
    points = [(random.random(), random.random()) for _ in hosts]
    far = {
        (a.id, b.id): ((pa[0] - pb[0]) ** 2 + (pa[1] - pb[1]) ** 2) ** 0.5
        for (a, pa), (b, pb) in product(zip(hosts, points, strict=True), repeat=2)
        if a != b
    }
    rates = {"a": 3.0, "b": 5.0, "c": 4.0, "ab": random.uniform(0.5, 6), "abc": 1.0}
    homes = {name: random.choice(hosts).id for name in "abc"}
    problem = Problem(
        hosts,
        tuple(Stream(name, rate, homes.get(name)) for name, rate in rates.items()),
        (Operator("o1", ("a", "b"), "ab", 1.0), Operator("o2", ("ab", "c"), "abc", 1.0)),
        (Query("q", "abc", deliver_to="h0"),),
        Links(listed=tuple(Link(a, b, distance=d) for (a, b), d in far.items())),
    )

    def way(stream: str, source: str, target: str) -> float:
        return 0.0 if source == target else rates[stream] * far[source, target]

    best = min(
        way("a", homes["a"], first.id)
        + way("b", homes["b"], first.id)
        + way("ab", first.id, second.id)
        + way("c", homes["c"], second.id)
        + way("abc", second.id, "h0")
        for first, second in product(hosts, repeat=2)
    )
    flows = plan_all(problem, "sqpr").solution.flows
    mine = sum(rates[flow.stream] * far[flow.source, flow.target] for flow in flows)
    assert mine == pytest.approx(best, rel=0.01, abs=1e-9)


@pytest.mark.parametrize("short", [(10.1, 10.2, 19.7), (1.1, 1.2, 1.3, 1.4)])
def test_a_way_over_many_short_links_keeps_the_bound_that_it_just_keeps(
    short: tuple[float, ...],
) -> None:
    """The direct link is cheaper and late; slots rounded up at each hop left no place for it."""
    names = [f"h{number}" for number in range(len(short) + 1)]
    far = dict(zip(pairwise(names), short, strict=True))
    far[names[0], names[-1]] = 1.01 * sum(short)
    problem = Problem(
        tuple(Host(name, 4.0, 100.0, 100.0) for name in names),
        (Stream("a", 10.0, "h0"),),
        queries=(Query("q", "a", deliver_to=names[-1], latency_bound=sum(short)),),
        links=Links(listed=tuple(Link(a, b, distance=d) for (a, b), d in far.items())),
    )
    assert plan_all(problem).solution.admitted == ("q",)


@pytest.mark.parametrize("first", [0, 60])
def test_the_bound_that_a_refusal_says_would_fit_does(first: int) -> None:
    told = 0
    for seed in range(first, first + 60):
        problem = located(random_problem(seed, hosts=4, queries=8), seed)
        planner = SqprPlanner(Catalog.of(problem))
        for query in problem.queries:
            (decision,) = planner.submit((query,))
            needed = re.search(r"a bound of (\S+) would fit", str(decision.refusal))
            if needed is not None:
                told += 1
                bound = float(needed[1])
                assert query.latency_bound is not None
                assert bound > query.latency_bound
                again = replace(query, latency_bound=bound * 1.001)  # it is told in four digits
                assert planner.submit((again,))[0].admitted, decision.refusal
    assert told > 10
