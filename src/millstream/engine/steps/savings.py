"""What sharing has saved: the work that was done, beside the same work with one job for each query.

Looks at every step of this process. A step of an operator that several queries use would have been
taken once for each of them. A step that went in one job with others would have been a job of its
own. What such a job costs is taken from steps that operators of the same kind took alone here (the
median: the first steps of a process are slow); where there was none, from the job that was shared.
So a lone job never counts for more than the shared one took. Measures, decides nothing.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from millstream.engine.query import Query
from millstream.engine.steps.reports import StepReport
from millstream.language.share.dataflow import Operator

LONE_STEPS_KEPT = 500  # of each kind


@dataclass(slots=True)
class _Work:
    """The steps of one operator."""

    seconds: float = 0.0  # its part
    alone_s: float = 0.0  # of steps that it took alone
    steps: int = 0
    joint_steps: int = 0  # that went in one job with others
    joint_s: float = 0.0  # of those jobs, as wholes


@dataclass(frozen=True, slots=True)
class Saved:
    """Jobs and seconds, as they were and as they would have been one by one."""

    operators: int = 0
    shared_operators: int = 0  # used by several queries, or run in one job with others
    most_queries: int = 0  # that one job has served
    jobs: int = 0
    jobs_alone: int = 0
    seconds: float = 0.0
    seconds_alone: float = 0.0

    @property
    def saved_s(self) -> float:
        return max(0.0, self.seconds_alone - self.seconds)

    @property
    def part(self) -> float:
        return self.saved_s / self.seconds_alone if self.seconds_alone else 0.0

    def figures(self) -> dict[str, Any]:
        """Plain values, for summaries.

        >>> Saved(jobs=2, jobs_alone=5, seconds=1.0, seconds_alone=4.0).figures()["saved_part"]
        0.75
        """
        return {
            "operators": self.operators,
            "shared_operators": self.shared_operators,
            "most_queries": self.most_queries,
            "jobs": self.jobs,
            "jobs_alone": self.jobs_alone,
            "seconds": round(self.seconds, 2),
            "seconds_alone": round(self.seconds_alone, 2),
            "saved_s": round(self.saved_s, 2),
            "saved_part": round(self.part, 3),
        }


class Savings:
    """Listens to steps; gives what sharing has saved since the process began."""

    def __init__(self, operators: Mapping[str, Operator], queries: Mapping[str, Query]) -> None:
        self._operators, self._queries = operators, queries
        self._work: dict[str, _Work] = defaultdict(_Work)
        self._lone: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LONE_STEPS_KEPT))
        self._jobs: dict[tuple[str, float], list[StepReport]] = {}  # whose members are not all told
        self._done = self._most = 0
        self._lock = threading.Lock()

    def stepped(self, report: StepReport) -> None:
        """Called for every member of every step."""
        with self._lock:
            work = self._work[report.operator]
            work.seconds += report.seconds
            work.steps += 1
            if not report.job:
                self._done += 1
                work.alone_s += report.seconds
                if report.operator in self._operators:
                    self._lone[self._operators[report.operator].kind].append(report.seconds)
                self._served([report.operator])
                return
            members = self._jobs.setdefault((report.job, report.started), [])
            members.append(report)
            if len(members) == report.members:
                self._finish(self._jobs.pop((report.job, report.started)))

    def _finish(self, members: list[StepReport]) -> None:
        self._done += 1
        whole = sum(m.seconds for m in members)
        for member in members:
            work = self._work[member.operator]
            work.joint_steps += 1
            work.joint_s += whole
        self._served([m.operator for m in members])

    def _served(self, operators: list[str]) -> None:
        chosen = set(operators)
        served = sum(not chosen.isdisjoint(q.operators) for q in list(self._queries.values()))
        self._most = max(self._most, served)

    def saved(self) -> Saved:
        """What has been done so far, and what it would have been without sharing."""
        users: dict[str, int] = defaultdict(int)
        for query in list(self._queries.values()):
            for operator in query.operators:
                users[operator] += 1
        with self._lock:
            lone = {kind: median(found) for kind, found in self._lone.items() if found}
            counted = [
                (users[name], work, lone.get(self._operators[name].kind))
                for name, work in self._work.items()
                if users[name] and name in self._operators
            ]
            return Saved(
                operators=len(counted),
                shared_operators=sum(n > 1 or w.joint_steps > 0 for n, w, _ in counted),
                most_queries=self._most,
                jobs=self._done,
                jobs_alone=sum(n * w.steps for n, w, _ in counted),
                seconds=sum(w.seconds for _, w, _ in counted),
                seconds_alone=sum(n * _alone(w, usual) for n, w, usual in counted),
            )


def _alone(work: _Work, usual: float | None) -> float:
    """Seconds of an operator's steps, had it taken each of them alone."""
    joint_s = work.joint_s if usual is None else min(work.joint_s, work.joint_steps * usual)
    return work.alone_s + joint_s
