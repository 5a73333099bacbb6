"""SQPR's experiments: all there, and the quick ones run, agree with themselves and draw."""

from pathlib import Path

import pytest

import millstream_lab as lab
from millstream.sim.plotting import new_figure, save
from millstream_lab.claims import measured
from millstream_lab.experiment import EXPERIMENTS
from millstream_lab.stored import as_stored

PANELS = ("4a", "4b", "4c", "5a", "5b", "5c", "6a", "6b", "7a", "7b", "7c")
NAMES = tuple(f"sqpr-{panel}" for panel in PANELS)
FAST = ("sqpr-5c", "sqpr-7a", "sqpr-7b", "sqpr-7c")


def silent(_: str) -> None:
    """Takes progress and says nothing."""


def test_every_panel_is_registered() -> None:
    lab.load()
    assert set(NAMES) <= set(EXPERIMENTS.names())


@pytest.mark.parametrize("name", FAST)
def test_a_quick_run_gives_tidy_rows_findings_and_a_plot(name: str, tmp_path: Path) -> None:
    lab.load()
    experiment = EXPERIMENTS.get(name)
    rows = as_stored(experiment.run(1, True, silent))
    assert rows
    assert all(set(row) == set(rows[0]) for row in rows)
    findings = experiment.findings(rows)
    assert findings
    assert all(finding.holds or finding.reason for finding in findings)
    figure = new_figure()
    experiment.plot(rows, figure)
    save(figure, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(FAST)))
def test_the_slower_quick_runs(name: str) -> None:
    lab.load()
    assert EXPERIMENTS.get(name).run(1, True, silent)


def test_sqpr_admits_more_than_soda() -> None:
    lab.load()
    experiment = EXPERIMENTS.get("sqpr-7a")
    bound = experiment.claims[0].bound
    assert bound.contains(measured(bound, as_stored(experiment.run(3, True, silent))))
