"""A manager and three processors as real processes: one job, everything goes wrong, one answer."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millstream.app.cli import run
from millstream.app.session import Session
from millstream.client.manager_client import ManagerClient
from millstream.core.errors import AwayError, MillstreamError, UsageError
from millstream.edge.peers.local_cluster import LAUNCH, LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.process]

ROWS = 3600
JOB = """
[streams.a]
path = "a.csv"
columns = { at = "long", k = "int", x = "int" }
time = "timestamp_seconds(at)"
RATE
[streams.b]
path = "b.csv"
columns = { at = "long", k = "int", y = "int" }
time = "timestamp_seconds(at)"
lateness = "1 second"
RATE
[queries.large]
cql = "SELECT k, x FROM a WHERE x > 90"
[queries.sums]
cql = "SELECT k, sum(x) AS s FROM a [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k"
[queries.pairs]
cql = '''SELECT a.k, a.x, b.y FROM a [RANGE 2 SECONDS], b [RANGE 2 SECONDS]
         WHERE a.k = b.k AND b.y = 3'''
[queries.totals]
cql = "SELECT k, count(*) AS n FROM b GROUP BY k"
[queries.last]
cql = "SELECT max(x) AS m FROM a [ROWS 20]"
"""


WORK = """[queries.work]
cql = "SELECT processor, operator, rows_in FROM sys.steps"
"""  # ends with the others, on a cluster too


def write_job(folder: Path, rate: int | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(5)
    for name, top in (("a", 100), ("b", 9)):
        lines = [f"{i // 6},{chance.randint(0, 12)},{chance.randint(0, top)}" for i in range(ROWS)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\nnonsense,1,2\n")
    text = JOB.replace("RATE", f"rate = {rate}" if rate else "")
    (folder / "job.toml").write_text(text + (WORK if rate else ""))
    return folder / "job.toml"


def rows(folder: Path) -> list[str]:
    found: list[str] = []
    for file in sorted(folder.glob("part-*.parquet")):
        found += [repr(sorted(r.items())) for r in pq.read_table(file).to_pylist()]
    return sorted(found)


@pytest.fixture(scope="module")
def expected(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What one process gives."""
    folder = tmp_path_factory.mktemp("alone")
    assert run(["run", str(write_job(folder, None)), "--out", str(folder / "out"), "-q"]) == 0
    names = ("large", "sums", "pairs", "totals", "last", "a.rejected", "b.rejected")
    found = {name: rows(folder / "out" / name) for name in names}
    assert all(found.values())
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    found = LocalCluster(
        tmp_path_factory.mktemp("cluster"), 3, spark="local[1]", heap="512m",
        manager_options=("--beat", "2", "--pattern", "round_robin"),
    )  # fmt: skip
    try:
        found.start()
        yield found
    finally:
        found.stop()


