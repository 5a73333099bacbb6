"""What happened lately: rates of counters, and the last rows of results.

Both are bounded in memory whatever runs; neither reads a clock of its own.
"""

import threading
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.control.snapshot.model import Results

RATE_SECONDS = 10.0
ROWS_KEPT = 200  # of each result


class Rates:
    """Counters that only grow, as rates over the last seconds.

    >>> rates = Rates()
    >>> rates.note(0.0, {"rows": 0.0}); rates.note(2.0, {"rows": 10.0})
    >>> rates.of("rows"), rates.of("unknown")
    (5.0, 0.0)
    """

    def __init__(self, seconds: float = RATE_SECONDS) -> None:
        self._seconds = seconds
        self._seen: deque[tuple[float, Mapping[Hashable, float]]] = deque()

    def note(self, now: float, counters: Mapping[Any, float]) -> None:
        self._seen.append((now, counters))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._seconds:
            self._seen.popleft()

    def of(self, name: Hashable) -> float:
        if len(self._seen) < 2:
            return 0.0
        (then, before), (now, after) = self._seen[0], self._seen[-1]
        if now <= then or name not in after:
            return 0.0
        return max(0.0, (after[name] - before.get(name, 0.0)) / (now - then))


@dataclass(slots=True)
class _Ring:
    columns: tuple[str, ...] = ()
    rows: deque[tuple[int, tuple[Any, ...]]] = field(
        default_factory=lambda: deque(maxlen=ROWS_KEPT)
    )
    last: int = 0


class LatestRows:
    """The last rows of each result, counted from 1."""

    def __init__(self) -> None:
        self._rings: dict[str, _Ring] = {}
        self._lock = threading.Lock()

    def add(
        self, query: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]], passed: int = 0
    ) -> None:
        """`passed` rows came before these and are not kept."""
        with self._lock:
            ring = self._rings.setdefault(query, _Ring())
            ring.columns = tuple(columns) or ring.columns
            ring.rows.extend(enumerate(rows, ring.last + passed + 1))
            ring.last += passed + len(rows)

    def forget(self, query: str) -> None:
        with self._lock:
            self._rings.pop(query, None)

    def after(self, query: str, after: int) -> Results:
        """Rows with greater numbers, oldest first; `lost` are those that were passed over.

        >>> latest = LatestRows()
        >>> latest.add("q", ["x"], [(1,), (2,), (3,)], passed=10)
        >>> latest.after("q", 0)
        Results(columns=('x',), rows=((1,), (2,), (3,)), last=13, lost=10, note='')
        >>> latest.after("q", 12).rows
        ((3,),)
        """
        with self._lock:
            ring = self._rings.get(query)
            if ring is None:
                return Results((), last=0)
            kept = tuple(row for number, row in ring.rows if number > after)
            lost = max(0, ring.last - after) - len(kept)
            return Results(ring.columns, kept, ring.last, lost)
