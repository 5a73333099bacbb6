"""Redistribution: each parameter of table 6.1 by hand, and all models with all policies."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decide.place.operator_graphs import chain, graphs, machines
from millstream.core.errors import UsageError
from millstream.core.operator_graph import GraphOperator, PlanGraph
from millstream.core.placement import problems
from millstream.decide.balance.cost_models import COST_MODELS, CostMemory, CostTable, measured
from millstream.decide.balance.redistribution import (
    POLICIES,
    Memory,
    Parameters,
    Situation,
    applied,
    redistribute,
)

FILTERS = PlanGraph(tuple(GraphOperator(f"f{n}", (f"s{n}",)) for n in range(6)))


def situation(costs: dict[str, tuple[str, float]], **processors: float) -> Situation:
    """Filters with their processor and cost; a processor's cost is the sum unless given."""
    table = {name: place for name, (place, _) in costs.items()}
    graph = PlanGraph(tuple(o for o in FILTERS if o.id in costs))
    sums = {
        p: processors.get(p, sum(c for place, c in costs.values() if place == p))
        for p in ("p1", "p2", "p3")
    }
    model = CostTable(
        "cpu_time", sums, {n: c for n, (_, c) in costs.items()}, dict.fromkeys(sums, 1.0)
    )
    return Situation(graph, table, model)


HEAVY = situation({"f0": ("p1", 0.5), "f1": ("p1", 0.3), "f2": ("p2", 0.3), "f3": ("p2", 0.1)})


def names(seen: Situation, policy: str = "balance", **parameters: object) -> list[tuple[str, str]]:
    decision, _ = redistribute(policy, seen, Parameters(**parameters))  # type: ignore[arg-type]
    return [(move.operator, move.target) for move in decision.moves]


def test_balance_moves_from_the_heaviest_to_the_lightest_until_even() -> None:
    assert names(HEAVY, percent_difference=5) == [("f1", "p3")]  # f0 or f3 would part them again
    decision, _ = redistribute("balance", HEAVY)
    assert str(decision.moves[0]) == (
        "move f1 from p1 to p3: p1 is the heaviest with a cost of 0.80 and p3 the lightest with "
        "0.00 (cpu_time); this operator makes 0.30 of it"
    )
    assert decision.sentence == "costs by cpu_time should come from 80% apart to 20%"


def test_balance_takes_nothing_from_moderately_loaded_ones() -> None:
    seen = situation({"f0": ("p1", 0.9), "f1": ("p2", 0.2), "f2": ("p2", 0.1)})
    # p1 has one operator only, and p2 is below the mean.
    assert names(seen) == []


@pytest.mark.parametrize(
    ("parameters", "moves"),
    [
        ({"percent_difference": 100}, []),
        ({"percent_difference": 81}, []),
        ({"eligible_operators": frozenset(["f0"])}, [("f0", "p3")]),
        ({"eligible_operators": frozenset()}, []),
        ({"eligible_processors": frozenset(["p2"])}, [("f1", "p2")]),
        ({"eligible_processors": frozenset()}, []),
        ({"moves_max": 1}, [("f1", "p3")]),
    ],
)
def test_parameters_of_table_6_1(
    parameters: dict[str, object], moves: list[tuple[str, str]]
) -> None:
    assert names(HEAVY, **parameters)[: len(moves) or None] == moves


def test_state_size_limits_what_moves() -> None:
    seen = replace(HEAVY, state_rows={"f0": 10.0, "f1": 5000.0})
    assert names(seen, state_rows_max=1000)[0] == ("f0", "p3")
    assert names(seen, state_rows_min=1000)[0] == ("f1", "p3")


def degraded(**operators: tuple[str, float]) -> tuple[Situation, Memory]:
    """p1 was at 0 when its operators came, and is at 0.6 now."""
    seen = situation(dict(operators), p1=0.6, p2=0.1, p3=0.2)
    table = replace(seen.costs, processors={"p1": 0.0, "p2": 0.1, "p3": 0.2})
    _, memory = redistribute("degradation", replace(seen, costs=table))
    return seen, memory


