"""A query of a cluster rests and goes on where it stood: moved, restarted, with a manager that has
lost its memory. Real manager and processors, operators of plain Python."""

import shutil
from pathlib import Path

import pytest
import test_lost_homes
from plain_processors import expected
from test_lost_homes import TABLE, Cluster, feed
from test_lost_homes import cluster as plain_cluster
from test_manager_app import wait
from test_restarts_on_cluster import FailingEngine, rows_of

from millstream.app.cli import run
from millstream.core.errors import MillstreamError
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings
from plain_plane import PlainPlane

cluster = plain_cluster
ROWS = [(10 * n, n % 7) for n in range(60)]
PAUSED = "paused: a user requested it"


@pytest.fixture(autouse=True)
def resting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that rest are let alone, as by the loop."""
    monkeypatch.setattr(test_lost_homes, "PlainEngine", FailingEngine)


def again(cluster: Cluster, index: int) -> None:
    """A processor's process ends and begins again with its home."""
    old = cluster.servers[index]
    home = old.processor.engine.home
    name = old.processor.id
    old.stop()
    settings = ProcessorSettings(manager=cluster.manager.client.url)
    server = ProcessorServer(
        name, home, PlainPlane(test_lost_homes.compiled, test_lost_homes.compute), settings,
        EngineSettings(slots=1),
    )  # fmt: skip
    server.processor.new_owner.warm_rounds = 0
    server.start()
    cluster.servers[index] = server
    wait(lambda: len(cluster.up()) == 2)


def quiet_at(cluster: Cluster, query: str, rows: int) -> bool:
    """Whether a result has so many rows, also after everybody has had time for more."""
    return sum(rows_of(cluster, query).values()) == rows


def test_it_rests_and_goes_on_where_it_stood(cluster: Cluster, tmp_path: Path) -> None:
    client = cluster.manager.client
    client.declare(TABLE, processor="p1")
    for query in ("1", "2"):
        client.submit(f"q{query}", query, from_beginning=True)
    client.start_streams()
    client.move("q2", "p2", wait_s=60)
    client.move("o:sum1", "p2", wait_s=60)  # its first operator stays at p1
    feed(cluster.servers[0], ROWS[:10])
    wait(lambda: quiet_at(cluster, "q1", 10))

    told = client.pause("q1", wait_s=30)
    assert (told["state"], told["reason"], told["paused"]) == ("parked", PAUSED, True)
    assert client.pause("q1", wait_s=30)["paused"], "said twice, it changes nothing"
    feed(cluster.servers[0], ROWS[10:20])
    wait(lambda: quiet_at(cluster, "q2", 20))
    assert quiet_at(cluster, "q1", 10)

    again(cluster, 1)  # the processors begin again, one after the other
    again(cluster, 0)
    feed(cluster.servers[0], ROWS[20:30])
    wait(lambda: quiet_at(cluster, "q2", 30))
    assert quiet_at(cluster, "q1", 10)
    assert cluster.running() == {"q1": "parked", "q2": "running"}

    client.move("o:sum1", "p1", wait_s=60)  # it moves while it rests
    client.move("o:add1", "p2", wait_s=60)
    assert {o: cluster.places()[o] for o in ("o:add1", "o:sum1")} == {
        "o:add1": "p2",
        "o:sum1": "p1",
    }
    feed(cluster.servers[0], ROWS[30:40])
    wait(lambda: quiet_at(cluster, "q2", 40))
    assert quiet_at(cluster, "q1", 10)

    cluster.manager.kill()  # its manager forgets everything, and learns that it rests
    shutil.rmtree(tmp_path / "manager")
    cluster.manager.start()
    wait(lambda: cluster.running() == {"q1": "parked", "q2": "running"})
    feed(cluster.servers[0], ROWS[40:50])
    wait(lambda: quiet_at(cluster, "q2", 50))
    assert quiet_at(cluster, "q1", 10)

    assert client.pause("q1", wanted=False, wait_s=30)["state"] == "running"
    feed(cluster.servers[0], ROWS[50:])
    for name in ("q1", "q2"):
        wait(lambda name=name: rows_of(cluster, name) == expected(ROWS, int(name[1:])))
    assert cluster.running() == {"q1": "running", "q2": "running"}
    assert not client.query("q1")["paused"]


def at_rest(cluster: Cluster, operator: str, place: str) -> bool:
    """Whether an operator has come to a place, and no move of it is under way."""
    told = cluster.manager.client.placement()["operators"]
    return any((o["id"], o["processor"], o["moving_to"]) == (operator, place, None) for o in told)


def test_a_query_is_paused_while_a_part_of_it_moves(cluster: Cluster) -> None:
    """Who hosts another part hears of it at once; who hands on or takes over, in the end."""
    client = cluster.manager.client
    client.declare(TABLE, processor="p1")
    client.submit("q1", "1", from_beginning=True)
    client.start_streams()
    client.move("q1", "p1", wait_s=60)
    client.move("o:sum1", "p2", wait_s=60)
    for turn, (target, wanted) in enumerate((("p1", True), ("p2", False), ("p1", True))):
        feed(cluster.servers[0], ROWS[20 * turn : 20 * turn + 10])
        client.move("o:sum1", target)
        client.pause("q1", wanted=wanted)
        feed(cluster.servers[0], ROWS[20 * turn + 10 : 20 * turn + 20])
        wait(lambda target=target: at_rest(cluster, "o:sum1", target))
        assert client.pause("q1", wanted=wanted, wait_s=60)["paused"] == wanted
        states = {
            s.processor.engine.queries["q1"].paused
            for s in cluster.servers
            if "q1" in s.processor.engine.queries
        }
        assert states == {wanted}
    client.pause("q1", wanted=False, wait_s=30)
    wait(lambda: rows_of(cluster, "q1") == expected(ROWS, 1))


def test_commands_and_what_is_refused(cluster: Cluster) -> None:
    client = cluster.manager.client
    client.declare(TABLE, processor="p1")
    client.submit("q1", "1", from_beginning=True, paused=True)
    client.start_streams()
    feed(cluster.servers[0], ROWS)
    assert cluster.running() == {"q1": "parked"}
    assert quiet_at(cluster, "q1", 0)
    with pytest.raises(MillstreamError, match="there is no query nobody"):
        client.pause("nobody")

    url = ["--manager", client.url]
    assert run(["resume", "q1", *url]) == 0
    wait(lambda: rows_of(cluster, "q1") == expected(ROWS, 1))
    assert run(["pause", "q1", *url]) == 0
    assert cluster.running() == {"q1": "parked"}
    health = client.get(f"{client.url}/health")
    assert health["status"] == "warning"
    told = [d["sentence"] for d in client.decisions()]
    assert "query q1 is paused" in told
    assert "query q1 continues" in told
    client.drop("q1", wait_s=30)
    assert client.submit("q1", "1", from_beginning=True)["state"] == "running", "a new life"
