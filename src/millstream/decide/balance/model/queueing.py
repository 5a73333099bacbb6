"""Queues in expectation: how much work waits, for hosts and links, tick by tick.

A queue's mean backlog V follows dV/dt = arriving - capacity * V / (V + R), where R is the mean rest
of the job in service (second moment over twice the mean). In a steady state that is the
Pollaczek-Khinchine formula of M/G/1, V = load * R / (1 - load); in overload V grows with what
cannot be served (the pointwise stationary fluid approximation). The step is implicit, so any tick
length is stable.
"""

import numpy as np

from millstream.decide.balance.model.dataflow import Floats

SMALLEST = 1e-15


def backlog_after(backlog: Floats, arriving: Floats, capacity: Floats, rest: Floats) -> Floats:
    """Backlog at the end of a tick; `arriving` and `capacity` are amounts for the whole tick.

    >>> steady = np.array([0.0])
    >>> for _ in range(200):
    ...     steady = backlog_after(steady, np.array([0.8]), np.array([1.0]), np.array([0.5]))
    >>> round(float(steady[0]), 6)  # 0.8 * 0.5 / 0.2
    2.0
    """
    total = backlog + arriving
    b = rest + capacity - total
    root = np.sqrt(b * b + 4 * rest * total)
    # The two forms of the positive root; each loses digits where the other is exact.
    direct = (root - b) / 2
    inverse = 2 * rest * total / np.maximum(root + b, SMALLEST)
    return np.minimum(np.where(b > 0, inverse, direct), total)
