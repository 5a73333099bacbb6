"""Queries as arrays, and what a placement makes of them, against sums by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.decide.balance.model.arrangement import (
    arrange,
    shared_work_s,
    traffic_bytes,
    unit_flows,
)
from millstream.decide.balance.model.dataflow import Dataflow, Stream, build
from millstream.decide.balance.model.fragments import fragment_query, single_operators
from millstream.decide.balance.model.operator_tree import Operator, QueryTree

STREAMS = (Stream("s", "h0", 100.0), Stream("t", "h1", 50.0))
RATES = {"s": 100.0, "t": 50.0}
TREE = QueryTree(
    "q",
    (
        Operator("f", ("s",), 2.0, 0.5),
        Operator("g", ("t",), 3.0, 0.2),
        Operator("j", ("f", "g"), 4.0, 0.5, window_s=10.0),
        Operator("h", ("j",), 1.0, 0.5),
    ),
)


def flow_of(*trees: QueryTree, split: bool = False) -> Dataflow:
    units = [f for tree in trees for f in fragment_query(tree, RATES)]
    return build(("h0", "h1"), STREAMS, single_operators(units) if split else units)


def test_shapes_of_edges() -> None:
    flow = flow_of(TREE)
    # Edges: s into q/s (f, j, h), t into q/t (g), q/t into q/s at j.
    assert flow.out_rows.tolist() == pytest.approx([0.125, 0.2, 0.25])
    assert flow.work_s.tolist() == pytest.approx([2 + 0.5 * 4 + 0.25, 3.0, 4.5])
    assert flow.result_work_s.tolist() == pytest.approx([7.0, 3.0, 5.0])
    assert flow.window_s.tolist() == pytest.approx([5.0, 0.0, 10.0])
    assert flow.unit_depth.tolist() == [0, 1]
    assert flow.path_evaluation_s().tolist() == pytest.approx([7.0, 8.0])


def test_apart_rows_cross_and_together_they_run_through() -> None:
    flow = flow_of(TREE)
    apart = arrange(flow, np.array([0, 1]))
    assert apart.crossing.tolist() == [False, False, True]
    assert apart.run_exit.tolist() == [-1, 2, -1]
    arrivals = np.array([100.0, 50.0, 10.0])
    assert traffic_bytes(apart, arrivals) == pytest.approx(10 * 100)
    together = arrange(flow, np.array([0, 0]))
    assert together.crossing.tolist() == [False, True, False]
    assert together.run_s.tolist() == pytest.approx([4.25, 3 + 0.2 * 4.5, 4.5])
    assert together.run_exit.tolist() == [-1, -1, -1]
    assert together.run_rows[1] == pytest.approx(0.05)


def test_readers_of_one_stream_on_one_host_share_the_row_and_wait_for_each_other() -> None:
    other = QueryTree("r", (Operator("k", ("s",), 6.0, 0.5),))
    flow = flow_of(TREE, other)
    host = np.array([1, 1, 1])  # both read s at h1: one copy crosses
    placed = arrange(flow, host)
    reads_s = flow.edge_stream == 0
    assert placed.bytes_share[reads_s].tolist() == [50.0, 50.0]
    assert placed.batch_wait_s[reads_s].tolist() == pytest.approx([3.0, 4.25 / 2])


def test_physical_operators_are_paid_once_and_split_among_their_users() -> None:
    same = [
        QueryTree(f"q{n}", (Operator(f"o{n}", ("s",), 6.0, 0.5, physical="p"),)) for n in range(3)
    ]
    flow = flow_of(*same)
    assert shared_work_s(flow, np.array([0, 0, 1])).tolist() == [3.0, 3.0, 6.0]
    assert shared_work_s(flow, np.array([0, 0, 0])).tolist() == [2.0, 2.0, 2.0]


@given(st.lists(st.integers(0, 1), min_size=4, max_size=4))
def test_loads_and_rows_do_not_depend_on_the_cut_or_the_placement(where: list[int]) -> None:
    whole, split = flow_of(TREE), flow_of(TREE, split=True)
    expected = 100 * 2 + 50 * 3 + 60 * 4 + 30 * 1
    for flow, host in ((whole, where[:2]), (split, where)):
        placed = arrange(flow, np.array(host))
        entering = np.zeros(flow.edges)
        for _ in range(6):  # arrivals settle hop by hop
            rows = unit_flows(flow, placed, entering)
            out = np.bincount(flow.edge_unit, rows * flow.out_rows, minlength=len(flow.units))
            fed = np.where(flow.edge_stream >= 0, 0.0, out[flow.edge_from])
            source = np.array([100.0, 50.0])[flow.edge_stream]
            entering = np.where(flow.edge_stream >= 0, source, fed)
        rows = unit_flows(flow, placed, entering)
        assert float((rows * placed.work_s).sum()) == pytest.approx(expected)
        # The same from the host's side: runs of what arrives.
        run = np.where(placed.entry, entering * placed.run_s, 0.0)
        assert float(run.sum()) == pytest.approx(expected)
