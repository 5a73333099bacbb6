"""The facade: slots, reports, reviews, starvation, goals that change, traces."""

from itertools import pairwise

import pytest

from millstream.core.errors import UsageError
from millstream.decide.schedule import (
    TEMPLATES,
    Choice,
    Delivery,
    Goal,
    OperatorView,
    Quality,
    Scheduler,
    ScheduleSettings,
    Specification,
    StepReport,
    Switch,
)
from millstream.decide.schedule.selectors.exploration import Exploration

BOTH = [OperatorView("a", 100, oldest=0.0, consumers=("b",)), OperatorView("b", 5, oldest=1.0)]


def drive(scheduler: Scheduler, until: float, *, step_s: float = 0.1) -> list[Choice]:
    """Steps of equal length on queues that never change."""
    made, now = [], 0.0
    while now < until:
        choice = scheduler.choose(BOTH, now)
        assert choice is not None
        made.append(choice)
        now += step_s
        done = Delivery(1, 2.0, 2.0)
        scheduler.report(
            StepReport(choice.operator, 10, 5, step_s, now, choice.number, delivered=done)
        )
    return made


def test_an_operator_in_flight_is_not_chosen_again_and_slots_are_kept() -> None:
    scheduler = Scheduler(ScheduleSettings(candidates=("mtiq",), selector="fixed", slots=2))
    one, two = scheduler.choose(BOTH, 0.0), scheduler.choose(BOTH, 0.0)
    assert one is not None
    assert two is not None
    assert (one.operator, two.operator) == ("a", "b")
    assert scheduler.in_flight == ("a", "b")
    assert scheduler.choose([*BOTH, OperatorView("c", 9)], 0.0) is None  # no slot is free
    assert scheduler.choose(BOTH, 0.0) is None
    scheduler.report(StepReport("a", 100, 50, 0.1, 0.1, one.number))
    again = scheduler.choose(BOTH, 0.1)
    assert again is not None
    assert again.operator == "a"
    scheduler.abandon(two)
    after = scheduler.choose(BOTH, 0.2)
    assert after is not None
    assert after.operator == "b"


def test_nothing_to_do_is_no_choice() -> None:
    scheduler = Scheduler()
    assert scheduler.choose([], 0.0) is None
    assert scheduler.choose([OperatorView("a", 0)], 1.0) is None


def test_a_step_counts_for_the_algorithm_that_chose_it() -> None:
    scheduler = Scheduler(
        ScheduleSettings(candidates=("fifo", "mtiq"), selector="highest_score", start_s=1.0)
    )
    choice = scheduler.choose(BOTH, 0.0)
    assert choice is not None
    scheduler.choose(BOTH, 3.0)  # meanwhile the algorithm changed
    scheduler.report(StepReport(choice.operator, 10, 10, 3.0, 3.0, choice.number))
    assert scheduler.statistics.get("throughput", choice.operator, choice.algorithm) == 10


def test_start_and_exploration_come_first() -> None:
    settings = ScheduleSettings(
        candidates=("fifo", "mtiq", "chain"), selector="roulette", start_s=5.0
    )
    scheduler = Scheduler(settings)
    drive(scheduler, 12.0)
    switches = [entry for entry in scheduler.trace if isinstance(entry, Switch)]
    early = [(round(s.at), s.after) for s in switches[:5]]
    assert early == [(0, "fifo"), (5, "fifo"), (6, "mtiq"), (7, "chain"), (8, "fifo")]
    assert Exploration.seconds(3, 5.0, 1.0) == 9.0


def test_reviews_come_at_the_scoring_interval() -> None:
    scheduler = Scheduler(
        ScheduleSettings(
            candidates=("fifo", "mtiq"), selector="highest_score", scoring_s=2.0, start_s=0.0
        )
    )
    drive(scheduler, 20.0)
    times = [s.at for s in scheduler.trace if isinstance(s, Switch)]
    gaps = [b - a for a, b in pairwise(times[4:])]
    assert gaps
    assert all(gap == pytest.approx(2.0, abs=0.11) for gap in gaps)
    assert sum(scheduler.seconds_in_charge.values()) == pytest.approx(times[-1])


def test_work_passed_over_for_long_changes_the_algorithm() -> None:
    settings = ScheduleSettings(
        candidates=("mtiq", "fifo"), selector="foresight", starvation_wait_s=3.0,
        threshold_rows=1000,  # too little waits for foresight to change by itself
    )  # fmt: skip
    scheduler = Scheduler(settings)
    # b's five rows never win against a's hundred under MTIQ, and are younger under FIFO.
    drive(scheduler, 10.0)
    reasons = [s.reason for s in scheduler.trace if isinstance(s, Switch) and "starves" in s.reason]
    assert reasons
    assert reasons[0].startswith("b starves")


