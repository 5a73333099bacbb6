"""The experiments of seed 002 run quickly, deterministically, and give tidy rows and a plot."""

from pathlib import Path

import pytest

import millstream_lab as lab
from millstream.sim.plotting import new_figure, save
from millstream_lab.experiment import EXPERIMENTS
from millstream_lab.stored import as_stored, read_csv, write_csv

lab.load()
NAMES = [name for name in EXPERIMENTS.names() if name.startswith("placement-")]


def test_all_of_them_are_there() -> None:
    assert set(NAMES) >= {"placement-alpha", "placement-4", "placement-5", "placement-6"}


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS.get(name)
    rows = experiment.run(1, True, lambda _: None)
    keys = {tuple(row) for row in rows}
    assert len(keys) == 1  # tidy: the same columns in every row
    write_csv(rows, tmp_path / "rows.csv")
    again = read_csv(tmp_path / "rows.csv")
    findings = experiment.findings(again)
    assert findings
    assert all(finding.measured for finding in findings)
    figure = new_figure()
    experiment.plot(again, figure)
    save(figure, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5_000


def test_the_seeds_bound_on_alpha_comes_out() -> None:
    experiment = EXPERIMENTS.get("placement-alpha")
    findings = experiment.findings(as_stored(experiment.run(1, True, lambda _: None)))
    assert all(finding.holds for finding in findings)


def test_the_same_seed_gives_the_same_rows() -> None:
    run = EXPERIMENTS.get("placement-alpha").run
    assert run(2, True, lambda _: None) == run(2, True, lambda _: None)
    assert run(2, True, lambda _: None) != run(3, True, lambda _: None)
