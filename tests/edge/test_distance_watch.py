"""Distances that a processor keeps current: measured over HTTP, given, forgotten."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from small_servers import served

from millstream.edge.peers.distance_watch import DistanceWatch


class Healthy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def url() -> Iterator[str]:
    with served(Healthy) as address:
        yield address


def test_peers_are_measured_told_and_forgotten(url: str) -> None:
    watch = DistanceWatch("a", {})
    try:
        assert watch.figures() == {}
        watch.acquaint({"a": url, "b": url, "away": "http://127.0.0.1:9"})
        deadline = time.monotonic() + 60
        while "distance_ms.b" not in watch.figures():
            assert time.monotonic() < deadline, "b was never measured"
            time.sleep(0.01)
        assert set(watch.figures()) == {"distance_ms.b"}
        assert set(watch.distances(["b", "away"])) == {"b"}
        watch.acquaint({"away": "http://127.0.0.1:9"})
        assert watch.figures() == {}
    finally:
        watch.close()


def test_a_distance_asked_for_is_measured_at_once(url: str) -> None:
    watch = DistanceWatch("a", {"measure": "false"})
    watch.acquaint({"b": url})
    assert watch.distances(["b"]) == {}
    watch.close()
    eager = DistanceWatch("a", {}, every_s=1000.0)
    eager.acquaint({"b": url})
    assert set(eager.distances(["b"])) == {"b"}
    eager.close()


def test_given_distances_hold_where_none_is_measured(url: str) -> None:
    given = {"measure": False, "distance.b": 30, "distance.c": 7.5, "distance.d": "far"}
    watch = DistanceWatch("a", given)
    watch.acquaint({"b": url, "c": url, "d": url})
    assert watch.distances(["b", "c", "d"]) == {"b": 30.0, "c": 7.5}
    assert watch.figures() == {}
    watch.close()
