"""The manager redistributes by itself: a processor that falls behind is relieved. No Spark."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import plain_processors
import pytest
from plain_processors import PlainCluster, compiled, compute, expected, plain
from test_manager_app import Process, wait

from millstream.app.cli import run
from millstream.core.errors import UsageError
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings
from plain_plane import PlainPlane, read

QUERIES = (1, 2, 3)
COLUMNS = {"ts": "timestamp", "c0": "bigint"}
TABLE = {"name": "a", "columns": COLUMNS, "time": "ts", "source": "push"}


class Led(PlainCluster):
    """Processors of a manager instead of partners."""

    def __init__(self, folder: Path, manager: Process) -> None:
        self.manager = manager
        super().__init__(folder, 0, None)  # type: ignore[arg-type]

    def server(self, name: str) -> ProcessorServer:
        settings = ProcessorSettings(manager=self.manager.client.url)
        plane = PlainPlane(compiled, compute)
        return ProcessorServer(name, self.folder / name, plane, settings, EngineSettings(slots=1))

    def open(self, name: str) -> ProcessorServer:
        server = self.server(name)
        server.processor.new_owner.warm_rounds = 0
        server.start()
        self.alive[name] = server
        self.names = [*self.alive]
        wait(lambda: name in self.manager.client.status()["processors"])
        wait(lambda: self.manager.client.status()["processors"][name]["state"] == "up")
        return server

    def results(self, query: int) -> Counter[tuple[int, int]]:
        """What the owner has, and what a former one still keeps for subscribers."""
        found: Counter[tuple[int, int]] = Counter()
        for server in self.alive.values():
            engine = server.processor.engine
            found |= Counter(read(engine.store, engine.ledger.segments(f"o:sum{query}")))
        return found


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Led]:
    manager = Process(tmp_path / "manager", "--pattern", "grouping", "--check", "1")
    try:
        with plain(monkeypatch):
            yield Led(tmp_path, manager)
    finally:
        manager.close()


def test_what_falls_behind_is_relieved_by_the_default_policy(
    cluster: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cluster.manager.client
    cluster.open("p0")
    client.declare(TABLE)
    for query in QUERIES:
        told = client.submit(f"q{query}", str(query), from_beginning=True, wait_s=60)
        assert told["state"] == "running", told
    client.start_streams()
    cluster.open("p1")
    settings = client.status()["settings"]
    assert (settings["policy"], settings["cost_model"]) == ("relief", "backlog")
    assert settings["redistribute"] is True
    cluster.feed(50)
    wait(lambda: all(o["processor"] == "p0" for o in client.placement()["operators"]))
    assert not client.moves(), "nobody is behind"
    monkeypatch.setattr(plain_processors, "STEP_ROWS", 4)
    for _ in range(800):  # a step takes a segment at least
        cluster.feed(20)
    wait(lambda: bool(client.moves()))
    monkeypatch.setattr(plain_processors, "STEP_ROWS", 2_000)
    why = client.moves()[0]["reason"]
    assert "p0 is full" in why
    assert "backlog" in why
    cluster.finish()
    wait(lambda: cluster.ended(QUERIES))
    for query in QUERIES:
        assert cluster.results(query) == expected(cluster.rows, query)
    reported = cluster.alive["p0"].statistics.wanted
    assert reported is not None
    assert "state_rows" not in reported, "no strategy reads it"
    assert run(["redistribute", "--state-rows", "0:100", "--off", "--manager", client.url]) == 0
    wait(lambda: "state_rows" in (cluster.alive["p0"].statistics.wanted or ()))
    assert client.status()["settings"]["state_rows_max"] == 100
    with pytest.raises(UsageError, match="millstream drain"):
        client.halt("p0")


def test_a_processor_that_has_nothing_is_emptied_and_ended(cluster: Led) -> None:
    client = cluster.manager.client
    server = cluster.open("p0")
    assert client.halt("p0", restart=True)["told"] == "restart"
    sentence = "processor p0 will forget everything and begin anew"
    assert sentence in [d["sentence"] for d in client.decisions()]
    client.halt("p0")
    wait(server.stopping.is_set)
    cluster.alive.clear()
