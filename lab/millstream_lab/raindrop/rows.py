"""Rows in virtual time: an arrival time and an identity, in arrays; queues of them.

A row's fate at an operator follows from its identity and the operator's salt, never from when or
with whom it is processed: so results do not depend on scheduling.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]
_NONE_TIMES = np.empty(0, dtype=np.float64)
_NONE_IDS = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in order; `times` is when each entered the system."""

    times: NDArray[np.float64]
    ids: Ids

    def __len__(self) -> int:
        return len(self.times)


NO_ROWS = Rows(_NONE_TIMES, _NONE_IDS)


def concatenated(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return NO_ROWS
    return Rows(np.concatenate([p.times for p in parts]), np.concatenate([p.ids for p in parts]))


def mixed(ids: Ids, salt: int) -> Ids:
    """New identities from old ones and a salt (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = ids + np.uint64((salt * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def uniform(ids: Ids, salt: int) -> NDArray[np.float64]:
    """A number in 0 to 1 for each identity."""
    return (mixed(ids, salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Queue:
    """Rows waiting, first in first out."""

    def __init__(self) -> None:
        self._parts: deque[Rows] = deque()
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def oldest(self) -> float | None:
        return float(self._parts[0].times[0]) if self._parts else None

    def first_times(self, count: int) -> NDArray[np.float64]:
        """When the rows that `take` would give came."""
        found: list[NDArray[np.float64]] = []
        for part in self._parts:
            if count <= 0:
                break
            found.append(part.times[:count])
            count -= len(part)
        return np.concatenate([np.zeros(0), *found])

    def put(self, rows: Rows) -> None:
        if len(rows):
            self._parts.append(rows)
            self._rows += len(rows)

    def take(self, count: int) -> Rows:
        taken: list[Rows] = []
        while count > 0 and self._parts:
            part = self._parts[0]
            if len(part) <= count:
                taken.append(self._parts.popleft())
                count -= len(part)
            else:
                taken.append(Rows(part.times[:count], part.ids[:count]))
                self._parts[0] = Rows(part.times[count:], part.ids[count:])
                count = 0
        rows = concatenated(taken)
        self._rows -= len(rows)
        return rows


class SourceQueue(Queue):
    """A stream's rows, which appear by themselves as time goes by."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self._all = rows
        self._next = 0

    def arrive(self, now: float) -> Rows:
        """Lets rows in up to now, and returns the new ones."""
        end = int(np.searchsorted(self._all.times, now, side="right"))
        if end == self._next:
            return NO_ROWS
        new = Rows(self._all.times[self._next : end], self._all.ids[self._next : end])
        self._next = end
        self.put(new)
        return new

    def next_arrival(self) -> float | None:
        return float(self._all.times[self._next]) if self._next < len(self._all) else None
