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
order they had started with. A constant has no such memory.

Goals belong to queries. Each query has a price for its waiting rows: that of its own goals at its
own weight, or of the goals of all at theirs. A result to be costs what its query's goals say, and a
row that will yield results of several queries the sum over them; in memory a row lies once, so that
there it costs what the query says that minds most. A goal with a limit counts little while its
query meets it. The cost-aware algorithm and the foresight selector both steer by these costs.

Rate is not delay. A rate counts results, whoever gets them. A delay is a query's: by Little's law
it is the results to be that wait *over the query's own rate*, so that a result of a query that
gives few of them costs more than one of a query that gives many. Within one query both ask for the
same order, and part ways only in the size of steps where more waits than can be done soon: a large
step loses less to its fixed cost, a small one keeps rows from waiting for each other
(`Outlook.coarse`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.decide.schedule.protocol import Situation
from millstream.decide.schedule.quality import DELAY, STOCKS, Goal
from millstream.decide.schedule.settings import ScheduleSettings
from millstream.decide.schedule.statistics import OVERALL, StatisticsGatherer, query_object

MEMORY = STOCKS
RATE = frozenset({"output_rate", "throughput"})
# At equal weights a result that waits costs as much as eight rows in memory: on plan 1 of the lab
# this keeps the order good for memory at 50-50, on plan 2, whose join makes delay dear, the one
# good for delay; at 70-30 both have the latter. (With four, plan 2 lost 2 to 5 % at 50-50 on some
# seeds.)
DELAY_ROWS = 8.0
# Rows delivered later are delivered all the same, unless the load stays above 1 for good: until
# then a rate counts next to nothing beside other goals, and under overload as much as a delay.
RATE_ROWS = 0.02
SCARCE_MAX = 100.0  # how much more a result may count for a query that gives few
# When it does stay above 1, memory grows whatever is done, and an order that is good for memory
# may deliver nothing at all: the more work waits, the more results count.
OVERLOAD_ROWS = 16.0
MET_SHARE = 0.1  # how much a goal still counts when its limit is met


NOBODY = ""  # the query of an operator of which nobody says for whom it works


@dataclass(frozen=True, slots=True)
class Price:
    """What a query's goals make of its waiting rows, a second."""

    in_memory: float  # for a row
    as_result: float  # for a result to be
    rate: float  # the part of rate in what is wanted of results, 0 to 1


@dataclass(frozen=True, slots=True)
class Outlook:
    """What awaits a row at each operator, and what its waiting costs."""

    results: dict[str, float]  # rows it will yield at the roots, of all queries
    seconds: dict[str, float]  # work it still needs, to the roots
    memory: dict[str, float]  # cost of a row in memory
    value: dict[str, float]  # cost of the results to be that wait with a row
    cost: dict[str, float]  # of waiting a second: memory + value
    coarse: dict[str, float]  # 0 or none: steps as small as they may be; 1: as large
    overload: float  # 0: what waits is soon done; 1: it is not


def outlook(situation: Situation) -> Outlook:
    """Holding costs under the present goals and statistics."""
    statistics, plan = situation.statistics, situation.plan
    seconds: dict[str, float] = {}
    for name in reversed(plan.order):
        view = situation.by_id[name]
        kept = statistics.row_selectivity(view)
        onward = sum(seconds[c] for c in plan.parents(name))
        seconds[name] = statistics.row_seconds(view) + kept * onward
    backlog_s = sum(view.rows * seconds[view.id] for view in situation.views)
    overload = _overload(situation.settings, backlog_s / situation.settings.slots)
    by_operator = results_by_query(situation)
    prices = _Prices(situation, overload, _scarcity(situation, by_operator))
    found = Outlook({}, seconds, {}, {}, {}, {}, overload)
    for name, yields in by_operator.items():
        results = memory = value = wanted = rate = 0.0
        for query, rows in yields.items():
            price = prices.of(query)
            results += rows
            memory = max(memory, price.in_memory)
            value += price.as_result * rows
            wanted += price.as_result
            rate += price.as_result * price.rate
        found.results[name], found.memory[name], found.value[name] = results, memory, value
        found.cost[name] = memory + value
        if overload and rate > 0:
            found.coarse[name] = overload * rate / wanted
    return found


def results_by_query(situation: Situation) -> dict[str, dict[str, float]]:
    """For each operator: the results that one of its rows will yield for each query it serves.

    A query whose result an operator gives is served by none of those that read from it.
    """
    statistics, plan = situation.statistics, situation.plan
    found: dict[str, dict[str, float]] = {}
    for name in reversed(plan.order):
        view = situation.by_id[name]
        kept = statistics.row_selectivity(view) / view.members
        yields: dict[str, float] = {}
        for consumer in plan.parents(name):
            for query, rows in found[consumer].items():
                yields[query] = yields.get(query, 0.0) + kept * rows
        for query in view.queries if yields or view.queries else (NOBODY,):
            yields.setdefault(query, kept)
        found[name] = yields
    return found


def _scarcity(
    situation: Situation, by_operator: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """For each query: the mean rate of results over its own, as rows usually come.

    By what comes and not by what was delivered: that would follow from the schedule.
    """
    rates: dict[str, float] = {}
    for name, yields in by_operator.items():
        coming = situation.statistics.usual_rates.get(name, 0.0)
        for query, rows in yields.items() if coming else ():
            rates[query] = rates.get(query, 0.0) + coming * rows
    known = [rate for rate in rates.values() if rate > 0]
    if not known:
        return {}
    mean = sum(known) / len(known)
    return {
        query: min(SCARCE_MAX, max(1 / SCARCE_MAX, mean / rate))
        for query, rate in rates.items()
        if rate > 0
    }


class _Prices:
    """The price of each query, worked out when it is first asked for."""

    def __init__(
        self, situation: Situation, overload: float, scarcity: Mapping[str, float]
    ) -> None:
        self._situation, self._overload, self._scarcity = situation, overload, scarcity
        self._found: dict[str, Price] = {}

    def of(self, query: str) -> Price:
        price = self._found.get(query)
        if price is None:
            price = self._found[query] = self._price(query)
        return price

    def _price(self, query: str) -> Price:
        weight, specification = self._situation.quality.of(query)
        in_memory = results = whole = 0.0
        extra = OVERLOAD_ROWS * self._overload
        delay = DELAY_ROWS + extra
        rate = RATE_ROWS + delay * self._overload
        scarce = self._scarcity.get(query, 1.0)
        for goal in specification.goals:
            count = goal.weight * _urgency(goal, self._situation.statistics, query)
            if goal.statistic in MEMORY:
                in_memory += count
                whole += goal.weight
            elif goal.statistic in DELAY:
                results += delay * scarce * count
                whole += delay * goal.weight
            elif goal.statistic in RATE:
                results += rate * count
                whole += rate * goal.weight
        if whole == 0.0:
            return Price(weight, 0.0, 0.0)  # goals of the user's own: small queues harm none
        # Queries differ by their weights, not by which goals they have.
        share = weight / whole
        return Price(share * in_memory, share * results, _rate_share(specification.goals))


def _rate_share(goals: Sequence[Goal]) -> float:
    rate, delay = weight_of(goals, RATE), weight_of(goals, DELAY)
    return rate / (rate + delay) if rate > 0 else 0.0


def _overload(settings: ScheduleSettings, backlog_s: float) -> float:
    """0 while no more waits than half of the horizon takes, 1 from a whole horizon on."""
    return min(1.0, max(0.0, backlog_s / (settings.horizon_s / 2) - 1))


def weight_of(goals: Sequence[Goal], statistics: frozenset[str]) -> float:
    return sum(goal.weight for goal in goals if goal.statistic in statistics)


def awaited(goals: Sequence[Goal]) -> bool:
    """Whether delay counts clearly more than memory: results shall flow, in small batches."""
    return weight_of(goals, DELAY) >= 2 * weight_of(goals, MEMORY)


def _urgency(goal: Goal, statistics: StatisticsGatherer, query: str) -> float:
    """How much a goal counts: a limit that its query meets, little."""
    if goal.limit is None:
        return 1.0
    series = statistics.series(goal.statistic, OVERALL, query_object(query))
    if series is None:
        series = statistics.series(goal.statistic)
    return MET_SHARE if series is not None and goal.met(series.average) else 1.0
