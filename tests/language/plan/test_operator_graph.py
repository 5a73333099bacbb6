"""Operators and who feeds whom; placements, valid and not, and their connections."""

import doctest
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decide.place.operator_graphs import chain, graphs, two_arms
from millstream.core import operator_graph, placement
from millstream.core.operator_graph import GraphOperator, OperatorGraph, PlanGraph
from millstream.core.placement import (
    connection_count,
    connections_by_processor,
    crossings,
    pieces,
    problems,
    sends,
)


def test_doctests() -> None:
    assert doctest.testmod(operator_graph).failed == 0
    assert doctest.testmod(placement).failed == 0


def test_neighbours_streams_and_subplans() -> None:
    graph = two_arms()
    assert graph.streams == ("a", "b")
    assert graph.leaves == ("l0", "r0")
    assert graph.roots == ("t",)
    assert graph.producers("j") == ("l2", "r2")
    assert graph.consumers("l2") == ("j",)
    assert graph.subplan("j") == ("j", "l2", "r2", "l1", "r1", "l0", "r0")


def test_order_depth_and_paths() -> None:
    graph = two_arms()
    assert graph.order == ("l0", "r0", "l1", "r1", "l2", "r2", "j", "t")
    assert graph.depth["j"] == 3
    assert [o.id for o in graph.by_depth()][:2] == ["l0", "r0"]
    assert list(graph.paths()) == [("l0", "l1", "l2", "j", "t"), ("r0", "r1", "r2", "j", "t")]
    assert graph.circle == ()


def test_what_reads_itself_has_no_order() -> None:
    graph = PlanGraph(
        (
            GraphOperator("a", ("s", "b")),
            GraphOperator("b", ("a",)),
            GraphOperator("c", ("b",)),
            GraphOperator("d", ("s",)),
        )
    )
    assert graph.circle == ("a", "b", "c")  # c cannot come before what it reads either
    assert graph.order == ("d",)


def test_trees() -> None:
    graph = two_arms()
    assert graph.is_tree("t")
    assert not graph.is_tree("j")
    shared = PlanGraph((GraphOperator("a", ("s",)), GraphOperator("b", ("a", "a"))))
    assert not shared.is_tree("b")
    assert list(graph.postorder("j")) == ["a", "l0", "l1", "l2", "b", "r0", "r1", "r2", "j"]
    assert graph.parents("j") == ("t",)


@dataclass(frozen=True)
class Way:
    id: str
    inputs: tuple[str, ...]
    output: str


def test_several_operators_may_give_one_stream() -> None:
    graph = OperatorGraph((Way("x", ("a",), "s"), Way("y", ("b",), "s"), Way("z", ("s",), "t")))
    assert graph.makers("s") == ("x", "y")
    assert graph.producers("z") == ("x", "y")
    assert graph.parents("x") == graph.consumers("s") == ("z",)
    assert (graph.leaves, graph.roots, graph.streams) == (("x", "y"), ("z",), ("a", "b"))


def test_parts_are_connected() -> None:
    graph = two_arms()
    assert graph.parts(lambda *_: True) == (("l0", "l1", "l2", "r0", "r1", "r2", "j", "t"),)
    arms = graph.parts(lambda source, target: source[0] == target[0])
    assert arms == (("l0", "l1", "l2"), ("r0", "r1", "r2"), ("j",), ("t",))


def test_an_operator_stands_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        PlanGraph((GraphOperator("o", ("s",)), GraphOperator("o", ("t",))))


def test_what_makes_a_placement_invalid() -> None:
    graph = chain(2)
    assert problems(graph, {"o0": "p1", "o1": "p1"}, {"p1"}) == ()
    found = problems(graph, {"o0": "p2", "x": "p1"}, {"p1"})
    assert found == (
        "o1 is on no processor",
        "o0 is on p2, which does not answer",
        "x is not an operator",
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
    graph = PlanGraph(
        (GraphOperator("f", ("s",)), GraphOperator("x", ("f",)), GraphOperator("y", ("f",)))
    )
    table = {"f": "p1", "x": "p2", "y": "p2"}
    assert crossings(graph, table) == (("f", "p1", "p2"),)
    assert connections_by_processor(graph, table) == {"p1": 2, "p2": 3}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.randoms(use_true_random=False))
def test_counts_fit_each_other(graph: PlanGraph, random: object) -> None:
    table = {o.id: f"p{random.randint(1, 3)}" for o in graph}  # type: ignore[attr-defined]
    ends = 2 * len(crossings(graph, table)) + len(graph.roots)
    ends += connection_count(graph, table) - len(crossings(graph, table))
    assert sum(connections_by_processor(graph, table).values()) == ends
    assert 1 <= pieces(graph, table) <= len(graph)
