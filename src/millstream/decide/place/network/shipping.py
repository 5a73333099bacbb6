"""The inner step of every exact search: the cheapest way to ship a stream to each node.

A minimum over all nodes of (what it costs to have the stream there) + (rate x distance): one
min-plus product of a vector and a matrix, done in blocks whose scratch stays in the CPU's cache.
"""

import numpy as np

from millstream.decide.place.network.tree import Indices, Vector
from millstream.decide.place.problem import Matrix

BLOCK_NUMBERS = 32_768


def shipped(cost: Vector, rate: float, towards: Matrix) -> tuple[Vector, Indices]:
    """For every row of `towards` ([to, from]) the least cost plus shipping, and from where.

    >>> towards = np.array([[0.0, 3.0], [3.0, 0.0]])
    >>> least, origin = shipped(np.array([5.0, 1.0]), 1.0, towards)
    >>> least.tolist(), origin.tolist()
    ([4.0, 1.0], [1, 1])
    """
    rows, size = towards.shape
    block = max(1, BLOCK_NUMBERS // max(1, size))
    least = np.empty(rows)
    origin = np.empty(rows, dtype=np.intp)
    scratch = np.empty((block, size))
    for start in range(0, rows, block):
        stop = min(start + block, rows)
        work = scratch[: stop - start]
        np.multiply(towards[start:stop], rate, out=work)
        work += cost
        np.argmin(work, axis=1, out=origin[start:stop])
        least[start:stop] = work[np.arange(stop - start), origin[start:stop]]
    return least, origin


def fetched(cost: Vector, rate: float, towards: Matrix) -> Vector:
    """For every column of `towards` ([to, from]) the least of shipping plus the cost there.

    >>> fetched(np.array([5.0, 1.0]), 1.0, np.array([[0.0, 3.0], [3.0, 0.0]])).tolist()
    [4.0, 1.0]
    """
    rows, size = towards.shape
    block = max(1, BLOCK_NUMBERS // max(1, size))
    least = np.full(size, np.inf)
    scratch = np.empty((block, size))
    for start in range(0, rows, block):
        stop = min(start + block, rows)
        work = scratch[: stop - start]
        np.multiply(towards[start:stop], rate, out=work)
        work += cost[start:stop, None]
        np.minimum(least, work.min(axis=0), out=least)
    return least
