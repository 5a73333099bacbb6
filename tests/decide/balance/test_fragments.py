"""Fragments by the five steps of seed 002, section 3.1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.errors import UsageError
from millstream.decide.balance.model.fragments import (
    fragment_query,
    initial_placement,
    neighbouring_factors,
    neighbours,
    single_operators,
)
from millstream.decide.balance.model.operator_tree import Operator, QueryTree


def filter_(name: str, below: str, selectivity: float = 0.5) -> Operator:
    return Operator(name, (below,), 2e-5, selectivity)


def join(name: str, left: str, right: str, selectivity: float = 0.5) -> Operator:
    return Operator(name, (left, right), 8e-5, selectivity, window_s=5.0)


# In the shape of figure 2: four streams, filters below, a filter between the joins.
FIGURE_2 = QueryTree(
    "q",
    (
        filter_("a1", "s1", 0.9),
        filter_("a2", "s2", 0.1),
        join("b12", "a1", "a2", 0.5),
        filter_("c", "b12", 0.2),
        filter_("a3", "s3", 0.5),
        join("b34", "a3", "s4"),
        join("top", "c", "b34"),
        filter_("last", "top"),
    ),
)
RATES = {"s1": 100.0, "s2": 100.0, "s3": 100.0, "s4": 100.0}


def parts(tree: QueryTree, rates: dict[str, float]) -> dict[str, tuple[str, ...]]:
    found = fragment_query(tree, rates)
    return {f.stream: tuple(operator.id for operator in f.operators) for f in found}


def test_unary_operators_stay_with_their_stream_and_joins_go_with_the_larger_side() -> None:
    assert parts(FIGURE_2, RATES) == {
        "s1": ("a1", "b12", "c"),
        "s2": ("a2",),
        "s3": ("a3",),
        "s4": ("b34", "top", "last"),  # 75 rows a second against 10 of the other side
    }


def test_who_feeds_whom_and_where() -> None:
    by_stream = {f.stream: f for f in fragment_query(FIGURE_2, RATES)}
    assert (by_stream["s2"].downstream, by_stream["s2"].entry) == ("q/s1", 1)
    assert (by_stream["s3"].downstream, by_stream["s3"].entry) == ("q/s4", 0)
    assert (by_stream["s1"].downstream, by_stream["s1"].entry) == ("q/s4", 1)
    assert by_stream["s4"].downstream is None
    assert neighbours(by_stream.values())["q/s4"] == ("q/s1", "q/s3")


def test_the_estimated_rates_decide() -> None:
    rates = {**RATES, "s2": 10_000.0}
    assert parts(FIGURE_2, rates)["s2"][:3] == ("a2", "b12", "c")


def test_a_tie_goes_to_the_left_side() -> None:
    tree = QueryTree("q", (join("j", "s1", "s2"),))
    assert parts(tree, RATES) == {"s1": ("j",), "s2": ()}


def test_a_self_join_gives_a_fragment_for_each_side() -> None:
    tree = QueryTree("q", (filter_("f", "s1"), join("j", "f", "s1")))
    found = fragment_query(tree, RATES)
    assert [f.id for f in found] == ["q/s1", "q/s1#2"]
    assert found[0].downstream == "q/s1#2"


def test_initial_placement_is_at_the_delegation_nodes() -> None:
    delegation = {"s1": "n1", "s2": "n2", "s3": "n1", "s4": "n3"}
    found = fragment_query(FIGURE_2, RATES)
    assert initial_placement(found, delegation)["q/s2"] == "n2"
    with pytest.raises(UsageError, match="no delegation node"):
        initial_placement(found, {"s1": "n1"})


def test_neighbouring_factors_count_pairs_between_native_nodes() -> None:
    delegation = {"s1": "n1", "s2": "n2", "s3": "n1", "s4": "n3"}
    factors = neighbouring_factors(fragment_query(FIGURE_2, RATES), delegation)
    assert factors == {"n1": {"n2": 1, "n3": 2}, "n2": {"n1": 1}, "n3": {"n1": 2}}


def test_single_operators_keep_the_dataflow() -> None:
    units = {u.id: u for u in single_operators(fragment_query(FIGURE_2, RATES))}
    assert len(units) == len(FIGURE_2.operators)
    assert units["q/s2:a2"].downstream == "q/s1:b12"
    assert units["q/s1:c"].downstream == "q/s4:top"
    assert [u.id for u in units.values() if u.reads_stream] == [
        "q/s1:a1",
        "q/s2:a2",
        "q/s3:a3",
        "q/s4:b34",
    ]


@st.composite
def trees(draw: st.DrawFn) -> QueryTree:
    tops = [f"s{n}" for n in range(1, draw(st.integers(1, 5)) + 1)]
    operators: list[Operator] = []
    filters = draw(st.integers(0 if len(tops) > 1 else 1, 4))
    while len(tops) > 1 or filters:
        if len(tops) > 1 and (not filters or draw(st.booleans())):
            right = tops.pop(draw(st.integers(0, len(tops) - 1)))
            left = tops.pop(draw(st.integers(0, len(tops) - 1)))
            made = join(f"o{len(operators)}", left, right, draw(st.floats(0.1, 1.5)))
        else:
            filters -= 1
            below = tops.pop(draw(st.integers(0, len(tops) - 1)))
            made = filter_(f"o{len(operators)}", below, draw(st.floats(0.1, 1.0)))
        operators.append(made)
        tops.append(made.id)
    return QueryTree("q", tuple(draw(st.permutations(operators))))


@given(trees(), st.dictionaries(st.sampled_from(["s1", "s2", "s3", "s4", "s5"]), st.floats(1, 999)))
def test_every_operator_is_in_one_fragment_and_each_fragment_is_a_path(
    tree: QueryTree, changed: dict[str, float]
) -> None:
    rates = {**RATES, "s5": 100.0, **changed}
    found = fragment_query(tree, rates)
    assert len(found) == len(tree.streams)  # the distribution limit
    held = [operator.id for f in found for operator in f.operators]
    assert sorted(held) == sorted(operator.id for operator in tree.operators)
    out = tree.output_rates(rates)
    by_id = {f.id: f for f in found}
    for f in found:
        below = f.stream
        for operator in f.operators:
            assert below in operator.inputs
            assert out[below] == max(out[name] for name in operator.inputs)  # the larger side
            below = operator.id
        if f.downstream is not None:
            target = by_id[f.downstream]
            assert below in target.operators[f.entry].inputs
    assert sum(f.downstream is None for f in found) == 1
