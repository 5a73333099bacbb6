"""The last decisions of a running system, numbered, for people.

Bounded; says what was decided, never decides.
"""

import threading
import time
from collections import deque

from millstream.control.snapshot.model import DecisionSnapshot

KEPT = 500


class DecisionLog:
    """Adds and lists; any thread may do either.

    >>> log = DecisionLog()
    >>> log.add("switch", "fifo takes over", at=1.0).number, log.latest()[0].kind
    (1, 'switch')
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept: deque[DecisionSnapshot] = deque(maxlen=kept)
        self._lock = threading.Lock()
        self._number = 0

    def add(
        self,
        kind: str,
        sentence: str,
        *,
        reason: str = "",
        subject: tuple[str, str] = ("", ""),
        at: float | None = None,
    ) -> DecisionSnapshot:
        """`subject` is a kind and an id, such as ("query", "errors")."""
        with self._lock:
            self._number += 1
            made = DecisionSnapshot(
                self._number,
                time.time() if at is None else at,
                kind,
                sentence,
                reason,
                subject[0],
                subject[1],
            )
            self._kept.append(made)
            return made

    def latest(self) -> tuple[DecisionSnapshot, ...]:
        with self._lock:
            return tuple(self._kept)
