"""Goals of a query reach the steps of a running engine; plain Python computes the rows."""

import time
from pathlib import Path

import pytest
from test_loop_without_spark import listening, opened

from millstream.decide.schedule import TEMPLATES
from millstream.decide.schedule.goal_text import specification_from_text
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.scheduling.figures import scheduling_figures
from millstream.engine.scheduling.goal_snapshots import goals_told
from millstream.engine.scheduling.goals import change_goals
from millstream.engine.scheduling.step_scheduler import StepScheduler
from millstream.engine.sources.alarm_look import AlarmLook
from millstream.engine.sources.push_source import PushSource

FRESH = TEMPLATES.get("fresh")


def waiting(home: Path) -> Engine:
    """Two queries of one stream, and rows that wait for both."""
    engine = opened(home, source="push")
    listening(engine, "one", "1")
    listening(engine, "two", "5")
    door = engine.sources["a"]
    assert isinstance(door, PushSource)
    door.push("p", 1, [{"ts": n, "c0": n} for n in range(10)])
    return engine


def first_query(engine: Engine) -> str:
    """Whose step the engine's scheduler takes next."""
    with engine.lock:
        chosen = StepScheduler(engine).choose(set())
    assert chosen is not None
    _, unit = chosen
    (query,) = [q.name for q in engine.queries.values() if q.stream == unit.operators[0].id]
    return query


@pytest.mark.parametrize("favoured", ["one", "two"])
def test_a_weight_decides_whose_step_comes_next(tmp_path: Path, favoured: str) -> None:
    engine = waiting(tmp_path / "home")
    change_goals(engine, FRESH)
    change_goals(engine, FRESH, favoured, 1000.0)
    assert first_query(engine) == favoured
    engine.close()


@pytest.mark.parametrize("limited", ["one", "two"])
def test_a_limit_at_risk_decides_whose_step_comes_next(tmp_path: Path, limited: str) -> None:
    engine = waiting(tmp_path / "home")
    other = "two" if limited == "one" else "one"
    change_goals(engine, FRESH, other, 1000.0)
    change_goals(engine, specification_from_text("delay <= 1 ms"), limited, 1.0)
    time.sleep(0.002)
    assert first_query(engine) == limited
    engine.close()


def test_goals_are_told_by_query_and_change_no_result(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home", source="push")
    one, two = listening(engine, "one", "1"), listening(engine, "two", "5")
    change_goals(engine, specification_from_text("delay <= 60s"), "two", 10.0)
    loop = Loop(engine)
    door = engine.sources["a"]
    assert isinstance(door, PushSource)
    door.push("p", 1, [{"ts": n, "c0": n} for n in range(10)])
    door.finish()
    loop.run()
    assert (one, two) == ([n + 1 for n in range(10)], [n + 5 for n in range(10)])
    figures = scheduling_figures(loop)
    mine = [goal for goal in figures["goals"] if goal["query"] == "two"]
    assert [goal["statistic"] for goal in mine] == ["delay"]
    assert mine[0]["met"] is not False
    assert set(figures["costs_others"]) <= {"two"}
    engine.close()


def test_a_goal_that_is_missed_is_an_alarm_among_the_others(tmp_path: Path) -> None:
    engine = waiting(tmp_path / "home")
    change_goals(engine, specification_from_text("delay <= 1 ms"), "one", 1.0)
    look = AlarmLook(engine, "local")
    assert look.rows() == [], "nobody measures before a loop does"
    loop = Loop(engine)
    time.sleep(0.01)
    loop.start()
    try:
        assert loop.settled.wait(10)
        scheduling_figures(loop)  # measures what no choice has closed yet
        told = [(r["kind"], r["subject"], r["state"]) for r in look.rows()]
    finally:
        loop.stop()
    assert told == [("goal", "one", "raised")]
    (mine,) = goals_told(engine)["one"]
    assert mine.met is False
    engine.close()
