"""FIFO: the oldest rows first, pushed as far as they go (seed, section 4.3).

The seed takes rows at a leaf and pushes them through the plan before it looks at newer ones. Rows
carry the time they entered the system, so 'as far as possible' is: the operator with the oldest
pending row, and at equal age the one nearest the root. Without memory, this holds for several slots
and after a restart.
"""

from collections.abc import Iterator
from math import inf

from millstream.decide.schedule.algorithms.ranking import by_preference
from millstream.decide.schedule.facts import OperatorView
from millstream.decide.schedule.protocol import Pick, Situation


class Fifo:
    name = "fifo"

    def rank(self, situation: Situation) -> Iterator[Pick]:
        depth = situation.plan.depth

        def preference(view: OperatorView) -> tuple[float, ...]:
            # Work of unknown age goes last among the operators that have work.
            old = -inf if view.rows <= 0 else (-view.oldest if view.oldest is not None else -1e300)
            return (old, depth[view.id])

        def reason(view: OperatorView) -> str:
            if view.rows <= 0 or view.oldest is None:
                return "oldest rows"
            return f"oldest rows, waiting {situation.now - view.oldest:.3g} s"

        return by_preference(situation, preference, reason)

    def refresh(self, situation: Situation) -> None:
        pass

    def ran(self, pick: Pick, now: float) -> None:
        pass
