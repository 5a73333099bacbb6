"""Distances between nodes as they are measured: kept current, completed where they are missing.

`Estimates` is a value: each observation gives a new one. An estimate follows its samples like a
TCP round-trip timer (RFC 6298: a smoothed mean and a smoothed deviation), so that a burst of
queueing does not move operators; samples grow stale after a while and count as missing then.
Distances are one-way; a round trip counts as two equal halves, and gives way to one-way samples.
Never measures anything itself: a driver probes and reports.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

GAIN = 1 / 8  # of a new sample in the mean (RFC 6298, alpha)
DEVIATION_GAIN = 1 / 4  # of a new error in the deviation (RFC 6298, beta)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of one direction between two nodes."""

    mean_ms: float
    deviation_ms: float
    measured_at_s: float
    samples: int = 1
    halved: bool = False  # from round trips: the directions are only assumed equal

    def updated(self, sample_ms: float, now_s: float, *, halved: bool) -> "Estimate":
        if self.halved and not halved:  # a true one-way sample replaces assumed halves
            return Estimate(sample_ms, sample_ms / 2, now_s)
        if halved and not self.halved:  # and is not blurred by them
            return self
        error = sample_ms - self.mean_ms
        return Estimate(
            self.mean_ms + GAIN * error,
            self.deviation_ms + DEVIATION_GAIN * (abs(error) - self.deviation_ms),
            max(now_s, self.measured_at_s),
            self.samples + 1,
            halved,
        )


@dataclass(frozen=True, slots=True)
class Estimates:
    """All estimates, by (from, to); stale after `horizon_s` without a sample."""

    pairs: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)
    horizon_s: float = 300.0

    def observe_one_way(self, origin: str, target: str, ms: float, now_s: float) -> "Estimates":
        return self._with({(origin, target): ms}, now_s, halved=False)

    def observe_round_trip(self, origin: str, target: str, ms: float, now_s: float) -> "Estimates":
        """A ping: half of it for each direction."""
        return self._with({(origin, target): ms / 2, (target, origin): ms / 2}, now_s, halved=True)

    def _with(
        self, samples: Mapping[tuple[str, str], float], now_s: float, *, halved: bool
    ) -> "Estimates":
        pairs = dict(self.pairs)
        for (origin, target), ms in samples.items():
            if origin == target or not np.isfinite(ms) or ms < 0:
                continue  # a clock that ran backwards measures nothing
            known = pairs.get((origin, target))
            if known is None or self.stale(known, now_s):
                pairs[origin, target] = Estimate(ms, ms / 2, now_s, 1, halved)
            else:
                pairs[origin, target] = known.updated(ms, now_s, halved=halved)
        return replace(self, pairs=pairs)

    def stale(self, estimate: Estimate, now_s: float) -> bool:
        return now_s - estimate.measured_at_s > self.horizon_s

    def forget(self, node: str) -> "Estimates":
        """Drops all that concerns a node that left."""
        kept = {pair: value for pair, value in self.pairs.items() if node not in pair}
        return replace(self, pairs=kept)

    def wanted(self, nodes: Iterable[str], limit: int) -> tuple[tuple[str, str], ...]:
        """The pairs to probe next: never measured first, then the oldest; at most `limit`."""
        names = sorted(nodes)
        ages = []
        for origin in names:
            for target in names:
                if origin < target:
                    known = [
                        self.pairs[pair].measured_at_s
                        for pair in ((origin, target), (target, origin))
                        if pair in self.pairs
                    ]
                    ages.append((min(known) if known else -np.inf, origin, target))
        ages.sort()
        return tuple((origin, target) for _, origin, target in ages[:limit])

    def matrix(self, nodes: Iterable[str], now_s: float) -> Matrix:
        """Mean distances in the order of `nodes`; NaN where none is fresh."""
        names = list(nodes)
        at = {name: i for i, name in enumerate(names)}
        matrix = np.full((len(names), len(names)), np.nan)
        np.fill_diagonal(matrix, 0.0)
        for (origin, target), estimate in self.pairs.items():
            if origin in at and target in at and not self.stale(estimate, now_s):
                matrix[at[origin], at[target]] = estimate.mean_ms
        return matrix

    def current(self, nodes: Iterable[str], now_s: float) -> Matrix:
        """`matrix`, completed; NaN remains only between nodes that nothing connects."""
        return completed(self.matrix(nodes, now_s))


def completed(matrix: Matrix) -> Matrix:
    """Fills missing distances: the way back if it was measured, else the shortest detour.

    A detour is an upper bound by the triangle inequality, so a plan made from it promises no
    delay that the network cannot keep. What was measured stays as it is.

    >>> nan = float("nan")
    >>> completed(np.array([[0.0, 4.0, nan], [nan, 0.0, 3.0], [nan, nan, 0.0]])).tolist()
    [[0.0, 4.0, 7.0], [4.0, 0.0, 3.0], [7.0, 3.0, 0.0]]
    """
    filled = np.where(np.isnan(matrix), matrix.T, matrix)
    if not np.isnan(filled).any():
        return filled
    shortest = shortest_paths(np.where(np.isnan(filled), np.inf, filled))
    shortest[np.isinf(shortest)] = np.nan
    return np.where(np.isnan(filled), shortest, filled)


def shortest_paths(lengths: Matrix) -> Matrix:
    """All-pairs shortest distances (Floyd and Warshall, a row of the matrix at a time)."""
    shortest = lengths.copy()
    np.fill_diagonal(shortest, 0.0)
    through = np.empty_like(shortest)
    for middle in range(len(shortest)):
        np.add(shortest[:, middle, None], shortest[None, middle, :], out=through)
        np.minimum(shortest, through, out=shortest)
    return shortest
