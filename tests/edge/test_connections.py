"""Connections that say nothing, or half of a request: let go, and in nobody's way."""

import select
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi.responses import Response, StreamingResponse
from tls_files import made_tls

from millstream.edge.http.access import json_body
from millstream.edge.http.connections import ConnectionLimits
from millstream.edge.http.serving import Application, Request, Server, Tls

HALF = b"GET /number HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
BODY = (
    b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)
PATIENCE_S = 60.0


LARGE = 1 << 23


@contextmanager
def served(limits: ConnectionLimits, tls: Tls | None = None) -> Iterator[Server]:
    app = Application("test")

    @app.get("/number")
    async def number() -> int:
        return 1

    @app.post("/echo")
    async def echo(request: Request) -> dict[str, object]:
        return await json_body(request)

    @app.get("/large")
    async def large() -> Response:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(LARGE >> 16):
                yield b"x" * (1 << 16)

        return StreamingResponse(parts())

    server = Server(app, limits=limits, tls=tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def opened(stack: ExitStack, server: Server, count: int, text: bytes) -> list[socket.socket]:
    found = []
    for _ in range(count):
        one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        one.sendall(text)
        found.append(one)
    return found


def deaf(stack: ExitStack, server: Server, text: bytes) -> socket.socket:
    """One that asks, takes hardly any of the answers, and asks again as long as it can."""
    one = stack.enter_context(socket.socket())
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    one.connect(("127.0.0.1", server.port))
    one.settimeout(0.3)
    for _ in range(2000):
        try:
            one.sendall(text)
        except OSError:
            break
    return one


def gone(connection: socket.socket) -> bool:
    """Whether a line was cut: what had come before can still be read."""
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(0))  # told whether asked for or not


def ended(connections: list[socket.socket]) -> int:
    """How many the server has closed."""
    poll = select.poll()
    for one in connections:
        poll.register(one, select.POLLIN | select.POLLHUP | select.POLLERR)
    return len(poll.poll(0))


def until_ended(connections: list[socket.socket], least: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while ended(connections) < least:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_half_open_connections_are_in_nobodys_way() -> None:
    limits = ConnectionLimits(connections_max=50, head_s=600, body_s=600)
    with served(limits) as server, ExitStack() as stack:
        half = opened(stack, server, 150, HALF) + opened(stack, server, 150, b"")
        half += opened(stack, server, 100, BODY)
        assert until_ended(half, 350)
        for _ in range(20):
            assert httpx.get(f"{server.url}/number", timeout=PATIENCE_S).json() == 1
        kept = [one for one in half[350:] if not ended([one])]
        assert len(kept) <= 50  # the latest; a whole request pushes out who waits longest
        assert ended(half[:300]) == 300


def test_half_open_connections_are_dropped_in_time() -> None:
    limits = ConnectionLimits(head_s=0.3, body_s=0.3)
    with served(limits) as server, ExitStack() as stack:
        half = [c for text in (HALF, b"", BODY) for c in opened(stack, server, 20, text)]
        assert until_ended(half, 60)


def test_bytes_of_a_head_win_no_time() -> None:
    with served(ConnectionLimits(head_s=0.5)) as server, ExitStack() as stack:
        (drip,) = opened(stack, server, 1, HALF)
        deadline = time.monotonic() + PATIENCE_S
        while not ended([drip]):
            assert time.monotonic() < deadline
            try:
                drip.sendall(b"x")
            except OSError:
                break
            time.sleep(0.02)


def test_a_head_has_a_size() -> None:
    with served(ConnectionLimits(head_s=600, head_bytes_max=2000)) as server, ExitStack() as stack:
        (endless,) = opened(stack, server, 1, HALF + b"x" * 4000)
        assert until_ended([endless], 1)
        assert endless.recv(12) == b"HTTP/1.1 400"


def test_requests_that_take_their_time_are_answered() -> None:
    """Connections are kept between requests, and a deadline is for one part of one request."""
    limits = ConnectionLimits(head_s=0.3, body_s=0.3)
    with (
        served(limits) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client,
    ):
        for _ in range(4):
            assert client.post("/echo", json={"a": 1}).json() == {"a": 1}
            time.sleep(0.2)


ECHO = b"GET /number HTTP/1.1\r\nHost: " + b"a" * 30_000  # the refusal names it
DEAF = {
    "pipelined": ECHO + b"\r\n\r\n",
    "closing": ECHO + b"\r\n\r\n" + ECHO + b"\r\nConnection: close\r\n\r\n",
    "large": b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}


@pytest.mark.parametrize("kind", DEAF)
def test_who_does_not_read_is_dropped_in_time(kind: str) -> None:
    with served(ConnectionLimits(read_s=0.5)) as server, ExitStack() as stack:
        connection = deaf(stack, server, DEAF[kind])
        deadline = time.monotonic() + PATIENCE_S
        while not gone(connection):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_who_does_not_read_is_in_nobodys_way() -> None:
    limits = ConnectionLimits(connections_max=8, read_s=600)
    with served(limits) as server, ExitStack() as stack:
        for _ in range(20):
            deaf(stack, server, DEAF["large"])
        for _ in range(20):
            assert httpx.get(f"{server.url}/number", timeout=PATIENCE_S).json() == 1


def test_who_reads_slowly_gets_all() -> None:
    """Longer than a deadline, and never for as long without a byte."""
    with served(ConnectionLimits(read_s=1.5)) as server, ExitStack() as stack:
        slow = stack.enter_context(socket.socket())
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.connect(("127.0.0.1", server.port))
        slow.settimeout(PATIENCE_S)
        slow.sendall(DEAF["large"].replace(b"Host", b"Connection: close\r\nHost"))
        size = 0
        while part := slow.recv(1 << 17):
            size += len(part)
            time.sleep(len(part) / LARGE * 4)
    assert size > LARGE


def test_half_of_a_request_behind_another_is_dropped_in_time() -> None:
    whole = b"GET /number HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(ConnectionLimits(body_s=0.5)) as server, ExitStack() as stack:
        (behind,) = opened(stack, server, 1, whole + BODY)
        deadline = time.monotonic() + PATIENCE_S
        while not gone(behind):
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_half_handshakes_are_in_nobodys_way_and_dropped_in_time(tmp_path: Path) -> None:
    tls = made_tls(tmp_path)
    believed = ssl.create_default_context(cafile=tls.certificate)
    limits = ConnectionLimits(connections_max=50, head_s=600)
    with served(limits, tls) as server, ExitStack() as stack:
        half = [c for text in (b"", b"\x16\x03\x01") for c in opened(stack, server, 100, text)]
        assert until_ended(half, 150)
        for _ in range(5):
            told = httpx.get(f"{server.url}/number", verify=believed, timeout=PATIENCE_S)
            assert told.json() == 1
    with served(ConnectionLimits(head_s=0.3), tls) as server, ExitStack() as stack:
        half = [c for text in (b"", b"\x16\x03\x01") for c in opened(stack, server, 20, text)]
        assert until_ended(half, 40)
