"""Machines are lost with every home on them, again and again, while rows come; managers fail, some
of them with their homes. Processes over HTTP; the figures are printed (`pytest -s`)."""

import os
import shutil
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import pytest
from plain_members import table
from replicated_processors import Processes, processes

from millstream.client.http import HttpClient
from millstream.client.manager_client import ManagerClient
from millstream.client.results import ResultReader
from millstream.core.errors import MillstreamError
from millstream.edge.replicas.launching import NOTE
from postgres_server import USER, running_server

LOSSES = int(os.environ.get("MILLSTREAM_LOSSES", "20"))
FAILOVERS = int(os.environ.get("MILLSTREAM_FAILOVERS", "50"))
EMPTY_HOMES = max(1, FAILOVERS // 5)
ROWS = 4
LOST_AFTER_S = 3.0
FLOW_S, TOLD_S, FAILOVER_S, EMPTY_S = 30.0, 10.0, 5.0, 15.0
QUERIES = {"both": "a+1 b+2", "total": "sum a+1"}


class Producer(threading.Thread):
    """Posts numbered batches, each again until it is answered, until it is told to end."""

    def __init__(self, cluster: Processes, stream: str) -> None:
        super().__init__(daemon=True)
        self._cluster, self._stream = cluster, stream
        self.answered = 0
        self.ending = False
        self.start()

    def run(self) -> None:
        with HttpClient(answer_s=5.0) as http, ManagerClient(",".join(self._cluster.urls)) as known:
            while not self.ending:
                first = self.answered * ROWS
                rows = [{"ts": 1_000_000 * n, "c0": n} for n in range(first, first + ROWS)]
                body = {"producer": "test", "sequence": self.answered + 1, "rows": rows}
                with suppress(MillstreamError):
                    url = known.entrance(self._stream)["url"]
                    http.post(f"{url}/streams/{self._stream}/rows", body)
                    self.answered += 1
                time.sleep(0.05)


class Reader(threading.Thread):
    """Takes a query's rows as they come, and remembers when the greatest was there."""

    def __init__(self, cluster: Processes, query: str) -> None:
        super().__init__(daemon=True)
        self._cluster, self._query = cluster, query
        self.rows: list[int] = []
        self.ended = False
        self.start()

    def run(self) -> None:
        with ManagerClient(",".join(self._cluster.urls)) as client:
            reader = ResultReader(client, self._query)
            while not reader.ended:
                with suppress(MillstreamError):
                    for page in reader.pages(1.0):
                        if page.table is not None:
                            self.rows += page.table["c0"].to_pylist()
        self.ended = True


class Watch(threading.Thread):
    """When a query was first shown as anything but running."""

    def __init__(self, cluster: Processes) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self.told: dict[str, float] = {}
        self.ending = False
        self.start()

    def run(self) -> None:
        with ManagerClient(",".join(self._cluster.urls)) as client:
            while not self.ending:
                with suppress(MillstreamError):
                    for query in client.queries():
                        if query["state"] != "running":
                            self.told.setdefault(query["name"], time.monotonic())
                time.sleep(0.1)


@contextmanager
def watched(cluster: Processes) -> Iterator[Watch]:
    watch = Watch(cluster)
    yield watch
    watch.ending = True
    watch.join()


def lose(cluster: Processes, machine: str) -> None:
    """Its process, those that run homes which it had taken over, and every home on it are gone."""
    home = cluster.folder / machine
    adopted = [int(note.read_text()) for note in home.glob(f"replicas/*/{NOTE}")]
    cluster.kill(machine)
    for pid in adopted:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(home)


def whole(cluster: Processes) -> bool:
    """Whether every processor answers and has its copies, as a user would see it."""
    told = cluster.client.status()["processors"]
    alarms = [alarm for alarm in cluster.client.alarms() if alarm["kind"] == "replicas"]
    running = all(query["state"] == "running" for query in cluster.client.queries())
    return running and not alarms and all(one["state"] == "up" for one in told.values())


def on(cluster: Processes, machine: str) -> set[str]:
    """The processors that run on a machine: its own, and those that it has taken over."""
    told = cluster.client.status()["processors"]
    lives = {name: one["properties"].get("adopted_by", name) for name, one in told.items()}
    return {name for name, where in lives.items() if where == machine}


def touched(cluster: Processes, names: set[str]) -> set[str]:
    """Queries with a part on one of some processors."""
    placed = cluster.client.placement()["operators"]
    return {q for o in placed if o["processor"] in names for q in o["queries"]}


def expected(query: str, batches: dict[str, int]) -> list[int]:
    """By DuckDB, over what was answered."""
    for stream, count in batches.items():
        made = f"SELECT range AS n FROM range({count * ROWS})"
        duckdb.sql(f"CREATE OR REPLACE TABLE {stream} AS {made}")
    text = {
        "both": "SELECT n + 1 FROM a UNION ALL SELECT n + 2 FROM b",
        "total": "SELECT sum(n + 1) OVER (ORDER BY n)::BIGINT FROM a",
    }[query]
    return sorted(row[0] for row in duckdb.sql(text).fetchall())


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def told(what: str, values: list[float]) -> None:
    if values:
        print(
            f"{what}: median {statistics.median(values):.1f} s, 95 % {percentile(values, 0.95):.1f}"
            f" s, most {max(values):.1f} s, of {len(values)}"
        )


@pytest.mark.soak
@pytest.mark.process
def test_machines_are_lost_with_their_homes_again_and_again(tmp_path: Path) -> None:
    with processes(tmp_path, 3, "--replicas", "2", "--lost-after", str(LOST_AFTER_S)) as cluster:
        cluster.client.declare(table("a"), processor="p1")
        cluster.client.declare(table("b"), processor="p3")
        for name, text in QUERIES.items():
            assert cluster.client.submit(name, text, from_beginning=True)["state"] == "running"
        cluster.client.start_streams()
        producers = {stream: Producer(cluster, stream) for stream in "ab"}
        readers = {name: Reader(cluster, name) for name in QUERIES}
        flows, shown = [], []
        for number in range(LOSSES):
            cluster.until(lambda: whole(cluster))
            machine = sorted(cluster.running.keys() - {"manager"})[number % 3]
            affected = touched(cluster, on(cluster, machine))
            with watched(cluster) as watch:
                lost_s = time.monotonic()
                lose(cluster, machine)
                seen = {s: p.answered for s, p in producers.items()}
                cluster.start(f"n{number}")
                cluster.until(lambda s=seen: flowing(readers, s))  # type: ignore[misc]
                flows.append(time.monotonic() - lost_s)
                if affected:
                    shown.append(min(watch.told.get(q, float("inf")) for q in affected) - lost_s)
        for producer in producers.values():
            producer.ending = True
            producer.join()
        for stream in "ab":
            cluster.until(lambda s=stream: ended(cluster, s))  # type: ignore[misc]
        cluster.until(lambda: all(reader.ended for reader in readers.values()))
        told("results of rows posted after the loss", flows)
        told("affected queries not shown as running", shown)
        batches = {stream: producer.answered for stream, producer in producers.items()}
        for name, reader in readers.items():
            assert sorted(reader.rows) == expected(name, batches), cluster.logs()
        assert percentile(flows, 0.95) <= FLOW_S
        assert max(shown) <= TOLD_S


def flowing(readers: dict[str, Reader], seen: dict[str, int]) -> bool:
    """Whether rows of either stream that were posted after a moment have come out."""
    both, total = set(readers["both"].rows), readers["total"].rows
    after = {stream: (batches + 2) * ROWS for stream, batches in seen.items()}
    least = (after["a"] + 1) * (after["a"] + 2) // 2  # the running sum there
    rows_of_b = len(both) > after["a"] and max(both) > after["b"] + 2
    return bool(rows_of_b and max(both) > after["a"] + 1 and total and max(total) > least)


def ended(cluster: Processes, stream: str) -> bool:
    url = cluster.client.entrance(stream)["url"]
    cluster.client.ask("POST", f"{url}/streams/{stream}/end", {})
    return True


@pytest.mark.soak
@pytest.mark.process
def test_owners_keep_nothing_for_a_processor_that_was_given_up(tmp_path: Path) -> None:
    """Without copies: what another keeps for the lost one is let go of when a user says so."""
    with processes(tmp_path, 2) as cluster:
        cluster.client.declare(table("a"), processor="p1")
        cluster.client.submit("q", "a+1", from_beginning=True)
        cluster.client.start_streams()
        if "p2" not in touched_places(cluster):
            cluster.client.move("q", "p2", wait_s=60)
        producer = Producer(cluster, "a")
        cluster.until(lambda: producer.answered > 20)
        lose(cluster, "p2")
        lost_s = time.monotonic()
        cluster.until(lambda: cluster.client.status()["processors"]["p2"]["state"] == "silent")
        assert segments(cluster, "p1") > 1
        cluster.client.remove_processor("p2", lost=True)
        cluster.until(lambda: cluster.client.query("q")["state"] == "running")
        cluster.until(lambda: "p2" not in touched_places(cluster))
        producer.ending = True
        producer.join()
        cluster.until(lambda: segments(cluster, "p1") <= 3, 60)
        print(f"segments for the lost one were released {time.monotonic() - lost_s:.1f} s after")


def touched_places(cluster: Processes) -> set[str]:
    return {o["processor"] for o in cluster.client.placement()["operators"]}


def segments(cluster: Processes, name: str) -> int:
    return len(list((cluster.folder / name / "segments").glob("*.parquet")))


@pytest.mark.soak
@pytest.mark.process
def test_managers_fail_over_and_over(tmp_path: Path) -> None:
    with running_server() as server:
        server.rows("CREATE DATABASE managers")
        dsn = f"host={server.folder} user={USER} dbname=managers"
        with processes(tmp_path, 2, "--store", dsn) as cluster:
            names, seconds = ["manager", "standby"], []
            cluster.client.declare(table("a"), start=True)
            cluster.client.submit("q", "a+1", from_beginning=True)
            for turn in range(FAILOVERS - EMPTY_HOMES):
                first, second = (cluster.urls[(turn + n) % 2] for n in (0, 1))
                cluster.until(lambda url=second: waits(url))  # type: ignore[misc]
                cluster.kill(names[turn % 2])
                seconds.append(until(lambda url=second: leads(url, ["q"])))  # type: ignore[misc]
                cluster.start_manager(names[turn % 2], "--port", first.rpartition(":")[2])
            told("a standby leads after a kill, with its query", seconds)
            assert max(seconds) <= FAILOVER_S


@pytest.mark.soak
@pytest.mark.process
def test_managers_come_back_with_an_empty_home(tmp_path: Path) -> None:
    with processes(tmp_path, 2) as cluster:
        (url,), seconds = cluster.urls, []
        cluster.client.declare(table("a"), start=True)
        names = [f"q{n}" for n in range(10)]
        for number, name in enumerate(names):
            cluster.client.submit(name, f"a+{number}", from_beginning=True)
        for _ in range(EMPTY_HOMES):
            cluster.kill("manager")
            shutil.rmtree(tmp_path / "manager")
            began = time.monotonic()
            cluster.start_manager("manager", "--port", url.rpartition(":")[2])
            until(lambda: leads(url, names))
            seconds.append(time.monotonic() - began)
        told("a manager on an empty home knows its ten queries", seconds)
        assert max(seconds) <= EMPTY_S


def until(what: Callable[[], bool], seconds: float = 60.0) -> float:
    """Looks often; gives how long it took."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() < began + seconds
        time.sleep(0.05)
    return time.monotonic() - began


def waits(url: str) -> bool:
    with suppress(MillstreamError), HttpClient(answer_s=2.0) as client:
        return bool(client.get(f"{url}/status")["superseded"])
    return False


def leads(url: str, names: list[str]) -> bool:
    with suppress(MillstreamError), ManagerClient(url) as client:
        states = {query["name"]: query["state"] for query in client.queries()}
        return states == dict.fromkeys(names, "running")
    return False
