"""The engine under its scheduler: whoever chooses, the results are the same; goals may change."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from small_engines import bag, stream

from millstream.core.errors import UsageError
from millstream.decide.schedule import TEMPLATES, Choice, ScheduleSettings, Switch
from millstream.decide.schedule.algorithms import ALGORITHMS
from millstream.decide.schedule.facts import OperatorView, StepReport
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.scheduling.figures import scheduling_figures
from millstream.engine.scheduling.goals import change_goals
from millstream.engine.scheduling.step_scheduler import StepScheduler
from millstream.engine.settings import PATIENCE_S, EngineSettings
from millstream.engine.sources.push_source import PushSource
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark

QUERIES = {
    "plain": "SELECT name, n FROM s WHERE n > 2",
    "windows": "SELECT name, sum(n) AS n FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY name",
    "joined": "SELECT s.n, t.n AS m FROM s [RANGE 3 SECONDS] JOIN t [RANGE 3 SECONDS] "
    "ON s.name = t.name",
    "over": "SELECT max(m) AS most FROM (SELECT s.n, t.n AS m FROM s [RANGE 3 SECONDS] "
    "JOIN t [RANGE 3 SECONDS] ON s.name = t.name) [RANGE 6 SECONDS SLIDE 6 SECONDS]",
}
Results = dict[str, Counter[tuple[Any, ...]]]


def results(spark: Any, home: Path, schedule: ScheduleSettings) -> tuple[Results, Loop]:
    """All results over batches that come while it works; goals change in the middle."""
    settings = EngineSettings(slots=2, step_rows_max=8, schedule=schedule)
    engine = Engine(home, SparkPlane(spark), settings)
    for name in ("s", "t"):
        engine.add_stream(stream(name, source="push"))
    for name, cql in QUERIES.items():
        engine.add_query(name, cql)
    loop = Loop(engine)
    loop.start()
    try:
        for number in range(1, 5):
            for name in ("s", "t"):
                door = engine.sources[name]
                assert isinstance(door, PushSource)
                rows = [
                    {"at": 5 * number + i, "name": "ab"[i % 2], "n": number * i} for i in range(5)
                ]
                door.push("p", number, rows)
            if number == 2:
                change_goals(engine, TEMPLATES.get("fresh"))
                change_goals(engine, TEMPLATES.get("small"), "joined", 3.0)
        for source in engine.sources.values():
            assert isinstance(source, PushSource)
            source.finish()
        assert loop.finished.wait(120)
        assert loop.failure is None
        return {name: bag(engine.result(name).to_pylist()) for name in QUERIES}, loop
    finally:
        loop.stop()
        engine.close()


def test_no_choice_changes_a_result(spark: Any, tmp_path: Path) -> None:
    everybody = ScheduleSettings(
        candidates=ALGORITHMS.names(), selector="roulette", start_s=0, explore_s=0.05,
        scoring_s=0.05, statistics_s=0.05, threshold_rows=3, ratio=0.3,
    )  # fmt: skip
    kinds = {
        "wheel": everybody,
        "chain": ScheduleSettings(candidates=("chain",), selector="fixed", threshold_rows=3),
        "default": ScheduleSettings(statistics_s=0.05, scoring_s=0.1),
    }
    found = {}
    for name, schedule in kinds.items():
        found[name], loop = results(spark, tmp_path / name, schedule)
        trace = list(loop.scheduler.scheduler.trace)
        assert all(isinstance(e, Choice | Switch) and e.reason for e in trace)
        if name == "wheel":
            assert len({e.algorithm for e in trace if isinstance(e, Choice)}) > 2
    assert sum(found["default"]["joined"].values()) > 0
    assert found["wheel"] == found["chain"] == found["default"]


def test_figures_name_goals_limits_and_who_waits(spark: Any, tmp_path: Path) -> None:
    schedule = ScheduleSettings(
        candidates=("fifo",), selector="fixed", starvation_wait_s=0.2, statistics_s=0.05
    )
    engine = Engine(tmp_path / "home", SparkPlane(spark), EngineSettings(schedule=schedule))
    engine.add_stream(stream("s", source="push"))
    engine.add_query("q", "SELECT n FROM s")
    loop = Loop(engine)  # never started: rows wait
    door = engine.sources["s"]
    assert isinstance(door, PushSource)
    door.push("p", 1, [{"at": 1, "name": "", "n": 1}])
    with engine.lock:
        choice = loop.scheduler.choose(set())
        assert choice is not None
        loop.scheduler.scheduler.abandon(choice[0])
        loop.scheduler.choose({choice[1].id, *(o.id for o in choice[1].operators)})
        loop.scheduler.scheduler.abandon(choice[0])
        loop.scheduler.scheduler._waiting_since[choice[1].id] = time.time() - 5
    figures = scheduling_figures(loop)
    assert list(figures["starving"].values()) == [pytest.approx(5.0, abs=1.0)]
    assert figures["algorithm"] == "fifo"
    assert [goal["statistic"] for goal in figures["goals"]] == [
        "queue_rows", "delay", "output_rate",
    ]  # fmt: skip
    assert figures["met"] is None
    for wrong in ("qq", "Q"):
        with pytest.raises(UsageError):
            change_goals(engine, TEMPLATES.get("fresh"), wrong)
    engine.close()


def test_nobody_waits_for_good_unless_an_algorithm_was_asked_for(
    spark: Any, tmp_path: Path
) -> None:
    """A few rows, which may be a window's whole result, wait beside a queue that stays long."""
    asked = ScheduleSettings(candidates=("cost_aware",), selector="fixed")
    served = {}
    for name, settings in {
        "default": EngineSettings(),
        "selected": EngineSettings(schedule=ScheduleSettings()),
        "asked": EngineSettings(schedule=asked),
    }.items():
        engine = Engine(tmp_path / name, SparkPlane(spark), settings)
        scheduler = StepScheduler(engine).scheduler
        views = [OperatorView("long", 100_000), OperatorView("short", 4)]
        chosen = []
        for second in range(int(PATIENCE_S) + 3):
            choice = scheduler.choose(views, now=float(second))
            assert choice is not None
            chosen.append(choice)
            rows = int(choice.rows)
            scheduler.report(StepReport(choice.operator, rows, 0, 0.1, float(second) + 0.1))
        served[name] = any(c.operator == "short" for c in chosen)
        engine.close()
    assert served == {"default": True, "selected": True, "asked": False}


def test_members_of_a_shared_job_are_told_with_it(spark: Any, tmp_path: Path) -> None:
    engine = Engine(tmp_path / "home", SparkPlane(spark))
    engine.add_stream(stream("s", source="push"))
    for bound in (1, 2):
        engine.add_query(f"q{bound}", f"SELECT n FROM s WHERE n > {bound}")
    engine.add_query("alone", "SELECT max(n) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND]")
    reports: list[Any] = []
    engine.on_step.append(reports.append)
    loop = Loop(engine)
    loop.start()
    try:
        door = engine.sources["s"]
        assert isinstance(door, PushSource)
        door.push("p", 1, [{"at": n, "name": "a", "n": n} for n in range(5)])
        assert loop.settled.wait(60)
    finally:
        loop.stop()
        engine.close()
    pair = {engine.queries[name].stream for name in ("q1", "q2")}
    shared = [r for r in reports if r.operator in pair]
    assert {r.operator for r in shared} == pair
    assert {r.members for r in shared} == {2}
    assert len({r.job for r in shared}) == 1
    assert shared[0].job
    others = [r for r in reports if r.operator not in pair]
    assert others
    assert {(r.job, r.members) for r in others} == {("", 1)}
