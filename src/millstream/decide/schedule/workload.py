"""How many rows a step takes: RATIO and THRESHOLD (seed, figure 4.1), as set or by the goals."""

from millstream.decide.schedule.holding import awaited
from millstream.decide.schedule.protocol import Situation, Workload
from millstream.decide.schedule.settings import ScheduleSettings

FINE_SHARE = 0.005  # what a fine step may lose to its fixed cost


def workload(rows: float, settings: ScheduleSettings) -> float:
    """A share of the pending rows if that is a lot, else all of them.

    >>> settings = ScheduleSettings(ratio=0.3, threshold_rows=50)
    >>> [workload(rows, settings) for rows in (50, 160, 1000)]
    [50, 160, 300]
    """
    share = rows * settings.ratio
    taken = share if share > settings.threshold_rows else rows
    if taken > 1:
        taken = min(rows, float(round(taken)))  # a whole number, where rows are not pages
    if settings.rows_max is not None:
        taken = min(taken, settings.rows_max)
    return int(taken) if taken == int(taken) else taken


def with_workload(settings: ScheduleSettings, wanted: Workload | None) -> ScheduleSettings:
    """The settings with RATIO and THRESHOLD as wanted."""
    if wanted is None:
        return settings
    return settings.with_(ratio=wanted.ratio, threshold_rows=wanted.threshold_rows)


def adapted_workload(situation: Situation) -> Workload:
    """The workload that serves the goals.

    Steps are fine: a row waits for its whole batch at every operator, and nobody can go before a
    batch that runs, so that THRESHOLD is only what keeps the fixed cost small. But where memory
    counts and rows leave their queue when a step starts, as the seed has it, a step takes all it
    can: rows that run wait nowhere then.
    """
    settings = situation.settings
    if not (situation.in_flight_counts or awaited(situation.goals)):
        return Workload(1.0, settings.threshold_rows)
    return Workload(settings.ratio, min(settings.threshold_rows, _rows_worth_a_step(situation)))


def _rows_worth_a_step(situation: Situation) -> float:
    """The least batch with which no operator loses more than `FINE_SHARE` to its fixed cost."""
    rows = 1.0
    for view in situation.views:
        fixed_s, row_s = situation.statistics.step_cost(view)
        rows = max(rows, fixed_s * (1 - FINE_SHARE) / (FINE_SHARE * row_s))
    return rows
