"""The load of one processor as balancing sees it, from the steps that it runs.

Counts seconds, steps and rows of operators by windows (seed 002, section 3.3) and asks for measured
costs; `decide/balance/busy_time` and `decide/balance/needed_time` say what follows from them.
Decides nothing.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.decide.balance import needed_time
from millstream.decide.balance.busy_time import BusyTime, after_window
from millstream.decide.balance.needed_time import Rates

if TYPE_CHECKING:
    from millstream.engine.engine import Engine
    from millstream.engine.steps.reports import StepReport

FIRST_STEPS_SECONDS = 15.0  # in which an operator that has come is slow: code is compiled
Costs = Callable[[Collection[str]], Mapping[str, tuple[float, float]]]  # fixed and row seconds


@dataclass(slots=True)
class _Window:
    """What operators did since it began."""

    begun_s: float
    seconds: dict[str, float] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Expected:
    """The load that an operator had where it came from, for as long as its first steps count."""

    load: float
    until_s: float


class MeasuredLoad:
    """What a processor's operators need, how busy it is, and with whom operators share jobs."""

    def __init__(
        self, engine: "Engine", costs: Costs, *, alpha: float, cycle_s: float, now_s: float
    ) -> None:
        self.engine, self._costs = engine, costs
        self._alpha, self._cycle_s = alpha, cycle_s
        self.busy = 0.0  # share of the time, by the seed's filter
        self.loads: Mapping[str, float] = {}  # by operator: share of the time that it needs
        self._lock = threading.Lock()
        self._window = _Window(now_s)
        self._busy_time, self._rates = BusyTime(), Rates()
        self._expected: dict[str, _Expected] = {}
        self._jobs: dict[str, tuple[str, int]] = {}  # what an operator shared last, of how many
        engine.on_step.append(self._stepped)

    @property
    def _slots(self) -> int:
        return max(1, self.engine.settings.slots)

    def _stepped(self, report: "StepReport") -> None:
        name = report.operator
        with self._lock:
            window = self._window
            window.seconds[name] = window.seconds.get(name, 0.0) + report.seconds
            window.steps[name] = window.steps.get(name, 0) + 1
            window.rows[name] = window.rows.get(name, 0) + report.rows_in
            self._jobs[name] = (report.job, report.members)

    def arrived(self, operators: Collection[str], load: float, now_s: float) -> None:
        """Operators have come that were this load together where they were."""
        given = _Expected(load / max(1, len(operators)), now_s + FIRST_STEPS_SECONDS)
        with self._lock:
            self._expected.update(dict.fromkeys(operators, given))

    def close_window(self, now_s: float) -> None:
        """Takes in what was done since the last time."""
        present = set(self.engine.operators)
        with self._lock:
            window, self._window = self._window, _Window(now_s)
            span_s, alpha = now_s - window.begun_s, self._alpha
            self._busy_time, busy = after_window(
                self._busy_time, window.seconds, span_s * self._slots, alpha=alpha, present=present
            )
            self.busy = alpha * self.busy + (1 - alpha) * busy
            self._rates = needed_time.after_window(
                self._rates, window.steps, window.rows, span_s, alpha=alpha, present=present
            )
            self._expected = {
                name: given
                for name, given in self._expected.items()
                if name in present and now_s < given.until_s
            }
            self._jobs = {name: job for name, job in self._jobs.items() if name in present}
        self.loads = self._needed(present)

    def _needed(self, present: set[str]) -> dict[str, float]:
        """By operator; as given for one that has just come, as busy for one without a cost."""
        costs, cycle_s = self._costs(present), self._cycle_s
        found: dict[str, float] = {}
        for name in present:
            if name in self._expected:
                found[name] = self._expected[name].load
            elif name in costs:
                share = needed_time.needed(self._rates, name, costs[name], cycle_s) / self._slots
                found[name] = min(share, self._busy_time.operators.get(name, share))
            else:
                found[name] = self._busy_time.operators.get(name, 0.0)
        return found

    def shared_jobs(self) -> dict[str, tuple[str, float]]:
        """By operator that shares a job: which, and what it would need more by itself."""
        with self._lock:
            jobs, rates = dict(self._jobs), self._rates
        costs = self._costs(set(self.engine.operators))
        return {
            name: (
                job,
                needed_time.more_alone(rates, name, costs[name], self._cycle_s, members)
                / self._slots,
            )
            for name, (job, members) in jobs.items()
            if job and name in costs
        }
