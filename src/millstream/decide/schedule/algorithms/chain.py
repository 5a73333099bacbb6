"""Chain: the steepest part of the progress chart (seed, section 4.6, and its reference 3).

For each path from a leaf to a root the progress chart plots the size of one row of input against
the time spent on it. Its lower envelope joins operators that together get rid of rows fastest; an
operator's priority is the slope of the segment it lies on, the steepest over the paths it is on.
Among equals the oldest row goes first, as in the original. Charts are drawn anew whenever the
statistics are. Sizes use output per input row.
"""

from collections.abc import Iterator, Sequence
from math import inf

from millstream.decide.schedule.algorithms.ranking import by_preference
from millstream.decide.schedule.facts import OperatorView
from millstream.decide.schedule.protocol import Pick, Situation


def envelope_slopes(steps: Sequence[tuple[float, float]]) -> list[float]:
    """For (seconds a row, output per row) along a path: each operator's slope, in size a second.

    What the last operator gives leaves the queues, so the chart ends at 0 whatever its selectivity.

    >>> [round(slope, 3) for slope in envelope_slopes([(1.0, 0.9), (0.25, 0.1), (0.75, 1.0)])]
    [0.774, 0.774, 0.774]
    """
    times, sizes = [0.0], [1.0]
    for seconds, selectivity in steps:
        # A row reaches an operator with the size the ones before left it, and costs accordingly.
        times.append(times[-1] + max(1e-12, seconds * sizes[-1]))
        sizes.append(sizes[-1] * selectivity)
    sizes[-1] = 0.0
    slopes: list[float] = []
    start = 0
    while start < len(steps):
        best, best_slope = start + 1, -inf
        for end in range(start + 1, len(steps) + 1):
            slope = (sizes[start] - sizes[end]) / (times[end] - times[start])
            if slope >= best_slope:  # equal slopes: the longer segment
                best, best_slope = end, slope
        slopes.extend([best_slope] * (best - start))
        start = best
    return slopes


class Chain:
    name = "chain"

    def __init__(self) -> None:
        self._slope: dict[str, float] = {}

    def rank(self, situation: Situation) -> Iterator[Pick]:
        slopes = self._slope

        def preference(view: OperatorView) -> tuple[float, ...]:
            return (slopes.get(view.id, -inf), -view.oldest if view.oldest is not None else -inf)

        return by_preference(
            situation,
            preference,
            lambda view: f"slope {slopes.get(view.id, -inf):.4g} of its chain",
        )

    def refresh(self, situation: Situation) -> None:
        statistics = situation.statistics
        step = {
            view.id: (statistics.row_seconds(view), statistics.row_selectivity(view))
            for view in situation.views
        }
        slopes: dict[str, float] = {}
        for path in situation.plan.paths():
            for name, slope in zip(
                path, envelope_slopes([step[name] for name in path]), strict=True
            ):
                if slope > slopes.get(name, -inf):
                    slopes[name] = slope
        self._slope = slopes

    def ran(self, pick: Pick, now: float) -> None:
        pass
