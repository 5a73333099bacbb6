"""Goals of a query reach its operators: prices, weights, limits, the size of steps."""

from dataclasses import replace

import pytest

from millstream.decide.schedule import (
    TEMPLATES,
    OperatorView,
    Quality,
    Scheduler,
    ScheduleSettings,
    StepReport,
)
from millstream.decide.schedule.algorithms.cost_aware import batch_rows
from millstream.decide.schedule.facts import Delivery
from millstream.decide.schedule.goal_text import specification_from_text
from millstream.decide.schedule.holding import outlook, results_by_query
from millstream.decide.schedule.limits import deadlines, most_urgent, step_rows_max
from millstream.decide.schedule.plans import graph_of
from millstream.decide.schedule.protocol import Situation
from millstream.decide.schedule.statistics import StatisticsGatherer

FRESH = TEMPLATES.get("fresh")


def operator(name: str, rows: float = 0.0, **more: object) -> OperatorView:
    view = OperatorView(name, rows, oldest=0.0 if rows else None, row_cost_s=1e-3)
    return replace(view, **more)  # type: ignore[arg-type]


# A filter that two queries share: one takes its rows as they are, the other filters again.
SHARED = [
    operator("leaf", 100, consumers=("two",), queries=("one", "both"), row_selectivity=0.5),
    operator("two", 10, producers=("leaf",), queries=("both",), row_selectivity=0.2),
    operator("other", 100, queries=("alone",), row_selectivity=0.5),
]


def situation(views: list[OperatorView], quality: Quality, now: float = 1.0) -> Situation:
    gatherer = StatisticsGatherer()
    by_id = {view.id: view for view in views}
    gatherer.observe(by_id, sum(view.rows for view in views), 0.0)
    return Situation(
        now, views, by_id, graph_of(views), gatherer, ScheduleSettings(), quality, quality.goals
    )


def test_a_row_counts_for_every_query_that_it_serves() -> None:
    yields = results_by_query(situation(SHARED, Quality(FRESH)))
    assert yields["leaf"] == {"one": 0.5, "both": pytest.approx(0.1)}
    assert yields["two"] == {"both": 0.2}
    cost = outlook(situation(SHARED, Quality(FRESH))).cost
    assert cost["leaf"] == pytest.approx(cost["other"] * 0.6 / 0.5)


def test_a_weight_raises_the_price_of_its_query_alone() -> None:
    before = outlook(situation(SHARED, Quality(FRESH))).cost
    after = outlook(situation(SHARED, Quality(FRESH, 1.0, {"both": (10.0, FRESH)}))).cost
    assert after["two"] == pytest.approx(10 * before["two"])
    assert after["leaf"] == pytest.approx(before["leaf"] * (0.5 + 10 * 0.1) / 0.6)
    assert after["other"] == before["other"]


def test_members_of_one_job_share_its_results() -> None:
    views = [operator("train", 10, queries=("a", "b"), members=2, row_selectivity=0.6)]
    assert results_by_query(situation(views, Quality(FRESH)))["train"] == {"a": 0.3, "b": 0.3}


def test_a_limit_is_judged_by_its_query_and_not_by_all() -> None:
    views = [operator("a", 9, queries=("slow",)), operator("b", 9, queries=("quick",))]
    limited = specification_from_text("delay <= 2s")
    at = situation(views, Quality(FRESH, 1.0, {"slow": (1.0, limited), "quick": (1.0, limited)}))
    for name, query, delay_s in (("a", "slow", 5.0), ("b", "quick", 0.1)):
        given = Delivery(100.0, 100.0 * delay_s, delay_s)
        at.statistics.step(StepReport(name, 100, 100, 0.1, 0.5, by_query={query: given}), "fifo")
    at.statistics.update(1.0, "fifo")
    cost = outlook(at).cost
    assert cost["a"] == pytest.approx(10 * cost["b"])  # a limit that is met counts a tenth


