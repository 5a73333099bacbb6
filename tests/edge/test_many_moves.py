"""A manager, three processors, HTTP between all of them: a hundred random moves under load, and the
rows are those that DuckDB gives over the whole input. The processors share one Spark session."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from control_calls import until

from millstream.app.session import Session
from millstream.client.manager_client import ManagerClient
from millstream.core.errors import AwayError, StateError, UsageError
from millstream.edge.http.reserved_port import KeptPort
from millstream.edge.peers.local_cluster import LAUNCH
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane

# about two minutes on a busy machine: `make soak` runs it
pytestmark = [pytest.mark.spark, pytest.mark.soak]

MOVES = 100
SEED = 17
REST_S = 0.3  # between batches of rows
COLUMNS = {"at": "long", "name": "string", "n": "int"}
# by stream, because operators that read one stream move one after the other
QUERIES = {
    "r": {
        "pairs": "SELECT x.n AS n, y.n AS m FROM r [RANGE 2 SECONDS] x JOIN r [RANGE 2 SECONDS] y"
        " ON x.name = y.name WHERE x.n < y.n",
        "large": "SELECT name, n FROM r WHERE n % 3 = 0",
    },
    "s": {
        "sums": "SELECT name, count(*) AS c, sum(n) AS t FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS]"
        " GROUP BY name",
    },
    "t": {
        "last": "SELECT name, max(n) AS m FROM t [PARTITION BY name ROWS 3] GROUP BY name",
        "totals": "SELECT name, count(*) AS c, sum(n) AS t FROM t GROUP BY name",
    },
}
NAMES = [name for queries in QUERIES.values() for name in queries]
# every stream has the same rows
ORACLE = {
    "large": "SELECT name, n FROM input WHERE n % 3 = 0",
    "pairs": "SELECT x.n, y.n FROM input x JOIN input y ON x.name = y.name"
    " AND greatest(x.at, y.at) <= least(x.at, y.at) + 2 WHERE x.n < y.n",
    "sums": "SELECT name, count(*), sum(n), e"
    " FROM input i, (SELECT unnest(range(0, END, 5)) AS e) w"
    " WHERE i.at >= e - 10 AND i.at < e GROUP BY name, e",
    "last": "SELECT name, m FROM (SELECT name, i.at, max(n) OVER (PARTITION BY name ORDER BY n"
    " ROWS 2 PRECEDING) AS m, n, max(n) OVER (PARTITION BY name, i.at) AS final FROM input i)"
    " WHERE n = final",
    "totals": "SELECT name, count(*), sum(n) FROM input GROUP BY name",
}


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"at": i // 8, "name": "uvw"[i % 3], "n": i} for i in range(first, first + count)]


def answers(client: ManagerClient) -> bool:
    try:
        return bool(client.status())
    except AwayError:
        return False


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ManagerClient]:
    kept = KeptPort()
    options = ("--home", str(tmp_path / "manager"), "--port", str(kept.number), "--quiet",
               "--moves-a-minute", "0")  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", LAUNCH, "manager", *options, "--beat", "1"])
    client = ManagerClient(f"http://127.0.0.1:{kept.number}")
    try:
        until(lambda: answers(client))
        yield client
    finally:
        process.kill()
        process.wait()
        client.close()
        kept.close()


@pytest.fixture
def processors(
    spark: Any, manager: ManagerClient, tmp_path: Path
) -> Iterator[dict[str, ProcessorServer]]:
    found = {}
    for name in ("p1", "p2", "p3"):
        settings = ProcessorSettings(manager=manager.url)
        engine = EngineSettings(batch_rows=200, step_rows_max=1000)
        server = ProcessorServer(name, tmp_path / name, SparkPlane(spark), settings, engine)
        server.processor.new_owner.warm_rounds = 0  # one session: whoever ran it has warmed it up
        server.start()
        found[name] = server
    until(lambda: [p["state"] for p in manager.status()["processors"].values()] == ["up"] * 3)
    yield found
    for server in found.values():
        server.stop()


class Movers:
    """Threads that ask for moves of operators chosen at random, each for one stream's queries."""

    def __init__(self, client: ManagerClient, names: list[str]) -> None:
        self.url, self.names = client.url, names
        self.phases: dict[str, str] = {}  # of moves, as last heard
        self.moved: set[str] = set()
        self.problems: list[BaseException] = []
        self.threads = [
            threading.Thread(target=self._run, args=(list(queries), SEED + i))
            for i, queries in enumerate(QUERIES.values())
        ]
        for thread in self.threads:
            thread.start()

    @property
    def done(self) -> int:
        return sum(phase in ("owned", "done") for phase in list(self.phases.values()))

    def _run(self, queries: list[str], seed: int) -> None:
        chance = random.Random(seed)
        try:
            with ManagerClient(self.url) as client:
                while self.done < MOVES:
                    self._one(client, chance.choice(queries), chance)
        except BaseException as error:
            self.problems.append(error)

    def _one(self, client: ManagerClient, query: str, chance: random.Random) -> None:
        told = [o for o in client.placement()["operators"] if query in o["queries"]]
        chosen = chance.choice(sorted(told, key=lambda o: str(o["id"])))
        others = [n for n in self.names if n != chosen["processor"]]
        whole = chance.random() < 0.2
        try:
            given = client.move(chosen["id"], chance.choice(others), subplan=whole, wait_s=120)
        except (StateError, UsageError):
            return  # another mover has it just now
        self.phases |= {one["id"]: one["phase"] for one in given["moves"]}
        self.moved.add(chosen["id"])

    def join(self) -> None:
        for thread in self.threads:
            thread.join()
        assert not self.problems, self.problems


def test_a_hundred_moves_between_processors(
    manager: ManagerClient, processors: dict[str, ProcessorServer]
) -> None:
    with Session(manager=manager.url) as session:
        for stream in QUERIES:
            session.stream(stream, columns=COLUMNS, time="timestamp_seconds(at)")
        texts = {name: cql for queries in QUERIES.values() for name, cql in queries.items()}
        queries = {name: session.query(cql, name=name) for name, cql in texts.items()}
        movers = Movers(manager, list(processors))
        sent = 0
        while any(t.is_alive() for t in movers.threads):
            for stream in QUERIES:
                session.push(stream, rows(sent, 40))
            sent += 40
            time.sleep(REST_S)
        movers.join()
        for stream in QUERIES:
            session.finish(stream)
        found = {name: sorted(results(query)) for name, query in queries.items()}
    assert movers.done >= MOVES, movers.phases
    assert len(movers.moved) >= len(NAMES), "operators of all queries have moved"
    with duckdb.connect() as db:
        db.register("input", pa.Table.from_pylist(rows(0, sent)))
        for name, sql in ORACLE.items():
            whole = sql.replace("END", str(sent // 8 + 15))
            assert found[name] == sorted(db.execute(whole).fetchall()), name


def results(query: Any) -> list[tuple[Any, ...]]:
    """A query's rows as the oracle has them: window ends in seconds, no other times."""
    table = query.table() if query.relation else query.to_arrow()
    kept = [n for n, _ in query.columns]
    given = []
    for row in table.to_pylist():
        end = (int(row["ts"].timestamp()),) if query.name == "sums" else ()
        given.append((*(row[n] for n in kept), *end))
    return given
