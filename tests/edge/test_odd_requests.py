"""Odd requests on every route of every server: each is answered by one of our errors or as asked.

The list of routes is the framework's own, and so are the names of what a query string may hold.
"""

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Mount
from test_doors import OPEN, SECRET, Doors
from test_doors import doors as real_doors

from millstream.edge.http.serving import Application

doors = real_doors
NAMED = ("manager", "processor", "member", "dashboard")
HEADERS = {
    "Authorization": f"Bearer {SECRET}", "Content-Type": "application/json", "X-Millstream": "1",
}  # fmt: skip
WORDS = ("-1", "", "x", "%ed%a0%80", "nan", "inf", str(10**30), "1e400")
SHORT = WORDS[:5]  # of how long to wait
NAMES = ("1", "..%2f..", "a%00b", "%ed%a0%80", "x" * 3000)
BODIES = ("", "null", "[]", '"x"', "1", "[" * 50_000, "{}", '{"a": 1e400}', "{", "NaN",
          '{"' + "x" * 100_000 + '": 1}', f'{{"after": {"9" * 5000}}}')  # fmt: skip
FIELDS = (
    "name", "cql", "rows", "producer", "sequence", "table", "processor", "start", "names",
    "operator", "operators", "to", "subplan", "dry_run", "wait_s", "back", "weight", "latency_s",
    "queue", "replicas", "paused", "from_beginning", "deliver_to", "goals", "template", "query",
    "forget", "messages", "epoch", "number", "sender", "by", "lineage", "url", "id", "properties",
    "consumer", "next", "peers", "action", "before", "policy", "pattern", "planner", "options",
    "columns", "time", "path", "options", "key", "op",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, [], {}, True, -1, 10**30, 1.5, "", "x", "\ud800"[:0], ["x", 1], {"a": {"b": [None]}},
    "a\x00b", [[]], {"name": 5},
)  # fmt: skip
SKIPPED = ("/api/events", "/processors/{name}/restart")  # without an end


def found_in(app: Application) -> Iterator[tuple[str, str, list[str]]]:
    """Method, path and names of the query string of every route."""
    for path in app.quick:
        yield "POST", path, []
    for route in app.routes:
        if isinstance(route, Mount) and isinstance(route.app, Application):
            yield from found_in(route.app)
        elif isinstance(route, APIRoute) and route.path not in SKIPPED:
            for method in sorted(route.methods - {"HEAD"}):
                yield method, route.path, [p.name for p in route.dependant.query_params]


def filled(path: str, name: str) -> str:
    while "{" in path:
        path = path[: path.index("{")] + name + path[path.index("}") + 1 :]
    return path


def asked(client: httpx.Client, method: str, path: str, body: str | None = None) -> None:
    content = body.encode() if body is not None else b"{}" if method in ("POST", "PUT") else None
    answer = client.request(method, path, content=content, headers=HEADERS)
    what = f"{method} {path[:200]} {(body or '')[:200]}: {answer.status_code} {answer.text[:300]}"
    assert answer.status_code != 500, what
    if answer.is_error and path.partition("?")[0] not in OPEN:
        assert "error" in answer.json(), what


@pytest.mark.parametrize("name", NAMED)
def test_odd_names_and_numbers(doors: Doors, name: str) -> None:
    app, server = doors[name]
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for method, path, wanted in found_in(app):
            for one in NAMES:
                asked(client, method, filled(path, one) + "?after=1&last=1&consumer=x")
            needed = {"after": "1", "last": "1", "consumer": "client"}
            for parameter in wanted:
                for word in SHORT if parameter == "wait" else WORDS:
                    told = {**needed, parameter: word}
                    text = "&".join(f"{k}={quote(v, safe='%')}" for k, v in told.items())
                    asked(client, method, f"{filled(path, '1')}?{text}")


