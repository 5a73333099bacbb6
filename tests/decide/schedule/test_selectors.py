"""Who chooses the algorithm: the wheel's fairness, and what foresight foresees."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from millstream.decide.schedule import (
    OperatorView,
    Quality,
    Scheduler,
    ScheduleSettings,
    StepReport,
)
from millstream.decide.schedule.algorithms import ALGORITHMS
from millstream.decide.schedule.holding import outlook
from millstream.decide.schedule.plans import graph_of
from millstream.decide.schedule.protocol import Algorithm, Review, Situation
from millstream.decide.schedule.quality import DEFAULT, TEMPLATES, Goal, Specification
from millstream.decide.schedule.selectors import SELECTORS
from millstream.decide.schedule.selectors.foresight import foreseen_cost
from millstream.decide.schedule.selectors.roulette import Roulette
from millstream.decide.schedule.statistics import StatisticsGatherer
from millstream.decide.schedule.workload import adapted_workload

# A leaf that removes nearly everything cheaply, and an expensive root.
LINE = [
    OperatorView(
        "leaf", 400, oldest=0.0, consumers=("root",), row_cost_s=1e-3, row_selectivity=0.1
    ),
    OperatorView(
        "root", 300, oldest=0.0, producers=("leaf",), row_cost_s=1e-2, row_selectivity=1.0
    ),
]


def situation(quality: Quality = DEFAULT) -> Situation:
    gatherer = StatisticsGatherer()
    by_id = {view.id: view for view in LINE}
    gatherer.observe(by_id, 700, 0.0)
    gatherer.update(1.0, "fifo", ("leaf",))
    return Situation(
        1.0, LINE, by_id, graph_of(LINE), gatherer, ScheduleSettings(), quality, quality.goals
    )


def review(scores: dict[str, float]) -> Review:
    names = tuple(scores)
    return Review(
        situation(),
        names[0],
        names,
        lambda: scores,
        Random(4),
        lambda n: ALGORITHMS.get(n)(),
    )


def spun(wheel: Roulette, asked: Review, times: int) -> Counter[str]:
    return Counter(wheel.select(asked).algorithm for _ in range(times))


def test_the_wheel_chooses_in_proportion_to_scores_after_exploring() -> None:
    wheel, asked = Roulette(), review({"fifo": 0.6, "mtiq": 0.3, "chain": 0.1})
    explored = [wheel.select(asked).algorithm for _ in range(5)]
    assert explored == ["fifo", "fifo", "mtiq", "chain", "fifo"]
    counts = spun(wheel, asked, 4000)
    assert counts["fifo"] / 4000 == pytest.approx(0.6, abs=0.03)
    assert counts["chain"] / 4000 == pytest.approx(0.1, abs=0.02)


def test_the_wheel_turns_without_any_score() -> None:
    wheel = Roulette()
    asked = review({"fifo": 0.0, "mtiq": 0.0})
    spun(wheel, asked, 4)
    assert set(spun(wheel, asked, 100)) == {"fifo", "mtiq"}


@pytest.mark.parametrize("name", SELECTORS.names())
def test_a_selector_names_a_candidate_and_gives_a_reason(name: str) -> None:
    selector = SELECTORS.get(name)()
    for _ in range(12):
        verdict = selector.select(review({"fifo": 0.4, "chain": 0.6}))
        assert verdict.algorithm in ("fifo", "chain")
        assert verdict.reason


def test_holding_costs_follow_the_goals() -> None:
    small = outlook(situation(Quality(TEMPLATES.get("small"))))
    assert small.cost["leaf"] == small.cost["root"]  # a row is a row
    fresh = outlook(situation(Quality(TEMPLATES.get("fresh"))))
    assert fresh.cost["leaf"] == pytest.approx(0.1 * fresh.cost["root"])  # a tenth of a result
    assert fresh.results == {"root": 1.0, "leaf": pytest.approx(0.1)}
    assert fresh.seconds["leaf"] == pytest.approx(1e-3 + 0.1 * 1e-2)


def test_foresight_sees_that_chain_saves_memory_and_fifo_time() -> None:
    def cost(algorithm: str, template: str) -> float:
        at = situation(Quality(TEMPLATES.get(template)))
        member = ALGORITHMS.get(algorithm)()
        member.refresh(at)
        return foreseen_cost(member, at, outlook(at), 100)

    assert cost("chain", "small") < cost("fifo", "small")
    assert cost("cost_aware", "fresh") < cost("chain", "fresh")


def test_foresight_does_not_disturb_the_algorithms_it_imagines() -> None:
    scheduler = Scheduler(ScheduleSettings(candidates=("round_robin", "fifo")))
    imagined = scheduler._imagine("round_robin")
    at = situation()
    foreseen_cost(imagined, at, outlook(at), 5)

    def first(algorithm: Algorithm) -> str:
        return next(iter(algorithm.rank(at))).operator

    assert first(imagined) != first(scheduler._imagine("round_robin")) == "leaf"


def test_foresight_keeps_the_algorithm_while_next_to_nothing_waits() -> None:
    scheduler = Scheduler(ScheduleSettings(candidates=("fifo", "chain"), scoring_s=0.5))
    views = [OperatorView("leaf", 3, oldest=0.0)]
    for step in range(30):
        choice = scheduler.choose(views, step * 0.2)
        assert choice is not None
        scheduler.report(StepReport("leaf", 3, 3, 0.2, step * 0.2 + 0.2, choice.number))
    assert scheduler.switches <= 2


def costing(fixed_s: float, quality: Quality, *, in_flight_counts: bool) -> Situation:
    """The line with so much fixed cost a step."""
    at = situation(quality)
    at.views = [replace(view, fixed_cost_s=fixed_s) for view in LINE]
    at.in_flight_counts = in_flight_counts
    return at


@pytest.mark.parametrize("in_flight_counts", [True, False])
def test_awaited_results_get_fine_steps_as_far_as_fixed_costs_allow(
    in_flight_counts: bool,
) -> None:
    fresh = Quality(TEMPLATES.get("fresh"))
    cheap = adapted_workload(costing(1e-4, fresh, in_flight_counts=in_flight_counts))
    assert cheap.ratio == 0.3
    assert cheap.threshold_rows == pytest.approx(1e-4 * 0.995 / (0.005 * 1e-3))  # the leaf's
    # A step on Spark: THRESHOLD as set, for finer ones would cost more than they give.
    dear = adapted_workload(costing(0.1, fresh, in_flight_counts=in_flight_counts))
    assert (dear.ratio, dear.threshold_rows) == (0.3, 50)


def test_steps_for_memory_depend_on_whether_running_rows_count() -> None:
    small = Quality(TEMPLATES.get("small"))
    assert adapted_workload(costing(1e-4, small, in_flight_counts=True)).threshold_rows < 50
    assert adapted_workload(costing(1e-4, small, in_flight_counts=False)).ratio == 1.0


@pytest.mark.parametrize(("adapt", "rows"), [(True, 400), (False, 120)])
def test_the_scheduler_takes_the_workload_its_selector_wants(adapt: bool, rows: int) -> None:
    settings = ScheduleSettings(candidates=("fifo",), adapt_workload=adapt)
    scheduler = Scheduler(settings, Quality(TEMPLATES.get("small")))
    scheduler.in_flight_counts = False
    leaf = OperatorView("leaf", 400, oldest=0.0)
    taken = []
    for second in range(4):
        choice = scheduler.choose([leaf], float(second))
        assert choice is not None
        taken.append(choice.rows)
        scheduler.report(StepReport("leaf", 10, 10, 0.5, second + 0.5, choice.number))
    assert taken[0] == 120  # nothing measured yet: RATIO as set
    assert taken[-1] == rows


def test_goals_that_cannot_be_foreseen_are_judged_by_scores() -> None:
    idle = Quality(Specification((Goal("busy", "minimise", 1.0),)))
    foresight = SELECTORS.get("foresight")()
    asked = review({"fifo": 0.4, "mtiq": 0.7, "chain": 0.5})
    assert "foreseen cost" in foresight.select(asked).reason
    asked.situation = situation(idle)
    explored = [foresight.select(asked).algorithm for _ in range(5)]
    assert explored == ["fifo", "fifo", "mtiq", "chain", "fifo"]
    verdict = foresight.select(asked)
    assert (verdict.algorithm, "score 0.700" in verdict.reason) == ("mtiq", True)
    asked.scores = lambda: {"fifo": 0.69, "mtiq": 0.7, "chain": 0.5}
    assert foresight.select(asked).algorithm == "fifo"  # in charge, and as good