def test_degradation_moves_the_costliest_of_what_has_risen() -> None:
    seen, memory = degraded(f0=("p1", 0.7), f1=("p1", 0.3), f2=("p2", 1.0), f3=("p3", 1.0))
    decision, _ = redistribute("degradation", seen, Parameters(moves_max=1), memory)
    assert [(m.operator, m.target) for m in decision.moves] == [("f0", "p2")]
    assert str(decision.moves[0]).startswith(
        "move f0 from p1 to p2: the cost of p1 rose from 0.00 to 0.60 since its operators were "
        "allocated (cpu_time), this one makes 70% of what it costs, p2 is at 0.10"
    )


def test_degradation_does_nothing_when_nothing_has_risen() -> None:
    decision, _ = redistribute("degradation", HEAVY)
    assert decision.moves == ()
    assert "no processor's cost has risen" in decision.sentence


def test_degradation_prefers_a_move_that_removes_a_connection() -> None:
    graph = chain(4)
    table = {"o0": "p1", "o1": "p2", "o2": "p1", "o3": "p1"}
    shares = {"o0": 0.4, "o1": 1.0, "o2": 0.0, "o3": 0.6}
    before = CostTable("m", {"p1": 0.0, "p2": 0.0}, shares, {"p1": 1.0, "p2": 1.0})
    _, memory = redistribute("degradation", Situation(graph, table, before))
    after = replace(before, processors={"p1": 0.5, "p2": 0.0})
    decision, _ = redistribute(
        "degradation", Situation(graph, table, after), Parameters(moves_max=1), memory
    )
    # o3 costs more, but o0 beside o1 needs one connection less.
    assert [(m.operator, m.target) for m in decision.moves] == [("o0", "p2")]
    assert "a connection goes away" in decision.moves[0].reason


def test_a_new_allocation_is_a_new_baseline() -> None:
    seen, memory = degraded(f0=("p1", 0.7), f1=("p1", 0.3), f2=("p2", 1.0))
    moved = replace(seen, table={**seen.table, "f1": "p3"})
    decision, _ = redistribute("degradation", moved, Parameters(), memory)
    assert decision.moves == ()


def test_an_invalid_distribution_is_decided_anew_and_given_up_after_a_few_tries() -> None:
    asked: list[dict[str, str]] = []

    def valid(table: dict[str, str]) -> tuple[str, ...]:
        asked.append(dict(table))
        return ("f1 must stay",) if table["f1"] != "p1" else ()

    decision, _ = redistribute("balance", HEAVY, Parameters(moves_max=1), None, valid)  # type: ignore[arg-type]
    assert [m.operator for m in decision.moves] == ["f0"]

    def never(table: dict[str, str]) -> tuple[str, ...]:
        return () if table == HEAVY.table else ("p3 went away",)

    decision, _ = redistribute("balance", HEAVY, Parameters(), None, never)  # type: ignore[arg-type]
    assert decision.moves == ()


