"""Cost-aware: operator *and* batch size from measured fixed and marginal costs.

A step costs `fixed + row * n` seconds, and on Spark the fixed part is large (tens of milliseconds
against microseconds a row). So an operator is worth

    value of a row's work a second  x  share of the step that is not lost to the fixed cost

where the value follows the goals: rows got rid of a second (the Chain slope on marginal costs) for
memory, and rows delivered a second of work from here to the root for delay and rate. A queue too
short to be worth a step waits while others are not; when nothing else has work it runs at once. The
batch is the smallest whose fixed cost is an acceptable share, so that results flow, and no longer
than the longest step wanted.
"""

from collections.abc import Iterator

from millstream.schedule.algorithms.chain import envelope_slopes
from millstream.schedule.protocol import OperatorView, Pick, Situation
from millstream.schedule.settings import ScheduleSettings

MEMORY_GOALS = frozenset({"queue_rows", "queue_rows_max", "queue_bytes"})


def batch_rows(pending: float, fixed_s: float, row_s: float, settings: ScheduleSettings) -> float:
    """Rows for one step: enough to carry the fixed cost, not longer than the longest step.

    >>> settings = ScheduleSettings(overhead_share=0.1, step_s_max=1.0)
    >>> batch_rows(1e6, fixed_s=0.06, row_s=2e-5, settings=settings)
    27000
    """
    share = settings.overhead_share
    efficient = fixed_s * (1 - share) / (share * row_s)
    longest = max(1.0, (settings.step_s_max - fixed_s) / row_s)
    wanted = min(max(efficient, settings.threshold_rows), max(longest, settings.threshold_rows))
    if settings.rows_max is not None:
        wanted = min(wanted, settings.rows_max)
    # A remainder smaller than half a batch is taken along: it would not carry a step of its own.
    rows = pending if pending <= 1.5 * wanted else wanted
    if settings.rows_max is not None:
        rows = min(rows, settings.rows_max)
    return round(rows) if 1 < rows < pending else rows


class CostAware:
    name = "cost_aware"

    def __init__(self) -> None:
        self._value: dict[str, float] = {}
        self._cost: dict[str, tuple[float, float]] = {}

    def rank(self, situation: Situation) -> Iterator[Pick]:
        settings = situation.settings
        rows: dict[str, float] = {}

        def worth(view: OperatorView) -> float:
            if view.rows <= 0:
                return -1.0
            fixed_s, row_s = self._cost.get(view.id, (0.0, 1e-3))
            rows[view.id] = n = batch_rows(view.rows, fixed_s, row_s, settings)
            useful = row_s * n / (fixed_s + row_s * n)
            return self._value.get(view.id, 0.0) * useful

        ranked = sorted(
            ((worth(view), view) for view in situation.views), key=lambda w: w[0], reverse=True
        )
        for value, view in ranked:
            yield Pick(view.id, f"worth {value:.4g}", rows.get(view.id))

    def refresh(self, situation: Situation) -> None:
        statistics, plan = situation.statistics, situation.plan
        by_id = situation.by_id
        self._cost = {view.id: statistics.step_cost(view) for view in situation.views}
        kept = {view.id: statistics.row_selectivity(view) for view in situation.views}
        slopes: dict[str, float] = {}
        for path in plan.paths():
            steps = [(self._cost[name][1], kept[name]) for name in path]
            for name, slope in zip(path, envelope_slopes(steps), strict=True):
                slopes[name] = max(slopes.get(name, 0.0), slope)
        delivery: dict[str, float] = {}  # rows delivered for each second of work from here on
        ahead: dict[str, tuple[float, float]] = {}  # (delivered, seconds) for one row
        for name in reversed(plan.order):
            onward = [ahead[consumer] for consumer in plan.consumers[name]]
            delivered = kept[name] * (sum(d for d, _ in onward) if onward else 1.0)
            seconds = statistics.row_seconds(by_id[name]) + kept[name] * sum(s for _, s in onward)
            ahead[name] = (delivered, seconds)
            delivery[name] = delivered / seconds
        memory = sum(w for name, w in situation.weights.items() if name in MEMORY_GOALS)
        steepest = max(slopes.values(), default=0.0) or 1.0
        fastest = max(delivery.values(), default=0.0) or 1.0
        self._value = {
            name: memory * slopes.get(name, 0.0) / steepest
            + (1 - memory) * delivery[name] / fastest
            for name in plan.order
        }

    def ran(self, pick: Pick, now: float) -> None:
        pass
