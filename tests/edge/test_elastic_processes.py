"""Processors that are started and ended as the manager says: processes, without Spark."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from plain_members import table

from millstream.client.http import HttpClient
from millstream.client.results import ResultReader
from millstream.core.errors import MillstreamError
from millstream.edge.peers import local_cluster
from millstream.edge.peers.local_cluster import LocalCluster

OPTIONS = ("--beat", "0.5", "--pattern", "grouping", "--grow-after", "1", "--shrink-after", "4")


@contextmanager
def cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch, processors: int, *options: str
) -> Iterator[LocalCluster]:
    tests = Path(__file__).parent
    path = os.pathsep.join((str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setattr(local_cluster, "LAUNCH", "import replicated_processors as r; r.launched()")
    found = LocalCluster(
        folder, processors, most=3, manager_options=(*OPTIONS, *options), say=print
    )
    try:
        found.start()
        yield found
    finally:
        found.stop()


def until(found: LocalCluster, what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while True:
        found.watch()
        found.scale()
        with suppress(MillstreamError):
            if what():
                return
        assert time.monotonic() < deadline, told(found)
        time.sleep(0.1)


def told(found: LocalCluster) -> str:
    decisions = [f"{d['sentence']} ({d['reason']})" for d in found.client.decisions()]
    costs = found.client.redistribution()
    return "\n".join([*decisions[-20:], str(costs), str(found.client.scaling())])


def push(found: LocalCluster, stream: str, number: int) -> None:
    rows = [{"ts": n, "c0": n} for n in range(10 * number, 10 * number + 10)]
    body = {"producer": "x", "sequence": number + 1, "rows": rows}

    def taken() -> bool:
        where = found.client.entrance(stream)["url"]
        with HttpClient() as client:
            client.post(f"{where}/streams/{stream}/rows", body)
        return True

    until(found, taken)


def result(found: LocalCluster, query: str) -> list[int]:
    values: list[int] = []
    reader = ResultReader(found.client, query)

    def read() -> bool:
        for page in reader.pages(0.5):
            if page.table is not None:
                values.extend(page.table["c0"].to_pylist())
        return len(values) >= 20

    until(found, read)
    return values


@pytest.mark.process
def test_who_is_not_needed_is_emptied_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has something: rows that enter, an operator with its state. It goes elsewhere first."""
    bounds = ("--processors-min", "2", "--processors-max", "3")
    places = {"a": "p1", "b": "p2", "c": "p3"}
    with cluster(tmp_path, monkeypatch, 3, *bounds) as found:
        client = found.client
        for stream, place in places.items():
            client.declare(table(stream), processor=place, start=True)
            client.submit(f"q{stream}", f"sum {stream}+1", from_beginning=True)
            push(found, stream, 0)
        until(found, lambda: len(client.status()["processors"]) == 2)
        (gone,) = {*places.values()} - client.status()["processors"].keys()
        assert not (tmp_path / gone).exists()
        told = [d["sentence"] for d in client.decisions()]
        assert f"processor {gone} is to leave: 2 are enough" in told
        assert {s["processor"] for s in client.streams().values()} == {*places.values()} - {gone}
        for stream in places:
            push(found, stream, 1)
            sums = [sum(range(n + 1)) + n + 1 for n in range(20)]
            assert result(found, f"q{stream}") == sums
        assert client.scaling()["wanted"] == 2


@pytest.mark.process
def test_as_many_as_are_wanted_are_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also again, with the homes of former times, when everything is started anew."""
    bounds = ("--processors-min", "2", "--processors-max", "3")
    with cluster(tmp_path, monkeypatch, 1, *bounds) as found:
        until(found, lambda: sorted(found.client.status()["processors"]) == ["p1", "p2"])
        assert "2 processors are wanted" in [d["sentence"] for d in found.client.decisions()]
    again = LocalCluster(tmp_path, 1, most=3)
    try:
        assert [p.name for p in again.processors] == ["p1", "p2"]
    finally:
        again.stop()
