"""Distances measured over HTTP: unknown peers first, silent ones left out."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from small_servers import served

from millstream.decide.place.network.distances import Estimates
from millstream.edge.http.distance_probe import DistanceProbe


class Healthy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: int = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with served(Healthy) as address:
        yield address


def test_the_least_of_a_few_round_trips(url: str) -> None:
    # The first opens the connection and is not timed to its end.
    ticks = iter([0.0, 10.0, 10.030, 20.0, 20.020, 30.0, 30.025])
    with DistanceProbe("a", clock=lambda: next(ticks)) as probe:
        assert probe.round_trip_ms(url, samples=3) == pytest.approx(20.0)


def test_nobody_there(url: str) -> None:
    with DistanceProbe("a") as probe:
        assert probe.round_trip_ms("http://127.0.0.1:9") is None
        seen = probe.observe({"b": url, "gone": "http://127.0.0.1:9"}, Estimates(), 1.0)
    assert set(seen.pairs) == {("a", "b"), ("b", "a")}


def test_unknown_peers_first_and_no_more_than_the_limit(url: str) -> None:
    known = Estimates().observe_round_trip("a", "b", 10.0, 1.0)
    with DistanceProbe("a") as probe:
        seen = probe.observe({"b": url, "c": url}, known, 2.0, limit=1)
    assert ("a", "c") in seen.pairs
    assert seen.pairs["a", "b"] == known.pairs["a", "b"]
