"""Processes in real network namespaces: distances measured between them, and what plans use them.

Needs root, `ip` and a kernel that allows namespaces; skipped with the reason elsewhere.
"""

import json
import sys

import pytest

from millstream.decide.place.network.distances import Estimates
from millstream.decide.place.network.outcome import Placed
from millstream.decide.place.network.planner import plan
from millstream.decide.place.problem_json import tree_from_json
from millstream_lab.namespaces import PORT, Namespaces, why_impossible

pytestmark = pytest.mark.process

SERVE = f"""\
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Healthy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{{}}")
    def log_message(self, *a): pass
ThreadingHTTPServer(("127.0.0.1", {PORT}), Healthy).serve_forever()
"""
PROBE = """\
import json, sys, time
from millstream.edge.http.distance_probe import DistanceProbe
origin, peers = sys.argv[1], json.loads(sys.argv[2])
with DistanceProbe(origin) as probe:
    found = {}
    for name, url in peers.items():
        for _ in range(100):  # its server may still be starting
            found[name] = probe.round_trip_ms(url)
            if found[name] is not None:
                break
            time.sleep(0.1)
print(json.dumps(found))
"""
# One-way milliseconds; from a to c is longer than back, and longer than by way of b.
DISTANCES = {
    ("a", "b"): 20.0, ("b", "a"): 20.0, ("a", "c"): 60.0, ("c", "a"): 40.0,
    ("b", "c"): 15.0, ("c", "b"): 15.0,
}  # fmt: skip


@pytest.fixture
def network():  # type: ignore[no-untyped-def]
    reason = why_impossible()
    if reason:
        pytest.skip(reason)
    with Namespaces(DISTANCES) as made:
        for host in made.hosts:
            made.start(host, [sys.executable, "-c", SERVE])
        yield made


def measured(network: Namespaces) -> Estimates:
    """Round trips from every host to the others, by processes that run there."""
    estimates = Estimates()
    for origin in network.hosts:
        peers = {other: network.url(other) for other in network.hosts if other != origin}
        told = network.output(origin, [sys.executable, "-c", PROBE, origin, json.dumps(peers)])
        for target, ms in json.loads(told).items():
            assert ms is not None, f"{target} did not answer {origin}"
            estimates = estimates.observe_round_trip(origin, target, ms, now_s=1.0)
    return estimates


def test_distances_between_processes_and_a_plan_on_them(network: Namespaces) -> None:
    hosts = list(network.hosts)
    matrix = measured(network).current(hosts, now_s=2.0)
    at = {name: number for number, name in enumerate(hosts)}
    for (origin, target), one_way in DISTANCES.items():
        # A round trip cannot tell its two ways apart: each counts half. What a busy machine adds
        # is never negative.
        half = (one_way + DISTANCES[target, origin]) / 2
        found = matrix[at[origin], at[target]]
        assert half - 1 <= found < half + 100, (origin, target, found)
    problem = tree_from_json(
        {
            "nodes": hosts,
            "distance": matrix.tolist(),
            "sources": [
                {"id": "s1", "node": "b", "rate": 10.0},
                {"id": "s2", "node": "c", "rate": 10.0},
            ],
            "operators": [{"id": "o", "inputs": ["s1", "s2"], "rate": 1.0}],
            "root": "o",
            "proxy": "a",
        }
    )
    best, everything_home = plan(problem), plan(problem, "baseline")
    assert isinstance(best, Placed)
    assert isinstance(everything_home, Placed)
    assert best.placement["o"] in ("b", "c")  # between the sources, not at the far proxy
    assert best.cost < everything_home.cost


def test_bytes_are_counted_on_links(network: Namespaces) -> None:
    before = {host: network.sent_bytes(host) for host in network.hosts}
    measured(network)
    grown = {host: network.sent_bytes(host) - before[host] for host in network.hosts}
    assert all(200 < sent < 200_000 for sent in grown.values()), grown
