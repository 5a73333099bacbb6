"""Thousands of connections that send half of a request, on every kind of port: honest requests are
answered quickly meanwhile, rows that are posted all arrive, and descriptors come back."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_doors import SECRET, Doors
from test_doors import doors as real_doors

from millstream.edge.http.roles import Role, role_token
from millstream.edge.http.rows_api import RowsServer

doors = real_doors
PORTS = ("manager", "processor", "dashboard", "run")
QUICK_S = 1.0  # the 99th percentile of honest requests
EASY_S = 10.0  # the same where other tests may run beside: they are answered at all
# Keeps so many connections half open for so long, and opens others where some were closed.
ATTACK = """
import resource, select, socket, sys, time
port, count, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
A_SECOND = 500
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, count + 200), most))
halves = (
    b"", b"G", b"GET /health HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nX-Slow: ",
    b"POST /streams/s/rows HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nContent-Type: application/json\\r\\n"
    b"Content-Length: 9000\\r\\n\\r\\n{",
)
began, held, opened, poll = time.monotonic(), {}, 0, select.poll()
while time.monotonic() < began + seconds:
    while len(held) < count and opened < A_SECOND * (time.monotonic() - began + 1):
        try:
            one = socket.create_connection(("127.0.0.1", port), timeout=0.5)
            one.sendall(halves[opened % len(halves)])
        except OSError:
            break
        opened += 1
        held[one.fileno()] = one
        poll.register(one, select.POLLIN | select.POLLHUP | select.POLLERR)
    for number, _ in poll.poll(20):
        poll.unregister(number)
        held.pop(number).close()
print(opened, len(held))
"""


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Counting:
    """A stream that notes what is posted to it."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def push(self, producer: str, number: int, rows: Any) -> Any:
        self.numbers.append(number)
        return type("Answer", (), {"rows": len(rows), "late": 0, "rejected": 0, "repeated": False,
                                   "reasons": ()})()  # fmt: skip


def honest(url: str, process: "subprocess.Popen[bytes]", rows: bool) -> list[float]:
    """Requests on connections of their own while others hold the line; gives seconds of each."""
    took, number = [], 0
    token = {"Authorization": f"Bearer {role_token(SECRET, Role.SUBMIT)}"}
    while process.poll() is None:
        clock = time.perf_counter()
        if rows:
            number += 1
            body = {"producer": "p", "sequence": number, "rows": [{"v": number}]}
            told = httpx.post(f"{url}/streams/s/rows", json=body, headers=token, timeout=30)
        else:
            told = httpx.get(f"{url}/live", timeout=30)
        took.append(time.perf_counter() - clock)
        assert told.status_code == 200
        time.sleep(0.02)
    return took


def attack(url: str, count: int, seconds: float, *, rows: bool = False) -> tuple[list[float], int]:
    port = url.rpartition(":")[2]
    command = [sys.executable, "-c", ATTACK, port, str(count), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        took = honest(url, process, rows)
        assert process.stdout is not None
        opened, _ = (int(part) for part in process.stdout.read().split())
    assert process.returncode == 0
    return sorted(took), opened


def check(doors: Doors, name: str, count: int, seconds: float, quick_s: float) -> None:
    before = descriptors()
    took, opened = attack(doors[name][1].url, count, seconds)
    worst = took[min(len(took) - 1, len(took) * 99 // 100)]
    print(f"{name}: {opened} opened, {len(took)} honest, 99 % below {worst:.3f} s")
    assert opened >= min(count, 200 * seconds)
    assert worst < quick_s
    until = time.monotonic() + 30
    while descriptors() > before + 20:  # what was half open has come back
        assert time.monotonic() < until
        time.sleep(0.2)


@pytest.mark.parametrize("name", PORTS)
def test_half_open_connections_on_every_port(doors: Doors, name: str) -> None:
    check(doors, name, 1_200, 2.5, EASY_S)


def test_rows_that_are_posted_meanwhile_all_arrive() -> None:
    door = Counting()
    server = RowsServer(lambda _: door, token=SECRET)  # type: ignore[arg-type, return-value]
    server.start()
    try:
        took, _ = attack(server.url, 1_200, 2.0, rows=True)
    finally:
        server.stop()
    assert door.numbers == list(range(1, len(took) + 1))


@pytest.mark.soak
@pytest.mark.parametrize("name", PORTS)
def test_five_thousand_for_ten_minutes(doors: Doors, name: str) -> None:
    check(doors, name, 5_000, float(os.environ.get("MILLSTREAM_SECONDS", "600")), QUICK_S)
