"""The scheduling experiments: they run, repeat by seed, and the seed's main claims come out."""

from dataclasses import replace
from math import isfinite

import pytest

import millstream_lab as lab
from millstream_lab.experiment import EXPERIMENTS
from millstream_lab.raindrop.runs import (
    PLANS,
    START_UP_S,
    counting_in_flight,
    run_plan,
    score,
    specification,
    weightings,
)
from millstream_lab.raindrop.selectors import compare
from millstream_lab.stored import as_stored

lab.load()


def silent(_: str) -> None:
    pass


@pytest.mark.parametrize("name", ["raindrop-t1.1", "raindrop-t1.2", "raindrop-1.3"])
def test_tables_come_out(name: str) -> None:
    experiment = EXPERIMENTS.get(name)
    rows = as_stored(experiment.run(1, True, silent))
    keys = list(rows[0])
    assert all(list(row) == keys for row in rows)
    assert experiment.findings(rows)[0].holds


def test_figure_6_2_chain_is_best_in_memory_fifo_in_delay_and_mtiq_worst() -> None:
    experiment = EXPERIMENTS.get("raindrop-6.2")
    rows = experiment.run(1, True, silent)
    memory, delay, fifo = experiment.findings(as_stored(rows))
    assert "(chain " in memory.measured
    assert "(fifo " in delay.measured
    assert "mtiq" in delay.measured.rsplit(", ", 1)[1]
    assert fifo.verdict == "not comparable"  # 40 seconds of 300
    assert rows == experiment.run(1, True, silent)


def test_every_experiment_of_the_seed_is_there() -> None:
    names = {name for name in EXPERIMENTS.names() if name.startswith("raindrop")}
    figures = {f"raindrop-6.{n}" for n in range(2, 8)}
    assert names >= figures | {"raindrop-t1.1", "raindrop-t1.2", "raindrop-1.3", "raindrop-7.1"}


def test_weightings_are_those_of_section_6_1() -> None:
    names = [spec.name for spec in weightings()]
    assert len(names) == len(set(names)) == 13
    assert "delay 70% rate 30%" in names
    assert "delay 33% rate 34% memory 33%" in names


def test_start_up_is_left_out_and_scores_compare_runs() -> None:
    goals = specification(delay=1.0)
    runs = [run_plan(PLANS[1], name, goals, 1, 25) for name in ("fifo", "mtiq")]
    assert runs[0].samples[0].second == int(START_UP_S) == 11
    best = min(runs, key=lambda run: run.delay)
    strict = {run.contender: score(run, goals, runs, strict=True) for run in runs}
    assert strict[best.contender] == pytest.approx(1.0)
    assert min(strict.values()) == pytest.approx(0.0)
    assert score(best, goals, runs, strict=False) >= 0.5


def test_a_run_that_is_better_than_every_single_algorithm_scores_more_than_the_best() -> None:
    """Clamped to the scale of 5.1 both would score 1, and the difference would not show."""
    goals = specification(delay=1.0)
    runs = [run_plan(PLANS[1], name, goals, 1, 25) for name in ("fifo", "mtiq")]
    best = min(runs, key=lambda run: run.delay)
    better = replace(best, delay=best.delay / 2)
    worse = replace(best, delay=1e6)
    found = [score(run, goals, runs, strict=True) for run in (better, best, worse)]
    assert found[0] > found[1] > 0 > found[2]


def test_running_rows_can_be_counted_afterwards_where_the_scheduler_does_not_look() -> None:
    goals = specification(memory=1.0)
    for name in ("chain", "roulette", "cost_aware"):
        queues = run_plan(PLANS[1], name, goals, 2, 20)
        counted = run_plan(PLANS[1], name, goals, 2, 20, count_in_flight=True)
        assert counting_in_flight(queues).memory == pytest.approx(counted.memory)
        assert counting_in_flight(counted).memory == counted.memory > queues.memory
        assert queues.delay == counted.delay


def test_the_default_selector_stays_near_the_best_single_algorithm() -> None:
    """The quick form of raindrop-selectors: one seed, both plans, three weightings."""
    rows = []
    for plan in PLANS:
        goals = [specification(delay=1.0), specification(memory=1.0), weightings()[-1]]
        rows += compare(plan, 1, 25, goals)
    assert all(isfinite(float(str(row["score"]))) for row in rows)
    mine = [
        float(str(row["relative"]))
        for row in rows
        if (row["selector"], row["spread"]) == ("foresight", "seconds")
    ]
    assert len(mine) == 24  # two yardsticks, two ways of counting memory
    assert min(mine) > -0.05
    assert sum(value > 0 for value in mine) >= 12
    wheel = [row for row in rows if row["selector"] == "roulette"]
    assert len(wheel) == len(rows) / 2
    assert len(EXPERIMENTS.get("raindrop-selectors").findings(as_stored(rows))) == 24


@pytest.mark.soak
def test_the_default_selector_over_all_weightings_and_twenty_seeds() -> None:
    experiment = EXPERIMENTS.get("raindrop-selectors")
    default = [
        finding
        for finding in experiment.findings(as_stored(experiment.run(1, False, print)))
        if finding.claim.startswith("[foresight]") and "(spread of seconds)" in finding.claim
    ]
    assert len(default) == 4  # against the seed's four, and against all single algorithms
    assert all(finding.holds for finding in default), default
