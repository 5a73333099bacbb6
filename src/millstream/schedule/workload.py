"""How many rows a step takes: RATIO and THRESHOLD (seed, figure 4.1)."""

from millstream.schedule.settings import ScheduleSettings


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
