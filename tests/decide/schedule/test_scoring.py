"""Equations 5.1 and 5.2, decay, and the trick of not re-scoring who has just run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.decide.schedule import TEMPLATES, Goal, Quality, Specification
from millstream.decide.schedule.facts import Delivery, StepReport
from millstream.decide.schedule.scoring import (
    ScoreBoard,
    goal_score,
    normalised,
    quality_score,
    standings,
)
from millstream.decide.schedule.statistics import PLAN, StatisticsGatherer

FRESH = Quality(TEMPLATES.get("fresh"))


def gathered() -> StatisticsGatherer:
    """FIFO delivers after 1 s, Chain after 3 s."""
    gatherer = StatisticsGatherer(old_weight=0.0)
    gatherer.observe({}, 0, 0.0)
    for time, algorithm, delay in ((1.0, "fifo", 1.0), (2.0, "chain", 3.0)):
        done = Delivery(1, delay, delay)
        gatherer.step(StepReport("a", 1, 1, 0.1, time, delivered=done), algorithm)
        gatherer.update(time, algorithm)
    return gatherer


@given(*[st.floats(-1e3, 1e3)] * 4, st.floats(0, 1))
@settings(deadline=None)
def test_z_stays_in_0_to_1(mean: float, history: float, a: float, b: float, faded: float) -> None:
    assert 0 <= normalised(mean, history, min(a, b), max(a, b), faded) <= 1


def test_z_is_the_middle_without_spread_and_fades_towards_it() -> None:
    assert normalised(5, 5, 5, 5, 1) == 0.5
    assert normalised(10, 0, 0, 10, 0.0) == 0.5
    assert normalised(10, 0, 0, 10, 1.0) == 1.0  # 1.5 as printed


def test_a_minimised_goal_prefers_the_lower_mean() -> None:
    gatherer = gathered()
    fifo = quality_score(FRESH, gatherer, "fifo")
    chain = quality_score(FRESH, gatherer, "chain")
    # History is the last value (w = 0): 3 s; spread 2 s; FIFO's z is (1 - 3) / 2 + 0.5, clamped.
    assert (fifo, chain) == (1.0, 0.5)
    assert quality_score(FRESH, gatherer, "mtiq") == 0.5  # nothing known


def test_scores_add_up_by_weight() -> None:
    spec = Specification((Goal("delay", "min", 0.25), Goal("mine", "max", 0.75)))
    # Of the other nothing is known: 0.25 * 1 + 0.75 * 0.5.
    assert quality_score(Quality(spec), gathered(), "fifo") == pytest.approx(0.625)


def test_a_maximised_goal_prefers_the_higher_mean() -> None:
    highest = Goal("delay", "max", 1.0)
    assert goal_score(highest, gathered(), "fifo", PLAN, 1.0) == 0.0


def test_a_limit_is_scored_by_attainment() -> None:
    spec = Quality(Specification((Goal("delay", "min", 1.0, limit=1.5),)))
    gatherer = gathered()
    assert quality_score(spec, gatherer, "fifo") == 1.0
    assert quality_score(spec, gatherer, "chain") == 0.5
    (standing,) = standings(spec, gatherer)
    assert (standing.value, standing.met) == (3.0, False)


def test_the_one_that_ran_keeps_its_old_score_and_fades() -> None:
    gatherer, board = gathered(), ScoreBoard()
    names = ("fifo", "chain")
    first = board.review(names, "chain", FRESH, gatherer, 2.0, 0.5, "time")
    assert first == {"fifo": 1.0, "chain": 0.5}
    board.chosen("fifo", 2.0)
    second = board.review(names, "fifo", FRESH, gatherer, 3.0, 0.5, "time")
    assert second["fifo"] == 0.75  # (1.0 - 0.5) * 0.5 + 0.5: not scored anew


def test_decay_by_time_and_by_choices() -> None:
    board = ScoreBoard()
    board.chosen("fifo", 10.0)
    board.chosen("chain", 11.0)
    board.chosen("chain", 12.0)
    assert board.faded("fifo", 13.0, 0.5, "time") == 0.125
    assert board.faded("fifo", 13.0, 0.5, "choices") == 0.25
    assert board.faded("never", 13.0, 0.5, "time") == 1.0
