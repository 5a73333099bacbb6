"""The network experiments run quickly, give tidy rows and findings, and can be plotted."""

from pathlib import Path
from typing import Any

import pytest

from millstream.sim.plotting import new_figure, save
from millstream.sim.topologies.transit_stub import TransitStub
from millstream_lab.experiment import EXPERIMENTS
from millstream_lab.network import analysis as network_analysis
from millstream_lab.network import compare as network_compare
from millstream_lab.network import real as network_real
from millstream_lab.network import selectivity as network_selectivity
from millstream_lab.network import setup as network_setup
from millstream_lab.network import shape as network_shape
from millstream_lab.stored import as_stored, read_csv, write_csv

NAMES = [*(f"network-{number}" for number in range(5, 13)), "network-real"]
TINY = network_setup.Scale(
    1, 1, TransitStub(transit_domains=6, transit_nodes=(1, 2), stubs_per_transit_node=(2, 2))
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: Any) -> None:
    monkeypatch.setattr(network_setup, "QUICK", TINY)
    monkeypatch.setattr(network_real, "QUICK_NETWORKS", ("cloud-regions",))
    for cache in (
        network_compare._compared, network_shape._shaped, network_selectivity._selective,
    ):  # fmt: skip
        cache.clear()


def test_all_figures_are_there() -> None:
    assert network_analysis.DEPTHS == (2, 3, 4, 5)
    assert set(NAMES) <= set(EXPERIMENTS.names())


@pytest.mark.parametrize("name", NAMES)
def test_runs_are_tidy_and_say_what_the_seed_claims(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS.get(name)
    lines: list[str] = []
    rows = experiment.run(3, True, lines.append)
    assert lines
    keys = [list(row) for row in rows]
    assert all(key == keys[0] for key in keys)
    for row in rows:
        assert row["placed"] <= row["trees"]
        if row["placed"] and name != "network-real":
            assert 0 <= row["ratio"] <= 1 + 1e-9 or row["planner"] == "edge"
            assert row["at_proxy"] + row["at_sources"] + row["inside"] == pytest.approx(1.0)
    write_csv(rows, tmp_path / "rows.csv")
    again = read_csv(tmp_path / "rows.csv")
    assert again == as_stored(rows)
    assert len(experiment.findings(again)) == len(experiment.claims) > 0
    figure = new_figure()
    experiment.plot(again, figure)
    save(figure, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000


def test_the_optimum_is_never_above_a_heuristic() -> None:
    rows = network_compare.compared(4, True, lambda line: None)
    labels = ("topology", "tree", "arrangement", "bound", "sources_a_node")
    best = {
        tuple(r[label] for label in labels): r["ratio"]
        for r in rows
        if r["planner"] == "optimal_tree"
    }
    for row in rows:
        key = tuple(row[label] for label in labels)
        if row["feasible"]:
            assert row["ratio"] >= best[key] - 1e-9


def test_runs_are_functions_of_their_seed() -> None:
    first = network_shape.run_spread(5, True, lambda line: None)
    again = network_shape.run_spread(5, True, lambda line: None)
    assert first == again
    assert first != network_shape.run_spread(6, True, lambda line: None)
