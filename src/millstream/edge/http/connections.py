"""How many connections a server holds, and for how long without a whole request.

A client that opens a connection and sends nothing, or half of a request, takes only a descriptor.
The server closes such a connection after a while, and at once when there are too many, first the
one that has kept it waiting longest. The same holds for a client that does not read its answer, and
for one that has not finished the TLS handshake. The server never closes a connection whose request
it is answering for any other reason, so it answers an honest request however many others hold
connections. It closes a new connection only after the client had time to send: many may come at
once, and their requests are read after all of them were accepted.
"""

import asyncio
import resource
import socket
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

DESCRIPTORS_SHARE = 2  # of this process's descriptors, one in so many may be a connection
TAKEN_AT_ONCE_SHARE = 4  # of the connections held, one in so many may be taken before any is read
TIME_TO_SPEAK_S = 0.1
AT_ONCE = struct.pack("ii", 1, 0)  # of SO_LINGER


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a connection may take before its request is whole."""

    connections_max: int = 1000
    head_s: float = 10.0
    body_s: float = 120.0
    head_bytes_max: int = 32 << 10
    read_s: float = 120.0  # in which so many bytes of an answer are taken, or the rest of it
    read_bytes_min: int = 16 << 10

    def fitting(self) -> int:
        """How many connections this process can hold."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            return self.connections_max
        return max(1, min(self.connections_max, descriptors // DESCRIPTORS_SHARE))

    def taken_at_once(self) -> int:
        """How many connections are taken before what they have sent is read."""
        return max(1, self.fitting() // TAKEN_AT_ONCE_SHARE)


class Waiting(Protocol):
    """Whom we wait for."""

    def let_go(self) -> None: ...


class Crowd:
    """All connections of one server, and those that keep it waiting."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits, self.count = limits, 0
        self.waiting: dict[Waiting, None] = {}  # the longest first
        self._most = limits.fitting()
        self._slack = 2 * limits.taken_at_once()  # so many more, until they had time to speak
        self._trimming = False

    def add(self, one: Waiting, loop: asyncio.AbstractEventLoop) -> None:
        self.count += 1
        if self.count > self._most + self._slack:
            next(iter(self.waiting), one).let_go()
        elif self.count > self._most and not self._trimming:
            self._trimming = True
            loop.call_later(TIME_TO_SPEAK_S, self._trim)

    def remove(self) -> None:
        self.count -= 1

    def _trim(self) -> None:
        """Closes as many as there are too many, first those that kept it waiting longest."""
        self._trimming = False
        for one in list(self.waiting)[: max(0, self.count - self._most)]:
            one.let_go()


def protocol_of(
    limits: ConnectionLimits, tls: ssl.SSLContext | None = None
) -> type[asyncio.Protocol]:
    """The protocol of one server: each has its own connections."""
    crowd = Crowd(limits)
    plain = type("OwnConnection", (Connection,), {"crowd": crowd})
    if tls is None:
        return plain
    return type("OwnTlsConnection", (TlsConnection,), {"crowd": crowd, "tls": tls, "inner": plain})


class Connection(H11Protocol):
    """One connection, with a deadline while we wait for it."""

    crowd: Crowd
    _deadline: asyncio.TimerHandle | None = None
    _state: Any = None  # of the request that the deadline is for
    _reading: asyncio.TimerHandle | None = None  # looks whether the answer is taken
    _unread = 0  # bytes of it at the last look
    _taken = False  # whether the answer, or a good part of it, was taken since then

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.crowd.add(self, self.loop)
        self._wait_for(h11.IDLE, self.crowd.limits.head_s)

    def data_received(self, data: bytes) -> None:
        self._taken = self._taken or not self.transport.get_write_buffer_size()
        super().data_received(data)
        self._look()

    def _look(self) -> None:
        state = self.conn.their_state
        if self.transport.is_closing() or state not in (h11.IDLE, h11.SEND_BODY):
            self._wait_no_more()
        elif state is h11.SEND_BODY:
            self._wait_for(state, self.crowd.limits.body_s)
        else:
            self._wait_for(state, self.crowd.limits.head_s)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_reading()
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE:
            self.crowd.waiting.setdefault(self)  # kept for another request, while there is room
        else:  # of one that came behind the last, and half of it perhaps
            self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._wait_no_more()
        self._watch_no_more()
        self.crowd.remove()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading()
        self.crowd.waiting.setdefault(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken = True
        if self._deadline is None and not self.cycle.response_complete:
            self.crowd.waiting.pop(self, None)

    def _watch_reading(self) -> None:
        """Looks again and again as long as bytes of an answer lie here."""
        if self._reading is None and (unread := self.transport.get_write_buffer_size()):
            self._unread, self._taken = unread, False
            self._reading = self.loop.call_later(self.crowd.limits.read_s, self._look_at_reading)

    def _look_at_reading(self) -> None:
        self._reading, before, taken = None, self._unread, self._taken
        self._watch_reading()
        enough = before - self._unread >= self.crowd.limits.read_bytes_min
        if self._reading is not None and not taken and not enough:
            self.let_go()

    def _watch_no_more(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = None

    def _wait_for(self, state: Any, seconds: float) -> None:
        """Begins to wait; more bytes of the same part win no time."""
        if self._deadline is not None and self._state is state:
            return
        self._wait_no_more()
        self._state = state
        self._deadline = self.loop.call_later(seconds, self.let_go)
        self.crowd.waiting[self] = None

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._state = None
        if not self.flow.write_paused:
            self.crowd.waiting.pop(self, None)

    def let_go(self) -> None:
        self._wait_no_more()
        self.crowd.waiting.pop(self, None)
        line = self.transport.get_extra_info("socket")
        with suppress(OSError):  # unread bytes do not stay in the kernel
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        self.transport.abort()


class TlsConnection(asyncio.Protocol):
    """A connection before its TLS handshake has ended; it counts too."""

    crowd: Crowd
    tls: ssl.SSLContext
    inner: type[Connection]

    def __init__(self, server_state: ServerState, **settings: Any) -> None:
        self._connection = self.inner(server_state=server_state, **settings)
        self._loop, self._others = self._connection.loop, server_state.connections
        self._early: list[bytes] = []  # what came before we heard that the handshake has ended
        self._lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._others.add(self)  # type: ignore[arg-type]
        self.crowd.waiting[self] = None
        self.crowd.add(self, self._loop)
        self._shaking = self._loop.create_task(self._shake())  # kept: nothing else refers to it

    async def _shake(self) -> None:
        secure: asyncio.Transport | None = None
        with suppress(OSError):  # a handshake that fails, takes too long or is cut off
            secure = await self._loop.start_tls(
                self._transport, self, self.tls, server_side=True,
                ssl_handshake_timeout=self.crowd.limits.head_s,
            )  # fmt: skip
        self._others.discard(self)
        self.crowd.waiting.pop(self, None)
        self.crowd.remove()
        if secure is None or self._lost or secure.is_closing():
            self._transport.abort()
            return
        secure.set_protocol(self._connection)
        self._connection.connection_made(secure)
        for part in self._early:
            self._connection.data_received(part)

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True

    def shutdown(self) -> None:
        """The server ends."""
        self.let_go()

    def let_go(self) -> None:
        self.crowd.waiting.pop(self, None)
        self._transport.abort()
