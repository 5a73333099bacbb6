"""Experiments of seed 000: named as the notes name them, repeatable, honest about what differs."""

import pytest

import millstream_lab as lab
from millstream.sim.plotting import new_figure, save
from millstream_lab.claims import measured
from millstream_lab.dcape.redistribution import world_cup
from millstream_lab.experiment import EXPERIMENTS
from millstream_lab.stored import as_stored

VIRTUAL = (
    *("4.5", "5.2", "5.4", "5.5", "5.6", "5.7", "5.8", "5.9", "5.10", "5.11", "5.12", "5.14"),
    *("5.15", "5.16", "6.3", "6.4", "6.5", "6.6"),
)
REAL = ("t3.2", "4.3", "4.4", "4.6", "4.8", "4.9", "4.10")  # on processes, or on Spark
lab.load()


@pytest.mark.parametrize("name", VIRTUAL + REAL)
def test_every_experiment_of_the_notes_exists(name: str) -> None:
    assert EXPERIMENTS.get(f"dcape-{name}").seed_work == "dcape"


@pytest.mark.parametrize("name", ["4.5", "5.2", "6.3"])
def test_quick_runs_repeat_and_plot(name: str, tmp_path: object) -> None:
    experiment = EXPERIMENTS.get(f"dcape-{name}")
    rows = experiment.run(1, True, lambda text: None)
    assert rows
    assert len({tuple(row) for row in rows}) == 1  # tidy: the same keys everywhere
    claims = [(claim, measured(claim.bound, as_stored(rows))) for claim in experiment.claims]
    assert all(claim.bound.contains(value) for claim, value in claims), claims
    figure = new_figure()
    experiment.plot(rows, figure)
    save(figure, tmp_path / "figure.png")  # type: ignore[operator]
    assert experiment.run(1, True, lambda text: None) == rows


def test_the_world_cup_pattern_has_the_mean_asked_for() -> None:
    first, second = world_cup(1, 30), world_cup(2, 30, 1.5)
    assert sum(first.minutes) / 30 == pytest.approx(1.0)
    assert sum(second.minutes) / 30 == pytest.approx(1.5)
    assert first.minutes != second.minutes
    assert world_cup(1, 30) == first


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in VIRTUAL if name not in ("4.5", "5.2", "6.3")])
def test_quick_runs_of_the_rest(name: str) -> None:
    experiment = EXPERIMENTS.get(f"dcape-{name}")
    findings = experiment.findings(as_stored(experiment.run(1, True, lambda text: None)))
    assert all(f.holds or f.reason for f in findings)