@pytest.mark.parametrize(("model", "policy"), list(product(COST_MODELS.names(), POLICIES.names())))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(), data=st.data())
def test_any_model_with_any_policy(
    model: str, policy: str, graph: PlanGraph, data: st.DataObject
) -> None:
    """Never invalid, never beyond the parameters, deterministic, and each move has its reason."""
    places = ["p1", "p2", "p3", "p4"]
    table = {o.id: data.draw(st.sampled_from(places)) for o in graph}
    reported = frozenset(p for p in places if p != "p4" or data.draw(st.booleans()))
    parameters = Parameters(
        percent_difference=data.draw(st.sampled_from([0.0, 10.0, 100.0])),
        eligible_operators=data.draw(
            st.none() | st.frozensets(st.sampled_from([o.id for o in graph]))
        ),
        eligible_processors=data.draw(st.none() | st.frozensets(st.sampled_from(places))),
        state_rows_max=data.draw(st.sampled_from([float("inf"), 50.0])),
        moves_max=data.draw(st.integers(1, 5)),
    )
    costs_memory, memory = CostMemory(), Memory()
    for _ in range(3):
        figures = {
            o.id: {
                "queue_rows": data.draw(st.integers(0, 900_000)),
                "state_rows": data.draw(st.integers(0, 100)),
                "rows_out_per_s": data.draw(st.integers(0, 1000)),
                "cpu_s_per_s": data.draw(st.floats(0, 1)),
            }
            for o in graph
        }
        seen = measured(graph, table, machines(4), figures, reported)
        costs, costs_memory = COST_MODELS.get(model).costs(seen, costs_memory)
        state_rows = {name: values["state_rows"] for name, values in figures.items()}
        before = Situation(graph, table, costs, state_rows)
        decision, after = redistribute(policy, before, parameters, memory)
        assert (decision, after) == redistribute(policy, before, parameters, memory)
        memory = after
        assert decision.sentence
        assert len(decision.moves) <= parameters.moves_max
        assert len({m.operator for m in decision.moves}) == len(decision.moves)
        for move in decision.moves:
            assert table[move.operator] == move.source != move.target
            assert move.target in reported
            assert parameters.eligible_operators is None or move.operator in (
                parameters.eligible_operators
            )
            assert parameters.eligible_processors is None or move.target in (
                parameters.eligible_processors
            )
            assert state_rows[move.operator] <= parameters.state_rows_max
            assert move.reason
        if parameters.percent_difference == 100:
            assert decision.moves == ()
        table = applied(table, decision)
        assert problems(graph, table, places) == ()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(["p1", "p2", "p3"]), st.floats(0, 0.3)), max_size=6))
def test_balance_never_widens_the_gap(placed: list[tuple[str, float]]) -> None:
    seen = situation({f"f{n}": item for n, item in enumerate(placed)})
    decision, _ = redistribute("balance", seen, Parameters(percent_difference=1))
    loads = dict.fromkeys(("p1", "p2", "p3"), 0.0)
    for name, place in applied(seen.table, decision).items():
        loads[place] += seen.costs.operators[name]
    before = seen.costs.processors
    assert max(loads.values()) <= max(before.values()) + 1e-9


@pytest.mark.parametrize(
    "given_",
    [
        {"percent_difference": 101},
        {"moves_max": 0},
        {"check_s": 0},
        {"state_rows_min": 5, "state_rows_max": 1},
    ],
)
def test_wrong_parameters_are_told(given_: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Parameters(**given_)  # type: ignore[arg-type]


def test_relief_takes_from_the_full_alone_and_lets_what_moved_rest() -> None:
    full = situation(
        {"f0": ("p1", 0.3), "f1": ("p1", 0.1), "f2": ("p2", 0.2), "f3": ("p3", 0.1)}, p1=0.8
    )
    decision, memory = redistribute("relief", full)
    assert [(m.operator, m.source, m.target) for m in decision.moves] == [("f1", "p1", "p3")]
    assert "p1 is full with a cost of 0.80" in decision.moves[0].reason
    assert memory.moved == {"f1": 1}
    back = replace(full, table={**full.table, "f1": "p1"})
    again, memory = redistribute("relief", back, memory=memory)
    assert not again.moves, "f0 has no room anywhere, f1 rests"
    assert again.sentence.startswith("nothing moves: what could leave a full processor")
    for _ in range(10):
        again, memory = redistribute("relief", back, memory=memory)
    assert again.moves, "it has rested"


def test_relief_leaves_unlike_processors_alone_while_they_keep_up() -> None:
    uneven = situation({"f0": ("p1", 0.3), "f1": ("p1", 0.2), "f2": ("p2", 0.01)})
    assert redistribute("balance", uneven)[0].moves
    decision, _ = redistribute("relief", uneven)
    assert not decision.moves
    assert decision.sentence == "nothing moves: no processor's cost has reached 0.6"
