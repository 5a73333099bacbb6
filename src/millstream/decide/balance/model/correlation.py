"""The operator-based rival: Borealis' correlation-based load distribution (seed 002, reference 14).

Centralised, no distribution limit, blind to data flow. It keeps loads alike *and* puts operators
whose loads rise and fall together on different nodes. Period by period, the pairwise algorithm
orders nodes by load, pairs the heaviest with the lightest and so on, and moves operators from the
heavier to the lighter of a pair, those first that correlate with their present node more than with
the other. The global algorithm, which may run once at the start, places every operator anew,
heaviest first, where it correlates least.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.decide.balance.model.central_policy import CENTRAL, Observation, UnitMove
from millstream.decide.balance.model.dataflow import Floats, Ints, sum_by

LEAST_DEVIATION = 1e-12
SAMPLES_MIN = 3


@dataclass(frozen=True, slots=True)
class CorrelationBased:
    """The settings are ours: the seed names the scheme and no figures."""

    threshold: float = 0.1  # of load between a pair of nodes: below it nothing moves
    tolerance: float = 0.05  # above the average load, in the global algorithm
    global_start: bool = False  # else from the initial placement on, pair by pair

    def decide(self, seen: Observation, memory: Any) -> tuple[tuple[UnitMove, ...], Any]:
        if len(seen.load_history) < SAMPLES_MIN or not (seen.host_speed > 0).any():
            return (), memory  # too little is known, or no host is up to take anything
        if memory is None and self.global_start:
            return self._globally(seen), "placed"
        return self._pairwise(seen), memory

    def _globally(self, seen: Observation) -> tuple[UnitMove, ...]:
        up = np.flatnonzero(seen.host_speed > 0)
        loads = seen.load_history.mean(axis=0)
        series = normalised(seen.load_history)
        capacity = loads.sum() / seen.host_speed.sum() * seen.host_speed + self.tolerance
        used = np.zeros(len(seen.host_speed))
        sums = np.zeros((len(seen.load_history), len(seen.host_speed)))  # load series of each node
        wanted = seen.unit_host.copy()
        for unit in np.argsort(-loads, kind="stable"):
            fits = up[used[up] + loads[unit] <= capacity[up]]
            among = fits if len(fits) else up[[int(np.argmin(used[up] / seen.host_speed[up]))]]
            score = -(series[:, unit] @ normalised(sums[:, among]))
            # Among equally uncorrelated nodes (all, where nothing varies) the least loaded.
            best = np.lexsort((used[among], -np.round(score, 6)))[0]
            wanted[unit] = among[best]
            used[wanted[unit]] += loads[unit]
            sums[:, wanted[unit]] += seen.load_history[:, unit]
        changed = np.flatnonzero((wanted != seen.unit_host) & seen.movable)
        return tuple(
            UnitMove(int(unit), int(wanted[unit]), "global correlation-based placement")
            for unit in changed
        )

    def _pairwise(self, seen: Observation) -> tuple[UnitMove, ...]:
        up = np.flatnonzero(seen.host_speed > 0)
        loads = seen.load_history.mean(axis=0)
        node = sum_by(seen.unit_host, loads, len(seen.host_speed))
        relative = node[up] / seen.host_speed[up]
        order = up[np.argsort(-relative, kind="stable")]
        moves: list[UnitMove] = []
        for n in range(len(order) // 2):
            heavy, light = int(order[n]), int(order[-1 - n])
            gap = node[heavy] / seen.host_speed[heavy] - node[light] / seen.host_speed[light]
            if gap > self.threshold:
                speeds = 1 / seen.host_speed[heavy] + 1 / seen.host_speed[light]
                moves += self._one_way(seen, loads, heavy, light, gap / speeds)
        return tuple(moves)

    def _one_way(
        self, seen: Observation, loads: Floats, heavy: int, light: int, amount: float
    ) -> list[UnitMove]:
        here = np.flatnonzero((seen.unit_host == heavy) & seen.movable)
        there = np.flatnonzero(seen.unit_host == light)
        score = self._scores(seen, here, there)
        moves = []
        for n in np.lexsort((here, -score)):
            unit = int(here[n])
            if 0 < loads[unit] <= amount:
                amount -= loads[unit]
                moves.append(UnitMove(unit, light, f"pairwise: score {score[n]:.3f}"))
        return moves

    def _scores(self, seen: Observation, here: Ints, there: Ints) -> Floats:
        """Half the difference of correlations: with the rest of its node, with the other node."""
        history = seen.load_history
        own = history[:, here].sum(axis=1)
        other = normalised(history[:, there].sum(axis=1)[:, None])[:, 0]
        series = normalised(history[:, here])
        rest = normalised(own[:, None] - history[:, here])
        scores: Floats = ((series * rest).sum(axis=0) - other @ series) / 2
        return scores


def normalised(series: Floats) -> Floats:
    """Columns with mean 0 and length 1, so that products are correlations; constant ones are 0."""
    centred = series - series.mean(axis=0)
    length = np.sqrt((centred * centred).sum(axis=0))
    unit: Floats = np.divide(
        centred, length, out=np.zeros_like(centred), where=length > LEAST_DEVIATION
    )
    return unit


CENTRAL.add("operator_based", CorrelationBased())
CENTRAL.add("operator_based_global", CorrelationBased(global_start=True))
