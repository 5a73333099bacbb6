"""Whether this manager leads: takes a lease, renews it, stands down when it cannot.

A leader counts from before the question in which it last renewed, who waits from after it has seen
that beat: so the one has stopped when the other begins, whatever the time of day is at either. What
a leader decides after it was outdone the store refuses besides. Decides nothing else.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from millstream.core.errors import MillstreamError

LOOK_S = 0.25  # between two looks of who waits
BEAT_S = 0.75  # between two beats of who leads


class Lease(Protocol):
    """What one of several has at a time."""

    def take(self) -> str:
        """Nothing once this one has it; else who does."""
        ...

    def renew(self) -> bool:
        """False where another has it."""
        ...

    def release(self) -> None: ...


class Leadership:
    """Calls `lead` when this process is to lead, `stand_down` with a reason when it is not."""

    def __init__(
        self,
        lease: Lease,
        lease_s: float,
        lead: Callable[[], None],
        stand_down: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lease, self._lease_s, self._clock = lease, lease_s, clock
        self._lead, self._stand_down = lead, stand_down
        self.leads = False
        self._renewed_s = 0.0  # before the question that was last answered well
        self._why = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await (self.renew() if self.leads else self.take())
            await asyncio.sleep(BEAT_S if self.leads else LOOK_S)

    async def take(self) -> None:
        """Leads where nobody else does."""
        begun_s = self._clock()
        try:
            why = await asyncio.to_thread(self._lease.take)
            if not why and self._clock() - begun_s >= self._lease_s:
                why = "the store answers too late"
            if not why:
                self._lead()
        except MillstreamError as error:
            why = _in_words(error)
        if why:
            self._tell(why)
            return
        self.leads, self._renewed_s, self._why = True, begun_s, ""

    async def renew(self) -> None:
        """One more beat, or the end of leading."""
        begun_s = self._clock()
        left_s = self._renewed_s + self._lease_s - begun_s
        try:
            async with asyncio.timeout(max(left_s, 0.0)):
                kept = await asyncio.to_thread(self._lease.renew)
            why = "" if kept else "another manager has taken over"
        except TimeoutError:
            why = "the store did not answer in time"
        except MillstreamError as error:
            if self._clock() - self._renewed_s < self._lease_s - BEAT_S:
                return  # there is time to ask again
            why = _in_words(error)
        if why:
            self.give_up(why)
        else:
            self._renewed_s = begun_s

    def give_up(self, why: str) -> None:
        """This one leads no longer; it asks again later."""
        self.leads = False
        self._tell(why)

    def _tell(self, why: str) -> None:
        if why != self._why:
            self._why = why
            self._stand_down(why)


def _in_words(error: MillstreamError) -> str:
    return f"{error.message} ({error.detail})" if error.detail else error.message
