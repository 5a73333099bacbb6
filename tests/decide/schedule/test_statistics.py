"""The statistics gatherer against hand-computed figures of section 3.3."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import UsageError
from millstream.decide.schedule.costs import CostLine
from millstream.decide.schedule.facts import Delivery, OperatorView, StepReport
from millstream.decide.schedule.measures import OperatorStatistic, PlanStatistic, Series
from millstream.decide.schedule.statistics import CURRENT, OVERALL, StatisticsGatherer, query_object


def gathered() -> StatisticsGatherer:
    """Two steps of `a` under fifo, one of `b` under chain, one second each."""
    gatherer = StatisticsGatherer(old_weight=0.5)
    views = {"a": OperatorView("a", 30, oldest=0.0), "b": OperatorView("b", 10, queries=("q",))}
    gatherer.observe(views, 40, 0.0)
    gatherer.step(StepReport("a", 10, 5, 0.5, 0.5), "fifo")
    gatherer.step(StepReport("a", 20, 4, 0.5, 1.0), "fifo")
    gatherer.update(1.0, "fifo")
    gatherer.observe(views, 20, 1.0)
    done = Delivery(3, 6.0, 4.0)
    gatherer.step(
        StepReport("b", 6, 3, 0.25, 2.0, candidates=30, delivered=done, by_query={"q": done}),
        "chain",
    )
    gatherer.update(2.0, "chain")
    return gatherer


def test_operator_statistics_follow_equations_3_2_to_3_5() -> None:
    gatherer = gathered()
    assert gatherer.get("row_selectivity", "a") == pytest.approx(9 / 30)
    assert gatherer.get("selectivity", "b") == pytest.approx(3 / 30)  # per candidate pair
    assert gatherer.get("row_selectivity", "b") == pytest.approx(3 / 6)
    assert gatherer.get("output_rate", "a") == pytest.approx(9 / 1.0)
    assert gatherer.get("row_seconds", "a") == pytest.approx(
        1.0 / 30
    )  # not 30 / 1: 3.4 is inverted
    assert gatherer.get("throughput", "a") == 9
    assert gatherer.get("run_count", "a") == 2
    assert gatherer.get("priority", "a") == pytest.approx((1 - 0.3) / (1 / 30))


def test_each_algorithm_has_a_view_and_all_share_the_overall_one() -> None:
    gatherer = gathered()
    assert gatherer.get("throughput", "b", "chain") == 3
    assert gatherer.get("throughput", "b", "fifo") is None
    assert gatherer.get("throughput", "b", OVERALL) == 3
    assert gatherer.get("queue_rows", "a", CURRENT) == 30
    assert set(gatherer.views()) == {"overall", "fifo", "chain"}


def test_plan_statistics_follow_equations_3_6_to_3_9() -> None:
    gatherer = gathered()
    rate, delay = gatherer.series("output_rate", "chain"), gatherer.series("delay", "chain")
    assert rate is not None
    assert delay is not None
    assert (rate.last, delay.last) == (3.0, 2.0)
    queue = gatherer.series("queue_rows", "fifo")
    assert queue is not None
    assert queue.last == 40  # mean over time, held from 0 to 1
    assert gatherer.series("delay", "fifo") is None  # nothing was delivered then
    mine = gatherer.series("delay", "chain", query_object("q"))
    assert mine is not None
    assert mine.last == 2.0


def test_memory_is_a_mean_over_time_not_over_samples() -> None:
    gatherer = StatisticsGatherer()
    gatherer.observe({}, 100, 0.0)
    gatherer.observe({}, 0, 0.1)
    gatherer.observe({}, 0, 0.2)
    gatherer.update(1.0, "fifo")
    series = gatherer.series("queue_rows", "fifo")
    assert series is not None
    assert series.last == pytest.approx(10)


def test_queries_for_operators() -> None:
    gatherer = gathered()
    assert gatherer.highest("throughput") == "a"
    assert gatherer.lowest("row_seconds") == "a"
    assert gatherer.highest("queue_rows", CURRENT) == "a"
    assert gatherer.ranked("row_selectivity", keep=lambda s: s < 0.4) == [("a", pytest.approx(0.3))]


def test_averages_weigh_the_old_with_w() -> None:
    gatherer = StatisticsGatherer(old_weight=0.875)
    gatherer.step(StepReport("a", 10, 10, 1.0, 1.0), "fifo")
    gatherer.update(1.0, "fifo")
    gatherer.step(StepReport("a", 10, 2, 1.0, 2.0), "fifo")
    gatherer.update(2.0, "fifo")
    assert gatherer.average("row_selectivity", "a") == pytest.approx(0.875 * 1 + 0.125 * 0.2)
    assert gatherer.get("row_selectivity", "a") == pytest.approx(0.6)


def test_statistics_of_the_users_own() -> None:
    gatherer = StatisticsGatherer()
    gatherer.register(
        OperatorStatistic("width", "bytes/row", lambda c: c.bytes_in / c.rows_in, "step")
    )
    gatherer.register(PlanStatistic("idle", "share", "less", lambda i: 1 - i.busy_s / i.seconds))
    gatherer.observe({}, 0, 0.0)
    gatherer.step(StepReport("a", 10, 5, 0.25, 0.5, bytes_in=1000), "fifo")
    assert gatherer.get("width", "a") == 100  # before any update
    gatherer.update(1.0, "fifo")
    idle = gatherer.series("idle")
    assert idle is not None
    assert idle.last == 0.75
    with pytest.raises(UsageError, match="exists already"):
        gatherer.register(PlanStatistic("idle", "share", "less", lambda _: 0.0))


def test_a_statistic_nobody_knows_is_refused_with_a_hint() -> None:
    with pytest.raises(UsageError, match="did you mean delay"):
        StatisticsGatherer().plan_statistic("dellay")


def test_forgetting_an_operator_forgets_it_in_every_view() -> None:
    gatherer = gathered()
    gatherer.forget(["a"])
    assert gatherer.get("throughput", "a") is None
    assert gatherer.get("throughput", "a", "fifo") is None
    assert gatherer.get("throughput", "b") == 3


def test_a_query_that_left_is_forgotten() -> None:
    gatherer = gathered()
    gatherer.observe({"a": OperatorView("a", 0)}, 0, 2.5)
    gatherer.update(3.0, "chain")
    assert gatherer.series("delay", "chain", query_object("q")) is None
    assert gatherer.series("delay", "chain") is not None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 0.99))
@settings(deadline=None)
def test_a_series_is_what_it_was_fed(values: list[float], weight: float) -> None:
    series = Series(weight)
    average = values[0]
    for position, value in enumerate(values):
        series.add(value)
        average = average * weight + value * (1 - weight) if position else value
    assert series.mean == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert series.average == pytest.approx(average)
    assert (series.least, series.greatest) == (min(values), max(values))


@given(
    st.floats(0.001, 1),
    st.floats(1e-6, 1e-2),
    st.lists(st.integers(1, 5000), min_size=2, max_size=30, unique=True),
)
@settings(deadline=None)
def test_a_cost_line_finds_fixed_and_marginal_cost(
    fixed: float, row: float, batches: list[int]
) -> None:
    line = CostLine()
    for rows in batches:
        line.learn(rows, fixed + row * rows)
    assert line.fixed_s == pytest.approx(fixed, rel=1e-2, abs=1e-4)
    assert line.row_s == pytest.approx(row, rel=1e-2, abs=1e-6)


def test_a_cost_line_follows_a_change_and_is_never_negative() -> None:
    line = CostLine()
    for rows in (100, 200) * 50:
        line.learn(rows, 1.0)  # cold: independent of the rows
    for rows in (100, 200) * 200:
        line.learn(rows, 0.1 + 1e-3 * rows)
    assert line.fixed_s == pytest.approx(0.1, abs=0.02)
    falling = CostLine()
    falling.learn(10, 1.0)
    falling.learn(1000, 0.5)
    assert falling.row_s >= 0
    assert falling.fixed_s >= 0
