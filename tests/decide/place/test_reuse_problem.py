"""The planning problem: its JSON form, and clear answers to degenerate ones."""

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reuse_problems import pair_problem, problem_to_json, random_problem

from millstream.core.errors import UsageError
from millstream.decide.place.planners import plan_all
from millstream.decide.place.problem import (
    Host,
    Link,
    Links,
    Operator,
    Query,
    Stream,
    check_problem,
)
from millstream.decide.place.problem_json import problem_from_json, read_problem

PLAIN: dict[str, Any] = {
    "hosts": [{"id": "h1", "cpu": 14.0, "bandwidth_in": 60.0, "bandwidth_out": 60.0}],
    "links": {"bandwidth": 1000.0},
    "streams": [
        {"id": "a", "rate": 10.0, "host": "h1"},
        {"id": "b", "rate": 10.0, "host": "h1"},
        {"id": "a*b", "rate": 0.06},
    ],
    "operators": [{"id": "o1", "inputs": ["a", "b"], "output": "a*b", "cpu": 1.0}],
    "queries": [{"id": "q1", "stream": "a*b"}],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    document = json.loads(json.dumps(PLAIN))
    *parents, last = path.split(".")
    place = document
    for name in parents:
        place = place[int(name)] if name.isdigit() else place[name]
    if value is None:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return document


def test_the_documented_form_is_read() -> None:
    problem = problem_from_json(PLAIN)
    assert problem.hosts == (Host("h1", 14.0, 60.0, 60.0),)
    assert problem.links == Links(bandwidth=1000.0)
    assert problem.operators == (Operator("o1", ("a", "b"), "a*b", 1.0),)


@given(st.integers(0, 10_000))
def test_json_round_trip(seed: int) -> None:
    problem = random_problem(seed)
    assert problem_from_json(json.loads(json.dumps(problem_to_json(problem)))) == problem


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("hosts", [], "no hosts"),
        ("hosts", None, "lacks 'hosts'"),
        ("hosts.0.cpu", -1, "cpu of host 'h1'"),
        ("hosts.0.cpu", "many", "must be a number"),
        ("hosts.0.cpu", True, "must be a number"),
        ("hosts.0.cpu", 10**400, "cpu of hosts[0] is too large"),
        ("hosts.0.cpus", 3, "unknown field 'cpus'"),
        ("streams.0.rate", float("nan"), "rate of stream 'a'"),
        ("streams.0.rate", float("inf"), "rate of stream 'a'"),
        ("streams.0.host", "h9", "unknown host 'h9'"),
        ("operators.0.inputs", ["a", "x"], "unknown stream 'x'"),
        ("operators.0.inputs", [], "reads no stream"),
        ("operators.0.inputs", "a", "list of stream ids"),
        ("operators.0.output", "a", "computes the base stream 'a'"),
        ("operators.0.inputs", ["a*b"], "in a cycle"),
        ("queries.0.stream", "c", "unknown stream 'c'"),
        ("queries.0.deliver_to", "h7", "unknown host 'h7'"),
        ("queries", [{"id": "q", "stream": "a"}] * 2, "query 'q' is given twice"),
        ("hosts", [PLAIN["hosts"][0]] * 2, "host 'h1' is given twice"),
        ("links", [{"from": "h1", "to": "h2"}], "unknown host 'h2'"),
        ("links", {"speed": 3}, "unknown field 'speed'"),
        ("weights", {"admit": -1}, "weight admit"),
        ("timeout_s", -1, "timeout_s"),
    ],
)
def test_what_is_wrong_is_named(path: str, value: Any, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        problem_from_json(changed(path, value))
    assert words in str(raised.value)


def test_a_weight_that_is_no_number_is_told_in_three_parts() -> None:
    with pytest.raises(UsageError) as raised:
        problem_from_json(changed("weights", {"admit": "much"}))
    assert raised.value.message == "admit of weights must be a number, not text"
    assert "'much'" in raised.value.detail
    assert "without quotes" in raised.value.hint


def test_a_long_cycle_is_shown_in_order() -> None:
    streams = tuple(Stream(name, 1.0) for name in "xyz")
    operators = tuple(
        Operator(f"o{n}", (source,), target, 1.0)
        for n, (source, target) in enumerate((("x", "y"), ("y", "z"), ("z", "x")))
    )
    with pytest.raises(UsageError) as raised:
        check_problem(pair_problem(streams=streams, operators=operators, queries=()))
    assert raised.value.detail.count("->") == 3


def test_a_link_given_twice_is_refused() -> None:
    links = Links(listed=(Link("h1", "h2"), Link("h1", "h2")))
    with pytest.raises(UsageError, match="given twice"):
        check_problem(pair_problem(links=links))


def test_two_queries_may_want_one_stream() -> None:
    check_problem(pair_problem(queries=(Query("q1", "a*b"), Query("q2", "a*b"))))


def test_a_broken_file_says_where(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text('{"hosts": [,]}')
    with pytest.raises(UsageError, match="line 1, column 12"):
        read_problem(path)
    with pytest.raises(UsageError, match="cannot read"):
        read_problem(tmp_path / "absent.json")
    with pytest.raises(UsageError, match="must be an object"):
        problem_from_json([])
    path.write_text("[" * 100_000)
    with pytest.raises(UsageError, match="nested too deeply"):
        read_problem(path)
    path.write_text("1" * 5000)
    with pytest.raises(UsageError, match="is not JSON"):
        read_problem(path)


def test_an_unknown_field_is_told_with_what_was_probably_meant() -> None:
    with pytest.raises(UsageError) as raised:
        problem_from_json(changed("hosts.0.cpus", 3))
    assert raised.value.hint.startswith("did you mean cpu?")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("hosts", {}),
        ("hosts.0", 3),
        ("hosts.0.id", None),
        ("hosts.0.id", 7),
        ("hosts.0.cpu", None),
        ("hosts.0.cpu", -1),
        ("streams.0.rate", 1e308),
        ("streams.0.rate", 5e-324),
        ("operators.0.inputs", "a"),
        ("weights", {"network": 1e300}),
        ("links", [{"from": "h1", "to": "h1"}] * 2),
    ],
)
def test_a_mistake_is_told_with_what_to_do(path: str, value: Any) -> None:
    with pytest.raises(UsageError) as raised:
        problem_from_json(changed(path, value))
    assert raised.value.hint


def test_a_capacity_beyond_all_amounts_is_no_limit() -> None:
    problem = problem_from_json(changed("hosts.0.bandwidth_in", 1e308))
    assert problem.hosts[0].bandwidth_in == inf
    assert plan_all(problem).solution.admitted == ("q1",)


def test_a_field_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text('{"hosts": [{"id": "h1", "cpu": 1, "cpu": 2}], "streams": []}')
    with pytest.raises(UsageError, match="field 'cpu' appears twice") as raised:
        read_problem(path)
    assert raised.value.detail == "1, 2"
