"""What is seen of a scheduler: scores at reviews, changes of algorithm, operators in one job."""

import threading
from types import SimpleNamespace
from typing import Any

from millstream.decide.schedule.facts import Choice, Switch
from millstream.edge.views.decision_log import DecisionLog
from millstream.edge.views.scheduler_watch import SchedulerWatch


def loop_with(trace: list[Any], scores: dict[str, float], units: list[Any] | None = None) -> Any:
    scheduler = SimpleNamespace(trace=trace, scores=scores)
    trains = SimpleNamespace(units=lambda: units or [])
    return SimpleNamespace(
        engine=SimpleNamespace(lock=threading.RLock()),
        scheduler=SimpleNamespace(scheduler=scheduler, trains=trains),
    )


def test_reviews_are_points_and_changes_are_decisions() -> None:
    log = DecisionLog()
    watch = SchedulerWatch(log, "p1")
    trace: list[Any] = [
        Switch(1.0, None, "fifo", "the first"),
        Choice(1, "o:1", 5, 1.5, "fifo", "oldest"),
        Switch(2.0, "fifo", "chain", "it scores best"),
        Switch(3.0, "chain", "chain", "kept"),
    ]
    watch.look(loop_with(trace, {"fifo": 0.25, "chain": 0.75}))
    assert [(p.at, p.algorithm) for p in watch.scores()] == [
        (1.0, "fifo"), (2.0, "chain"), (3.0, "chain"),
    ]  # fmt: skip
    assert watch.scores()[-1].scores == {"fifo": 0.25, "chain": 0.75}
    (told,) = log.latest()
    assert (told.kind, told.at, told.reason) == ("switch", 2.0, "it scores best")
    assert told.sentence == "p1 schedules by chain instead of fifo"
    watch.look(loop_with(trace, {}))  # nothing new
    assert len(watch.scores()) == 3
    assert len(log.latest()) == 1


def test_operators_of_one_job_are_a_group() -> None:
    def operators(*names: str) -> list[Any]:
        return [SimpleNamespace(id=n) for n in names]

    units = [
        SimpleNamespace(id="u1", family="f", operators=operators("a", "b")),
        SimpleNamespace(id="u2", family="", operators=operators("c")),
    ]
    watch = SchedulerWatch(DecisionLog(), "p1")
    watch.look(loop_with([], {}, units))
    assert watch.groups == {"a": "f", "b": "f"}


def test_a_lock_that_is_held_for_long_is_not_waited_for() -> None:
    watch = SchedulerWatch(DecisionLog(), "p1")
    loop = loop_with([Switch(1.0, None, "fifo", "")], {})
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with loop.engine.lock:
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    watch.look(loop)
    assert watch.scores() == ()
    done.set()
    holder.join()
    watch.look(loop)
    assert len(watch.scores()) == 1


def test_no_loop_yet() -> None:
    watch = SchedulerWatch(DecisionLog(), "p1")
    watch.look(None)
    assert watch.scores() == ()