def test_alarms_of_starvation_come_once_an_interval_however_many_starve() -> None:
    settings = ScheduleSettings(
        candidates=("mtiq", "greedy"),
        selector="highest_score",
        starvation_wait_s=2.0,
        scoring_s=4.0,
    )
    scheduler = Scheduler(settings)
    views = [OperatorView(f"o{n}", 100 - n, oldest=0.0) for n in range(20)]
    for step in range(200):
        choice = scheduler.choose(views, step * 0.1)
        assert choice is not None
        scheduler.report(StepReport(choice.operator, 1, 1, 0.1, step * 0.1 + 0.1, choice.number))
    alarms = [s.at for s in scheduler.trace if isinstance(s, Switch) and "starves" in s.reason]
    assert len(alarms) >= 3
    assert all(b - a >= 4.0 - 1e-6 for a, b in pairwise(alarms))


def test_picks_without_work_past_the_threshold_change_the_algorithm() -> None:
    settings = ScheduleSettings(
        candidates=("round_robin", "mtiq"), selector="highest_score", starvation_picks_max=3
    )
    scheduler = Scheduler(settings)
    views = [OperatorView(f"o{i}", 0) for i in range(6)] + [OperatorView("last", 1, oldest=0.0)]
    choice = scheduler.choose(views, 0.0)
    assert choice is not None
    assert (choice.operator, choice.algorithm) == ("last", "mtiq")
    assert scheduler.starvation["round_robin"] == 3


def test_goals_change_while_running_and_limits_are_told() -> None:
    scheduler = Scheduler(ScheduleSettings(candidates=("fifo",), selector="fixed"))
    drive(scheduler, 3.0)
    scheduler.set_quality(Specification((Goal("delay", "minimise", 1.0, limit=1.0),)))
    (standing,) = scheduler.standings()
    assert (standing.value, standing.met) == (2.0, False)
    scheduler.set_quality(Quality(TEMPLATES.get("small")))
    assert scheduler.quality.overall.name == "small"
    with pytest.raises(UsageError, match="unknown statistic"):
        scheduler.set_quality(Specification((Goal("speed", "maximise", 1.0),)))
    assert scheduler.quality.overall.name == "small"


def test_every_choice_is_traced_with_its_reason_and_the_trace_is_bounded() -> None:
    scheduler = Scheduler(ScheduleSettings(candidates=("mtiq",), selector="fixed", trace_length=20))
    made = drive(scheduler, 10.0)
    traced = [entry for entry in scheduler.trace if isinstance(entry, Choice)]
    assert len(scheduler.trace) == 20
    assert traced == made[-len(traced) :]
    assert traced[-1].reason == "100 rows queued"
    assert [c.number for c in made] == list(range(1, len(made) + 1))


def test_a_plan_may_change_between_choices() -> None:
    scheduler = Scheduler(
        ScheduleSettings(candidates=("chain", "cost_aware"), selector="foresight")
    )
    drive(scheduler, 3.0)
    grown = [*BOTH, OperatorView("c", 900, oldest=2.0, producers=("b",))]
    choice = scheduler.choose(grown, 3.5)
    assert choice is not None
    scheduler.report(StepReport(choice.operator, 10, 1, 0.1, 3.6, choice.number))
    shrunk = scheduler.choose([OperatorView("c", 900, oldest=2.0)], 4.0)
    assert shrunk is not None
    assert shrunk.operator == "c"
    assert scheduler.statistics.get("throughput", "a") is None
    scheduler.report(StepReport("b", 10, 1, 0.1, 4.1))  # its step ended after it had left
    assert scheduler.statistics.get("throughput", "b") is None


def test_operators_that_left_do_not_starve_and_a_long_step_is_no_waiting() -> None:
    scheduler = Scheduler(ScheduleSettings(candidates=("mtiq", "fifo"), starvation_wait_s=5))
    choice = scheduler.choose(BOTH, 0.0)  # a runs, b waits
    assert choice is not None
    alone = [OperatorView("a", 100, oldest=0.0)]
    assert scheduler.choose(alone, 1.0) is None  # b has left; a's step takes long
    scheduler.report(StepReport("a", 50, 50, 20.0, 20.0, choice.number))
    assert scheduler.choose(alone, 20.0) is not None
    assert not [s for s in scheduler.trace if isinstance(s, Switch) and "starves" in s.reason]


def test_work_that_has_waited_too_long_goes_next_whoever_is_in_charge() -> None:
    """Few rows beside a long queue: the algorithm alone would pass over them for ever."""

    def served(patience_s: float | None) -> list[str]:
        settings = ScheduleSettings(
            candidates=("mtiq",), selector="fixed", patience_s=patience_s, rows_max=500
        )
        scheduler, found = Scheduler(settings), []
        views = [OperatorView("long", 1_000), OperatorView("short", 2)]
        for second in range(8):
            choice = scheduler.choose(views, now=float(second))
            assert choice is not None
            found.append(choice.operator)
            if choice.operator == "short":
                assert (choice.rows, choice.reason) == (2, "has waited 4.0 s")
            scheduler.report(StepReport(choice.operator, 2, 0, 0.1, float(second) + 0.1))
        return found

    assert served(None) == ["long"] * 8
    assert served(3.0) == ["long"] * 4 + ["short"] + ["long"] * 3
