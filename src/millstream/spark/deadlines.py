"""No step goes on for ever: after its time its jobs are cut off, and after that Java itself.

Each thread that runs steps has a job group of its own, set once, so that a step costs nothing
more. One thread looks at all deadlines. A job that does not end although it was cut off, or a Java
process that does not answer, is ended for good: the next process tries the steps in flight alone.
So is one in which tasks go on that nobody waits for any more: a regular expression that runs away
hears no interrupt and would keep a core for ever.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf, isinf
from typing import Any

from millstream.engine.steps.bounds import StepRefusedError

LOOK_S = 1.0
IDLE_LOOKS_MAX = 3  # without a step, after which nobody watches
GRACE_S = 30.0  # for a job that was cut off
LOOKS_AT_TASKS = 3  # that must all find some left over: they begin and end all the time


@dataclass(slots=True)
class _Running:
    seconds_max: float
    until: float
    cut: bool = False


class Deadlines:
    """Of one Spark session. `process` is its Java process, where that is a child of ours."""

    def __init__(self, context: Any, process: Any = None) -> None:
        self._context, self._process = context, process
        self._running: dict[str, _Running] = {}
        self._own = threading.local()
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None
        self._tasks_due = inf  # when to look whether tasks are left over from what was cut off
        self._left_over = 0  # looks in a row that found some

    @contextmanager
    def within(self, seconds_max: float) -> Iterator[None]:
        """Jobs that this thread starts inside the block end in time, or are cut off."""
        if isinf(seconds_max):
            yield
            return
        group = self._group()
        running = _Running(seconds_max, time.monotonic() + seconds_max)
        with self._lock:
            self._running[group] = running
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._watch, name="millstream-deadlines", daemon=True
                )
                self._watcher.start()
        try:
            yield
        except Exception as error:
            if running.cut:
                raise StepRefusedError(
                    f"a step took longer than {seconds_max:g} s and was cut off",
                    hint="step_seconds_max of [engine] allows for more",
                ) from error
            raise
        finally:
            with self._lock:
                self._running.pop(group, None)

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
                idle = 0 if self._running or self._tasks_due < inf else idle + 1
                if idle > IDLE_LOOKS_MAX:
                    self._watcher = None
                    return
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        with self._lock:
            late = {g: r for g, r in self._running.items() if now > r.until}
        for group, running in late.items():
            if not running.cut:
                running.cut = True
                self._tasks_due = now + GRACE_S
                # Java may not answer: nobody waits for it
                threading.Thread(target=self._cancel, args=(group,), daemon=True).start()
            elif now > running.until + GRACE_S and self._process is not None:
                self._process.kill()

        if now > self._tasks_due:
            self._look_at_tasks()

    def _look_at_tasks(self) -> None:
        """Ends Java where tasks of jobs that were cut off do not end."""
        found = threading.Thread(target=self._count_tasks, daemon=True)
        found.start()
        found.join(LOOK_S)  # Java may not answer: then the steps in flight say so
        if self._left_over == 0:
            self._tasks_due = inf
        elif self._left_over >= LOOKS_AT_TASKS and self._process is not None:
            self._tasks_due = inf
            self._process.kill()

    def _count_tasks(self) -> None:
        with suppress(Exception):
            tracker = self._context.statusTracker()
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            wanted = sum(info.numActiveTasks for info in infos if info is not None)
            java = self._context._jsc.sc().statusTracker()
            going = sum(one.numRunningTasks() for one in java.getExecutorInfos())
            self._left_over = self._left_over + 1 if going > wanted else 0

    def _cancel(self, group: str) -> None:
        with suppress(Exception):
            self._context.cancelJobGroup(group)
