"""Every algorithm: a shared contract, and what is its own."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import UsageError
from millstream.decide.schedule import (
    OperatorView,
    Scheduler,
    ScheduleSettings,
    StepReport,
    settings_from,
)
from millstream.decide.schedule.algorithms import ALGORITHMS
from millstream.decide.schedule.algorithms.chain import envelope_slopes
from millstream.decide.schedule.algorithms.cost_aware import batch_rows
from millstream.decide.schedule.plans import graph_of
from millstream.decide.schedule.quality import TEMPLATES, Quality
from millstream.decide.schedule.workload import workload


def only(name: str, **changes: object) -> Scheduler:
    return Scheduler(ScheduleSettings(candidates=(name,), selector="fixed", **changes))  # type: ignore[arg-type]


def line(*rows: float, **known: tuple[float, ...]) -> list[OperatorView]:
    """Operators a, b, c, ... in a line, leaf first."""
    names = [chr(ord("a") + i) for i in range(len(rows))]
    return [
        OperatorView(
            name,
            rows[i],
            oldest=known["oldest"][i] if "oldest" in known else 0.0,
            producers=(names[i - 1],) if i else (),
            consumers=(names[i + 1],) if i + 1 < len(names) else (),
            row_cost_s=known["cost"][i] if "cost" in known else None,
            row_selectivity=known["kept"][i] if "kept" in known else None,
        )
        for i, name in enumerate(names)
    ]


rows_of_plan = st.lists(st.integers(0, 400), min_size=1, max_size=6)


@pytest.mark.parametrize("name", ALGORITHMS.names())
@given(plan=rows_of_plan)
@settings(max_examples=40, deadline=None)
def test_a_choice_has_work_and_takes_no_more_than_there_is(name: str, plan: list[int]) -> None:
    views = line(*plan)
    choice = only(name).choose(views, 1.0)
    if not any(plan):
        assert choice is None
    else:
        assert choice is not None
        pending = {view.id: view.rows for view in views}[choice.operator]
        assert 0 < choice.rows <= pending
        assert choice.reason
        assert choice.algorithm == name


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_the_same_questions_get_the_same_answers(name: str) -> None:
    def told() -> list[tuple[str, float]]:
        scheduler, answers = only(name), []
        pending = {"a": 500.0, "b": 0.0, "c": 90.0}
        for step in range(60):
            choice = scheduler.choose(line(*pending.values()), step * 0.5)
            if choice is None:
                break
            answers.append((choice.operator, choice.rows))
            pending[choice.operator] -= choice.rows
            follower = chr(ord(choice.operator) + 1)
            if follower in pending:
                pending[follower] += choice.rows * 0.5
            scheduler.report(
                StepReport(choice.operator, choice.rows, choice.rows / 2, 0.1, step * 0.5 + 0.1)
            )
        return answers

    assert told() == told()


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_operators_that_cannot_run_are_passed_over(name: str) -> None:
    paused = OperatorView("a", 1000, oldest=0.0, consumers=("b",), runnable=False)
    choice = only(name).choose([paused, OperatorView("b", 1, oldest=5.0, producers=("a",))], 6.0)
    assert choice is not None
    assert choice.operator == "b"


def test_round_robin_gives_everybody_the_same_number_of_turns() -> None:
    scheduler = only("round_robin")
    turns: dict[str, int] = {}
    for step in range(30):
        choice = scheduler.choose(line(100, 100, 100), float(step))
        assert choice is not None
        turns[choice.operator] = turns.get(choice.operator, 0) + 1
        scheduler.report(StepReport(choice.operator, 1, 1, 0.1, step + 0.1))
    assert turns == {"a": 10, "b": 10, "c": 10}


def test_fifo_pushes_the_oldest_as_far_as_it_goes() -> None:
    choice = only("fifo").choose(line(10, 10, 10, oldest=(5.0, 1.0, 1.0)), 6.0)
    assert choice is not None
    assert choice.operator == "c"  # as old as b's, but nearer the root


def test_greedy_follows_equation_4_1() -> None:
    # (1 - 0.5) / 1 = 0.5, (1 - 0.9) / 0.1 = 1, (1 - 2) / 1 = -1
    views = line(9, 9, 9, cost=(1.0, 0.1, 1.0), kept=(0.5, 0.9, 2.0))
    choice = only("greedy").choose(views, 0.0)
    assert choice is not None
    assert choice.operator == "b"


def test_mtiq_takes_the_longest_queue() -> None:
    choice = only("mtiq").choose(line(3, 7, 5), 0.0)
    assert choice is not None
    assert choice.operator == "b"


def test_chain_joins_a_poor_operator_with_the_good_one_behind_it() -> None:
    # a keeps all (slope 0 alone), b removes nearly all: together steeper than c.
    slopes = envelope_slopes([(1.0, 1.0), (1.0, 0.1), (10.0, 1.0)])
    assert slopes[0] == slopes[1] == pytest.approx(0.9 / 2)
    assert slopes[2] == pytest.approx(0.1 / 1.0)
    views = line(5, 5, 5, cost=(1.0, 1.0, 10.0), kept=(1.0, 0.1, 1.0), oldest=(3.0, 2.0, 1.0))
    choice = only("chain").choose(views, 4.0)
    assert choice is not None
    assert choice.operator == "b"  # of the chain a, b the one with the oldest row


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 2)), min_size=1, max_size=8))
@settings(deadline=None)
def test_envelope_slopes_fall_along_the_path(steps: list[tuple[float, float]]) -> None:
    slopes = envelope_slopes(steps)
    assert len(slopes) == len(steps)
    assert all(a >= b - 1e-9 for a, b in pairwise(slopes))


def test_chain_learns_selectivity_from_steps() -> None:
    scheduler = only("chain")
    views = [OperatorView("a", 9, oldest=0.0), OperatorView("b", 9, oldest=0.0)]
    for step in range(4):  # a is slow, b is fast: as roots both remove all they take
        for name, seconds in (("a", 1.0), ("b", 0.01)):
            scheduler.report(StepReport(name, 10, 10, seconds, step + 0.5))
        scheduler.choose(views, step + 1.0)
        for name in scheduler.in_flight:
            scheduler.report(StepReport(name, 9, 9, 0.1, step + 1.0))
    choice = scheduler.choose(views, 9.0)
    assert choice is not None
    assert choice.operator == "b"


def test_cost_aware_waits_until_a_batch_is_worth_its_step() -> None:
    scheduler = only("cost_aware")
    scheduler.set_quality(TEMPLATES.get("fresh"))
    for rows in (100, 1000, 10_000):
        for name in ("a", "b"):  # 60 ms a step, 20 us a row, like Spark
            scheduler.report(StepReport(name, rows, rows, 0.06 + 2e-5 * rows, 0.1))
    few, many = OperatorView("a", 5, oldest=0.0), OperatorView("b", 200_000, oldest=9.0)
    choice = scheduler.choose([few, many], 10.0)
    assert choice is not None
    assert choice.operator == "b"
    assert choice.rows == pytest.approx(27_000, rel=0.05)  # a tenth of the step is fixed cost
    alone = scheduler.abandon(choice) or scheduler.choose([few], 10.1)
    assert alone is not None
    assert alone.operator == "a"  # nothing better to do


@given(st.floats(1, 1e7), st.floats(0, 1), st.floats(1e-7, 1e-1))
@settings(deadline=None)
def test_batches_lie_between_one_row_and_all(pending: float, fixed: float, row: float) -> None:
    settings = ScheduleSettings(rows_max=None)
    rows = batch_rows(pending, fixed, row, settings)
    assert 0 < rows <= pending


def test_cost_aware_follows_the_goals() -> None:
    # a and b get rid of rows fast, c delivers: memory wants the first two, freshness the last.
    views = line(50, 50, 50, cost=(1e-3, 1e-3, 5e-3), kept=(0.9, 0.1, 1.0), oldest=(1.0, 1.0, 0.0))

    def first(template: str) -> str:
        scheduler = only("cost_aware")
        scheduler.set_quality(Quality(TEMPLATES.get(template)))
        choice = scheduler.choose(views, 2.0)
        assert choice is not None
        return choice.operator

    assert first("small") == "b"
    assert first("fresh") == "c"


@given(st.floats(0.001, 1e6))
@settings(deadline=None)
def test_workload_is_all_or_the_ratio(rows: float) -> None:
    taken = workload(rows, ScheduleSettings(ratio=0.3, threshold_rows=50))
    if rows * 0.3 > 50:
        assert taken == pytest.approx(rows * 0.3, abs=0.5)
    else:
        assert taken == pytest.approx(rows, abs=0.5)
    assert taken <= rows
    assert workload(rows, ScheduleSettings(rows_max=1)) <= 1


def test_settings_are_checked_and_named() -> None:
    assert settings_from({"algorithm": "chain"}).candidates == ("chain",)
    for wrong in (
        {"ratio": 0},
        {"slots": 0},
        {"decay_by": "moon"},
        {"candidates": []},
        {"colour": 1},
        {"candidates": "fifo"},
        {"candidates": [["fifo"]]},
        {"slots": 1.5},
        {"slots": True},
        {"seed": "x"},
        {"adapt_workload": 1},
        {"start_s": float("nan")},
        {"horizon_s": float("inf")},
        {"ratio": None},
    ):
        with pytest.raises(UsageError):
            settings_from(wrong)
    assert settings_from({"rows_max": None, "horizon_s": 3}).horizon_s == 3
    for no_name in (5, ["fifo"], None):
        with pytest.raises(UsageError, match="unknown"):
            ALGORITHMS.get(no_name)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="did you mean fifo"):
        Scheduler(settings_from({"algorithm": "fif"}))


def test_shapes_know_leaves_roots_and_paths_and_refuse_circles() -> None:
    views = [
        OperatorView("root", 0, producers=("join",)),
        OperatorView("join", 0, producers=("l", "r")),
        OperatorView("l", 0),
        OperatorView("r", 0),
    ]
    shape = graph_of(views)
    assert (shape.leaves, shape.roots) == (("l", "r"), ("root",))
    assert sorted(shape.paths()) == [("l", "join", "root"), ("r", "join", "root")]
    assert shape.depth == {"l": 0, "r": 0, "join": 1, "root": 2}
    with pytest.raises(ValueError, match="feed themselves"):
        graph_of([OperatorView("a", 0, consumers=("b",)), OperatorView("b", 0, consumers=("a",))])
