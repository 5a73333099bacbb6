"""Most Tuples in Queue: the longest queue first (seed, section 4.5).

A simple batch scheduler: start-up costs are spread over many rows, memory stays small, output comes
in bursts.
"""

from collections.abc import Iterator

from millstream.decide.schedule.algorithms.ranking import by_preference
from millstream.decide.schedule.protocol import Pick, Situation


class MostTuplesInQueue:
    name = "mtiq"

    def rank(self, situation: Situation) -> Iterator[Pick]:
        return by_preference(
            situation, lambda view: (view.rows,), lambda view: f"{view.rows:.6g} rows queued"
        )

    def refresh(self, situation: Situation) -> None:
        pass

    def ran(self, pick: Pick, now: float) -> None:
        pass
