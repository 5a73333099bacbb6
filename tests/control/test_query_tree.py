"""Running queries as placement problems: what may move, what is read, where results go."""

from dataclasses import replace
from itertools import product

import pytest

from millstream.control.admission.query_tree import promise, query_tree
from millstream.control.manager.state import (
    Figures,
    Live,
    ManagerState,
    OperatorRecord,
    Processor,
    Query,
    Statistics,
    StreamRecord,
)
from millstream.core.errors import UsageError
from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.outcome import Placed

NODES = ("p1", "p2", "p3")
FAR = {("p1", "p2"): 10.0, ("p2", "p3"): 4.0, ("p1", "p3"): 12.0}


def state_of(
    operators: dict[str, tuple[str, ...]], rates: dict[str, float], **queries: Query
) -> ManagerState:
    """Streams a at p1 and b at p2; every operator at p3; 100 bytes a row."""
    processors = {
        name: Figures(
            1.0,
            {f"distance_ms.{b}": ms for (a, b), ms in FAR.items() if a == name},
        )
        for name in NODES
    }

    def figures(name: str, key: str) -> Figures:
        held = {"rows_in": 1.0, "rows_out": 1.0, "bytes": 100.0, "held_rows": 1.0}
        return Figures(1.0, held, {key: rates[name]}, {key: rates[name]})

    return ManagerState(
        processors={n: Processor(n, f"http://{n}", 1) for n in NODES},
        live={n: Live(state="up") for n in NODES},
        streams={n: StreamRecord(n, {}, p, True) for n, p in (("a", "p1"), ("b", "p2"))},
        operators={
            o: OperatorRecord(o, "map", o, inputs, 100, {}, "p3") for o, inputs in operators.items()
        },
        queries=queries,
        statistics=Statistics(
            processors,
            {o: figures(o, "rows_out") for o in operators},
            {s: figures(s, "rows") for s in ("s:a", "s:b")},
            {},
        ),
    )


def query(*operators: str, **more: object) -> Query:
    found = Query("q", "SELECT", phase="running", operators=operators, result=operators[-1])
    return replace(found, **more)  # type: ignore[arg-type]


RATES = {"s:a": 8.0, "s:b": 5.0, "o:f": 3.0, "o:j": 2.0}
JOIN = {"o:f": ("s:a",), "o:j": ("o:f", "s:b")}


def test_a_result_without_a_place_may_end_anywhere() -> None:
    tree = query_tree(state_of(JOIN, RATES, q=query("o:f", "o:j")), "q")
    assert tree.proxies == NODES
    problem, outcome = tree.planned("optimal_tree")
    assert isinstance(outcome, Placed)
    costs = {
        places: cost_and_delay(
            tree.towards(places[1]), dict(zip(("o:f", "o:j"), places, strict=True))
        )[0]
        for places in product(NODES, NODES)
    }
    assert outcome.cost == pytest.approx(min(costs.values()))
    assert problem.proxy == outcome.placement["o:j"]
    # as it runs: all at p3, both streams cross whole, the result stays
    now = promise(tree, tree.present(), tree.running)
    assert now.cost == pytest.approx(100 * (8.0 * 12 + 5.0 * 4))
    assert {c[:3] for c in now.crossings} == {("s:a", "p1", "p3"), ("s:b", "p2", "p3")}
    assert now.bytes_per_s == pytest.approx(1300.0)


def test_a_wanted_place_counts() -> None:
    wanted = query("o:f", "o:j", deliver_to="p1", latency_s=0.03)
    tree = query_tree(state_of(JOIN, RATES, q=wanted), "q")
    assert tree.proxies == ("p1",)
    assert tree.problem.latency_bound == 30.0
    _, outcome = tree.planned("optimal_tree")
    assert isinstance(outcome, Placed)
    then = promise(tree, tree.problem, outcome.placement)
    assert then.cost == pytest.approx(outcome.cost)
    assert then.delay_ms == pytest.approx(outcome.delay)


def test_what_others_read_stays_and_counts_as_a_source() -> None:
    other = replace(query("o:f"), name="other")
    tree = query_tree(state_of(JOIN, RATES, q=query("o:f", "o:j"), other=other), "q")
    assert tree.running == {"o:j": "p3"}
    assert tree.staying == ("o:f",)
    assert {(s.id, s.node) for s in tree.problem.sources} == {("o:f", "p3"), ("s:b", "p2")}
    with pytest.raises(UsageError, match="all of query other is shared"):
        query_tree(state_of(JOIN, RATES, q=query("o:f", "o:j"), other=other), "other")


def test_an_operator_read_twice_stays_and_a_stream_read_twice_crosses_once() -> None:
    shape = {"o:f": ("s:a",), "o:j": ("o:f", "o:f"), "o:k": ("o:j", "s:b", "s:b")}
    rates = {**RATES, "o:k": 1.0}
    tree = query_tree(state_of(shape, rates, q=query("o:f", "o:j", "o:k")), "q")
    assert tree.staying == ("o:f",)
    assert sorted(tree.streams) == ["o:f", "o:f#2", "s:b", "s:b#2"]
    now = promise(tree, tree.present(), tree.running)
    assert [c[0] for c in now.crossings] == ["s:b"]


def test_unknown_distances_leave_bytes_to_count_and_silence_is_told() -> None:
    state = state_of(JOIN, RATES, q=query("o:f", "o:j"))
    blind = replace(state, statistics=replace(state.statistics, processors={}))
    tree = query_tree(blind, "q")
    assert not tree.distances_known
    _, outcome = tree.planned("optimal_tree")
    assert isinstance(outcome, Placed)
    assert outcome.cost == pytest.approx(100 * 3.0)  # the filter at a, the join at b
    silent = replace(state, live={**state.live, "p1": Live(state="silent")})
    with pytest.raises(UsageError, match="p1 does not answer"):
        query_tree(silent, "q")
    with pytest.raises(UsageError, match="there is no query nobody"):
        query_tree(state, "nobody")
    with pytest.raises(UsageError, match="query q is failed"):
        query_tree(replace(state, queries={"q": query("o:f", "o:j", phase="failed")}), "q")
