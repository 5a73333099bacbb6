"""A query that may drop rows does without those that have missed its limit; nobody else does."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_loop_without_spark import listening, opened

import millstream
from millstream.control.snapshot.alarms import judged
from millstream.control.snapshot.model import Alarm
from millstream.core.errors import UsageError
from millstream.decide.schedule.goal_text import specification_from_text
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.scheduling.figures import scheduling_figures
from millstream.engine.scheduling.goals import change_goals
from millstream.engine.sources.alarm_look import AlarmLook
from millstream.engine.sources.push_source import PushSource
from millstream.engine.steps.trains import alone

LIMIT_S = 0.05
DROPPING = specification_from_text("delay <= 50 ms, may_drop")


def push(engine: Engine, number: int, *values: int) -> None:
    door = engine.sources["a"]
    assert isinstance(door, PushSource)
    door.push("p", number, [{"ts": value, "c0": value} for value in values])


def wait_past_the_limit() -> None:
    time.sleep(2 * LIMIT_S)


def finish(engine: Engine) -> Loop:
    door = engine.sources["a"]
    assert isinstance(door, PushSource)
    door.finish()
    loop = Loop(engine)
    loop.run()
    return loop


def alarms(engine: Engine) -> list[Alarm]:
    look = AlarmLook(engine, "local")
    return list(judged(look._snapshot(time.time())).overview.alarms)


def test_rows_that_have_missed_the_limit_are_dropped_and_counted(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home", source="push")
    one, two = listening(engine, "one", "1"), listening(engine, "two", "5")
    change_goals(engine, specification_from_text("delay <= 2s, may_drop"), "two", 1.0)
    push(engine, 1, 1, 2, 3)
    time.sleep(2.1)
    push(engine, 2, 4)  # this one comes in time
    loop = finish(engine)
    assert one == [2, 3, 4, 5], "who has not asked for it keeps every row"
    assert two == [9]
    assert engine.status()["queries"]["two"]["shed"] == 3
    assert engine.status()["queries"]["one"]["shed"] == 0
    assert scheduling_figures(loop)["shed"] == {"two": 3}
    [alarm] = [a for a in alarms(engine) if a.kind == "shed"]
    assert alarm.sentence == "query two did without 3 rows that had missed its limit of delay"
    assert alarm.queries == ("two",)
    engine.close()


def test_the_count_is_durable_and_a_crash_drops_nothing_twice(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for number in (1, 2):
        engine = opened(home, source="push")
        listening(engine, "q", "1")
        change_goals(engine, DROPPING, "q", 1.0)
        push(engine, number, 10 * number, 10 * number + 1)
        wait_past_the_limit()
        assert engine.runner.run(alone(next(iter(engine.operators.values()))), 100) is not None
        assert engine.status()["queries"]["q"]["shed"] == 2 * number
        engine.close()


def test_what_waited_before_the_query_ran_here_is_kept(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home", source="push")
    push(engine, 1, 1, 2, 3)
    wait_past_the_limit()
    values = listening(engine, "q", "1")
    change_goals(engine, DROPPING, "q", 1.0)
    finish(engine)
    assert values == [2, 3, 4], "history is no backlog"
    assert engine.status()["queries"]["q"]["shed"] == 0
    engine.close()


def test_a_shared_operator_drops_only_what_all_its_queries_may(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home", source="push")
    one, two = listening(engine, "one", "1"), listening(engine, "two", "1")
    assert len(engine.operators) == 1
    change_goals(engine, DROPPING, "two", 1.0)
    assert not engine.shedding.allowances()
    change_goals(engine, specification_from_text("delay <= 30s, may_drop"), "one", 1.0)
    [allowance] = engine.shedding.allowances().values()
    assert allowance.limit_s == 30, "the longest limit of all"
    push(engine, 1, 1)
    wait_past_the_limit()
    finish(engine)
    assert one == two == [2]
    engine.close()


def test_work_that_was_done_is_not_thrown_away(tmp_path: Path) -> None:
    engine = opened(tmp_path / "home", source="push")
    listening(engine, "q", "1+2")
    change_goals(engine, DROPPING, "q", 1.0)
    first, second = engine.operators.values()  # their ids look like those of sources
    assert set(engine.shedding.allowances()) == {
        first.id,
        second.id,
    }
    engine.operators[second.id] = replace(second, inputs=("o:of another operator",))
    engine.operators["o:more"] = replace(first, id="o:more", kind="distinct")
    assert set(engine.shedding.allowances()) == {first.id}
    engine.close()


@pytest.mark.parametrize("goals", ["may_drop", "delay min, may_drop", "queue_rows <= 5, may_drop"])
def test_dropping_needs_a_limit_of_delay(goals: str) -> None:
    with pytest.raises(UsageError) as caught:
        specification_from_text(goals)
    assert "limit of delay" in str(caught.value)


@pytest.mark.spark
def test_neighbours_in_one_job_keep_every_row(spark: Any) -> None:
    """Two filters that would go together; one of them may drop rows, and has to."""
    with millstream.Session() as session:
        session.stream("n", columns={"at": "long", "n": "int"}, time="timestamp_seconds(at)")
        keeps = session.query("SELECT n FROM n WHERE n > 10", "keeps")
        drops = session.query("SELECT n FROM n WHERE n > 20", "drops")
        drops.set_quality("delay <= 1 ms, may_drop")
        for batch in range(20):
            rows = [{"at": 100 * batch + i, "n": i} for i in range(50)]
            session.push("n", rows)
        session.finish("n")
        session.wait()
        kept, dropped = list(keeps), list(drops)
        assert len(kept) == 20 * 39
        status = session.status()["queries"]
        assert (status["keeps"]["shed"], status["drops"]["shed"] % 50) == (0, 0)
        assert status["drops"]["shed"] > 0
        assert len(dropped) == 20 * 29 - status["drops"]["shed"] // 50 * 29
