"""Round Robin: every operator in turn (seed, section 4.2).

Nobody starves; nothing about the operators matters.
"""

from collections.abc import Iterator

from millstream.decide.schedule.protocol import Pick, Situation


class RoundRobin:
    """Goes round the operators in the order they are listed, from the one after the last."""

    name = "round_robin"

    def __init__(self) -> None:
        self._last: str | None = None

    def rank(self, situation: Situation) -> Iterator[Pick]:
        order = list(situation.by_id)
        last = self._last
        start = order.index(last) + 1 if last is not None and last in situation.by_id else 0
        for name in (*order[start:], *order[:start]):
            yield Pick(name, f"next after {self._last}" if self._last else "first in turn")

    def refresh(self, situation: Situation) -> None:
        pass

    def ran(self, pick: Pick, now: float) -> None:
        self._last = pick.operator
