"""What runs, cut into trees: a shared operator is placed for all its readers, within bounds."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from test_query_tree import FAR, NODES, query, state_of

from millstream.control.admission.parts import Part, moved, parts
from millstream.control.admission.query_tree import survey
from millstream.control.admission.replacement import proposals, propose_part
from millstream.control.manager.state import ManagerState, Query

OPERATORS = {"o:f": ("s:a",), "o:s": ("o:f",), "o:g": ("o:s", "s:b"), "o:h": ("o:s",)}
RATES = {"s:a": 8.0, "s:b": 5.0, "o:f": 6.0, "o:s": 3.0, "o:g": 2.0, "o:h": 1.0}


def two(**more: object) -> ManagerState:
    one = query("o:f", "o:s", "o:g", name="one", deliver_to="p2", **more)
    other = query("o:f", "o:s", "o:h", name="other", deliver_to="p3")
    return state_of(OPERATORS, RATES, one=one, other=other)


def at(state: ManagerState, **places: str) -> ManagerState:
    return moved(state, {f"o:{o}": ("", place) for o, place in places.items()})


def by_id(state: ManagerState) -> dict[str, Part]:
    return {part.id: part for part in parts(state)}


def test_each_operator_is_in_one_part_and_readers_are_the_ends() -> None:
    found = by_id(at(two(), g="p2", h="p3"))
    assert found.keys() == {"one", "other", "o:s"}
    assert sorted(o for part in found.values() for o in part.running) == sorted(OPERATORS)
    shared = found["o:s"]
    assert (shared.queries, shared.ends, shared.shared) == (("one", "other"), ("p2", "p3"), True)
    assert shared.running.keys() == {"o:f", "o:s"}  # the filter below it is read by it alone
    assert found["one"].ends == ("p2",)


def test_the_optimum_for_all_readers_is_that_of_trying_everything() -> None:
    generator = np.random.default_rng(3)
    for _ in range(30):
        rates = {name: float(generator.uniform(1, 10)) for name in RATES}
        one = query("o:f", "o:s", "o:g", name="one", deliver_to="p2")
        other = query("o:f", "o:s", "o:h", name="other", deliver_to="p3")
        state = at(state_of(OPERATORS, rates, one=one, other=other), g="p2", h="p3")
        shared = by_id(state)["o:s"]
        best = min(shared.judged({"o:f": f, "o:s": s}).cost for f, s in product(NODES, repeat=2))
        assert shared.judged(shared.cheapest()).cost == pytest.approx(best)


def test_the_cost_of_a_shared_operator_is_that_of_every_crossing() -> None:
    shared = by_id(at(two(), g="p2", h="p3"))["o:s"]
    cost, delay = shared.judged({"o:f": "p1", "o:s": "p1"})
    assert cost == pytest.approx(300.0 * (FAR["p1", "p2"] + FAR["p1", "p3"]))  # bytes x ms
    assert delay == pytest.approx(12.0)


def test_shared_operators_move_for_their_readers_and_say_so() -> None:
    state = at(two(), f="p3", s="p3", g="p2", h="p3")
    state = replace(state, settings=replace(state.settings, replace_gain=0.05, replace_s=300.0))
    (proposal,) = [p for p in proposals(state) if p.query == "o:s"]
    assert proposal.moves.keys() == {"o:f", "o:s"}
    assert "what one and other share is placed anew" in proposal.sentence
    assert proposal.cost_then < proposal.cost_now


def test_the_ways_above_and_below_count_for_the_bound() -> None:
    """At p3 the shared operator would be late for the first of its readers."""
    state = at(two(latency_s=0.011), f="p2", s="p2", g="p2", h="p3")
    shared = by_id(state)["o:s"]
    assert shared.problem.latency_bound == pytest.approx(11.0)
    late = at(two(latency_s=0.011), f="p2", s="p2", g="p3", h="p3")  # the result goes on to p2
    assert by_id(late)["o:s"].problem.latency_bound == pytest.approx(7.0)
    assert by_id(late)["one"].problem.latency_bound == pytest.approx(1.0)  # a's way to p2 is 10
    assert shared.timed == ("p2",)
    assert propose_part(state, shared, {"o:f": "p1", "o:s": "p1"}, survey(state)).moves
    kept = propose_part(state, shared, {"o:f": "p3", "o:s": "p3"}, survey(state))
    assert not kept.moves
    assert "exceed the bound" in kept.sentence


def test_what_is_moved_twice_in_a_short_while_is_not() -> None:
    state = at(two(), f="p3", s="p3", g="p2", h="p3")
    shared = by_id(state)["o:s"]
    assert propose_part(state, shared, shared.cheapest(), survey(state)).moves
    assert not propose_part(state, shared, shared.cheapest(), survey(state), rests=True).moves


def test_a_shared_operator_with_a_reader_that_does_not_run_whole_stays() -> None:
    state = two()
    broken: dict[str, Query] = dict(state.queries)
    broken["other"] = replace(broken["other"], phase="deploying")
    assert "o:s" not in by_id(replace(state, queries=broken))