class Watch:
    """Keeps the cluster's processes alive while something else goes on."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster, self._ended = cluster, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._ended.wait(0.3):
            self._cluster.watch()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def wait(look: Callable[[], Any], what: str, seconds: float = 90.0) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = look()
        except (AwayError, MillstreamError):
            found = None
        if found:
            return found
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def place_of(client: ManagerClient, query: str) -> tuple[str, str]:
    told = client.query(query)
    return str(told["result"]), str(told["processor"])


def test_one_answer_whatever_happens(
    cluster: LocalCluster, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    """A move, a pause, a drain, kill -9 of a processor and of the manager, all while rows come."""
    job, out = write_job(tmp_path / "job", 90), tmp_path / "out"
    command = [sys.executable, "-c", LAUNCH, "run", str(job), "--out", str(out), "-q"]
    running = subprocess.Popen([*command, "--manager", cluster.url])
    client, names = cluster.client, [p.name for p in cluster.processors]
    try:
        with Watch(cluster):
            wait(lambda: client.streams().get("b", {}).get("started"), "the job never began", 150)
            time.sleep(3)
            operator, place = place_of(client, "pairs")
            target = next(n for n in names if n != place)
            done = client.move(operator, target, wait_s=60)
            assert [m["phase"] for m in done["moves"]] in (["owned"], ["done"])
            paused = next(p for p in cluster.processors if p.name != target)
            assert paused.process is not None
            paused.process.send_signal(signal.SIGSTOP)
            time.sleep(4)
            paused.process.send_signal(signal.SIGCONT)
            victim = next(p for p in cluster.processors if p.name == target)
            assert victim.process is not None
            os.kill(victim.process.pid, signal.SIGKILL)
            assert cluster.manager.process is not None
            os.kill(cluster.manager.process.pid, signal.SIGKILL)
            wait(cluster._all_up, "they never came back", 120)
            assert client.status()["epoch"] == 2
            client.drain(target, wait_s=60)
            assert running.wait(200) == 0
    finally:
        if running.poll() is None:
            running.kill()
    for name, given in expected.items():
        assert rows(out / name) == given, name
    watched = pq.read_table(out / "work").to_pylist()
    assert {row["processor"] for row in watched} == set(names)
    assert client.queries() == []
    assert client.streams() == {}
    again = subprocess.run([*command, "--manager", cluster.url], check=False, timeout=60)
    assert again.returncode == 0


def test_a_session_works_on_a_cluster_as_without(cluster: LocalCluster) -> None:
    with Session(manager=cluster.url) as session:
        session.stream("n", columns={"at": "long", "n": "int"}, time="timestamp_seconds(at)")
        large = session.query("SELECT n FROM n WHERE n > 10", name="over_ten")
        count = session.query("SELECT count(*) AS c FROM n", name="counts")
        with pytest.raises(UsageError):
            session.query("SELECT nothing FROM n")
        watch = session.query("SELECT processor, operator, queue_rows FROM sys.operators")
        taken = session.query("SELECT query, decision FROM sys.admissions")
        told = session.push("n", [{"at": i, "n": i} for i in range(20)])
        assert told["rows"] == 20
        session.finish("n")
        assert sorted(row.n for row in large) == list(range(11, 20))
        assert [r["c"] for r in count.table().to_pylist()] == [20]
        seen = wait(lambda: watch.to_arrow().to_pylist(), "no row about the processors")
        mine = {o["id"]: o["processor"] for o in cluster.client.query("counts")["operators"]}
        assert mine.items() <= {row["operator"]: row["processor"] for row in seen}.items()
        wait(lambda: len(taken.to_arrow()) >= 4, "not every admission is told")
        assert {"over_ten", "counts"} < {row["query"] for row in taken.to_arrow().to_pylist()}
        for query in session.queries():
            query.drop()
        assert session.queries() == ()


def seen_by(session: Session, folder: Path) -> dict[str, Any]:
    """What a user sees of one and the same work."""
    session.stream("m", columns={"at": "long", "n": "int"}, time="timestamp_seconds(at)")
    large = session.query("SELECT n FROM m WHERE n > 10", name="large")
    totals = session.query("SELECT count(*) AS c FROM m", name="totals")
    none = session.query("SELECT n, 'x' AS x FROM m WHERE n < 0", name="none")
    files = session.query("SELECT n FROM m WHERE n > 15", name="files")
    told = session.push("m", [{"at": i, "n": i} for i in range(20)] + [{"at": 3, "n": "many"}])
    session.finish("m")
    first = next(iter(large)).n  # breaking off goes on with the next row
    files.write(folder, "csv")
    assert session.wait(120)
    lines = [line for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]
    seen = {
        "pushed": [told[key] for key in ("rows", "late", "rejected", "repeated")],
        "reasons": [tuple(reason) for reason in told["reasons"]],
        "rows": [first, *(row.n for row in large)],
        "again": list(large),
        "table": totals.table().to_pylist(),
        "none": none.to_arrow().schema,
        "lines": sorted(line.split(",")[0] for line in lines),
        "handles": [(repr(q), q.cql, q.columns, q.relation, q.start, q.reason)
                    for q in (large, totals)],
    }  # fmt: skip
    with pytest.raises(UsageError, match="is a stream, not a table"):
        large.table()
    for query in (large, totals, none, files):
        query.drop()
    with pytest.raises(UsageError):
        _ = large.state
    return seen


def test_a_session_shows_the_same_wherever_it_runs(
    cluster: LocalCluster, spark: Any, tmp_path: Path
) -> None:
    with Session() as here, Session(manager=cluster.url) as there:
        assert seen_by(there, tmp_path / "there") == seen_by(here, tmp_path / "here")
