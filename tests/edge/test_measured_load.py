"""A processor's load from its steps: what is needed, how busy it was, who shares a job."""

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.edge.processor.measured_load import FIRST_STEPS_SECONDS, MeasuredLoad
from millstream.engine.settings import EngineSettings
from millstream.engine.steps.reports import StepReport

COSTS = {"o:a": (0.1, 0.0), "o:b": (0.1, 0.0)}


@pytest.fixture
def engine() -> Any:
    settings = EngineSettings(slots=1)
    return SimpleNamespace(operators=dict.fromkeys(COSTS), settings=settings, on_step=[])


def measured(engine: Any, costs: dict[str, tuple[float, float]] = COSTS) -> MeasuredLoad:
    return MeasuredLoad(engine, lambda _: costs, alpha=0.0, cycle_s=1.0, now_s=0.0)


def step(engine: Any, name: str, seconds: float, **more: Any) -> None:
    report = StepReport(name, 10, 0, 0, 0, seconds, 0.0, 0, 0.0, 0.0, True, **more)
    for listener in engine.on_step:
        listener(report)


def test_needed_is_a_step_a_cycle_however_many_ran(engine: Any) -> None:
    load = measured(engine)
    for _ in range(3):
        step(engine, "o:a", 0.1)
    step(engine, "o:b", 0.1)
    load.close_window(1.0)
    assert load.busy == pytest.approx(0.4)
    assert load.loads == pytest.approx({"o:a": 0.1, "o:b": 0.1})


def test_without_a_measured_cost_it_is_what_steps_took(engine: Any) -> None:
    load = measured(engine, {})
    step(engine, "o:a", 0.3)
    load.close_window(1.0)
    assert load.loads == pytest.approx({"o:a": 0.3, "o:b": 0.0})


def test_what_has_come_counts_as_where_it_came_from(engine: Any) -> None:
    load = measured(engine)
    load.arrived(["o:b"], 0.25, 0.0)
    step(engine, "o:b", 0.9)
    load.close_window(1.0)
    assert load.loads["o:b"] == 0.25
    step(engine, "o:b", 0.1)
    load.close_window(FIRST_STEPS_SECONDS + 1.0)
    assert load.loads["o:b"] < 0.1, "by its own steps from then on"


def test_members_of_a_job_would_need_all_of_its_fixed_cost_alone(engine: Any) -> None:
    load = measured(engine)
    step(engine, "o:a", 0.1, job="j", members=3)
    step(engine, "o:b", 0.1)
    load.close_window(1.0)
    ((name, (job, more)),) = load.shared_jobs().items()
    assert (name, job) == ("o:a", "j")
    assert more == pytest.approx(0.2)
    step(engine, "o:a", 0.1)
    load.close_window(2.0)
    assert not load.shared_jobs(), "it runs by itself now"
    del engine.operators["o:a"]
    load.close_window(3.0)
    assert set(load.loads) == {"o:b"}
