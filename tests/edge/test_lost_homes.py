"""A manager's process is killed and its home deleted, or an old copy put back: real processors of
plain operators go on, are learned, and none of them ends. A processor is lost with its home."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from plain_processors import PlainEngine, compiled, compute
from test_manager_app import Process, wait

from millstream.control.protocol.commands import Compile, Report, StartStream
from millstream.control.protocol.envelope import Envelope
from millstream.control.protocol.replies import Compiled, Refusal
from millstream.core.errors import MillstreamError
from millstream.edge.processor import app as processor_app
from millstream.edge.processor import registration
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.edge.processor.connection_manager import ConnectionManager
from millstream.engine.settings import EngineSettings
from plain_plane import PlainPlane, Rows, reaching, write

TABLE = {
    "name": "a", "source": "push", "columns": {"ts": "timestamp", "c0": "bigint"}, "time": "ts",
}  # fmt: skip


class Cluster:
    """A manager's process, and two processors here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manager = Process(folder / "manager")
        self.servers: list[ProcessorServer] = []
        for name in ("p1", "p2"):
            settings = ProcessorSettings(manager=self.manager.client.url)
            server = ProcessorServer(
                name, folder / name, PlainPlane(compiled, compute), settings,
                EngineSettings(slots=1),
            )  # fmt: skip
            server.processor.new_owner.warm_rounds = 0
            server.start()
            self.servers.append(server)
        wait(lambda: len(self.up()) == 2)

    def up(self) -> list[str]:
        told = self.manager.client.status()["processors"]
        return [name for name, processor in told.items() if processor["state"] == "up"]

    def running(self) -> dict[str, str]:
        return {q["name"]: q["state"] for q in self.manager.client.queries()}

    def hosted(self) -> dict[str, set[str]]:
        """By query: the operators that run for it, wherever."""
        found: dict[str, set[str]] = {}
        for server in self.servers:
            for query, operators in server.processor.ownership.hosted().items():
                found.setdefault(query, set()).update(operators)
        return found

    def places(self) -> dict[str, str]:
        told = self.manager.client.placement()["operators"]
        return {o["id"]: o["processor"] for o in told}

    def close(self) -> None:
        for server in self.servers:
            server.stop()
        self.manager.close()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(processor_app, "ExecutionEngine", PlainEngine)
    compiling = ConnectionManager._compiled

    def plainly(self: ConnectionManager, asked: Compile) -> Compiled:
        """Plain operators have one id, whatever the start."""
        told = compiling(self, asked)
        return replace(told, by_start=False, result=f"o:sum{asked.cql}")

    monkeypatch.setattr(ConnectionManager, "_compiled", plainly)
    monkeypatch.setattr(registration, "AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(registration, "SILENCE_SECONDS", 0.5)
    with reaching(monkeypatch, map=None, interval=None):
        made = Cluster(tmp_path)
        yield made
        made.close()


def check_epochs(cluster: Cluster) -> None:
    """An epoch beyond all bounds is refused, and a late one is not the end."""
    server = cluster.servers[0]
    for epoch in (1 << 61, 10**8):
        nonsense = Envelope(epoch, 9, "p1", (StartStream("a"),), lineage="somebody")
        (reply,) = server.connections.receive(nonsense)
        assert isinstance(reply, Refusal)
        assert reply.code == "mistake"
    plausible = Envelope(500_000, 9, "p1", (Report(0),), lineage="somebody")
    server.connections.receive(plausible)
    epoch = int(cluster.manager.client.status()["epoch"])
    wait(lambda: int(cluster.manager.client.status()["epoch"]) == 500_001)
    assert epoch < 100
    wait(lambda: len(cluster.up()) == 2)


def test_the_managers_home_may_burn_and_come_back_old(cluster: Cluster, tmp_path: Path) -> None:
    client = cluster.manager.client
    client.declare(TABLE)
    for query in ("1", "2"):
        assert client.submit(f"q{query}", query, from_beginning=True)["state"] == "running"
    client.start_streams()
    before, places = cluster.hosted(), cluster.places()
    table = client.status()["streams"]["a"]["table"]

    cluster.manager.kill()
    shutil.copytree(tmp_path / "manager", tmp_path / "backup")
    shutil.rmtree(tmp_path / "manager")
    cluster.manager.start()
    wait(lambda: cluster.running() == {"q1": "running", "q2": "running"})
    assert cluster.places() == places
    assert client.status()["streams"]["a"]["table"] == table
    assert cluster.hosted() == before
    assert client.submit("q1", "1", from_beginning=True)["state"] == "running"  # said again

    client.drop("q2", wait_s=30)
    assert client.submit("q3", "3")["state"] == "running"
    cluster.manager.kill()
    shutil.rmtree(tmp_path / "manager")
    shutil.copytree(tmp_path / "backup", tmp_path / "manager")
    cluster.manager.start()
    wait(lambda: cluster.running() == {"q1": "running", "q3": "running"})
    assert cluster.hosted().keys() == {"q1", "q3"}
    for server in cluster.servers:
        assert server.registration is not None
        assert not server.registration.refused.is_set()
    check_epochs(cluster)


def feed(server: ProcessorServer, rows: Rows) -> None:
    engine = server.processor.engine
    with engine.ledger.transaction() as ledger:
        ledger.publish("s:a", [write(engine.store, rows)], rows[-1][0])


def test_a_processor_is_lost_with_its_home(cluster: Cluster, tmp_path: Path) -> None:
    client = cluster.manager.client
    client.declare(TABLE, processor="p1")
    for query in ("1", "2"):
        client.submit(f"q{query}", query, from_beginning=True)
    client.start_streams()
    client.move("q1", "p1", wait_s=60)
    client.move("q2", "p2", wait_s=60)
    kept, gone = cluster.servers
    feed(kept, [(10, 5)])
    wait(lambda: client.query("q2")["rows"] >= 1)
    gone.stop()
    cluster.servers.remove(gone)
    shutil.rmtree(tmp_path / "p2")
    wait(lambda: cluster.running()["q2"] == "stalled")
    assert cluster.running()["q1"] == "running"
    wait(lambda: client.get(f"{client.url}/health")["status"] == "error")
    wait(lambda: client.status()["processors"]["p2"]["state"] == "silent")
    with pytest.raises(MillstreamError, match="remove --lost p2"):
        client.move("q2", "p1")
    assert client.remove_processor("p2", lost=True)["queries"] == ["q2"]
    wait(lambda: cluster.running() == {"q1": "running", "q2": "running"})
    wait(lambda: "p2" not in kept.processor.engine.ledger.consumers_of("processor"))
    assert "p2" in client.query("q2")["lost"]
    assert client.query("q1")["lost"] == ""
    feed(kept, [(20, 7)])
    wait(lambda: client.query("q2")["rows"] >= 1)
