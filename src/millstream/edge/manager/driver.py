"""Runs the manager's state machine: feeds events, saves, sends messages, all on one event loop.

The thin edge of `control.manager.step`. What was decided is saved before it is said. Messages to
processors are HTTP with kept connections and few headers, because a manager with nothing to do
shall say next to nothing. Requests wait here for what they asked for; nothing else is decided here.
Where several managers share a memory, this one does nothing until it leads, and nothing from when
its memory refuses it: then it forgets all and waits again.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from millstream.client.http import AsyncHttpClient, Response, json_of, told_error
from millstream.control.manager import tiers
from millstream.control.manager.events import (
    Event,
    FromAbove,
    Introduced,
    Replied,
    Send,
    Tick,
    Unanswered,
)
from millstream.control.manager.manager import step
from millstream.control.manager.plans import knows_streams
from millstream.control.manager.state import ManagerState, OutsideStream, Settings
from millstream.control.protocol.commands import Command, Compile
from millstream.control.protocol.envelope import MESSAGE_BYTES_MAX, PATH, Envelope, read_replies
from millstream.control.protocol.replies import Refusal, Reply
from millstream.core.errors import MillstreamError, RefusedError, UsageError
from millstream.core.steady_clock import SteadyClock
from millstream.edge.manager.memory.leadership import Leadership, Lease

TICK_S = 0.25
CALM_TICK_S = 1.0
NOT_YET = "this manager has not led yet"
ABOVE_S = 20.0  # how long a higher manager's command may take to be answered
T = TypeVar("T")


@dataclass(slots=True)
class Traffic:
    """Bytes that travelled between this manager and its processors, headers included."""

    out_bytes: int = 0
    in_bytes: int = 0
    messages: int = 0
    steps: int = 0

    def note(self, answer: Response) -> None:
        """A message that was answered."""
        sent, back = answer.request.headers.raw, answer.headers.raw
        self.out_bytes += len(answer.request.content) + len("POST /control HTTP/1.1\r\n\r\n")
        self.out_bytes += sum(len(k) + len(v) + 4 for k, v in sent)
        self.in_bytes += len(answer.content) + len("HTTP/1.1 200 OK\r\n\r\n")
        self.in_bytes += sum(len(k) + len(v) + 4 for k, v in back)
        self.messages += 1


class Memory(Protocol):
    """Where a manager keeps what it must not forget."""

    def load(self, settings: Settings) -> ManagerState: ...

    def save(self, before: ManagerState, after: ManagerState) -> None: ...


class ManagerDriver:
    """One manager in this process."""

    def __init__(
        self,
        store: Memory,
        settings: Settings,
        *,
        name: str = "manager",
        token: str | None = None,
        verify: str | bool = True,
        say: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] | None = None,
        lease: Lease | None = None,
        lease_s: float = 0.0,
    ) -> None:
        """With a `lease` it leads only while it has that."""
        clock = clock or SteadyClock()
        self._store, self._say = store, say
        self._leadership = (
            Leadership(lease, lease_s, self._lead, self._stand_down) if lease else None
        )
        self.state: ManagerState = (
            ManagerState(settings=settings, superseded=NOT_YET) if lease else store.load(settings)
        )
        self._life = 0  # how often it began to lead
        self.traffic = Traffic()
        self._clock = clock
        self.started_s = clock()
        self.fed_s = time.monotonic()  # when the state machine last did something
        self._token, self._verify = token, verify
        self._client: AsyncHttpClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self.name = name
        self.heard_above = threading.Event()
        self._introducing: set[tuple[str, str]] = set()
        self._told = len(self.state.decisions) and self.state.decisions[-1].number

    async def run(self) -> None:
        """Until cancelled: time passes."""
        self._client = AsyncHttpClient(self._token, self._verify)
        if self._leadership is not None:
            self._begin(self._leadership.run())
        else:
            self._say_what_was_unsaid()
        try:
            while True:
                if self.waiting:
                    self.fed_s = time.monotonic()
                elif self._leadership is None:
                    self.feed(Tick())
                else:
                    with suppress(MillstreamError):  # it has stood down, with the reason
                        self.feed(Tick())
                await asyncio.sleep(TICK_S if self._busy() else CALM_TICK_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._client.close()

    def _say_what_was_unsaid(self) -> None:
        for stream in self.state.outside.values():  # not said before this process was killed
            self._begin(self._let_go(stream))

    # -- one of several -------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether another manager leads, by the memory that they share."""
        return self._leadership is not None and not self._leadership.leads

    def _lead(self) -> None:
        self.state = self._store.load(self.state.settings)
        self._life += 1
        self._told = self.state.decisions[-1].number if self.state.decisions else 0
        self._say("this manager leads")
        self._say_what_was_unsaid()
        self._begin(self._first())

    async def _first(self) -> None:
        """Nobody waits for the next tick."""
        if not self.waiting:
            with suppress(MillstreamError):
                self.feed(Tick())

    def _stand_down(self, why: str) -> None:
        self.state = ManagerState(settings=self.state.settings, superseded=why)
        self._introducing.clear()
        self._say(f"this manager waits: {why}")
        self._begin(self._notify())

    def demand_leading(self) -> None:
        """Refuses what only a manager that leads can do, or knows."""
        if self.waiting:
            raise RefusedError(
                "superseded", self.state.superseded,
                hint="ask the manager that leads; --manager takes several addresses: URL,URL",
            )  # fmt: skip

    def _save(self, before: ManagerState, after: ManagerState) -> None:
        try:
            self._store.save(before, after)
        except MillstreamError as error:
            if self._leadership is not None:  # whether it was written is not known: read again
                self._leadership.give_up(error.message)
            raise

    # -- events ---------------------------------------------------------------------------------

    def _busy(self) -> bool:
        state = self.state
        return any(not m.over for m in state.moves.values()) or any(
            q.phase not in ("running", "failed") for q in state.queries.values()
        )

    def feed(self, event: Event) -> None:
        """One event; a user's mistake is raised, and nothing has changed then."""
        self.demand_leading()
        before = self.state
        after, sends = step(before, event, self._clock())
        self._save(before, after)
        self.state = after
        self.traffic.steps += 1
        self.fed_s = time.monotonic()
        if after.decisions is not before.decisions:
            self._tell()
        for send in sends:
            self._begin(self._perform(send))
        for stream, consumer in tiers.introductions(after) if after.outside else ():
            self._introduce(stream, consumer)
        if not isinstance(event, Tick) or after is not before:
            self._begin(self._notify())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell(self) -> None:
        for decision in self.state.decisions:
            if decision.number > self._told:
                reason = f" ({decision.reason})" if decision.reason else ""
                self._say(f"{decision.sentence}{reason}")
                self._told = decision.number

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, look: Callable[[ManagerState], T | None], wait_s: float) -> T | None:
        """What `look` finds, as soon as it finds something; None where that takes too long."""
        deadline = time.monotonic() + wait_s
        while True:
            self.demand_leading()
            found = look(self.state)
            left = deadline - time.monotonic()
            if found is not None or left <= 0:
                return found
            async with self._changed:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), min(left, 1.0))

    # -- tiers ----------------------------------------------------------------------------------

    def _introduce(self, stream: OutsideStream, consumer: str) -> None:
        """Lets the owner of an outside stream keep it for one of our processors."""
        if (stream.id, consumer) in self._introducing:
            return
        self._introducing.add((stream.id, consumer))
        self._begin(self._introduced(stream, consumer))

    async def _introduced(self, stream: OutsideStream, consumer: str) -> None:
        if not await self._say_of(stream, "expect", {"consumer": consumer}):
            await asyncio.sleep(1.0)
            self._introducing.discard((stream.id, consumer))
            if not self.waiting:
                self.feed(Tick())
            return
        self._introducing.discard((stream.id, consumer))
        if self.waiting:
            return
        self.feed(Introduced(stream.id, consumer))
        await self._let_go(stream)

    async def _let_go(self, stream: OutsideStream) -> None:
        """Once an outside stream is kept for all its readers here, it need not be kept for this
        manager besides."""
        everything = {"consumer": self.name, "next": 1 << 60}
        while tiers.all_introduced(self.state, stream.id):
            if await self._say_of(stream, "ack", everything):
                return
            await asyncio.sleep(1.0)

    async def _say_of(self, stream: OutsideStream, word: str, body: dict[str, Any]) -> bool:
        assert self._client is not None
        base = f"{stream.source.url.rstrip('/')}/streams/{quote(stream.id, safe='')}"
        try:
            await self._client.ask("POST", f"{base}/{word}", body)
        except MillstreamError:
            return False
        return True

    async def from_above(self, envelope: Envelope) -> list[Reply]:
        """Carries out a higher manager's message; a reply for each command when it is known."""
        if envelope.to != self.name or envelope.by != "manager":
            return [Refusal("not_me", f"this is manager {self.name}") for _ in envelope.messages]
        if tiers.stale(self.state, envelope):
            seen = self.state.above["above"].epoch
            refused = Refusal("stale", "a later message has been here", epoch=seen)
            return [refused for _ in envelope.commands]
        self.heard_above.set()
        self.feed(FromAbove(envelope))
        return list(await asyncio.gather(*map(self._answer_above, envelope.commands)))

    async def _answer_above(self, command: Command) -> Reply:
        if isinstance(command, Compile):
            return await self._compile(command)
        found: Reply | None = await self.until(lambda s: tiers.answer(s, command), ABOVE_S)
        return found if found is not None else Refusal("busy", "not known yet")

    async def _compile(self, command: Compile) -> Reply:
        """Asks one of our processors, once one has been told of all streams."""
        knowing = await self.until(_knowing, ABOVE_S)
        for name in knowing or ():
            envelope = Envelope(self.state.epoch, 0, name, (command,))
            url = self.state.processors[name].url
            with suppress(MillstreamError):
                (reply,) = await self._post(Send(name, url, "ask", 0, envelope))
                return reply
        return Refusal("busy", "no processor of this manager answers")

    # -- messages -------------------------------------------------------------------------------

    async def _perform(self, send: Send) -> None:
        """Sends a message; its answer, or that there was none, is an event."""
        event: Event
        life = self._life
        try:
            replies = await self._post(send)
            event = Replied(send.processor, send.channel, send.number, replies)
        except MillstreamError as error:
            text = f"{type(error).__name__}: {error}"[:300]
            event = Unanswered(send.processor, send.channel, send.number, text)
        if self._leadership is None:
            self.feed(event)
        elif life == self._life:  # else the numbers are of a life before
            with suppress(MillstreamError):
                self.feed(event)

    async def _post(self, send: Send) -> tuple[Reply, ...]:
        assert self._client is not None
        answer = await self._client.send(
            "POST",
            f"{send.url.rstrip('/')}{PATH}",
            send.envelope,
            answer_s=self.state.settings.patience_s,
        )
        self.traffic.note(answer)
        if answer.is_error:
            raise told_error(answer)
        if len(answer.content) > 4 * MESSAGE_BYTES_MAX:
            raise UsageError("an answer out of all bounds")
        return read_replies(send.envelope, json_of(answer))


class Desk(Protocol):
    """Who answers for a cluster: a manager, or any member of a cluster without one."""

    async def read(self) -> ManagerState:
        """What is known now."""
        ...

    def changing(self) -> AbstractAsyncContextManager[ManagerDriver]:
        """Whom to feed with what somebody wants, for as long as that takes."""
        ...


def _knowing(state: ManagerState) -> list[str] | None:
    """The processors that have been told of all streams; None where there are none yet."""
    return [name for name in state.live if knows_streams(state, name)] or None
