"""Texts that Spark's analyser cannot be asked about again: it never came to an end with them.

Constants are computed while a text is read, in the driver, where nothing can be cut off: a constant
that runs away there, or takes all memory, ends Java. The client sends the text again to the next
process, which refuses it. A text whose reading Java did not survive for another reason is refused
after the second time. Queries that run already are read again whatever is noted.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millstream.core.errors import MillstreamError, UsageError
from millstream.engine.ports import Machine
from millstream.language.cql.analyzer import UnansweredError
from millstream.store.ledger import Ledger

DEATHS_MAX = 2


class Unanswered:
    """Of one home."""

    def __init__(self, ledger: Ledger, machine: Machine | None) -> None:
        self._ledger, self._machine = ledger, machine

    @contextmanager
    def asking(self, text: str, runs: Callable[[], bool]) -> Iterator[None]:
        """Spark reads a text inside the block; `runs` says whether what it means runs already."""
        key = f"unanswered:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        deaths = int(self._ledger.meta(key) or 0)
        if deaths >= DEATHS_MAX and not runs():
            raise UsageError(
                "this text ended Spark's Java process while it was read, and is not read again",
                hint="an expression over constants alone runs away, or needs too much memory",
            )
        try:
            yield
        except UnansweredError:
            self._note(key, DEATHS_MAX)
            raise
        except MillstreamError:
            raise
        except Exception:
            if self._machine is not None and self._machine.gone() is not None:
                self._note(key, deaths + 1)
            raise
        if deaths:
            with self._ledger.transaction() as ledger:
                ledger.drop_meta(key)

    def _note(self, key: str, deaths: int) -> None:
        with self._ledger.transaction() as ledger:
            ledger.set_meta(key, str(deaths))
