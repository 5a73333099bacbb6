"""The selectors: who chooses the algorithm, each a plug-in chosen by name, one a module."""

from collections.abc import Callable

from millstream.core.registry import Registry
from millstream.decide.schedule.protocol import Selector
from millstream.decide.schedule.selectors.fixed import Fixed
from millstream.decide.schedule.selectors.foresight import Foresight
from millstream.decide.schedule.selectors.highest_score import HighestScore
from millstream.decide.schedule.selectors.roulette import Roulette

SELECTORS: Registry[Callable[[], Selector]] = Registry("selector")
for _selector in (Fixed, Roulette, HighestScore, Foresight):
    SELECTORS.add(_selector.name, _selector)

__all__ = ["SELECTORS", "Fixed", "Foresight", "HighestScore", "Roulette"]
