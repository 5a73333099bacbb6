"""Two real processors: an HTTP stream moves back and forth while rows are posted, and then all
processors are restarted. The answers are DuckDB's over all rows that were acknowledged."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millstream.app.commands.cluster.rolling import RollingRestart
from millstream.client.pushing import posted
from millstream.client.results import ResultReader
from millstream.edge.peers.local_cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.process]
TABLE = {
    "name": "visits", "source": "http", "time": "at", "lateness": "0 seconds",
    "columns": {"at": "timestamp", "door": "string", "n": "int"},
}  # fmt: skip
QUERIES = {
    "all": "SELECT door, n FROM visits WHERE n % 3 <> 1",
    "counts": "SELECT door, count(*) AS c, sum(n) AS s FROM visits"
    " [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY door",
}
ORACLE = {
    "all": "SELECT door, n FROM visits WHERE n % 3 <> 1",
    "counts": "SELECT door, count(*) AS c, sum(n) AS s FROM visits"
    ' GROUP BY floor(epoch("at") / 10), door',
}
BATCH = 5


def rows_of(number: int) -> list[dict[str, Any]]:
    first = BATCH * number
    return [
        {
            "at": f"2024-05-01 {n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d}",
            "door": "north" if n % 4 else "south", "n": n,
        }
        for n in range(first, first + BATCH)
    ]  # fmt: skip


def answered(client: Any, query: str) -> Counter[tuple[Any, ...]]:
    """All rows of a result, once its stream has ended."""
    reader, found = ResultReader(client, query), Counter[tuple[Any, ...]]()
    names = [field.name for field in reader.result.columns]
    while not reader.ended:
        for page in reader.pages(5.0):
            if page.table is not None:
                shown = page.table.select(names).to_pylist()
                found.update(tuple(row.values()) for row in shown)
    return found


def test_rows_posted_all_the_time_count_once(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 2, spark="local[1]", heap="512m")
    cluster.start()
    client, stop, sent = cluster.client, threading.Event(), list[int]()
    trouble: list[Exception] = []

    def produce() -> None:
        for number in range(1, 100_000):
            try:
                posted(client, "visits", rows_of(number), "gate", number)
            except Exception as error:
                trouble.append(error)
                return
            sent.append(number)
            if stop.wait(0.05):
                return

    producer = threading.Thread(target=produce)
    try:
        client.declare(TABLE, processor="p1")
        for name, cql in QUERIES.items():
            told = client.submit(name, cql, from_beginning=True, wait_s=120)
            assert told["state"] == "running", told
        client.start_streams()
        producer.start()
        for target in ("p2", "p1", "p2"):
            told = client.move("visits", target, wait_s=120)
            assert told["moves"][0]["phase"] in ("owned", "done"), told
        assert client.streams()["visits"]["processor"] == "p2"
        restarted = RollingRestart(client, print, 180).run()
        assert [one.processor for one in restarted] == ["p1", "p2"]
        assert client.streams()["visits"]["processor"] == "p2", "it has come back"
        stop.set()
        producer.join()
        assert not trouble
        assert posted(client, "visits", rows_of(sent[-1]), "gate", sent[-1])["repeated"]
        client.ask("POST", f"{client.entrance('visits')['url']}/streams/visits/end", {})
        visits = pa.Table.from_pylist([row for number in sent for row in rows_of(number)])
        with duckdb.connect() as db:
            db.register("given", visits)
            db.execute('CREATE TABLE visits AS SELECT "at"::timestamp AS "at", door, n FROM given')
            for name, sql in ORACLE.items():
                assert answered(client, name) == Counter(db.execute(sql).fetchall()), name
    finally:
        stop.set()
        if producer.is_alive():
            producer.join()
        cluster.stop()
