"""The scheduling algorithms, each a plug-in chosen by name, one a module."""

from collections.abc import Callable

from millstream.registry import Registry
from millstream.schedule.algorithms.chain import Chain
from millstream.schedule.algorithms.cost_aware import CostAware
from millstream.schedule.algorithms.fifo import Fifo
from millstream.schedule.algorithms.greedy import Greedy
from millstream.schedule.algorithms.mtiq import MostTuplesInQueue
from millstream.schedule.algorithms.round_robin import RoundRobin
from millstream.schedule.protocol import Algorithm

ALGORITHMS: Registry[Callable[[], Algorithm]] = Registry("scheduling algorithm")
for _algorithm in (RoundRobin, Fifo, Greedy, MostTuplesInQueue, Chain, CostAware):
    ALGORITHMS.add(_algorithm.name, _algorithm)

__all__ = [
    "ALGORITHMS",
    "Chain",
    "CostAware",
    "Fifo",
    "Greedy",
    "MostTuplesInQueue",
    "RoundRobin",
]
