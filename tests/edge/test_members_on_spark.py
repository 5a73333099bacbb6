"""A cluster without a manager on Spark: a session speaks to one member, and the rows are DuckDB's.

The three members share one Spark session."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from control_calls import until

from millstream.app.session import Session
from millstream.control.peers.membership import Timing
from millstream.edge.peers.balancing import BalanceSettings
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark

JOIN = (
    "SELECT x.n AS n, y.n AS m FROM r [RANGE 2 SECONDS] x JOIN s [RANGE 2 SECONDS] y"
    " ON x.k = y.k WHERE x.n % 3 > 0 AND y.n % 2 = 0"
)
ORACLE = (
    "SELECT x.n, y.n FROM r x JOIN s y ON x.k = y.k AND greatest(x.at, y.at) <="
    " least(x.at, y.at) + 2 WHERE x.n % 3 > 0 AND y.n % 2 = 0"
)


@pytest.fixture
def three(spark: Any, tmp_path: Path) -> Iterator[list[ProcessorServer]]:
    servers: list[ProcessorServer] = []
    timing = Timing(gossip_s=0.2, silent_s=60.0)
    try:
        for n in range(3):
            seeds = (servers[0].url,) if servers else ()
            balance = BalanceSettings(peers=seeds, round_s=1.0, membership=timing)
            servers.append(
                ProcessorServer(
                    f"p{n}", tmp_path / f"p{n}", SparkPlane(spark),
                    ProcessorSettings(balance=balance), EngineSettings(batch_rows=100),
                )
            )  # fmt: skip
            servers[-1].start()
        until(lambda: all(len(s.member.gossip.up()) == 3 for s in servers if s.member))
        yield servers
    finally:
        for server in servers:
            server.stop()


def test_a_session_speaks_to_any_member(three: list[ProcessorServer], tmp_path: Path) -> None:
    chance = random.Random(5)
    rows = {
        name: [(n // 8, chance.choice("uvw"), chance.randint(0, 99)) for n in range(200)]
        for name in "rs"
    }
    oracle = duckdb.connect()
    for name, told in rows.items():
        oracle.execute(f"CREATE TABLE {name} (at INT, k TEXT, n INT)")
        oracle.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", told)
        text = "".join(f"{at},{k},{n}\n" for at, k, n in told)
        (tmp_path / f"{name}.csv").write_text(text)
    with Session(manager=three[1].url) as session:
        for name in rows:
            session.stream(
                name, path=str(tmp_path / f"{name}.csv"), time="timestamp_seconds(at)",
                columns={"at": "long", "k": "string", "n": "int"},
            )  # fmt: skip
        query = session.query(JOIN, name="pairs", from_beginning=True)
        found = sorted((row["n"], row["m"]) for row in query.rows())
    assert found == sorted(oracle.execute(ORACLE).fetchall())
    entered = [s.processor.ownership.declared() for s in three]
    assert sum(d.ingest for one in entered for d in one.values()) == 2