def test_a_rate_counts_results_and_a_delay_queries_once_too_much_waits() -> None:
    views = [
        operator("many", 9000, queries=("m",), row_selectivity=1.0, row_cost_s=2e-3),
        operator("few", 9000, queries=("f",), row_selectivity=0.2),
    ]
    price = {}
    for template in ("fresh", "productive"):
        at = situation(views, Quality(TEMPLATES.get(template)))
        at.statistics.usual_rates = {"many": 10.0, "few": 10.0}
        ahead = outlook(at)
        price[template] = ahead.cost["many"] / ahead.cost["few"]
        assert ahead.overload == 1.0
    assert price["productive"] == pytest.approx(5.0)
    assert price["fresh"] == pytest.approx(1.0)
    assert batch_rows(1e6, 0.1, 1e-5, ScheduleSettings(), coarse=1.0) > 2 * batch_rows(
        1e6, 0.1, 1e-5, ScheduleSettings(), coarse=0.0
    )


LIMITED = Quality(FRESH, 1.0, {"q": (1.0, specification_from_text("delay <= 2s"))})
LONG = operator("long", 50_000, queries=("p",))


@pytest.mark.parametrize(("now", "first"), [(0.5, "long"), (1.2, "root")])
def test_half_of_a_limit_after_a_row_came_its_query_goes_first(now: float, first: str) -> None:
    scheduler = Scheduler(ScheduleSettings(candidates=("cost_aware",), selector="fixed"), LIMITED)
    leaf = operator("leaf", 5, queries=("q",), consumers=("root",), row_selectivity=0.01)
    root = operator("root", 5, queries=("q",), producers=("leaf",), row_selectivity=0.01)
    choice = scheduler.choose([LONG, leaf, root], now)
    assert choice is not None
    assert choice.operator == first  # at equal age the rows nearest to the result
    if first == "root":
        assert "q has" in choice.reason


def test_an_algorithm_of_the_seed_named_alone_runs_as_it_is() -> None:
    scheduler = Scheduler(ScheduleSettings(candidates=("mtiq",), selector="fixed"), LIMITED)
    choice = scheduler.choose([LONG, operator("mine", 5, queries=("q",))], 9.0)
    assert choice is not None
    assert choice.operator == "long"


def test_steps_are_short_beside_a_tight_limit() -> None:
    at = situation([LONG, operator("mine", 5, queries=("q",))], LIMITED)
    kept = deadlines(at)
    assert step_rows_max(kept, at, LONG) == pytest.approx(0.5 / 1e-3)
    dear = replace(LONG, fixed_cost_s=0.4, row_cost_s=1e-3)
    assert step_rows_max(kept, at, dear) == pytest.approx(0.4 / 1e-3)


def test_limits_that_do_not_fit_together_are_kept_by_weight() -> None:
    tight = specification_from_text("delay <= 2s")
    views = [operator("a", 9000, queries=("light",)), operator("b", 9000, queries=("heavy",))]
    at = situation(views, Quality(FRESH, 1.0, {"light": (1.0, tight), "heavy": (3.0, tight)}))
    at.statistics.arrival_rates = {"a": 700.0, "b": 700.0}
    kept = deadlines(at)
    assert [one.query for one in kept] == ["heavy"]
    pick = most_urgent(kept, at, lambda view: view.rows > 0)
    assert pick is not None
    assert pick.operator == "b"


def test_a_new_operator_costs_what_its_like_cost() -> None:
    gatherer = StatisticsGatherer()
    old = operator("old", 1, kind="map")
    gatherer.observe({"old": old}, 1, 0.0)
    for rows in (10, 100, 1000):
        gatherer.step(StepReport("old", rows, rows, 0.05 + 1e-4 * rows, 1.0), "fifo")
    fixed_s, row_s = gatherer.step_cost(operator("new", kind="map"))
    assert fixed_s == pytest.approx(0.05)
    assert row_s == pytest.approx(1e-4)
    assert gatherer.step_cost(operator("strange", kind="join")) == (0.0, 1e-3)


