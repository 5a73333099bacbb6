"""Distribution patterns: the seed's two by hand, and what every pattern promises."""

import doctest
from math import ceil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decide.place.operator_graphs import chain, graphs, machines, two_arms
from millstream.core.errors import UsageError
from millstream.core.operator_graph import GraphOperator, PlanGraph
from millstream.core.placement import ProcessorDescription, pieces, problems
from millstream.decide.place import pattern_quality, patterns
from millstream.decide.place.patterns import PATTERNS, distribute


def test_doctests() -> None:
    assert doctest.testmod(patterns).failed == 0
    assert doctest.testmod(pattern_quality).failed == 0


def test_round_robin_goes_to_whoever_has_fewest() -> None:
    table = distribute(chain(5), machines(2), "round_robin", {"o0": "p1", "o1": "p1"})
    assert table == {"o0": "p1", "o1": "p1", "o2": "p2", "o3": "p2", "o4": "p1"}


def test_grouping_keeps_neighbours_together() -> None:
    table = distribute(two_arms(), machines(2), "grouping")
    # ceil(8 / 2) = 4: the left arm and the join; the right arm cannot fit with it.
    assert [o for o, p in table.items() if p == "p1"] == ["l0", "l1", "l2", "j"]
    assert pieces(two_arms(), table) == 3


def test_grouping_adds_a_parents_other_descendants_when_they_fit() -> None:
    graph = PlanGraph((*two_arms(), *chain(3)))
    table = distribute(graph, machines(2), "grouping")
    assert {table[name] for name in ("l0", "l1", "l2", "j")} == {"p1"}
    small = PlanGraph(
        (GraphOperator("x", ("a",)), GraphOperator("y", ("b",)), GraphOperator("j", ("x", "y")))
    )
    assert pieces(small, distribute(small, machines(1), "grouping")) == 1
    wide = PlanGraph((*small, *chain(3)))
    assert set(list(distribute(wide, machines(2), "grouping").values())[:3]) == {"p1"}


@pytest.mark.parametrize("name", PATTERNS.names())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(), count=st.integers(1, 5), data=st.data())
def test_every_pattern(name: str, graph: PlanGraph, count: int, data: st.DataObject) -> None:
    """Valid, deterministic, and what runs stays; also when processors or operators are gone."""
    processors = machines(count)
    named = [o.id for o in graph] + ["gone"]
    places = [*(p.id for p in processors), "lost"]
    running = data.draw(st.dictionaries(st.sampled_from(named), st.sampled_from(places)))
    table = distribute(graph, processors, name, running)
    assert problems(graph, table, {p.id for p in processors}) == ()
    assert table == distribute(graph, processors, name, running)
    for operator, processor in running.items():
        if operator in table and processor != "lost":
            assert table[operator] == processor


@pytest.mark.parametrize("name", ["round_robin", "grouping"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(), count=st.integers(1, 5))
def test_the_seeds_patterns_give_each_as_many(name: str, graph: PlanGraph, count: int) -> None:
    table = distribute(graph, machines(count), name)
    assert max(list(table.values()).count(p.id) for p in machines(count)) == ceil(
        len(graph) / count
    )


@pytest.mark.parametrize("name", PATTERNS.names())
def test_no_processor_is_told_in_words(name: str) -> None:
    with pytest.raises(UsageError, match="no processors"):
        distribute(chain(1), (), name)


def test_quality_keeps_a_cheap_plan_on_one_processor() -> None:
    graph = PlanGraph(
        tuple(
            GraphOperator(f"o{n}", (f"o{n - 1}" if n else "s",), properties={"cpu": 0.02})
            for n in range(6)
        )
    )
    assert len(set(distribute(graph, machines(3), "quality_aware").values())) == 1


def test_quality_parts_costly_joins() -> None:
    graph = PlanGraph(
        tuple(GraphOperator(f"j{n}", (f"s{n}",), "join", properties={"cpu": 0.6}) for n in range(3))
    )
    assert len(set(distribute(graph, machines(3), "quality_aware").values())) == 3


def test_quality_gives_the_fast_processor_to_the_plan_of_weight() -> None:
    operators = [
        GraphOperator(f"{plan}{n}", ("s",), plans=(plan,), properties={"cpu": 0.4})
        for plan in ("low", "high")
        for n in range(2)
    ]
    graph = PlanGraph(tuple(operators), {"high": {"weight": 10}})
    fast, slow = ProcessorDescription("slow", {"cpu": 1}), ProcessorDescription("fast", {"cpu": 4})
    table = distribute(graph, (fast, slow), "quality_aware")
    assert table["high0"] == table["high1"] == "fast"


def test_quality_heeds_memory_and_connections() -> None:
    states = tuple(
        GraphOperator(f"j{n}", ("s",), properties={"cpu": 0.01, "state_rows": 80}) for n in range(2)
    )
    table = distribute(PlanGraph(states), machines(2, memory_rows=100), "quality_aware")
    assert table["j0"] != table["j1"]
    many = tuple(GraphOperator(f"f{n}", (f"s{n}",), properties={"cpu": 1e-4}) for n in range(8))
    table = distribute(PlanGraph(many), machines(2, connections_max=4), "quality_aware")
    assert sorted(list(table.values()).count(p) for p in ("p1", "p2")) == [4, 4]
