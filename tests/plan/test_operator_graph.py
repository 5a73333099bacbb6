"""Operators and who feeds whom; distributions, valid and not, and their connections."""

import doctest

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.plan import distribution, operator_graph
from millstream.plan.distribution import (
    connection_count,
    connections_by_processor,
    crossings,
    pieces,
    problems,
    sends,
)
from millstream.plan.operator_graph import GraphOperator, OperatorGraph
from place.operator_graphs import chain, graphs, two_arms


def test_doctests() -> None:
    assert doctest.testmod(operator_graph).failed == 0
    assert doctest.testmod(distribution).failed == 0


def test_neighbours_streams_and_subplans() -> None:
    graph = two_arms()
    assert graph.streams == ("a", "b")
    assert graph.leaves == ("l0", "r0")
    assert graph.roots == ("t",)
    assert graph.producers("j") == ("l2", "r2")
    assert graph.consumers("l2") == ("j",)
    assert graph.subplan("j") == ("j", "l2", "r2", "l1", "r1", "l0", "r0")


def test_an_operator_stands_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        OperatorGraph((GraphOperator("o", ("s",)), GraphOperator("o", ("t",))))


def test_what_makes_a_distribution_invalid() -> None:
    graph = chain(2)
    assert problems(graph, {"o0": "p1", "o1": "p1"}, {"p1"}) == ()
    found = problems(graph, {"o0": "p2", "x": "p1"}, {"p1"})
    assert found == (
        "o1 is on no processor",
        "o0 is on p2, which does not answer",
        "x is no operator",
    )


def test_connections_of_a_cut_chain() -> None:
    graph = chain(4)
    table = {"o0": "p1", "o1": "p2", "o2": "p2", "o3": "p1"}
    assert pieces(graph, table) == 3
    assert crossings(graph, table) == (("o0", "p1", "p2"), ("o2", "p2", "p1"))
    assert connection_count(graph, table) == 3  # two crossings and the stream
    assert connection_count(graph, table, results=True) == 4
    assert connections_by_processor(graph, table) == {"p1": 4, "p2": 2}
    assert [name for name in table if sends(graph, table, name)] == ["o0", "o2", "o3"]


def test_a_stream_crosses_once_to_many_readers() -> None:
    graph = OperatorGraph(
        (GraphOperator("f", ("s",)), GraphOperator("x", ("f",)), GraphOperator("y", ("f",)))
    )
    table = {"f": "p1", "x": "p2", "y": "p2"}
    assert crossings(graph, table) == (("f", "p1", "p2"),)
    assert connections_by_processor(graph, table) == {"p1": 2, "p2": 3}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.randoms(use_true_random=False))
def test_counts_fit_each_other(graph: OperatorGraph, random: object) -> None:
    table = {o.id: f"p{random.randint(1, 3)}" for o in graph}  # type: ignore[attr-defined]
    ends = 2 * len(crossings(graph, table)) + len(graph.roots)
    ends += connection_count(graph, table) - len(crossings(graph, table))
    assert sum(connections_by_processor(graph, table).values()) == ends
    assert 1 <= pieces(graph, table) <= len(graph)
