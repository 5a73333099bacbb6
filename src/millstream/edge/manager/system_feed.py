"""Feeds the `sys.` streams of a cluster while a query reads one of them.

Once a second the manager asks its processors about operators and steps (`GET /system`), adds what
it has itself decided, and posts the rows to the processor where the stream enters, in numbered
batches as any producer does. A manager below answers and takes rows as a processor would; what its
own processors tell it, it keeps for the one above (`system_log`). Everything is bounded; a
processor that does not answer has nothing to say, and what a stream's processor does not take is
kept for a while, the latest of it. What was not posted when a manager ends is lost. Decides
nothing.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from millstream.client.http import AsyncHttpClient, json_of
from millstream.control.manager.state import ManagerState
from millstream.control.manager.system_streams import (
    ALARMS,
    MOVES,
    Alarms,
    Row,
    Told,
    asked_of,
    known,
    news,
    stamped,
    standing_rows,
    told_now,
    wanted,
)
from millstream.control.snapshot.alarm_rows import by_key
from millstream.control.snapshot.model import Snapshot
from millstream.core.errors import MillstreamError
from millstream.edge.manager.system_log import SystemLog

EVERY_S = 1.0
ANSWER_S = 5.0
ROWS_KEPT = 20_000  # of a stream, until they are posted
BATCH_ROWS = 5_000
PRODUCER = "manager"


@dataclass(slots=True)
class Outgoing:
    """One stream on its way."""

    told: Told
    rows: deque[Row] = field(default_factory=lambda: deque(maxlen=ROWS_KEPT))
    batch: list[Row] = field(default_factory=list)  # sent, not yet acknowledged
    number: int = 0  # of the next batch; 0: to be asked
    door: str = ""  # where rows enter
    last_us: int = 0


class SystemFeed:
    """Rows about a manager's processors and its own decisions."""

    def __init__(
        self,
        state: Callable[[], ManagerState],
        token: str | None,
        verify: str | bool,
        look: Callable[[], Awaitable[Snapshot]] | None = None,
    ) -> None:
        self._state = state
        self._look = look  # the cluster with what its processors say of themselves
        self._token, self._verify = token, verify
        self._positions: dict[str, tuple[int, int]] = {}  # by processor: its life, its last step
        # what ran before this manager was started has been told of by the one before
        self.streams = {name: Outgoing(known(state(), name)) for name in wanted(state())}
        self.log = SystemLog()
        self._told_above: Told | None = None  # of moves; None: not asked for

    async def run(self) -> None:
        """Until cancelled."""
        async with AsyncHttpClient(self._token, self._verify, answer_s=ANSWER_S) as client:
            while True:
                await asyncio.sleep(EVERY_S)
                await self.round(client)

    async def round(self, client: AsyncHttpClient) -> None:
        """Asks, notes and posts once."""
        state = self._state()
        names, above = wanted(state), self.log.wanted()
        for gone in self.streams.keys() - names:
            del self.streams[gone]
        self._note_for_above(above)
        if not names | above:
            self._positions = {}
            return
        seen = await self._look() if self._look is not None and ALARMS in names else None
        self._note_decisions(names, None if seen is None else by_key(seen.overview.alarms))
        questions = {p: asked_of(state.processors[p], names | above) for p in addresses(state)}
        await asyncio.gather(*(self._ask(client, p, asked) for p, asked in questions.items()))
        await asyncio.gather(*(self._post(client, name) for name in sorted(names)))

    def _note_decisions(self, names: frozenset[str], alarms: Alarms | None) -> None:
        state = self._state()
        for name in names:
            out = self.streams.get(name)
            if out is None:
                out = self.streams[name] = Outgoing(known(state, name, alarms))
                out.rows.extend(standing_rows(state, name, alarms))
                continue
            out.rows.extend(news(state, name, out.told, alarms))
            out.told = told_now(state, out.told, name, alarms)

    def _note_for_above(self, above: frozenset[str]) -> None:
        """Moves, from when they were first asked for."""
        state = self._state()
        if self._told_above is not None:
            now_us = int(time.time() * 1e6)
            moved = news(state, MOVES, self._told_above)
            self.log.add(MOVES, ({"at": now_us, **row} for row in moved))
        self._told_above = known(state) if MOVES in above else None

    async def _ask(self, client: AsyncHttpClient, processor: str, asked: frozenset[str]) -> None:
        """One processor; no answer is no news."""
        url = addresses(self._state()).get(processor)
        if not asked or url is None:
            return
        epoch, after = self._positions.get(processor, (0, 0))
        params: dict[str, str | int] = {
            "wanted": ",".join(sorted(asked)), "epoch": epoch, "after": after,
        }  # fmt: skip
        try:
            answer = await client.ask("GET", f"{url.rstrip('/')}/system", params=params)
            told: dict[str, Any] = json_of(answer)
            self._positions[processor] = (int(told["epoch"]), int(told["last"]))
            for name in asked:
                self._take(name, told.get(name, []))
        except (MillstreamError, ValueError, KeyError, TypeError):
            return

    def _take(self, name: str, rows: list[Row]) -> None:
        """Rows for a stream that is fed here, for the manager above, or both."""
        if name in self.streams:
            self.streams[name].rows.extend(rows)
        if name in self.log.wanted():
            self.log.add(name, rows)

    # -- posting --------------------------------------------------------------------------------

    async def _post(self, client: AsyncHttpClient, name: str) -> None:
        """Everything that waits, batch by batch, as long as it is taken."""
        out, door = self.streams[name], _door(self._state(), name)
        if door != out.door:
            out.door, out.number = door, 0
        try:
            while door and (out.batch or out.rows) and await self._post_batch(client, out):
                pass
        except (MillstreamError, ValueError, KeyError, TypeError):
            return  # it may have been taken: the same number is sent again

    async def _post_batch(self, client: AsyncHttpClient, out: Outgoing) -> bool:
        """Whether another one may follow now."""
        if not out.number:
            answer = await client.ask("GET", f"{out.door}/producers/{PRODUCER}")
            out.number = int(json_of(answer)["expected"])
        if not out.batch:
            taken = [out.rows.popleft() for _ in range(min(BATCH_ROWS, len(out.rows)))]
            out.batch = stamped(taken, out.last_us, max(out.last_us, int(time.time() * 1e6)))
        body = {"producer": PRODUCER, "sequence": out.number, "rows": out.batch}
        answer = await client.send("POST", f"{out.door}/rows", body)
        if answer.status_code == 409 and "expected" in json_of(answer):
            out.number = int(json_of(answer)["expected"])
            return False
        if answer.status_code in (200, 400, 413):  # what is refused as it is will be so again
            out.last_us, out.batch = int(out.batch[-1]["at"]), []
            out.number = out.number + 1 if answer.status_code == 200 else 0
            return answer.status_code == 200
        return False


def addresses(state: ManagerState) -> dict[str, str]:
    """Where the processors that are up answer."""
    return {
        name: processor.url
        for name, processor in state.processors.items()
        if name in state.live and state.live[name].state == "up"
    }


def _door(state: ManagerState, name: str) -> str:
    """Where rows of a stream are posted; nowhere while its processor does not answer."""
    stream = state.streams.get(name)
    url = addresses(state).get(stream.processor) if stream is not None else None
    return f"{url.rstrip('/')}/streams/{name}" if url else ""
