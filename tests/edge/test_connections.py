"""Connections that say nothing, or half of a request: let go, and in nobody's way."""

import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx

from millstream.edge.http.access import json_body
from millstream.edge.http.connections import ConnectionLimits
from millstream.edge.http.serving import Application, Request, Server

HALF = b"GET /number HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
BODY = (
    b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)
PATIENCE_S = 60.0


@contextmanager
def served(limits: ConnectionLimits) -> Iterator[Server]:
    app = Application("test")

    @app.get("/number")
    async def number() -> int:
        return 1

    @app.post("/echo")
    async def echo(request: Request) -> dict[str, object]:
        return await json_body(request)

    server = Server(app, limits=limits)
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
