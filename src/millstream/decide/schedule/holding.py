"""What it costs the goals to keep a row waiting at an operator, a second long.

All three goals of the seed are sums over time of queues, weighted by where the rows wait:

- memory is the number of rows in queues;
- by Little's law mean delay is the number of *results to be* in queues, over the output rate: a row
  at an operator counts as many results as it will yield on its way to the roots;
- output rate is results delivered, that is, results to be that no longer wait.

So a row at an operator costs `weight of memory + results to be * weight of delay and rate` a
second, with one exchange rate between rows and results. An earlier version took that rate from the
statistics (each weight divided by the mean or the spread of its statistic, as in equation 5.1); but
the means follow from the schedule and the schedule then from the means, and runs got stuck in the
order they had started with. A constant has no such memory. Goals with a limit count little while it
is met. The cost-aware algorithm and the foresight selector both steer by these costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.decide.schedule.protocol import Situation
from millstream.decide.schedule.quality import Goal
from millstream.decide.schedule.statistics import StatisticsGatherer

MEMORY = frozenset({"queue_rows", "queue_rows_max", "queue_bytes"})
DELAY = frozenset({"delay", "delay_max", "oldest"})
RATE = frozenset({"output_rate", "throughput"})
# At equal weights a result that waits costs as much as eight rows in memory: on plan 1 of the lab
# this keeps the order good for memory at 50-50, on plan 2, whose join makes delay dear, the one
# good for delay; at 70-30 both have the latter. (With four, plan 2 lost 2 to 5 % at 50-50 on some
# seeds.)
DELAY_ROWS = 8.0
# Rows delivered later are delivered all the same, unless the load stays above 1 for good: a rate
# goal counts next to nothing beside others. (Alone it decides: only proportions matter.)
RATE_ROWS = 0.02
# When it does stay above 1, memory grows whatever is done, and an order that is good for memory
# may deliver nothing at all: the more work waits, the more results count.
OVERLOAD_ROWS = 16.0
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
        onward = plan.parents(name)
        results[name] = kept * (sum(results[c] for c in onward) if onward else 1.0)
        seconds[name] = statistics.row_seconds(view) + kept * sum(seconds[c] for c in onward)
    backlog_s = sum(view.rows * seconds[view.id] for view in situation.views)
    in_memory, as_result = _shares(situation, backlog_s / situation.settings.slots)
    cost = {name: in_memory + as_result * results[name] for name in plan.order}
    return Outlook(results, seconds, cost, in_memory, as_result)


def _shares(situation: Situation, backlog_s: float) -> tuple[float, float]:
    """(cost of a row in memory, cost of a result to be), a second."""
    half = situation.settings.horizon_s / 2
    overload = OVERLOAD_ROWS * min(1.0, max(0.0, backlog_s / half - 1))
    in_memory = as_result = 0.0
    for goal in situation.goals:
        weight = goal.weight * _urgency(goal, situation.statistics)
        if goal.statistic in MEMORY:
            in_memory += weight
        elif goal.statistic in DELAY:
            as_result += (DELAY_ROWS + overload) * weight
        elif goal.statistic in RATE:
            as_result += (RATE_ROWS + overload) * weight
    if in_memory == as_result == 0.0:
        in_memory = 1.0  # goals of the user's own: small queues harm none of them
    return in_memory, as_result


def weight_of(goals: Sequence[Goal], statistics: frozenset[str]) -> float:
    return sum(goal.weight for goal in goals if goal.statistic in statistics)


def awaited(goals: Sequence[Goal]) -> bool:
    """Whether delay counts clearly more than memory: results shall flow, in small batches."""
    return weight_of(goals, DELAY) >= 2 * weight_of(goals, MEMORY)


def _urgency(goal: Goal, statistics: StatisticsGatherer) -> float:
    if goal.limit is None:
        return 1.0
    series = statistics.series(goal.statistic)
    return MET_SHARE if series is not None and goal.met(series.average) else 1.0
