"""Rows about what is below a manager, for the one above: `GET /system` as a processor answers it.

    GET /system?wanted=sys.steps,sys.moves&epoch=E&after=N

answers with the rows after number N of this manager's life E (another life: all that are here; 0,
somebody who has asked nothing before: from now on). Rows that this acknowledges are dropped; of the
others, the latest are kept. Rows are gathered (`system_feed`) from the first question on, and no
more when nobody has asked for a while. Decides nothing and asks nobody.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from millstream.control.manager.system_streams import FROM_MANAGERS, Row

ROWS_KEPT = 20_000  # of a stream, until they are acknowledged
WANTED_S = 15.0  # after the last question


class SystemLog:
    """Numbered rows, until the manager above has them."""

    def __init__(self) -> None:
        self._rows: dict[str, deque[tuple[int, Row]]] = {}
        self._last = 0
        self._wanted: frozenset[str] = frozenset()
        self._asked_s = 0.0

    def wanted(self) -> frozenset[str]:
        """The streams that the manager above has asked for lately."""
        if time.monotonic() - self._asked_s > WANTED_S:
            self._wanted = frozenset()
        return self._wanted

    def add(self, stream: str, rows: Iterable[Row]) -> None:
        kept = self._rows.setdefault(stream, deque(maxlen=ROWS_KEPT))
        for row in rows:
            self._last += 1
            kept.append((self._last, row))

    def answer(self, wanted: frozenset[str], life: int, epoch: int, after: int) -> dict[str, Any]:
        """`life`: this manager's; `epoch` and `after`: how far the one above is."""
        self._wanted, self._asked_s = wanted & FROM_MANAGERS, time.monotonic()
        least = {life: after, 0: self._last}.get(epoch, 0)
        for rows in self._rows.values():
            while rows and rows[0][0] <= least:
                rows.popleft()
        found = {name: [row for _, row in self._rows.get(name, ())] for name in self._wanted}
        return {"epoch": life, "last": self._last, **found}
