"""Processors that balance load by themselves: over HTTP, with real ledgers and moves."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import stdev

import httpx
import pytest
from control_calls import until
from plain_processors import PlainCluster, expected, plain

from millstream.control.moves.table import Phase, Story
from millstream.control.protocol.commands import Progress
from millstream.control.protocol.replies import Done, Progressed
from millstream.core.errors import UsageError
from millstream.decide.balance.protocol import LoadRequest, Move, Received, WindowClosed
from millstream.edge.peers.balancing import BalanceSettings
from millstream.store.moves.records import Move as Moved
from millstream.store.moves.records import Place

QUICK = BalanceSettings(window_s=0.05, round_s=0.3, manager_silence_s=600.0)
QUERIES = range(6)
SLOWLY = 300.0  # seconds that a busy machine may take


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with plain(monkeypatch):
        yield


class Feeding:
    """Rows come as long as this lasts."""

    def __init__(self, cluster: PlainCluster) -> None:
        self.cluster, self._stopping = cluster, threading.Event()
        self.lock = threading.Lock()  # whoever holds it may stop the first processor
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stopping.wait(0.3):
            with self.lock:
                self.cluster.feed(5)

    def __enter__(self) -> "Feeding":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def skewed(folder: Path) -> PlainCluster:
    """Three processors, and all queries on the first."""
    cluster = PlainCluster(folder, 3, QUICK)
    for query in QUERIES:
        cluster.deploy(query, "p0")
    return cluster


def lead(cluster: PlainCluster, led: bool) -> None:
    """A manager speaks, or has been silent for long."""
    for server in cluster.alive.values():
        server.connections.heard_s = time.monotonic() if led else 0.0


def places(cluster: PlainCluster) -> set[str]:
    return {name for found in cluster.owners().values() for _, name in found}


def check_results(cluster: PlainCluster) -> None:
    cluster.finish()
    until(lambda: cluster.ended(QUERIES), SLOWLY)
    for query in QUERIES:
        assert cluster.results(query) == expected(cluster.rows, query)
    assert all(len(found) == 1 for found in cluster.owners().values()), "one owner a stream"


def test_skewed_load_evens_out_and_results_stay_right(tmp_path: Path) -> None:
    cluster = skewed(tmp_path)
    lead(cluster, True)
    with Feeding(cluster):
        until(lambda: cluster.loads()["p0"] > 0.5, SLOWLY)
        before = stdev(cluster.loads().values())
        lead(cluster, False)
        until(lambda: stdev(cluster.loads().values()) < before / 2, SLOWLY)
        until(lambda: places(cluster) == {"p0", "p1", "p2"}, SLOWLY)
    check_results(cluster)
    moved = [epoch for found in cluster.owners().values() for epoch, _ in found if epoch > 1]
    assert moved, "a stream that has moved has a higher epoch"
    seen = httpx.get(f"{cluster.alive['p0'].url}/balance").json()
    assert seen["moved"] >= 1
    assert any("asked for" in line for line in seen["log"]), "a person can read why"


def test_processors_that_stop_in_the_middle_go_on_where_they_were(tmp_path: Path) -> None:
    chance = random.Random(3)
    cluster = skewed(tmp_path)
    with Feeding(cluster) as feeding:
        for name in ("p0", "p1", "p0", "p2"):
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline and not any(
                s.processor.ownership.arriving() for s in cluster.alive.values()
            ):
                time.sleep(0.01)  # best while a move is under way; else whenever
            time.sleep(chance.random() * 0.2)
            with feeding.lock:
                cluster.close(name)
                cluster.open(name)
        until(lambda: places(cluster) != {"p0"}, SLOWLY)
    check_results(cluster)


def test_while_a_manager_leads_nobody_balances(tmp_path: Path) -> None:
    cluster = PlainCluster(tmp_path, 2, QUICK)
    lead(cluster, True)
    for query in QUERIES:
        cluster.deploy(query, "p0")
    with Feeding(cluster):
        until(lambda: cluster.loads()["p0"] > 0.5, SLOWLY)
        balancing = cluster.alive["p1"].balancing
        assert balancing is not None
        until(lambda: balancing.node.known.get("p0") is not None, SLOWLY)
        assert balancing.node.round == 0, "who is led asks for nothing"
        lead(cluster, False)
        until(lambda: balancing.node.round > 0, SLOWLY)
        until(lambda: "p1" in places(cluster), SLOWLY)
    check_results(cluster)


def test_requests_during_a_move_wait_for_its_end(tmp_path: Path) -> None:
    """Dropped, they would come again after those of the one who has just been given something."""
    calm = BalanceSettings(window_s=600.0, round_s=600.0)  # its own clock never strikes
    cluster = PlainCluster(tmp_path, 1, calm)
    balancing = cluster.alive["p0"].balancing
    assert balancing is not None
    assert isinstance(balancing.moves.engage("b-p1-1-1", 0.1), Done)
    balancing._give(Received(1.0, "p1", LoadRequest(0.2, 1)))
    balancing._give(WindowClosed(2.0, 0.5))
    assert [demand.sender for demand in balancing.node.demands] == ["p1"]
    balancing.moves.disengage("b-p1-1-1")
    balancing._give(WindowClosed(3.0, 0.5))
    assert balancing.node.demands == (), "served, as far as there was anything to give"
    cluster.close("p0")


def test_an_unknown_scheme_is_told() -> None:
    with pytest.raises(UsageError, match="no balancing 'best'"):
        BalanceSettings("best").node_settings()


def test_who_takes_a_part_of_a_job_hears_what_it_will_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = PlainCluster(tmp_path, 1, BalanceSettings(window_s=600.0, round_s=600.0))
    for query in QUERIES:
        cluster.deploy(query, "p0")
    balancing = cluster.alive["p0"].balancing
    assert balancing is not None
    balancing._read()
    first = balancing._views()[0].id
    monkeypatch.setattr(balancing.load, "shared_jobs", lambda: {first: ("j", 0.3)})
    balancing._read()
    jobs = {view.id: view.jobs for view in balancing._views()}
    assert {name: found for name, found in jobs.items() if found} == {first: (("j", 0.3),)}
    begun: list[tuple[float, float]] = []

    def begin(fragments: object, to: str, load: float, arriving: float) -> str:
        begun.append((load, arriving))
        return ""

    monkeypatch.setattr(balancing.moves, "begin", begin)
    monkeypatch.setattr(balancing, "led", lambda: "")
    balancing._move("p1", [Move(first, "p1", 0.1, "asked", 0.4)])
    assert begun == [(0.1, 0.4)]
    cluster.close("p0")


def test_who_completed_for_another_is_the_owner_to_whoever_asks(tmp_path: Path) -> None:
    """A manager may complete a move that a peer leads: the peer's question must find its end."""
    cluster = PlainCluster(tmp_path, 1, QUICK)
    server = cluster.alive["p0"]
    with server.processor.engine.ledger.transaction():
        done, ownership = Story().through(Phase.DONE, "p0", 0.0), server.processor.ownership
        ownership.set_move(Moved("b-p1-1-1", "new", done, (), Place("p1")))
        ownership.set_move(Moved("b-p1-1-2", "old", done, (), Place("p1")))
    told = [server.connections.perform(Progress(f"b-p1-1-{n}")) for n in (1, 2, 3)]
    assert told == [Progressed(Phase.DONE), Progressed(Phase.DONE), Progressed(Phase.REQUESTED)]
    cluster.close("p0")