def _fed(scheduler: Scheduler, seconds: int, growth_s: float) -> None:
    """A step a second; the delay of q grows by so much each time."""
    for second in range(seconds):
        now = float(second)
        choice = scheduler.choose([operator("o", 5, queries=("q",), oldest=now)], now)
        assert choice is not None
        delay_s = 0.5 + growth_s * second
        given = Delivery(10.0, 10.0 * delay_s, delay_s)
        scheduler.report(
            StepReport("o", 5, 10, 0.1, now + 0.1, choice.number, by_query={"q": given})
        )


def test_what_falls_behind_is_told_before_it_happens() -> None:
    slipping = Scheduler(ScheduleSettings(candidates=("fifo",), selector="fixed"), LIMITED)
    _fed(slipping, 20, 0.02)
    _, mine = slipping.standings()
    assert (mine.query, mine.met) == ("q", True)
    assert mine.misses_in_s is not None
    assert 50 < mine.misses_in_s < 62  # 0.5 s + 0.02 s a second reaches 2 s after 75 s
    steady = Scheduler(ScheduleSettings(candidates=("fifo",), selector="fixed"), LIMITED)
    _fed(steady, 20, 0.0)
    assert steady.standings()[1].misses_in_s is None


def test_a_query_that_gives_nothing_does_not_meet_its_limit() -> None:
    scheduler = Scheduler(ScheduleSettings(candidates=("mtiq",), selector="fixed"), LIMITED)
    views = [LONG, operator("mine", 5, queries=("q",))]
    for second in range(6):
        choice = scheduler.choose(views, float(second))
        assert choice is not None
        scheduler.report(StepReport("long", 10, 10, 0.1, second + 0.1, choice.number))
    mine = scheduler.standings()[1]
    assert mine.met is False
    assert mine.value == pytest.approx(5.0)


def test_what_goals_cost_the_others_is_counted() -> None:
    favoured = Quality(FRESH, 1.0, {"q": (1000.0, FRESH)})
    scheduler = Scheduler(ScheduleSettings(candidates=("cost_aware",), selector="fixed"), favoured)
    views = [operator("old", 50, queries=("p",)), operator("new", 50, queries=("q",), oldest=0.5)]
    choice = scheduler.choose(views, 1.0)
    assert choice is not None
    assert choice.operator == "new"
    scheduler.report(StepReport("new", 50, 50, 0.4, 1.4, choice.number))
    assert scheduler.costs_others(2.0) == {"q": pytest.approx(0.4)}
    plain = Scheduler(ScheduleSettings(candidates=("cost_aware",), selector="fixed"))
    chosen = plain.choose(views, 1.0)
    assert chosen is not None
    plain.report(StepReport(chosen.operator, 50, 50, 0.4, 1.4, chosen.number))
    assert plain.costs_others(2.0) == {}


def test_an_urgent_step_that_comes_to_nothing_lets_others_run() -> None:
    scheduler = Scheduler(ScheduleSettings(candidates=("cost_aware",), selector="fixed"), LIMITED)
    views = [LONG, operator("mine", 1, queries=("q",), row_selectivity=1e-6)]
    first = scheduler.choose(views, 5.0)
    assert first is not None
    assert first.operator == "mine"
    scheduler.abandon(first)
    then = scheduler.choose(views, 5.1)
    assert then is not None
    assert then.operator == "long"


def test_results_of_a_run_that_ends_within_an_interval_are_measured_for_who_looks() -> None:
    quality = Quality(specification_from_text("delay <= 1ms"))
    scheduler = Scheduler(ScheduleSettings(statistics_s=10.0), quality)
    choice = scheduler.choose([operator("leaf", 100)], 0.0)
    assert choice is not None
    scheduler.catch_up(0.1)  # nothing was delivered: nothing is measured
    assert scheduler.standings()[0].value is None
    done = StepReport(
        "leaf", 100, 10, 0.1, 0.2, choice=choice.number, delivered=Delivery(10, 2.0, 0.2)
    )
    scheduler.report(done)
    assert scheduler.standings()[0].value is None
    scheduler.catch_up(0.3)
    [standing] = scheduler.standings()
    assert (standing.value, standing.met) == (pytest.approx(0.2), False)
    scheduler.catch_up(0.4)  # what is measured is not measured twice
    assert scheduler.statistics.updated_at == 0.3
