"""`millstream run` over Kafka topics, without a jar: JSON values, plain messages, bad ones."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_broker import Broker
from millstream.app import cli

pytestmark = pytest.mark.spark

JOB = """\
[streams.requests]
source  = "kafka"
topic   = "requests"
trigger = "available_now"
options = {{ "bootstrap.servers" = "env:TEST_BROKER" }}
columns = {{ at = "timestamp", host = "string", bytes = "decimal(10,2)", partition = "int" }}
time    = "at"
lateness = "1 hour"

[streams.lines]
source  = "kafka"
topic   = "lines"
trigger = "available_now"
options = {{ "bootstrap.servers" = "{broker}" }}
columns = {{ value = "string", key = "string", timestamp = "timestamp" }}
time    = "timestamp"
lateness = "1 hour"

[queries.hosts]
cql = "SELECT host, sum(bytes) AS bytes, max(partition) AS p FROM requests GROUP BY host"

[queries.words]
cql = "SELECT key, value FROM lines"
"""


def written(folder: Path, *names: str) -> "Counter[tuple[Any, ...]]":
    tables = [pq.read_table(f).to_pylist() for f in folder.glob("*.parquet")]
    return Counter(tuple(row[n] for n in names) for rows in tables for row in rows)


def test_topics_become_streams(
    spark: Any, kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"at": f"2020-01-01T00:00:{n:02d}Z", "host": "ab"[n % 2], "bytes": n + 0.5, "else": {}}
        for n in range(20)
    ]
    kafka.send("requests", [*rows, "no JSON", '["a list"]'])
    kafka.send("lines", ["one", "two"])
    monkeypatch.setenv("TEST_BROKER", kafka.address)
    (tmp_path / "job.toml").write_text(JOB.format(broker=kafka.address))
    out = tmp_path / "out"
    assert cli.run(["run", str(tmp_path / "job.toml"), "--out", str(out), "--quiet"]) == 0
    sums = {(h, float(b), p) for h, b, p in written(out / "hosts", "host", "bytes", "p")}
    assert sums == {("a", 95.0, 0), ("b", 105.0, 1)}
    assert written(out / "words", "key", "value") == Counter([("k0", "one"), ("k1", "two")])
    reasons = [reason for (reason,) in written(out / "requests.rejected", "reason").elements()]
    assert len(reasons) == 2
    assert any("no JSON" in reason for reason in reasons)
    home = b"".join(f.read_bytes() for f in (out / ".millstream").glob("ledger.db*"))
    assert b"offsets" in home
