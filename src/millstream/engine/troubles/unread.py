"""Rows that Spark does not come to an end with, or does not survive: their stream rests.

A stream's time, a reader's options and the rows themselves may take for ever or all memory, and the
same rows are read again after every restart. So reading has a deadline, and Java's deaths while
rows of a stream were read are noted in the ledger. A stream whose reading was cut off, or during
which Java has died twice, is not read for an hour: then its rows may be others, or it rests again.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from millstream.core.errors import MillstreamError, UsageError
from millstream.engine.ports import Machine
from millstream.engine.steps.bounds import StepRefusedError
from millstream.language.cql.catalog import StreamDefinition
from millstream.store.ledger import Ledger

DEATHS_MAX = 2
REST_S = 3600.0
T = TypeVar("T")


class Unread:
    """Of one declared stream."""

    def __init__(
        self,
        definition: StreamDefinition,
        ledger: Ledger,
        machine: Machine | None,
        seconds_max: float,
    ) -> None:
        self._ledger, self._machine, self._seconds_max = ledger, machine, seconds_max
        self._name = definition.name
        self._key = f"unread:{hashlib.sha256(repr(definition).encode()).hexdigest()[:32]}"
        deaths, _, since_s = str(ledger.meta(self._key) or "0").partition(" ")
        self._deaths, self._since_s = int(deaths), int(since_s or 0)

    def refuse(self) -> None:
        """Refuses to read while the stream rests."""
        if self._deaths >= DEATHS_MAX and time.time() - self._since_s < REST_S:
            raise UsageError(
                f"stream {self._name} is not read for {REST_S / 60:g} minutes",
                detail="Spark does not come to an end with its rows, or does not survive them",
                hint="its time or its options take too long or too much memory: declare it anew",
            )

    @contextmanager
    def reading(self, *, by_task: bool = False) -> Iterator[None]:
        """Rows are read inside the block."""
        self.refuse()
        machine = self._machine
        allowed = None if machine is None else machine.within(self._seconds_max, by_task=by_task)
        try:
            with allowed or nullcontext():
                yield
        except StepRefusedError as late:
            self._note(DEATHS_MAX)
            raise UsageError(
                f"the rows of stream {self._name} take too long to read",
                detail=late.message, hint=f"its time or its options run away; {late.hint}",
            ) from late  # fmt: skip
        except MillstreamError:
            raise
        except Exception:
            if machine is not None and machine.gone() is not None:
                self._note(self._deaths + 1)
            raise
        if self._deaths:
            self._deaths = 0
            with self._ledger.transaction() as ledger:
                ledger.drop_meta(self._key)

    def bounded(self, parse: Callable[..., T]) -> Callable[..., T]:
        """A parser of rows that reads so."""

        def parsed(*rows: object) -> T:
            with self.reading():
                return parse(*rows)

        return parsed

    def _note(self, deaths: int) -> None:
        self._deaths, self._since_s = deaths, int(time.time())
        with self._ledger.transaction() as ledger:
            ledger.set_meta(self._key, f"{deaths} {self._since_s}")
