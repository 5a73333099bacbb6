"""Managers that share PostgreSQL: what one writes the next finds, and one leads at a time."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from plain_members import table
from replicated_processors import Processes, processes
from test_manager_store import filled

from millstream.client.http import HttpClient
from millstream.client.manager_client import ManagerClient
from millstream.client.results import ResultReader
from millstream.control.manager.state import Settings
from millstream.core.errors import AwayError, MillstreamError, RefusedError, StateError, UsageError
from millstream.edge.manager.memory.leadership import Leadership
from millstream.edge.manager.memory.postgres_store import LEASE_S, PostgresStore
from postgres_server import USER, Server, running_server

ROWS = 5


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as found:
        yield found


@pytest.fixture
def dsn(server: Server, request: pytest.FixtureRequest) -> str:
    """A database of its own."""
    name = f"d{abs(hash(request.node.name)) % 10**9}"
    server.rows(f"CREATE DATABASE {name}")
    return f"host={server.folder} user={USER} dbname={name}"


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


OPEN: list[PostgresStore] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def opened(dsn: str, holder: str, clock: Clock | None = None) -> PostgresStore:
    OPEN.append(PostgresStore(dsn, holder, f"http://{holder}", clock or time.monotonic))
    return OPEN[-1]


def leading(dsn: str, holder: str = "a") -> PostgresStore:
    store = opened(dsn, holder)
    assert store.take() == ""
    return store


def test_a_state_survives(dsn: str) -> None:
    store = leading(dsn)
    empty = store.load(Settings())
    state = replace(filled(), epoch=empty.epoch, lineage=empty.lineage, revision=7)
    store.save(empty, state)
    queries = {k: v for k, v in state.queries.items() if k != "q2"}
    changed = replace(state, queries={**queries, "q1": replace(queries["q1"], reason="\x00 'x'")})
    store.save(state, changed)
    store.close()
    again = leading(dsn, "b").load(Settings())
    assert again.epoch == empty.epoch + 1
    assert again.lives == (empty.lineage,)
    assert (again.revision, again.loaded) == (7, 7)
    for part in ("processors", "streams", "queries", "operators", "moves", "decisions", "counter"):
        assert getattr(again, part) == getattr(changed, part), part


def test_one_leads_until_its_beat_stands_still(dsn: str) -> None:
    clock = Clock()
    one, other = leading(dsn), opened(dsn, "b", clock)
    before = one.load(Settings())
    for _ in range(6):  # however long it takes: it beats
        assert other.take() == "the manager at http://a leads"
        clock.now_s += LEASE_S * 0.7
        assert one.renew()
    assert other.take() == "the manager at http://a leads"
    clock.now_s += LEASE_S * 0.9
    assert other.take() == "the manager at http://a leads"
    clock.now_s += LEASE_S * 0.2
    assert other.take() == ""
    assert not one.renew()
    with pytest.raises(RefusedError) as refused:
        one.save(before, replace(filled(), epoch=before.epoch))
    assert refused.value.code == "superseded"
    with pytest.raises(RefusedError):
        one.load(Settings())
    state = other.load(Settings())
    assert state.epoch == before.epoch + 1
    assert not state.queries, "nothing of what was refused is there"
    one.release()
    assert other.renew(), "who was outdone lets go of nothing"
    other.release()
    assert one.take() == "", "nobody waits for one that has ended"
    again = opened(dsn, "a")
    assert again.take() == "", "nor one for itself, started again on its home"
    assert not one.renew()


def test_of_many_at_once_one_leads(dsn: str) -> None:
    async def rush() -> list[str]:
        stores = [opened(dsn, f"h{n}") for n in range(8)]
        told = await asyncio.gather(*(asyncio.to_thread(s.take) for s in stores))
        return list(told)

    assert asyncio.run(rush()).count("") == 1


def test_trouble_is_told_in_words(dsn: str, server: Server, tmp_path: Path) -> None:
    with pytest.raises(AwayError, match="store does not answer"):
        PostgresStore(f"host={tmp_path} dbname=x", "a").take()
    with pytest.raises(UsageError, match="not an address"):
        PostgresStore("mysql://somewhere", "a")
    store = leading(dsn)
    before = store.load(Settings())
    store.save(before, replace(filled(), epoch=before.epoch))
    written = store._writing
    assert written is not None
    written.execute("UPDATE millstream_manager_records SET value = '{}' WHERE key = 'q1'")
    with pytest.raises(StateError, match="broken record: queries q1"):
        store.load(Settings())
    written.execute("UPDATE millstream_manager_words SET value = '9' WHERE key = 'version'")
    with pytest.raises(StateError, match="format 9"):
        leading(dsn, "b")


class Turns:
    """A lease whose answers are set from outside."""

    def __init__(self) -> None:
        self.taken, self.kept = "", True
        self.trouble: Exception | None = None

    def take(self) -> str:
        if self.trouble:
            raise self.trouble
        return self.taken

    def renew(self) -> bool:
        if self.trouble:
            raise self.trouble
        return self.kept

    def release(self) -> None:
        pass


def test_a_leader_that_cannot_renew_stops_before_another_begins() -> None:
    async def run() -> None:
        lease, clock = Turns(), Clock()
        told: list[str] = []
        leadership = Leadership(lease, 3.0, lambda: told.append("leads"), told.append, clock)
        await leadership.take()
        assert leadership.leads
        lease.trouble = AwayError("nobody")
        for now_s in (0.7, 1.4, 2.1):
            clock.now_s = now_s
            await leadership.renew()
            assert leadership.leads
        clock.now_s = 2.8
        await leadership.renew()
        assert not leadership.leads
        lease.trouble, lease.taken = None, "b leads"
        await leadership.take()
        await leadership.take()
        lease.taken = ""
        await leadership.take()
        lease.kept = False
        await leadership.renew()
        assert not leadership.leads
        outdone = "another manager has taken over"
        assert told == ["leads", "nobody", "b leads", "leads", outdone]

    asyncio.run(run())


def told_by(url: str) -> dict[str, Any]:
    with HttpClient() as client:
        return dict(client.get(f"{url}/status"))


@pytest.mark.process
def test_a_manager_is_killed_and_the_other_goes_on(dsn: str, tmp_path: Path) -> None:
    """Twice: the second time the one that came back takes over from the one that took over."""
    with processes(tmp_path, 2, "--store", dsn) as cluster:
        names = ["manager", "standby"]
        cluster.client.declare(table("a"), start=True)
        cluster.client.submit("q", "a+1", from_beginning=True)
        for turn in range(2):
            first, second = cluster.urls[turn % 2], cluster.urls[1 - turn % 2]
            cluster.until(partial(_waits, second))
            assert not told_by(first)["superseded"]
            _the_other_answers_nothing(second)
            epoch = cluster.client.status()["epoch"]
            cluster.kill(names[turn % 2])
            cluster.client.submit(f"again{turn}", f"a+{turn + 2}", from_beginning=True)
            after = told_by(second)
            assert (after["epoch"], after["superseded"]) == (epoch + 1, "")
            port = first.rpartition(":")[2]
            assert cluster.start_manager(names[turn % 2], "--port", port) == first
        _push(cluster)
        assert [q["state"] for q in cluster.client.queries()] == ["running"] * 3
        for query, more in {"q": 1, "again0": 2, "again1": 3}.items():
            assert _values(cluster, query) == [n + more for n in range(ROWS)]


@pytest.mark.process
def test_a_store_that_is_gone_for_a_while_ends_nobody(
    dsn: str, server: Server, tmp_path: Path
) -> None:
    with processes(tmp_path, 1, "--store", dsn) as cluster:
        cluster.client.declare(table("a"), start=True)
        cluster.client.submit("q", "a+1", from_beginning=True)
        server.stop()
        cluster.until(lambda: all(map(_waits, cluster.urls)))
        server.start()
        cluster.until(lambda: [q["state"] for q in cluster.client.queries()] == ["running"])
        _push(cluster)
        assert _values(cluster, "q") == [n + 1 for n in range(ROWS)]
        assert all(process.poll() is None for process in cluster.running.values())


def _waits(url: str) -> bool:
    return bool(told_by(url)["superseded"])


def _the_other_answers_nothing(url: str) -> None:
    """What it does not know it does not make up."""
    with ManagerClient(url) as waiting:
        for question in (waiting.queries, waiting.placement, lambda: waiting.drop("q")):
            with pytest.raises(RefusedError) as refused:
                question()
            assert refused.value.code == "superseded"


def _push(cluster: Processes) -> None:
    rows = {"producer": "x", "sequence": 1, "rows": [{"ts": n, "c0": n} for n in range(ROWS)]}
    with HttpClient() as client:
        where = cluster.client.entrance("a")["url"]
        client.post(f"{where}/streams/a/rows", rows)


def _values(cluster: Processes, query: str) -> list[int]:
    found: list[int] = []
    reader = ResultReader(cluster.client, query)
    deadline = time.monotonic() + 60
    while len(found) < ROWS:
        assert time.monotonic() < deadline, cluster.logs()
        with suppress(MillstreamError):
            for page in reader.pages(1.0):
                if page.table is not None:
                    found += page.table["c0"].to_pylist()
    return sorted(found)
