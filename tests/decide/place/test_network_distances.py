"""Measured distances: smoothing, staleness, asymmetry, completion."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.decide.place.network.distances import (
    Estimates,
    completed,
    shortest_paths,
)


def test_estimates_follow_their_samples_and_shrug_off_an_outlier() -> None:
    known = Estimates()
    for second in range(40):
        known = known.observe_one_way("a", "b", 20.0, second)
    spike = known.observe_one_way("a", "b", 400.0, 41)
    assert known.pairs["a", "b"].mean_ms == pytest.approx(20.0)
    assert spike.pairs["a", "b"].mean_ms == pytest.approx(20.0 + 380.0 / 8)
    for second in range(60):
        spike = spike.observe_one_way("a", "b", 50.0, 42 + second)
    assert spike.pairs["a", "b"].mean_ms == pytest.approx(50.0, rel=0.02)


def test_directions_may_differ_and_round_trips_give_way_to_one_way_samples() -> None:
    known = Estimates().observe_round_trip("a", "b", 30.0, 0.0)
    assert known.matrix("ab", 0.0).tolist() == [[0.0, 15.0], [15.0, 0.0]]
    known = known.observe_one_way("a", "b", 25.0, 1.0)
    assert known.matrix("ab", 1.0).tolist() == [[0.0, 25.0], [15.0, 0.0]]
    known = known.observe_round_trip("a", "b", 100.0, 2.0)
    assert known.pairs["a", "b"].mean_ms == 25.0
    assert known.pairs["b", "a"].mean_ms > 15.0


def test_stale_and_impossible_samples_do_not_count() -> None:
    known = Estimates(horizon_s=10.0).observe_one_way("a", "b", 5.0, 0.0)
    assert known.matrix("ab", 10.0)[0, 1] == 5.0
    assert np.isnan(known.matrix("ab", 11.0)[0, 1])
    assert known.observe_one_way("a", "b", 9.0, 20.0).pairs["a", "b"].mean_ms == 9.0
    assert known.observe_one_way("a", "b", -1.0, 1.0) == known
    assert known.observe_one_way("a", "a", 1.0, 1.0) == known


def test_the_next_probes_are_the_unknown_then_the_oldest() -> None:
    known = (
        Estimates().observe_round_trip("a", "b", 1.0, 5.0).observe_round_trip("b", "c", 1.0, 2.0)
    )
    assert known.wanted("cab", 2) == (("a", "c"), ("b", "c"))
    assert known.forget("c").wanted("abc", 9) == (("a", "c"), ("b", "c"), ("a", "b"))


@given(st.integers(0, 1000), st.floats(0.0, 0.9))
@settings(max_examples=60, deadline=None)
def test_completion_keeps_what_was_measured_and_leaves_no_reachable_gap(
    seed: int, missing: float
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(1, 9, (6, 6))
    matrix[rng.uniform(size=(6, 6)) < missing] = np.nan
    np.fill_diagonal(matrix, 0.0)
    filled = completed(matrix)
    measured = ~np.isnan(matrix)
    assert np.array_equal(filled[measured], matrix[measured])
    links = np.where(np.isnan(matrix), matrix.T, matrix)
    shortest = shortest_paths(np.where(np.isnan(links), np.inf, links))
    assert np.array_equal(np.isnan(filled), np.isinf(shortest))
    gaps = np.isnan(links) & ~np.isnan(filled)
    assert np.allclose(filled[gaps], shortest[gaps])
