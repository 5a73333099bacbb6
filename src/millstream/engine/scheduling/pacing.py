"""How often an operator may run: not again before its pace, unless its rows have waited for longer.

A step costs the same before its first row, however few there are. Without a pace an operator with
little to do runs for every few rows that come, and a processor is busy whether it has much to do or
little; with one it is as busy as it has work. Rows wait for one pace at the most, not for one at
each operator on their way: what was made from old rows runs at once.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Pacing:
    """When the operators of a processor last began a step.

    >>> pacing = Pacing(1.0)
    >>> pacing.began(["o"], now=10.0)
    >>> pacing.due(["o"], oldest=10.2, now=10.5), pacing.due(["o"], oldest=10.2, now=11.0)
    (False, True)
    >>> pacing.due(["o"], oldest=9.4, now=10.5), pacing.due(["p"], oldest=10.4, now=10.5)
    (True, True)
    """

    pace_s: float
    _began: dict[str, float] = field(default_factory=dict)

    def began(self, operators: Iterable[str], now: float) -> None:
        if self.pace_s:
            self._began.update(dict.fromkeys(operators, now))

    def due(self, operators: Iterable[str], oldest: float | None, now: float) -> bool:
        """Whether these, which run together, may; `oldest` is when the first waiting row came."""
        if oldest is None or now - oldest >= self.pace_s:
            return True
        return all(now - self._began.get(o, -self.pace_s) >= self.pace_s for o in operators)

    def keep(self, operators: Collection[str]) -> None:
        """Forgets those that are gone."""
        self._began = {o: at for o, at in self._began.items() if o in operators}
