"""What the scheduler of an engine did: scores at its reviews, and changes of algorithm.

Reads the scheduler's trace and score board now and then; decides nothing.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from millstream.control.snapshot.model import ScorePoint
from millstream.decide.schedule.facts import Switch
from millstream.edge.views.decision_log import DecisionLog

if TYPE_CHECKING:
    from millstream.engine.loop import Loop
    from millstream.engine.steps.reports import StepReport

POINTS_KEPT = 200
GROUPS_SECONDS = 2.0
LOCK_SECONDS = 0.1


class SchedulerWatch:
    """Follows the scheduler of one processor."""

    def __init__(self, decisions: DecisionLog, processor: str) -> None:
        self._decisions, self._processor = decisions, processor
        self._points: deque[ScorePoint] = deque(maxlen=POINTS_KEPT)
        self._reviewed = float("-inf")
        self._lock = threading.Lock()
        self.groups: Mapping[str, str] = {}  # operators that run in one job, by what they share
        self._groups_due = 0.0
        self.steps = 0

    def stepped(self, report: "StepReport") -> None:
        self.steps += 1

    def look(self, loop: "Loop | None") -> None:
        """Takes note of reviews since the last look."""
        if loop is None:
            return
        scheduler = loop.scheduler.scheduler
        # the trace grows under this lock; a registration holds it for long, and we look again soon
        if not loop.engine.lock.acquire(timeout=LOCK_SECONDS):
            return
        try:
            fresh = [e for e in scheduler.trace if isinstance(e, Switch) and e.at > self._reviewed]
            scores = dict(scheduler.scores)
            self._look_for_groups(loop)
        finally:
            loop.engine.lock.release()
        for switch in fresh:
            self._reviewed = switch.at
            with self._lock:
                self._points.append(
                    ScorePoint(
                        switch.at,
                        switch.after,
                        {k: round(v, 4) for k, v in scores.items()} if switch is fresh[-1] else {},
                    )
                )
            if switch.before not in (None, switch.after):
                self._decisions.add(
                    "switch",
                    f"{self._processor} schedules by {switch.after} instead of {switch.before}",
                    reason=switch.reason,
                    subject=("processor", self._processor),
                    at=switch.at,
                )

    def _look_for_groups(self, loop: "Loop") -> None:
        """Which operators run together; now and then, because looking sorts them all."""
        if time.monotonic() < self._groups_due:
            return
        self._groups_due = time.monotonic() + GROUPS_SECONDS
        self.groups = {
            operator.id: unit.family or unit.id
            for unit in loop.scheduler.trains.units()
            if len(unit.operators) > 1
            for operator in unit.operators
        }

    def scores(self) -> tuple[ScorePoint, ...]:
        with self._lock:
            return tuple(self._points)
