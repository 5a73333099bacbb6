"""The priced algorithm: whole branches, joins in step, lots by what a second is worth."""

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
from millstream.decide.schedule.algorithms.cost_aware import CostAware
from millstream.decide.schedule.algorithms.priced import Priced, branch_index
from millstream.decide.schedule.plans import graph_of
from millstream.decide.schedule.protocol import Situation
from millstream.decide.schedule.settings import THESIS_CANDIDATES
from millstream.decide.schedule.statistics import StatisticsGatherer

FRESH = Quality(TEMPLATES.get("fresh"))


def view(name: str, rows: float = 0.0, **more: object) -> OperatorView:
    plain = OperatorView(
        name, rows, oldest=0.0 if rows else None, row_cost_s=1e-3, row_selectivity=1.0
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def measured(views: list[OperatorView], rates: dict[str, float], now: float = 60.0) -> Situation:
    """Operators whose steps cost 10 ms and as much a row as their views say."""
    gatherer = StatisticsGatherer()
    by_id = {v.id: v for v in views}
    gatherer.observe(by_id, sum(v.rows for v in views), 0.0)
    for v in views:
        for rows in (10, 100, 1000):
            seconds = 0.01 + (v.row_cost_s or 0.0) * rows
            given = rows * (v.row_selectivity or 0.0)
            gatherer.step(StepReport(v.id, rows, given, seconds, 0.0), "priced")
    gatherer.usual_rates = dict(rates)
    return Situation(
        now, views, by_id, graph_of(views), gatherer, ScheduleSettings(), FRESH, FRESH.goals
    )


def order(situation: Situation) -> list[tuple[str, float | None]]:
    algorithm = Priced()
    algorithm.refresh(situation)
    return [(pick.operator, pick.rows) for pick in algorithm.rank(situation)]


def test_a_shared_filter_is_worth_no_more_than_its_best_branches() -> None:
    """Along the cheap query's path alone the dear query's results would seem to come as well."""
    views = [
        view("shared", 9, consumers=("cheap", "dear"), queries=("c", "d")),
        view("cheap", 9, producers=("shared",), queries=("c",)),
        view("dear", 9, producers=("shared",), queries=("d",), row_cost_s=8e-3),
    ]
    situation = measured(views, {"shared": 10.0})
    cost = {"shared": 2.0, "cheap": 1.0, "dear": 1.0}
    row_s = {v.id: v.row_cost_s or 0.0 for v in views}
    index = branch_index(situation, row_s, dict.fromkeys(cost, 1.0), cost)
    assert index["cheap"] == pytest.approx(1 / 1e-3)
    assert index["shared"] == pytest.approx(1 / 2e-3)  # with the cheap query, not the dear one
    along_paths = CostAware()
    along_paths.refresh(situation)
    assert along_paths._index["shared"] / along_paths._index["cheap"] > 0.9


BUSY = view("long", 50_000, queries=("p",))


@pytest.mark.parametrize(("rows", "first"), [(2, "long"), (400, "quick")])
def test_few_rows_wait_for_a_lot_while_a_second_is_dear(rows: float, first: str) -> None:
    quick = view("quick", rows, queries=("q",), row_cost_s=1e-4)
    situation = measured([BUSY, quick], {"long": 1000.0, "quick": 50.0})
    assert order(situation)[0][0] == first


def test_few_rows_run_at_once_where_nobody_else_waits() -> None:
    quick = view("quick", 2, queries=("q",), row_cost_s=1e-4)
    idle = replace(BUSY, rows=0.0, oldest=None)
    assert order(measured([idle, quick], {"long": 10.0, "quick": 50.0}))[0] == ("quick", 2)


def test_steps_grow_with_what_waits() -> None:
    def taken(rows: float) -> float:
        rows_of = dict(order(measured([replace(BUSY, rows=rows)], {"long": 500.0})))
        return rows_of["long"] or 0.0

    assert taken(1_000) < taken(5_000) < taken(20_000) <= 1_000  # no longer than a second


def test_who_is_behind_below_a_join_goes_before_it() -> None:
    views = [
        view("left", 500, oldest=2.0, consumers=("join",), queries=("q",)),
        view("right", 500, oldest=5.0, consumers=("join",), queries=("q",), row_cost_s=1e-5),
        view(
            "join",
            500,
            oldest=4.0,
            row_cost_s=1e-5,
            producers=("left", "right"),
            queries=("q",),
            meets=True,
        ),
    ]
    names = [name for name, _ in order(measured(views, {"left": 50.0, "right": 50.0}))]
    assert names.index("left") < names.index("join")


def test_lots_of_one_size_leave_what_others_told_of_fixed_costs() -> None:
    situation = measured([BUSY, view("other", 50_000)], {"long": 500.0})
    alike = StatisticsGatherer()
    alike.observe(situation.by_id, 1.0, 0.0)
    for _ in range(9):
        alike.step(StepReport("other", 1.0, 1.0, 0.011, 0.0), "priced")
    for rows in (10, 100, 1000):
        alike.step(StepReport("long", rows, rows, 0.01 + 1e-3 * rows, 0.0), "priced")
    situation.statistics = alike
    cost = Priced()._costs(situation)
    assert cost["long"][0] == pytest.approx(0.01)
    assert cost["other"][0] == pytest.approx(0.011 * 0.9)  # never all of a step


def test_rows_that_come_straight_to_a_join_are_counted() -> None:
    gatherer = StatisticsGatherer()
    leaf = view("leaf", 0.0, consumers=("join",))
    join = view("join", 0.0, producers=("leaf",), meets=True)
    gatherer.observe({"leaf": leaf, "join": join}, 0.0, 0.0)
    gatherer.update(0.0, "fifo", ("leaf",))
    gatherer.step(StepReport("leaf", 40, 10, 0.1, 0.5), "fifo")
    gatherer.observe({"leaf": leaf, "join": replace(join, rows=70.0)}, 70.0, 1.0)
    gatherer.update(1.0, "fifo", ("leaf",))
    assert gatherer.usual_rates == {"leaf": 40.0, "join": 60.0}


def test_the_default_keeps_the_priced_algorithm_in_charge() -> None:
    settings = ScheduleSettings()
    assert settings.candidates == (*THESIS_CANDIDATES, "priced")
    scheduler = Scheduler(settings, FRESH)
    for second in range(8):
        choice = scheduler.choose([BUSY], float(second))
        assert choice is not None
        scheduler.report(StepReport("long", choice.rows, 1, 0.5, second + 0.5, choice.number))
    assert scheduler.algorithm == "priced"


def test_a_join_that_ran_ahead_and_gave_nothing_is_not_worthless() -> None:
    gatherer = StatisticsGatherer()
    join = view("join", 10.0, row_selectivity=None)
    gatherer.observe({"join": join}, 10.0, 0.0)
    gatherer.step(StepReport("join", 99, 0, 0.1, 0.5), "fifo")
    gatherer.update(1.0, "fifo")
    assert gatherer.row_selectivity(join) == pytest.approx(1 / 100)
