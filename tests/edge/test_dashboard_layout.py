"""Places of the dataflow's nodes: from left to right, none on another, the same every time."""

import doctest
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from millstream.edge.dashboard import layout
from millstream.edge.dashboard.layout import FOLD, ROW, Shape, place, shape_of
from millstream_bench.pages.synthetic_system import SyntheticSystem


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    count = draw(st.integers(1, 60))
    nodes = tuple(f"n{i}" for i in range(count))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = draw(st.lists(pairs.filter(lambda p: p[0] < p[1]), max_size=100, unique=True))
    bands = draw(st.lists(st.sampled_from("pqr"), min_size=count, max_size=count))
    return Shape(
        nodes, tuple((nodes[a], nodes[b]) for a, b in edges), dict(zip(nodes, bands, strict=True))
    )


@given(shapes())
def test_rows_flow_to_the_right_and_no_node_hides_another(shape: Shape) -> None:
    places = place(shape)
    assert set(places) == set(shape.nodes)
    assert len(set(places.values())) == len(shape.nodes)
    for source, target in shape.edges:
        assert places[source][0] < places[target][0]
    assert place(shape) == places


@given(shapes())
def test_processors_are_bands_that_do_not_meet(shape: Shape) -> None:
    places = place(shape)
    spans = {}
    for node, (_, y) in places.items():
        low, high = spans.get(shape.band[node], (y, y))
        spans[shape.band[node]] = (min(low, y), max(high, y))
    ordered = sorted(spans.values())
    assert all(a[1] < b[0] for a, b in pairwise(ordered))


def test_a_large_system_is_folded() -> None:
    snapshot = SyntheticSystem(queries=50, operators=2000, processors=1).snapshot()
    places = place(shape_of(snapshot))
    assert len(places) == 2020
    assert max(y for _, y in places.values()) <= FOLD * ROW


def test_edges_to_what_is_not_there_are_left_out() -> None:
    snapshot = SyntheticSystem(queries=3, operators=8, processors=2).snapshot()
    gone = {o.id for o in snapshot.operators[:2]}
    from dataclasses import replace  # noqa: PLC0415

    shape = shape_of(replace(snapshot, operators=snapshot.operators[2:]))
    assert not any(a in gone or b in gone for a, b in shape.edges)


def test_examples_in_the_text() -> None:
    assert doctest.testmod(layout).failed == 0
