"""Readers that send a stream on, planned by a manager over HTTP, and carried out. No Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from plain_processors import compiled, compute, expected, plain
from test_manager_app import Process, wait
from test_policy_moves import COLUMNS, QUERIES, Led

from millstream.control.admission.planning_state import HEADROOM
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings
from plain_plane import PlainPlane

RATE = 10  # rows a second as declared, of 64 bytes
ONE_COPY = {"cpu": 0.0, "bandwidth_out": 1.5 * RATE * 64}
ONE_QUERY = {"cpu": 0.05 / HEADROOM}


class Narrow(Led):
    """Rows enter at p0, which sends them once; each of the others has room for one query."""

    def server(self, name: str) -> ProcessorServer:
        properties = ONE_COPY if name == "p0" else ONE_QUERY
        settings = ProcessorSettings(manager=self.manager.client.url, properties=properties)
        plane = PlainPlane(compiled, compute)
        return ProcessorServer(name, self.folder / name, plane, settings, EngineSettings(slots=1))

    def relayed(self) -> int:
        counted = (s.processor.engine.ledger.counters() for s in self.alive.values())
        return sum(counters.get("relayed_bytes:s:a", 0) for counters in counted)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Narrow]:
    manager = Process(tmp_path / "manager")
    try:
        with plain(monkeypatch):
            yield Narrow(tmp_path, manager)
    finally:
        manager.close()


def test_readers_send_a_stream_on_and_one_of_them_dies(cluster: Narrow) -> None:
    client = cluster.manager.client
    for name in ("p0", "p1", "p2", "p3"):
        cluster.open(name)
    table = {"name": "a", "columns": COLUMNS, "time": "ts", "source": "push", "rate": RATE}
    client.declare(table, processor="p0")
    for query in QUERIES:
        told = client.submit(f"q{query}", str(query), from_beginning=True, wait_s=60)
        assert told["state"] == "running", told
    client.start_streams()
    routes = {
        edge["to"]: edge["relayed_by"]
        for edge in client.placement()["edges"]
        if edge["stream"] == "s:a" and edge["relayed_by"]
    }
    assert len(routes) == 2
    assert not routes.keys() & {"p0"}
    for _ in range(20):
        cluster.feed(10)
    wait(lambda: cluster.relayed() > 0)
    relay = next(iter(routes.values()))
    cluster.close(relay)
    for _ in range(20):
        cluster.feed(10)
    cluster.open(relay)
    for _ in range(20):
        cluster.feed(10)
    cluster.finish()
    wait(lambda: cluster.ended(QUERIES))
    for query in QUERIES:
        assert cluster.results(query) == expected(cluster.rows, query)
