"""The benchmark of left joins and top-N: its verdict, its queries in both languages; no Spark."""

import pytest

from millstream_bench.throughput.outer import verdict
from millstream_bench.throughput.workload import cql

COSTS = {"plain left": 20.0, "ours left": 10.0, "ours join": 8.0, "ours top": 4.0}


@pytest.mark.parametrize(
    ("changed", "met"),
    [({}, True), ({"ours left": 21.0}, False), ({"ours top": 16.5}, False)],
)
def test_both_targets_must_be_met(changed: dict[str, float], met: bool) -> None:
    costs = {name: [(cpu, 2 * cpu), (cpu + 1, cpu)] for name, cpu in (COSTS | changed).items()}
    equal = dict.fromkeys(costs, True)
    told: list[str] = []
    figures = verdict(400_000, costs, equal, told.append)
    assert figures["met"] is met
    assert told[-1] == ("met" if met else "missed")


def test_wrong_rows_meet_nothing() -> None:
    costs = {name: [(cpu, cpu)] for name, cpu in COSTS.items()}
    told: list[str] = []
    equal = {name: name != "ours left" for name in COSTS}
    assert not verdict(400_000, costs, equal, told.append)["met"]
    assert [line.split()[:2] for line in told if "WRONG ROWS" in line] == [["ours", "left"]]


def test_the_left_join_is_the_inner_one_but_for_its_kind() -> None:
    assert cql("left", 5.0).replace("LEFT JOIN", "JOIN") == cql("join", 5.0)
