"""Goals, specifications, templates, limits, and what people write."""

import pytest

from millstream.core.errors import UsageError
from millstream.decide.schedule import TEMPLATES, Goal, Quality, Specification
from millstream.decide.schedule.goal_text import amended, specification_from_text
from millstream.decide.schedule.measures import PLAN_STATISTICS
from millstream.decide.schedule.quality import DEFAULT


@pytest.mark.parametrize("name", TEMPLATES.names())
def test_templates_are_whole(name: str) -> None:
    template = TEMPLATES.get(name)
    assert sum(goal.weight for goal in template.goals) == pytest.approx(1)
    for goal in template.goals:
        better = PLAN_STATISTICS.get(goal.statistic).better
        assert goal.minimised == (better == "less")


def test_the_default_suite_weighs_queues_delay_and_rate_alike() -> None:
    weights = DEFAULT.overall.weights
    assert set(weights) == {"queue_rows", "delay", "output_rate"}
    assert all(weight == pytest.approx(1 / 3, abs=0.01) for weight in weights.values())


@pytest.mark.parametrize(
    "goals",
    [(), (Goal("delay", "min", 0.5),), (Goal("delay", "min", 0.5), Goal("delay", "max", 0.5))],
)
def test_weights_must_sum_to_one_and_statistics_differ(goals: tuple[Goal, ...]) -> None:
    with pytest.raises(UsageError):
        Specification(goals)


def test_limits_are_met_or_not() -> None:
    delay = Goal("delay", "minimise", 1.0, limit=2.0)
    assert [delay.met(value) for value in (1.9, 2.0, 2.1, None)] == [True, True, False, None]
    rate = Goal("output_rate", "maximise", 1.0, limit=10.0)
    assert [rate.met(value) for value in (9, 10)] == [False, True]
    assert Goal("delay", "min", 1.0).met(1.0) is None
    assert rate.attainment(5) == 0.5
    assert delay.attainment(1.0) == 1.0


def test_specifications_of_queries_combine_by_weight() -> None:
    quality = Quality(TEMPLATES.get("fresh"), 1.0, {"q": (3.0, TEMPLATES.get("small"))})
    assert [(g.statistic, g.weight) for g in quality.goals] == [
        ("delay", 0.25),
        ("queue_rows", 0.75),
    ]
    with pytest.raises(UsageError):
        Quality(TEMPLATES.get("fresh"), 0.0, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fresh", [("delay", "minimise", 1.0, None)]),
        ("delay", [("delay", "minimise", 1.0, None)]),
        ("delay <= 2s", [("delay", "minimise", 1.0, 2.0)]),
        (
            "delay minimize 70%, output_rate max 30 %",
            [("delay", "minimise", 0.7, None), ("output_rate", "maximise", 0.3, None)],
        ),
        (
            "delay <= 250 ms, output_rate >= 10, queue_rows 0.5",
            [
                ("delay", "minimise", 0.25, 0.25),
                ("output_rate", "maximise", 0.25, 10.0),
                ("queue_rows", "minimise", 0.5, None),
            ],
        ),
    ],
)
def test_lines_are_read(text: str, expected: list[tuple[object, ...]]) -> None:
    goals = specification_from_text(text).goals
    assert [
        (g.statistic, g.quantifier, pytest.approx(g.weight), g.limit) for g in goals
    ] == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dellay",
        "delay fastest 1",
        "delay 0.4, output_rate 0.4",
        "delay maximise <= 2",
        "a b c d",
    ],
)
def test_bad_lines_are_told(text: str) -> None:
    with pytest.raises(UsageError):
        specification_from_text(text)


def test_wishes_are_amended_one_at_a_time() -> None:
    fresh, small = TEMPLATES.get("fresh"), TEMPLATES.get("small")
    quality = amended(DEFAULT, fresh)
    assert (quality.overall, quality.by_query) == (fresh, {})
    quality = amended(quality, small, "q", 3.0)
    quality = amended(quality, fresh, "q")  # its weight stays
    assert quality.by_query == {"q": (3.0, fresh)}
    assert amended(quality, None, weight=0.5).weight == 0.5
    assert amended(quality, None, "q").by_query == {}
    assert amended(quality, None, "nobody") == quality


@pytest.mark.parametrize(
    "line", ["delay maximise", "delay >= 2s", "queue_rows max", "output_rate <= 5", "delay <= 0s"]
)
def test_goals_that_nothing_can_serve_are_refused(line: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be|above 0"):
        specification_from_text(line)
