"""Join orders in a cluster: a second query reads what was joined for the first; on one Spark."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from test_manager_app import Process, all_up, wait
from test_tiers_on_spark import read

from millstream.app.session import Session
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark

NAMES = "abcd"
ROWS = {name: [(i // 2, i % 3, i) for i in range(place, 24, 1)] for place, name in enumerate(NAMES)}
WINDOW = "[RANGE 2 SECONDS]"


def text(streams: str, where: str) -> str:
    """The sum of what is joined, streams in any order."""
    total = " + ".join(f"{name}.n" for name in streams)
    sources = ", ".join(f"{name} {WINDOW} AS {name}" for name in streams)
    return f"SELECT {total} AS total FROM {sources} WHERE {where}"


def joined(streams: str) -> list[tuple[int]]:
    found = []
    for rows in product(*(ROWS[name] for name in streams)):
        at = [row[0] for row in rows]
        if len({row[1] for row in rows}) == 1 and max(at) <= min(at) + 2:
            found.append((sum(row[2] for row in rows),))
    return sorted(found)


@pytest.fixture
def cluster(spark: Any, tmp_path: Path) -> Iterator[Process]:
    manager = Process(tmp_path / "manager")
    servers: list[ProcessorServer] = []
    try:
        for name in ("p1", "p2"):
            settings = ProcessorSettings(manager=manager.client.url)
            home, engine = tmp_path / name, EngineSettings(batch_rows=60)
            servers.append(ProcessorServer(name, home, SparkPlane(spark), settings, engine))
            servers[-1].start()
        wait(lambda: len(manager.client.status()["processors"]) == 2, 60)
        wait(lambda: all_up(manager), 60)
        yield manager
    finally:
        for server in servers:
            server.stop()
        manager.close()


def test_what_was_joined_for_one_query_is_read_by_another(cluster: Process) -> None:
    client = cluster.client
    columns = {"at": "long", "k": "int", "n": "int"}
    queries = {
        "three": ("abc", "a.k = b.k AND b.k = c.k"),
        "four": ("dbca", "d.k = a.k AND c.k = b.k AND a.k = c.k"),  # the same, in another order
    }
    with Session(manager=client.url) as session:
        for name in NAMES:
            session.stream(name, columns=columns, time="timestamp_seconds(at)")
        told = {}
        for name, (streams, where) in queries.items():
            cql = text(streams, where)
            told[name] = client.submit(name, cql, from_beginning=True, wait_s=120)
            assert told[name]["state"] == "running", told[name]
        shared = set(told["four"]["admission"]["reused"])
        assert shared, "a part of the first is one of the second"
        assert told["four"]["admission"]["ways"]
        part = min(shared)
        records = {o["id"]: o for o in client.placement()["operators"]}
        other = {"p1": "p2", "p2": "p1"}[records[part]["processor"]]
        for number, name in enumerate(NAMES):
            rows = [dict(zip(columns, row, strict=True)) for row in ROWS[name]]
            session.push(name, rows[: 12 + number])
        client.move(part, other, wait_s=120)
        for number, name in enumerate(NAMES):
            rows = [dict(zip(columns, row, strict=True)) for row in ROWS[name]]
            session.push(name, rows[12 + number :])
            session.finish(name)
        for name, (streams, _) in queries.items():
            assert read(client, name) == joined(streams), name
