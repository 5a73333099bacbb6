"""What it costs the goals to keep a row waiting at an operator, a second long.

All three goals of the seed are sums over time of queues, weighted by where the rows wait:

- memory is the number of rows in queues;
- by Little's law mean delay is the number of *results to be* in queues, over the output rate: a row
  at an operator counts as many results as it will yield on its way to the roots;
- output rate is results delivered, that is, results to be that no longer wait.

So the weights of the goals, each divided by the mean of its statistic, give one holding cost a row
at each operator. Goals with a limit count little while it is met. The cost-aware algorithm and the
foresight selector both steer by these costs.
"""

from dataclasses import dataclass

from millstream.schedule.protocol import Situation
from millstream.schedule.quality import Goal
from millstream.schedule.statistics import StatisticsGatherer

MEMORY = frozenset({"queue_rows", "queue_rows_max", "queue_bytes"})
DELAY = frozenset({"delay", "delay_max", "oldest"})
RATE = frozenset({"output_rate", "throughput"})
# Rows delivered later are delivered all the same, unless the load stays above 1 for good: a rate
# goal counts little beside others. (Alone it decides: only proportions matter.)
RATE_SHARE = 0.05
MET_SHARE = 0.1  # how much a goal still counts when its limit is met


@dataclass(frozen=True, slots=True)
class Outlook:
    """What awaits a row at each operator, and what its waiting costs."""

    results: dict[str, float]  # rows it will yield at the roots
    seconds: dict[str, float]  # work it still needs, to the roots
    cost: dict[str, float]  # of waiting a second: in_memory + as_result * results
    in_memory: float
    as_result: float


def outlook(situation: Situation) -> Outlook:
    """Holding costs under the present goals and statistics."""
    statistics, plan = situation.statistics, situation.plan
    results: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for name in reversed(plan.order):
        view = situation.by_id[name]
        kept = statistics.row_selectivity(view)
        onward = plan.consumers[name]
        results[name] = kept * (sum(results[c] for c in onward) if onward else 1.0)
        seconds[name] = statistics.row_seconds(view) + kept * sum(seconds[c] for c in onward)
    in_memory, as_result = _shares(situation)
    cost = {name: in_memory + as_result * results[name] for name in plan.order}
    return Outlook(results, seconds, cost, in_memory, as_result)


def _shares(situation: Situation) -> tuple[float, float]:
    """(cost of a row in memory, cost of a result to be), a second."""
    statistics = situation.statistics
    rate = statistics.series("output_rate")
    results_a_second = max(1e-6, rate.average) if rate is not None else 1.0
    in_memory = as_result = 0.0
    for goal in situation.goals:
        weight = goal.weight * _urgency(goal, statistics)
        spread = _spread(goal.statistic, statistics)
        if goal.statistic in MEMORY:
            in_memory += weight / spread
        elif goal.statistic in DELAY:
            as_result += weight / (spread * results_a_second)
        elif goal.statistic in RATE:
            as_result += RATE_SHARE * weight / (spread * situation.settings.horizon_s)
    if in_memory == as_result == 0.0:
        in_memory = 1.0  # goals of the user's own: small queues harm none of them
    return in_memory, as_result


def _spread(statistic: str, statistics: StatisticsGatherer) -> float:
    """The unit of a statistic: its mean so far.

    Equation 5.1 divides by greatest minus least; but under good scheduling the extremes that bad
    algorithms would have shown are never seen, and in runs the mean proved the steadier unit.
    """
    series = statistics.series(statistic)
    return max(1e-9, series.mean) if series is not None else 1.0


def _urgency(goal: Goal, statistics: StatisticsGatherer) -> float:
    if goal.limit is None:
        return 1.0
    series = statistics.series(goal.statistic)
    return MET_SHARE if series is not None and goal.met(series.average) else 1.0
