"""Equations (1) to (5) of seed 002."""

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.decide.balance.performance_ratio import (
    CONGESTION,
    PathOperator,
    PerformanceRatio,
    SourceRow,
    estimate,
    evaluation_times_s,
    observe,
    worst,
)

paths = st.lists(
    st.builds(
        PathOperator, st.floats(1e-6, 1e-3), st.floats(0.1, 3.0), st.sampled_from(["a", "b", "c"])
    ),
    min_size=1,
    max_size=8,
)


@given(paths, st.floats(0, 0.95))
def test_equal_loads_give_every_path_the_same_processing_part(
    path: list[PathOperator], load: float
) -> None:
    """Observation 1: with balanced load the ratio is f of that load for every query."""
    ratio = estimate(path, {"a": load, "b": load, "c": load}, 1e-4, 0)
    assert ratio.processing == pytest.approx(1 / (1 - load))
    assert ratio.communication == 0


@given(paths, st.integers(0, 5))
def test_communication_grows_with_transfers(path: list[PathOperator], transfers: int) -> None:
    whole = sum(evaluation_times_s(path))
    ratio = estimate(path, {"a": 0.5, "b": 0.2, "c": 0.9}, 1e-4, transfers)
    assert ratio.communication == pytest.approx(1e-4 * transfers / whole)
    assert ratio.total == ratio.processing + ratio.communication


@pytest.mark.parametrize("name", CONGESTION.names())
def test_congestion_is_one_when_idle_rises_and_is_convex(name: str) -> None:
    f = CONGESTION.get(name)
    values = [f(n / 20) for n in range(20)]
    steps = [b - a for a, b in pairwise(values)]
    assert values[0] == 1
    assert steps == sorted(steps)
    assert f(1.0) == inf


def test_only_rows_with_results_count_and_the_last_result_ends_the_delay() -> None:
    assert observe(SourceRow(0.0, (), 1.0)) is None
    assert observe(SourceRow(0.0, (4.0, 2.0), 1.0)) == PerformanceRatio(4.0, 0.0)


def test_the_worst_is_by_the_total() -> None:
    a, b = PerformanceRatio(5.0, 0.0), PerformanceRatio(3.0, 4.0)
    assert worst([a, b]) is b
    assert worst([]) is None


def test_a_path_without_work_has_no_finite_ratio() -> None:
    assert estimate([PathOperator(0.0, 1.0, "a")], {"a": 0.0}, 1.0, 1).total == inf
