"""The scheduling algorithms, each a plug-in chosen by name, one a module."""

from collections.abc import Callable

from millstream.core.registry import Registry
from millstream.decide.schedule.algorithms.chain import Chain
from millstream.decide.schedule.algorithms.cost_aware import CostAware
from millstream.decide.schedule.algorithms.fifo import Fifo
from millstream.decide.schedule.algorithms.greedy import Greedy
from millstream.decide.schedule.algorithms.mtiq import MostTuplesInQueue
from millstream.decide.schedule.algorithms.priced import Priced
from millstream.decide.schedule.algorithms.round_robin import RoundRobin
from millstream.decide.schedule.protocol import Algorithm

ALGORITHMS: Registry[Callable[[], Algorithm]] = Registry("scheduling algorithm")
for _algorithm in (RoundRobin, Fifo, Greedy, MostTuplesInQueue, Chain, CostAware, Priced):
    ALGORITHMS.add(_algorithm.name, _algorithm)

__all__ = [
    "ALGORITHMS",
    "Chain",
    "CostAware",
    "Fifo",
    "Greedy",
    "MostTuplesInQueue",
    "Priced",
    "RoundRobin",
]
