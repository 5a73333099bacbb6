"""A manager of managers with real processors below: the processors share one Spark session."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_manager_app import Process, all_up, wait

from millstream.app.cli import run
from millstream.app.session import Session
from millstream.client.manager_client import ManagerClient
from millstream.client.results import ResultReader
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark

ROWS = [(i // 4, "uvw"[i % 3], i) for i in range(400)]
SUMS = "SELECT k, count(*) AS c, sum(n) AS t FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
PAIRS = (
    "SELECT x.n AS n, y.n AS m FROM s [RANGE 1 SECONDS] x JOIN s [RANGE 1 SECONDS] y ON x.k = y.k"
    " WHERE x.n < y.n AND x.n % 2 = 0"
)


@pytest.fixture
def top(spark: Any, tmp_path: Path) -> Iterator[Process]:
    managers = [Process(tmp_path / "top", "--pattern", "round_robin")]
    servers: list[ProcessorServer] = []
    try:
        for name, processor in (("m1", "p1"), ("m2", "p2")):
            above = ("--above", managers[0].client.url, "--id", name)
            managers.append(Process(tmp_path / name, *above))
            settings = ProcessorSettings(manager=managers[-1].client.url)
            engine = EngineSettings(batch_rows=60)
            servers.append(
                ProcessorServer(
                    processor, tmp_path / processor, SparkPlane(spark), settings, engine
                )
            )
            servers[-1].start()
        wait(lambda: len(managers[0].client.status()["processors"]) == 2, 60)
        wait(lambda: all(all_up(m) for m in managers), 60)
        yield managers[0]
    finally:
        for server in servers:
            server.stop()
        for process in managers:
            process.close()


def read(client: ManagerClient, query: str) -> list[tuple[Any, ...]]:
    reader = ResultReader(client, query)
    found: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + 300
    while not reader.ended:
        assert time.monotonic() < deadline, (len(found), client.query(query), client.status())
        for batch in reader.pages(2.0):
            if batch.table is not None:
                columns = [f.name for f in reader.result.columns]
                found += [tuple(r[c] for c in columns) for r in batch.table.to_pylist()]
    return sorted(found)


def test_queries_of_a_higher_manager_give_their_rows(top: Process, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("".join(f"{at},{k},{n}\n" for at, k, n in ROWS))
    top.client.declare(
        {
            "name": "s", "path": str(tmp_path / "s.csv"), "time": "timestamp_seconds(at)",
            "columns": {"at": "long", "k": "string", "n": "int"},
        }
    )  # fmt: skip
    for name, cql in (("sums", SUMS), ("pairs", PAIRS)):
        told = top.client.submit(name, cql, from_beginning=True, wait_s=120)
        assert told["state"] == "running", told
    places = {o["processor"] for o in top.client.placement()["operators"]}
    assert places == {"m1", "m2"}, "spread over both managers"
    top.client.start_streams()
    sums: dict[tuple[str, int], list[int]] = {}
    for at, k, n in ROWS:
        sums.setdefault((k, at // 10), []).append(n)
    assert read(top.client, "sums") == sorted((k, len(v), sum(v)) for (k, _), v in sums.items())
    assert read(top.client, "pairs") == sorted(
        (x[2], y[2])
        for x in ROWS
        for y in ROWS[x[2] + 1 : x[2] + 12]
        if x[1] == y[1] and y[0] - x[0] <= 1 and x[2] % 2 == 0
    )


JOB = """
[streams.t]
path = "t.csv"
columns = { at = "long", n = "int" }
time = "timestamp_seconds(at)"

[queries.large]
cql = "SELECT n FROM t WHERE n >= 5"
"""


def test_jobs_and_sessions_find_where_rows_enter(top: Process, tmp_path: Path) -> None:
    """Through the manager in between: rows that are pushed, and those that a source puts aside."""
    (tmp_path / "t.csv").write_text("".join(f"{n},{n}\n" for n in range(9)) + "9,no number\n")
    (tmp_path / "job.toml").write_text(JOB)
    results = tmp_path / "results"
    given = ("--out", str(results), "--format", "csv", "--manager", top.client.url)
    assert run(["run", str(tmp_path / "job.toml"), *given]) == 0
    assert [line[0] for line in contents(results / "large").splitlines()[1:]] == list("5678")
    assert "no number" in contents(results / "t.rejected")
    with Session(manager=top.client.url) as session:
        session.stream("u", columns={"at": "long", "n": "int"}, time="timestamp_seconds(at)")
        query = session.query("SELECT n FROM u WHERE n < 3")
        session.push("u", [{"at": n, "n": n} for n in range(9)])
        session.finish("u")
        assert sorted(query.to_arrow()["n"].to_pylist()) == [0, 1, 2]


def contents(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("*.csv")))