@pytest.mark.parametrize("name", NAMED)
def test_odd_bodies(doors: Doors, name: str) -> None:
    app, server = doors[name]
    turn = 0
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for method, path, _ in found_in(app):
            if method not in ("POST", "PUT"):
                continue
            at = filled(path, "1")
            for body in BODIES:
                asked(client, method, at, body)
            for first in range(0, len(FIELDS), 5):
                turn += 1
                some = FIELDS[first : first + 5]
                told = {f: VALUES[(turn + n) % len(VALUES)] for n, f in enumerate(some)}
                asked(client, method, at, json.dumps(told))
            for value in VALUES:
                asked(client, method, at, json.dumps(dict.fromkeys(FIELDS, value)))


@pytest.mark.parametrize("host", ["127.0.0.1:99999", "127.0.0.1:port", "[::1", "[evil]", "a b"])
@pytest.mark.parametrize("name", [*NAMED, "run"])
def test_a_host_that_cannot_be(doors: Doors, name: str, host: str) -> None:
    for path in ("/live", "/"):
        answer = httpx.get(doors[name][1].url + path, headers={**HEADERS, "Host": host}, timeout=30)
        assert answer.status_code in (400, 421), answer.text
        assert answer.json()["error"]


@pytest.mark.parametrize("origin", ["null", "", "http://[evil", "file://", "127.0.0.1", "//"])
@pytest.mark.parametrize("name", [*NAMED, "run"])
def test_an_origin_that_is_nobody_s(doors: Doors, name: str, origin: str) -> None:
    for host in ({}, {"Host": ""}):
        headers = {**HEADERS, "Origin": origin, **host}
        answer = httpx.get(doors[name][1].url + "/live", headers=headers, timeout=30)
        assert answer.status_code in (400, 403), answer.text


def raw(url: str, data: bytes) -> bytes:
    """All that a server says to some bytes, until it hangs up or says no more."""
    host, _, port = url.removeprefix("http://").partition(":")
    found = b""
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        try:
            while part := line.recv(1 << 16):
                found += part
        except TimeoutError:
            pass
    return found


GUARDED = b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
SMUGGLED = {
    "two lengths": b"POST /live HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GUARDED,
    "other lengths": b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n"
    b"Content-Length: 50\r\n\r\n" + GUARDED,
    "two hosts": b"GET /status HTTP/1.1\r\nHost: evil.example\r\nHost: 127.0.0.1\r\n\r\n",
    "whole address": b"GET http://127.0.0.1/status HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "folded": b"GET /status HTTP/1.1\r\nHost: evil.example\r\n 127.0.0.1\r\n\r\n",
    "space before colon": b"GET /status HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
    "old": b"GET /status HTTP/1.0\r\n\r\n",
    "oldest": b"GET /status\r\n",
    "pipelined": b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + GUARDED,
    "chunk": b"POST /live HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: xchunked\r\n\r\n"
    + GUARDED,
    "method": b"GET\x00 /status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "overridden": b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Original-URL: /status\r\n"
    b"X-Forwarded-For: 127.0.0.1\r\nX-HTTP-Method-Override: PUT\r\n"
    b"Forwarded: for=127.0.0.1\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", SMUGGLED)
@pytest.mark.parametrize("name", ["manager", "dashboard"])
def test_what_is_hidden_in_a_request_is_guarded_too(doors: Doors, name: str, kind: str) -> None:
    said = raw(doors[name][1].url, SMUGGLED[kind])
    assert b"processors" not in said.replace(b"X-", b""), said
    for answer in said.split(b"HTTP/1.1 ")[1:]:
        assert not answer.startswith(b"500"), said
        if answer.startswith(b"200"):
            assert b'"live"' in answer or b'"status"' in answer or b"ok" in answer, said
            assert len(answer) < 500, said


@pytest.mark.parametrize(
    ("name", "path"),
    [("manager", "/queries"), ("processor", "/control"), ("dashboard", "/api/queries")],
)
def test_a_client_that_leaves_in_the_middle_leaves_no_traceback(
    doors: Doors, name: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = "".join(f"{header}: {value}\r\n" for header, value in HEADERS.items())
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{told}Content-Length: 1000\r\n\r\n"
    for part in ("", '{"name": '):
        raw(doors[name][1].url, (head + part).encode())
    assert httpx.get(doors[name][1].url + "/live", timeout=30).status_code in (200, 503)
    assert not caplog.records
