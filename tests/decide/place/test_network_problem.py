"""The placement problem: codec, validation, missing distances."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_instances import random_problem, tree_to_json

from millstream.core.errors import UsageError
from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.problem import within
from millstream.decide.place.problem_json import tree_from_json


def example() -> dict[str, Any]:
    return {
        "nodes": ["n0", "n1", "n2"],
        "distance": [[0, 10, 30], [10, 0, 20], [30, 20, 0]],
        "sources": [
            {"id": "s1", "node": "n1", "rate": 10.0},
            {"id": "s2", "node": "n2", "rate": 4},
        ],
        "operators": [{"id": "o1", "inputs": ["s1", "s2"], "rate": 2.5}],
        "root": "o1",
        "proxy": "n0",
        "latency_bound": None,
    }


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_codec_round_trip(seed: int) -> None:
    data = tree_to_json(random_problem(seed))
    again = tree_to_json(tree_from_json(json.loads(json.dumps(data))))
    assert again == data


def test_the_example_of_the_format() -> None:
    problem = tree_from_json(example())
    assert cost_and_delay(problem, {"o1": "n1"}) == (4 * 20 + 2.5 * 10, 30.0)
    assert [vertex.id for vertex in problem.tree] == ["s1", "s2", "o1"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": ["n0", "n1", "n1"]}, "node 'n1' is given twice"),
        ({"nodes": "n0"}, "'nodes' must be a list"),
        ({"distance": [[0]]}, "3 rows"),
        ({"distance": [[0, 1, "x"], [1, 0, 1], [1, 1, 0]]}, "not a number"),
        ({"distance": [[0, 1, -2], [1, 0, 1], [1, 1, 0]]}, "from 'n0' to 'n2' is -2"),
        ({"distance": [[0, 1, None], [1, 0, None], [None, None, 0]]}, "no distance from 'n0'"),
        ({"sources": [{"id": "s1", "node": "zz", "rate": 1}]}, "unknown node 'zz'"),
        ({"sources": [{"id": "s1", "node": "n0"}]}, "'rate' must be a number"),
        ({"sources": [{"node": "n0", "rate": 1}]}, "lacks 'id'"),
        ({"operators": [{"id": "o1", "inputs": ["s1", "s9"], "rate": 1}]}, "unknown stream 's9'"),
        ({"operators": [{"id": "o1", "inputs": [], "rate": 1}]}, "no inputs"),
        ({"operators": [{"id": "o1", "inputs": ["o1"], "rate": 1}]}, "more than one consumer"),
        ({"operators": [{"id": "o1", "inputs": ["s1"], "rate": -1}]}, "rate of 'o1' is -1"),
        ({"operators": [{"id": "s1", "inputs": ["s1"], "rate": 1}]}, "stream 's1' is given twice"),
        ({"root": "zz"}, "root 'zz'"),
        ({"proxy": "zz"}, "proxy 'zz'"),
        ({"latency_bound": -1}, "latency_bound is -1"),
        ({"latency_bound": "soon"}, "'latency_bound' must be a number"),
        ({"latency_bound": 10**400}, "'latency_bound' is too large"),
        ({"latency_bnd": 1}, "unknown field 'latency_bnd'"),
        ({"sources": [{"id": "s1", "node": "n0", "rte": 1}]}, r"sources\[0\] has the unknown"),
        (
            {"operators": [{"id": "o1", "inputs": ["s1"], "rat": 1}]},
            r"operators\[0\] has the unknown",
        ),
        ({"sources": [{"id": "s1", "node": "n0", "rate": 10**400}]}, "'rate' is too large"),
        ({"distance": [[0, 10**400, 1], [1, 0, 1], [1, 1, 0]]}, "too large"),
        ({"distance": ["012", "345", "678"]}, "a list of rows"),
        ({"distance": [[0, "1", 2], [1, 0, 1], [1, 1, 0]]}, "not a number"),
        ({"distance": [[0, True, 2], [1, 0, 1], [1, 1, 0]]}, "not a number"),
        ({"distance": [[0, 1e308, 1], [1, 0, 1], [1, 1, 0]]}, "too large for a number"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tree_from_json(example() | change)


def test_fields_of_others_are_left_alone() -> None:
    more = {"comment": "measured in May", "colour": 3}
    assert tree_to_json(tree_from_json(example() | more)) == example()


def test_an_unknown_field_is_told_with_what_was_probably_meant() -> None:
    with pytest.raises(UsageError) as caught:
        tree_from_json(example() | {"latency_bnd": 1})
    assert "did you mean latency_bound?" in caught.value.hint
    assert tree_from_json(example() | {"topology": "cloud-regions"}).nodes  # read by `place`


def test_an_operator_beside_the_tree_is_refused() -> None:
    data = example()
    data["operators"].append({"id": "o2", "inputs": ["s1"], "rate": 1.0})
    with pytest.raises(UsageError, match="does not lead to root"):
        tree_from_json(data)
    with pytest.raises(UsageError, match="lacks nodes"):
        tree_from_json({})
    with pytest.raises(UsageError, match="JSON object"):
        tree_from_json([])


def test_missing_distances_come_from_the_way_back_or_a_detour() -> None:
    data = example() | {"distance": [[0, 10, None], [None, 0, 20], [None, None, 0]]}
    assert tree_from_json(data).distance.tolist() == [[0, 10, 30], [10, 0, 20], [30, 20, 0]]


def test_a_source_may_feed_several_operators_and_one_twice() -> None:
    data = example()
    data["operators"] = [
        {"id": "o0", "inputs": ["s1", "s1"], "rate": 1.0},
        {"id": "o1", "inputs": ["s1", "o0", "s2"], "rate": 2.5},
    ]
    problem = tree_from_json(data)
    assert [vertex.id for vertex in problem.tree] == ["s1", "s1", "s1", "o0", "s2", "o1"]
    assert problem.tree[-1].children == (0, 3, 4)
    assert problem.tree[3].children == (1, 2)
    cost, _ = cost_and_delay(problem, {"o0": "n0", "o1": "n0"})
    assert cost == 3 * 10 * 10 + 4 * 30


def test_distances_are_read_only_and_nothing_costs_within_a_node() -> None:
    data = example() | {"distance": [[5, 10, 30], [10, 0, 20], [30, 20, 1]]}
    problem = tree_from_json(data)
    assert np.diagonal(problem.distance).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        problem.distance[0, 1] = 3.0


def test_deep_chains_do_not_exhaust_the_stack() -> None:
    data = example()
    inputs = ["s1", "s2"]
    data["operators"] = []
    for number in range(5000):
        data["operators"].append({"id": f"o{number}", "inputs": inputs, "rate": 1.0})
        inputs = [f"o{number}"]
    data["root"] = "o4999"
    assert len(tree_from_json(data).tree) == 5002


def test_bounds_tolerate_rounding_only() -> None:
    assert within(0.1 + 0.2, 0.3)
    assert not within(0.3001, 0.3)


def test_bounds_bind_whatever_the_unit_of_distance() -> None:
    assert not within(3e-10, 1e-10)
    assert within(3e-10, 1e-10 + 2e-10)
    assert within(0.0, 0.0)
    assert not within(1e-300, 0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": [{}, "n1", "n2"]},
        {"distance": "near"},
        {"distance": [[0, 1], [1, 0]]},
        {"sources": [{"id": "s1", "rate": 1.0}]},
        {"operators": [{"id": "o1", "inputs": ["s1", None], "rate": 1.0}]},
        {"root": ["o1"]},
        {"root": "o9"},
        {"proxy": "n9"},
    ],
)
def test_a_mistake_is_told_with_what_to_do(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as raised:
        tree_from_json({**example(), **change})
    assert raised.value.hint


def test_nodes_may_be_numbered() -> None:
    numbered = json.loads(json.dumps(example()).replace('"n0"', "0").replace('"n1"', "1"))
    assert tree_from_json(numbered).nodes == ("0", "1", "n2")
