"""The statistics of the seed's section 3.3, one definition each, and room for a user's own.

A statistic is computed from counters of one operator, or from what happened to a plan (the whole or
one query) in an interval. Definitions are pure; the gatherer keeps the counters and the results.

Two selectivities have two names: `selectivity` is output per candidate (for a join per combination
of its inputs, section 3.3.1 note 1), `row_selectivity` is output per input row. Algorithms that
weigh rows removed against time (Greedy, Chain, cost-aware) use the second.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from millstream.core.registry import Registry


@dataclass(slots=True)
class Counters:
    """Totals of one operator in one view."""

    runs: int = 0
    rows_in: float = 0.0
    rows_out: float = 0.0
    candidates: float = 0.0
    seconds: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0

    def minus(self, other: "Counters") -> "Counters":
        return Counters(
            self.runs - other.runs,
            self.rows_in - other.rows_in,
            self.rows_out - other.rows_out,
            self.candidates - other.candidates,
            self.seconds - other.seconds,
            self.bytes_in - other.bytes_in,
            self.bytes_out - other.bytes_out,
        )


@dataclass(slots=True)
class Interval:
    """What happened to a plan between two updates of the statistics."""

    seconds: float = 0.0
    rows_delivered: float = 0.0
    delay_s_total: float = 0.0
    delay_s_max: float = 0.0
    queue_rows: float = 0.0  # mean over time
    queue_rows_max: float = 0.0
    queue_bytes: float = 0.0
    oldest_s: float | None = None  # age of the oldest row still waiting
    busy_s: float = 0.0


# Values that a trend needs, and how much of their spread it must explain.
CLEAR_COUNT, CLEAR_SHARE = 8, 0.7

OperatorFormula = Callable[[Counters], float | None]
PlanFormula = Callable[[Interval], float | None]


@dataclass(frozen=True, slots=True)
class OperatorStatistic:
    """A number for each operator; `when` is every step, or periodic with the others."""

    name: str
    unit: str
    compute: OperatorFormula
    when: Literal["step", "periodic"] = "periodic"


@dataclass(frozen=True, slots=True)
class PlanStatistic:
    """A number for a whole plan or one query in an interval; None when there is nothing to say.

    `better` is the usual quantifier, used by templates and displays; a goal may say otherwise.
    """

    name: str
    unit: str
    better: Literal["more", "less"]
    compute: PlanFormula


@dataclass(slots=True)
class Trend:
    """A line through the last values over time, older ones fading; constant memory.

    >>> trend = Trend()
    >>> for second in range(20):
    ...     trend.add(1.0 + 0.05 * second, float(second))
    >>> round(trend.slope, 6), round(trend.at(19.0), 6), round(trend.seconds_to(2.95), 6)
    (0.05, 1.95, 20.0)
    >>> trend.seconds_to(0.5) is None  # it goes the other way
    True
    """

    keep: float = 0.9  # weight of the past at each value: half is forgotten in 7
    count: int = 0
    last_at: float = 0.0
    weight: float = 0.0
    at_mean: float = 0.0
    value_mean: float = 0.0
    at_variance: float = 0.0  # weighted sums, not divided
    value_variance: float = 0.0
    covariance: float = 0.0

    def add(self, value: float, at: float) -> None:
        self.count += 1
        self.last_at = at
        self.weight = self.weight * self.keep + 1.0
        at_off, value_off = at - self.at_mean, value - self.value_mean
        self.at_mean += at_off / self.weight
        self.value_mean += value_off / self.weight
        self.at_variance = self.at_variance * self.keep + at_off * (at - self.at_mean)
        value_new = value_off * (value - self.value_mean)
        self.value_variance = self.value_variance * self.keep + value_new
        self.covariance = self.covariance * self.keep + at_off * (value - self.value_mean)

    @property
    def slope(self) -> float:
        return self.covariance / self.at_variance if self.at_variance > 0 else 0.0

    def at(self, now: float) -> float:
        return self.value_mean + self.slope * (now - self.at_mean)

    def seconds_to(self, limit: float) -> float | None:
        """How long after its last value the line reaches a limit; None where that is not clear."""
        if self.count < CLEAR_COUNT or self.at_variance <= 0 or self.value_variance <= 0:
            return None
        explained = self.covariance**2 / (self.at_variance * self.value_variance)
        away = limit - self.at(self.last_at)
        if explained < CLEAR_SHARE or away * self.slope <= 0:
            return None
        return away / self.slope


@dataclass(slots=True)
class Series:
    """Mean, spread and weighted average (equation 3.1) of one statistic; constant memory.

    >>> series = Series(old_weight=0.5)
    >>> for value in (4.0, 2.0):
    ...     series.add(value)
    >>> series.mean, series.average, series.least, series.greatest, series.last
    (3.0, 3.0, 2.0, 4.0, 2.0)
    """

    old_weight: float
    count: int = 0
    mean: float = 0.0
    average: float = 0.0  # A_average(B) of equation 3.1; starts at the first value
    least: float = inf
    greatest: float = -inf
    last: float = 0.0
    last_at: float = 0.0
    trend: Trend = field(default_factory=Trend)

    def add(self, value: float, at: float = 0.0) -> None:
        self.count += 1
        self.mean += (value - self.mean) / self.count
        if self.count == 1:
            self.average = value
        else:
            self.average = self.average * self.old_weight + value * (1 - self.old_weight)
        self.least = min(self.least, value)
        self.greatest = max(self.greatest, value)
        self.last = value
        self.last_at = at


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _priority(counters: Counters) -> float | None:
    """Equation 4.1; negative where an operator multiplies rows."""
    if counters.rows_in <= 0 or counters.seconds <= 0:
        return None
    return (1 - counters.rows_out / counters.rows_in) / (counters.seconds / counters.rows_in)


OPERATOR_STATISTICS: Registry[OperatorStatistic] = Registry("operator statistic")
for _statistic in (
    OperatorStatistic("selectivity", "rows/candidate", lambda c: _share(c.rows_out, c.candidates)),
    OperatorStatistic("row_selectivity", "rows/row", lambda c: _share(c.rows_out, c.rows_in)),
    OperatorStatistic("output_rate", "rows/s", lambda c: _share(c.rows_out, c.seconds)),
    # Equation 3.4 is printed upside down: time divided by tuples is meant.
    OperatorStatistic("row_seconds", "s/row", lambda c: _share(c.seconds, c.rows_in)),
    OperatorStatistic("priority", "rows/s", _priority),
    OperatorStatistic("throughput", "rows", lambda c: c.rows_out, "step"),
    OperatorStatistic("run_count", "steps", lambda c: float(c.runs), "step"),
    OperatorStatistic("busy_seconds", "s", lambda c: c.seconds, "step"),
):
    OPERATOR_STATISTICS.add(_statistic.name, _statistic)

PLAN_STATISTICS: Registry[PlanStatistic] = Registry("statistic")
for _plan_statistic in (
    PlanStatistic("throughput", "rows", "more", lambda i: i.rows_delivered),
    PlanStatistic("output_rate", "rows/s", "more", lambda i: _share(i.rows_delivered, i.seconds)),
    PlanStatistic("queue_rows", "rows", "less", lambda i: i.queue_rows),
    PlanStatistic("queue_rows_max", "rows", "less", lambda i: i.queue_rows_max),
    PlanStatistic("queue_bytes", "bytes", "less", lambda i: i.queue_bytes),
    PlanStatistic("delay", "s", "less", lambda i: _share(i.delay_s_total, i.rows_delivered)),
    PlanStatistic(
        "delay_max", "s", "less", lambda i: i.delay_s_max if i.rows_delivered > 0 else None
    ),
    PlanStatistic("oldest", "s", "less", lambda i: i.oldest_s),
    PlanStatistic("busy", "share", "less", lambda i: _share(i.busy_s, i.seconds)),
):
    PLAN_STATISTICS.add(_plan_statistic.name, _plan_statistic)
