"""How many connections a server holds, and for how long without a whole request.

Who opens a connection and says nothing, or half of a request, takes a descriptor and no more: it is
let go after a while, and at once when there are too many, the one that kept us waiting longest
first. One whose request is being answered is never let go, so that an honest request is answered
however many others hold the line. Who has just come is let go when it had time to speak: many come
at once, and what they have sent is read after all of them were taken.
"""

import asyncio
import resource
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

DESCRIPTORS_SHARE = 2  # of this process's descriptors, one in so many may be a connection
TAKEN_AT_ONCE_SHARE = 4  # of the connections held, one in so many may be taken before any is read
TIME_TO_SPEAK_S = 0.1


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a connection may take before its request is whole."""

    connections_max: int = 1000
    head_s: float = 10.0
    body_s: float = 120.0
    head_bytes_max: int = 32 << 10

    def fitting(self) -> int:
        """How many connections this process can hold."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            return self.connections_max
        return max(1, min(self.connections_max, descriptors // DESCRIPTORS_SHARE))

    def taken_at_once(self) -> int:
        """How many connections are taken before what they have sent is read."""
        return max(1, self.fitting() // TAKEN_AT_ONCE_SHARE)


def protocol_of(limits: ConnectionLimits) -> type[H11Protocol]:
    """The protocol of one server: each has its own connections."""
    waiting: dict[Connection, None] = {}  # for a whole request, the longest first
    settings = {
        "limits": limits, "most": limits.fitting(), "waiting": waiting, "trimming": [],
        "slack": 2 * limits.taken_at_once(),
    }  # fmt: skip
    return type("Connection", (Connection,), settings)


class Connection(H11Protocol):
    """One connection, with a deadline while we wait for it."""

    limits: ConnectionLimits
    most: int
    slack: int  # so many more, until they had time to speak
    waiting: dict["Connection", None]
    trimming: list[asyncio.TimerHandle]  # at most one
    _deadline: asyncio.TimerHandle | None = None
    _state: Any = None  # of the request that the deadline is for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most + self.slack:
            next(iter(self.waiting), self)._let_go()
        elif len(self.connections) > self.most and not self.trimming:
            self.trimming.append(self.loop.call_later(TIME_TO_SPEAK_S, self._trim))
        self._wait_for(h11.IDLE, self.limits.head_s)

    def _trim(self) -> None:
        """Lets go of as many as there are too many, those first who kept us waiting longest."""
        self.trimming.clear()
        for one in list(self.waiting)[: max(0, len(self.connections) - self.most)]:
            one._let_go()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        state = self.conn.their_state
        if self.transport.is_closing() or state not in (h11.IDLE, h11.SEND_BODY):
            self._wait_no_more()
        elif state is h11.SEND_BODY:
            self._wait_for(state, self.limits.body_s)
        else:
            self._wait_for(state, self.limits.head_s)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and self.conn.their_state is h11.IDLE:
            self.waiting.setdefault(self)  # kept for another request, as long as there is room

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait_for(self, state: Any, seconds: float) -> None:
        """Begins to wait; more bytes of the same part win no time."""
        if self._deadline is not None and self._state is state:
            return
        self._wait_no_more()
        self._state = state
        self._deadline = self.loop.call_later(seconds, self._let_go)
        self.waiting[self] = None

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._state = None
        self.waiting.pop(self, None)

    def _let_go(self) -> None:
        self._wait_no_more()
        self.transport.abort()
