"""`millstream run` over a subject of NATS and a topic of MQTT: from a message to a file."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import millstream
from message_brokers import mosquitto, nats_server, publish_mqtt, publish_nats
from millstream.app import cli

pytestmark = [pytest.mark.spark, pytest.mark.process]
JOB = """\
[streams.orders]
source  = "nats"
topic   = "orders.>"
trigger = "available_now"
options = { servers = "env:TEST_NATS" }
columns = { at = "timestamp", cents = "long", sequence = "long", subject = "string" }
time    = "at"

[queries.large]
cql = "SELECT subject, sequence, cents FROM orders WHERE cents >= 5"
"""


def rows(folder: Path, *names: str) -> list[tuple[Any, ...]]:
    tables = [pq.read_table(file).to_pylist() for file in sorted(folder.glob("*.parquet"))]
    return sorted(tuple(row[n] for n in names) for table in tables for row in table)


def test_subjects_of_nats_become_rows_of_files(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with nats_server(tmp_path / "nats") as nats:
        orders = [json.dumps({"at": f"2020-01-01T00:00:{n:02d}Z", "cents": n}) for n in range(9)]
        publish_nats(nats.port, "orders.eu", orders, name="orders", subjects=["orders.>"])
        monkeypatch.setenv("TEST_NATS", f"nats://127.0.0.1:{nats.port}")
        (tmp_path / "job.toml").write_text(JOB)
        assert cli.run(["run", str(tmp_path / "job.toml"), "--out", str(out), "--quiet"]) == 0
    assert rows(out / "large", "subject", "sequence", "cents") == [
        ("orders.eu", n + 1, n) for n in range(5, 9)
    ]


def test_topics_of_mqtt_reach_a_query_of_a_session(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "mqtt").mkdir()
    came: list[tuple[str, str]] = []
    with mosquitto(tmp_path / "mqtt") as mqtt, millstream.Session() as session:
        session.stream(
            "rooms", source="mqtt", topic="rooms/+", time="received",
            options={"host": "127.0.0.1", "port": mqtt.port},
            columns={"value": "string", "topic": "string", "received": "timestamp"},
        )  # fmt: skip
        words = session.query("SELECT topic, value FROM rooms WHERE value <> 'cold'")
        words.on_batch(
            lambda table, _: came.extend((r["topic"], r["value"]) for r in table.to_pylist())
        )
        deadline = time.monotonic() + 120
        while not came and time.monotonic() < deadline:
            # MQTT keeps nothing for a reader that it has never heard of
            publish_mqtt(mqtt.port, "rooms/one", ["warm", "cold"])
            time.sleep(0.5)
        state = session.status()
    assert set(came) == {("rooms/one", "warm")}, state
