"""From a table in PostgreSQL to a topic of Kafka by a job file; a session that follows a table."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import millstream
from kafka_broker import committed
from millstream.app import cli
from millstream.store import faults
from postgres_server import Server
from transactional_broker import TransactionalBroker, running_transactional_broker

pytestmark = pytest.mark.spark
pytest.importorskip("confluent_kafka")

JOB = """\
[streams.people]
source  = "postgres"
table   = "public.people"
options = {{ dsn = "env:TEST_DSN" }}
trigger = "available_now"
columns = {{ id = "int", name = "string", born = "timestamp", weight = "decimal(5,2)" }}
key     = "id"

[queries.per_name]
cql = "SELECT name, count(*) AS n, sum(weight) AS w, max(born) AS born FROM people GROUP BY name"
[queries.per_name.sink]
type    = "kafka"
topic   = "per_name"
key     = ["name"]
options = {{ "bootstrap.servers" = "{broker}" }}

[engine]
batch_rows = 10
"""
PEOPLE = [
    (n, None if n % 7 == 0 else "abc"[n % 3], f"2020-01-02 03:04:{n:02d}.5+00", f"{n}.25")
    for n in range(40)
]


class Gone(BaseException):
    """The end of a process."""


@pytest.fixture
def broker() -> Iterator[TransactionalBroker]:
    with running_transactional_broker() as running:
        yield running


@pytest.fixture
def people(postgres: Server) -> Iterator[str]:
    postgres.rows(
        "CREATE TABLE people (id int PRIMARY KEY, name text, born timestamptz, weight numeric)"
    )
    for key, name, born, weight in PEOPLE:
        text = "NULL" if name is None else f"'{name}'"
        postgres.rows(f"INSERT INTO people VALUES ({key}, {text}, '{born}', {weight})")
    yield "people"
    postgres.rows("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    postgres.rows("DROP TABLE people")


def test_a_table_to_a_topic_cut_off_at_every_point(
    spark: Any,
    postgres: Server,
    broker: TransactionalBroker,
    people: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.make("per_name", 1)
    monkeypatch.setenv("TEST_DSN", postgres.dsn)
    (tmp_path / "job.toml").write_text(JOB.format(broker=broker.address))
    crashed: list[str] = []

    def hook(point: str) -> None:
        if point not in crashed and point in (*faults.SINK_POINTS, "delivery.committed"):
            crashed.append(point)
            raise Gone(point)

    faults.set_hook(hook)
    arguments = ["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "out"), "--quiet"]
    try:
        for _ in range(6):
            try:
                code = cli.run(arguments)
                break
            except Gone:
                continue
    finally:
        faults.set_hook(None)
    assert code == 0
    assert set(crashed) == {*faults.SINK_POINTS, "delivery.committed"}
    found: dict[Any, Any] = {}
    for key, value in committed(broker.address, "per_name", 1):
        found[key["name"]] = value
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.execute("CREATE TABLE people (id INT, name TEXT, born TIMESTAMPTZ, weight DECIMAL(5,2))")
    duck.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", PEOPLE)
    expected = duck.execute(
        "SELECT name, count(*), sum(weight)::text, strftime(max(born), '%Y-%m-%dT%H:%M:%S.%fZ') "
        "FROM people GROUP BY name"
    ).fetchall()
    told = [(k, v["n"], v["w"], v["born"]) for k, v in found.items() if v is not None]
    assert sorted(told, key=str) == sorted(expected, key=str)


def test_a_session_follows_a_table(spark: Any, postgres: Server, people: str) -> None:
    asked = "SELECT name, count(*) AS n, sum(id) AS s FROM people GROUP BY name"
    with millstream.Session() as session:
        session.stream(
            "people", source="postgres", table="people", options={"dsn": postgres.dsn}, key="id",
            columns={"id": "int", "name": "string"},
        )  # fmt: skip
        query = session.query(asked, "counts", from_beginning=True)
        for change in (
            "SELECT 1",
            "DELETE FROM people WHERE id < 10",
            "UPDATE people SET name = 'z' WHERE id % 2 = 0; UPDATE people SET id = id + 100",
            "DELETE FROM people; INSERT INTO people VALUES (1, 'new')",
        ):
            postgres.rows(change)
            wanted = sorted(postgres.rows(asked), key=str)
            deadline = time.monotonic() + 60
            found: list[Any] = []
            while found != wanted and time.monotonic() < deadline:
                rows = query.table().to_pylist()
                found = sorted(((r["name"], r["n"], r["s"]) for r in rows), key=str)
                time.sleep(0.1)
            assert found == wanted, change
