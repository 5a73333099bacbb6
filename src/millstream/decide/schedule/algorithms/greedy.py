"""Greedy: the operator that gets rid of most rows a second (seed, equation 4.1).

The priority is (1 - selectivity) / seconds a row, with output per input row; it is negative for an
operator that multiplies rows, which then runs last. Position in the plan does not matter.
"""

from collections.abc import Iterator

from millstream.decide.schedule.algorithms.ranking import by_preference
from millstream.decide.schedule.protocol import Pick, Situation


class Greedy:
    name = "greedy"

    def __init__(self) -> None:
        self._priority: dict[str, float] = {}

    def rank(self, situation: Situation) -> Iterator[Pick]:
        priority = self._priority
        return by_preference(
            situation,
            lambda view: (priority.get(view.id, 0.0),),
            lambda view: f"priority {priority.get(view.id, 0.0):.4g} rows/s",
        )

    def refresh(self, situation: Situation) -> None:
        statistics = situation.statistics
        self._priority = {
            view.id: (1 - statistics.row_selectivity(view)) / statistics.row_seconds(view)
            for view in situation.views
        }

    def ran(self, pick: Pick, now: float) -> None:
        pass
