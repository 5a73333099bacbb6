"""No step runs for ever: after its time its jobs are cut off, and after that Java itself.

Each thread that runs steps has a job group of its own, set once, so that a step costs nothing more.
One thread looks at all deadlines. A job that does not end although it was cut off, or a Java
process that does not answer, is ended for good: the next process tries the steps in flight alone.
So is one with abandoned tasks: a runaway regular expression ignores interrupts and would keep a
core for ever. Until that is decided the step that was cut off does not come back, and the time of
the others does not count: they may lack that core.

Questions to Spark's analyser have a deadline as well, and no job that could be cut off: what runs
away among constants runs in the driver. Their time is not up before Java has also worked for it: on
a machine that has other work an honest question takes long.
"""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf, isinf
from pathlib import Path
from typing import Any, TypeVar

from millstream.engine.steps.bounds import StepRefusedError
from millstream.language.cql.analyzer import UnansweredError

LOOK_S = 1.0
IDLE_LOOKS_MAX = 3  # without a step, after which nobody watches
GRACE_S = 30.0  # for a job that was cut off
QUESTION_S = 20.0  # for the analyser's answer, and its grace
TASKS_LOOK_S = 0.5
T = TypeVar("T")


@dataclass(slots=True)
class _Running:
    seconds_max: float
    until: float
    cut: bool = False
    worked_s: float | None = None  # of Java when a question began
    tasks: int | None = None  # that have ended, where each of them wins time for the rest


class Deadlines:
    """Of one Spark session. `process` is its Java process, where that is a child of ours."""

    def __init__(self, context: Any, process: Any = None) -> None:
        self._context, self._process = context, process
        self._running: dict[str, _Running] = {}
        self._own = threading.local()
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None
        self._settling = 0  # steps that were cut off and whose tasks may still go on

    @contextmanager
    def within(self, seconds_max: float, *, by_task: bool = False) -> Iterator[None]:
        """Jobs that this thread starts inside the block end in time, or are cut off.

        `by_task`: so long without a task that ends, however many there are.
        """
        if isinf(seconds_max):
            yield
            return
        group = self._group()
        if group in self._running:  # part of another
            yield
            return
        running = self._begun(group, seconds_max)
        running.tasks = 0 if by_task else None
        try:
            yield
        except Exception as error:
            if running.cut:
                self._settle(running)
                raise StepRefusedError(
                    f"{'a part of ' if by_task else ''}a step took longer than {seconds_max:g} s "
                    "and was cut off",
                    hint="step_seconds_max of [engine] allows for more",
                ) from error
            raise
        finally:
            with self._lock:
                self._running.pop(group, None)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """A question to the analyser inside the block is answered in time, or ends Java."""
        name = f"question-{threading.get_ident()}"
        if name in self._running:  # part of another
            yield
            return
        running = self._begun(name, QUESTION_S)
        running.worked_s = self._worked_s()
        try:
            yield
        except Exception as error:
            if running.cut and self._ended():
                raise UnansweredError(
                    f"Spark did not come to an end with it in {QUESTION_S + GRACE_S:g} s",
                    detail="its Java process was ended, and is to be started again",
                    hint="an expression over constants alone runs away, a regular expression say",
                ) from error
            raise
        finally:
            with self._lock:
                self._running.pop(name, None)

    def _barely_began(self, running: _Running) -> bool:
        """Whether Java has not had the time for a question yet."""
        if running.cut or running.worked_s is None or (worked_s := self._worked_s()) is None:
            return False
        return worked_s - running.worked_s < QUESTION_S / 2

    def _worked_s(self) -> float | None:
        """CPU seconds of Java; None where nobody says."""
        if self._process is None:
            return None
        try:
            told = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        except OSError:
            return None
        fields = told.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _ended(self) -> bool:
        """Whether Java is gone, or just going."""
        if self._process is None:
            return False
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LOOK_S)
        return self._process.poll() is not None

    def _begun(self, name: str, seconds_max: float) -> _Running:
        running = _Running(seconds_max, time.monotonic() + seconds_max)
        with self._lock:
            self._running[name] = running
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._watch, name="millstream-deadlines", daemon=True
                )
                self._watcher.start()
        return running

    def _group(self) -> str:
        known: str | None = getattr(self._own, "group", None)
        if known is None:
            known = self._own.group = f"millstream-{threading.get_ident()}"
            self._context.setJobGroup(known, "a step", True)
        return known

    def _watch(self) -> None:
        idle = 0
        while True:
            time.sleep(LOOK_S)
            with self._lock:
                idle = 0 if self._running else idle + 1
                if idle > IDLE_LOOKS_MAX:
                    self._watcher = None
                    return
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        with self._lock:
            for running in self._running.values() if self._settling else ():
                if not running.cut:
                    running.until += LOOK_S
            late = {g: r for g, r in self._running.items() if now > r.until}
        for group, running in late.items():
            if self._barely_began(running):
                running.until = now + LOOK_S
            elif self._advances(group, running):
                running.until = now + running.seconds_max
            elif not running.cut:
                running.cut = True
                # Java may not answer: nobody waits for it
                threading.Thread(target=self._cancel, args=(group,), daemon=True).start()
            elif now > running.until + GRACE_S and self._process is not None:
                self._process.kill()

    def _advances(self, group: str, running: _Running) -> bool:
        """Whether a task has ended since the last look, where each of them wins time."""
        if running.cut or running.tasks is None:
            return False
        before, running.tasks = running.tasks, max(self._ended_tasks(group), running.tasks)
        return running.tasks > before

    def _ended_tasks(self, group: str) -> int:
        """Of the jobs that run for a group; 0 where nobody can tell in time."""

        def count() -> int:
            tracker = self._context.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [s for job in jobs if job is not None for s in job.stageIds]
            infos = [tracker.getStageInfo(stage) for stage in stages]
            return sum(info.numCompletedTasks for info in infos if info is not None)

        return _in_time(count) or 0

    def _cancel(self, group: str) -> None:
        with suppress(Exception):
            self._context.cancelJobGroup(group)

    def _settle(self, running: _Running) -> None:
        """Waits for tasks of a job that was cut off; ends Java where they do not end."""
        with self._lock:
            self._settling += 1
        try:
            until = time.monotonic() + GRACE_S
            while self._left_over():
                if time.monotonic() > until:
                    if self._process is not None:
                        self._process.kill()
                    return
                time.sleep(TASKS_LOOK_S)
        finally:
            running.until = inf  # it has come back: Java is not ended for it any more
            with self._lock:
                self._settling -= 1

    def _left_over(self) -> bool:
        """Whether tasks run that belong to no stage; False where nobody can tell."""

        def count() -> int:
            tracker = self._context.statusTracker()
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            wanted = sum(info.numActiveTasks for info in infos if info is not None)
            java = self._context._jsc.sc().statusTracker()
            return sum(int(e.numRunningTasks()) for e in java.getExecutorInfos()) - int(wanted)

        return (_in_time(count) or 0) > 0


def _in_time(ask: Callable[[], T]) -> T | None:
    """What Java answers; None where it does not, or not soon."""
    found: list[T] = []

    def asking() -> None:
        with suppress(Exception):
            found.append(ask())

    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    thread.join(LOOK_S)
    return found[0] if found else None
