"""Where rows enter moves, over HTTP and led by a manager: producers that post to the old processor
are passed on, each batch counts once, and a drained processor has nothing. No Spark."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from plain_processors import expected, plain
from test_manager_app import Process, wait
from test_policy_moves import Led

from millstream.app.cli import run
from millstream.app.commands.cluster.rolling import RollingRestart
from millstream.client.pushing import posted
from millstream.core.errors import StateError, UsageError
from millstream.edge.processor.app import ProcessorServer

TABLE = {"name": "a", "columns": {"c0": "bigint"}, "time": "timestamp_micros(c0)", "source": "http"}
QUERIES = (1, 2)
Batch = list[tuple[int, int]]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Led]:
    manager = Process(tmp_path / "manager", "--pattern", "grouping", "--no-redistribute")
    try:
        with plain(monkeypatch):
            yield Led(tmp_path, manager)
    finally:
        manager.close()


def begun(cluster: Led, *names: str) -> None:
    client = cluster.manager.client
    for name in names:
        cluster.open(name)
    client.declare(TABLE, processor=names[0])
    for query in QUERIES:
        told = client.submit(f"q{query}", str(query), from_beginning=True, wait_s=60)
        assert told["state"] == "running", told
    client.start_streams()
    wait(lambda: client.streams()["a"]["started"])


def batch(number: int) -> Batch:
    return [(10 * (3 * number + i), (3 * number + i) % 7) for i in range(3)]


def as_posted(rows: Batch) -> list[dict[str, int]]:
    return [{"ts": ts, "c0": value} for ts, value in rows]


def post(url: str, number: int) -> httpx.Response:
    """Posts one batch; where the stream is on its way, the same again."""
    body = {"producer": "p", "sequence": number, "rows": as_posted(batch(number))}
    while True:
        answer = httpx.post(f"{url}/streams/a/rows", json=body, timeout=20)
        if answer.status_code != 429:
            return answer
        threading.Event().wait(0.02)


def ended(cluster: Led, rows: Batch) -> None:
    for query in QUERIES:
        wanted = expected(rows, query)
        wait(lambda q=query, w=wanted: cluster.results(q) == w)  # type: ignore[misc]


def test_producers_that_post_to_the_old_processor_are_passed_on(cluster: Led) -> None:
    begun(cluster, "p0", "p1")
    client, old = cluster.manager.client, cluster.alive["p0"].url
    stop, answers = threading.Event(), Counter[str]()
    numbers = iter(range(1, 10_000))
    sent: list[int] = []

    def produce() -> None:
        while not stop.is_set():
            number = next(numbers)
            answer = post(old, number)
            answers[str(answer.status_code)] += 1
            sent.append(number)
            again = post(old, number).json()
            answers["repeated"] += bool(again.get("repeated"))

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for turn in range(4):
            before = len(sent)
            wait(lambda n=before: len(sent) > n + 3)  # type: ignore[misc]
            target = "p1" if turn % 2 == 0 else "p0"
            told = client.move("a", target, wait_s=60)
            assert told["moves"][0]["phase"] in ("owned", "done"), told
            assert client.streams()["a"]["processor"] == target
    finally:
        stop.set()
        producer.join()
    assert set(answers) == {"200", "repeated"}, answers
    assert answers["200"] == answers["repeated"] == len(sent)
    expected_next = httpx.get(f"{cluster.alive['p1'].url}/streams/a/producers/p").json()
    assert expected_next == {"producer": "p", "expected": len(sent) + 1}
    ended(cluster, [row for number in sent for row in batch(number)])


def test_a_drained_processor_has_nothing_and_can_go(cluster: Led) -> None:
    begun(cluster, "p0", "p1")
    client, old = cluster.manager.client, cluster.alive["p0"]
    assert post(old.url, 1).status_code == 200
    with pytest.raises(UsageError, match="millstream drain p0"):
        client.remove_processor("p0")
    assert run(["drain", "p0", "--manager", client.url]) == 0
    told = client.status()["processors"]["p0"]
    assert (told["operators"], told["streams"]) == (0, [])
    assert post(old.url, 2).status_code == 200, "it still knows where to"
    wait(lambda: not old.processor.ownership.all_owned())
    client.halt("p0")
    wait(old.stopping.is_set)
    cluster.close("p0")
    client.remove_processor("p0")
    url = cluster.alive["p1"].url
    assert post(url, 2).json()["repeated"]
    assert post(url, 3).status_code == 200
    ended(cluster, [row for number in (1, 2, 3) for row in batch(number)])


def test_a_stream_that_only_its_processor_can_read_says_so(cluster: Led, tmp_path: Path) -> None:
    """The folder is gone for the one that is asked: the move is undone, and names it."""
    begun(cluster, "p0", "p1")
    client = cluster.manager.client
    path = tmp_path / "rows.csv"
    path.write_text("10,1\n")
    table = {**TABLE, "name": "b", "source": "file", "path": str(path), "format": "csv"}
    client.declare(table, processor="p0")
    wait(lambda: "b" in cluster.alive["p1"].processor.ownership.declared())
    path.unlink()
    told = client.drain("p0", wait_s=60)
    assert [one["stream"] for one in told["entering"]] == ["b"]
    assert "rows.csv" in told["entering"][0]["reason"]
    assert run(["drain", "p0", "--manager", client.url]) == 1
    client.drain("p0", back=True)
    with pytest.raises(StateError, match="could not be emptied") as trouble:
        RollingRestart(client, lambda _: None, 60).run()
    assert "rows.csv" in trouble.value.detail
    assert client.status()["processors"]["p0"]["state"] == "up", "it takes part again"


class Watched:
    """Starts processors again that end because they are told to, as their own process does."""

    def __init__(self, cluster: Led) -> None:
        self.cluster, self.begun = cluster, Counter[str]()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ending.wait(0.05):
            for name, server in list(self.cluster.alive.items()):
                if server.stopping.is_set() and server.again:
                    self._again(name, server)

    def _again(self, name: str, server: ProcessorServer) -> None:
        assert not server.processor.ownership.all_owned(), "it was emptied before"
        server.stop()
        fresh = self.cluster.server(name)
        fresh.processor.new_owner.warm_rounds = 0
        fresh.start()
        self.cluster.alive[name] = fresh
        self.begun[name] += 1

    def close(self) -> None:
        self._ending.set()
        self._thread.join()


def test_all_processors_are_restarted_while_rows_are_posted(cluster: Led, capsys: Any) -> None:
    begun(cluster, "p0", "p1", "p2")
    client = cluster.manager.client
    places = {o["id"]: o["processor"] for o in client.placement()["operators"]}
    stop, sent = threading.Event(), list[int]()

    def produce() -> None:
        for number in range(1, 100_000):
            posted(client, "a", as_posted(batch(number)), "p", number)
            sent.append(number)
            if stop.wait(0.01):
                return

    watched = Watched(cluster)
    producer = threading.Thread(target=produce)
    producer.start()
    try:
        assert run(["restart", "--rolling", "--json", "--manager", client.url]) == 0
        during = len(sent)
    finally:
        stop.set()
        producer.join()
        watched.close()
    out = capsys.readouterr().out
    assert '"trouble": null' in out
    assert watched.begun == Counter(("p0", "p1", "p2"))
    assert during > 10
    assert {o["id"]: o["processor"] for o in client.placement()["operators"]} == places
    assert client.streams()["a"]["processor"] == "p0", "what a processor had has come back"
    ended(cluster, [row for number in sent for row in batch(number)])
