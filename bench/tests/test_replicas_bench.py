"""What replicas cost is measured on right results, and a dear copy misses the target."""

import doctest

import pytest

from millstream_bench.cluster import replicas


def test_the_verdict_follows_the_figures() -> None:
    told = replicas._told({1: [100.0, 110.0, 90.0], 2: [90.0, 88.0, 95.0]}, True, lambda _: None)
    assert (told["cost"], told["met"]) == (0.1, True)
    assert not replicas._told({1: [100.0], 2: [80.0]}, True, lambda _: None)["met"]
    assert not replicas._told({1: [100.0], 2: [100.0]}, False, lambda _: None)["met"]


def test_a_row_that_is_missing_or_doubled_is_noticed() -> None:
    side = replicas.Side.__new__(replicas.Side)
    side._sent = 2
    side._read = [0, 10]
    assert side.is_right(10)
    side._read = [0, 10, 10]
    assert not side.is_right(10)
    side._read = [0]
    assert not side.is_right(10)


def test_examples_in_the_text() -> None:
    found = doctest.testmod(replicas)
    assert found.attempted
    assert not found.failed


@pytest.mark.soak
@pytest.mark.process
def test_both_sides_give_right_results() -> None:
    assert replicas.run(quick=True)["right"]
