"""`millstream run` with sinks in the job file: cut off at every point, each row is there once."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millstream.app import cli
from millstream.store import faults
from postgres_server import Server

pytestmark = pytest.mark.spark

JOB = """\
[streams.requests]
path    = "requests.csv"
columns = {{ at = "long", host = "string", status = "int" }}
time    = "timestamp_seconds(at)"

[queries.totals]
cql = "SELECT host, count(*) AS n, sum(status) AS s FROM requests GROUP BY host"
[queries.totals.sink]
type  = "postgres"
dsn   = "env:TEST_DSN"
table = "totals"
key   = ["host"]

[queries.errors]
cql = "SELECT host, status FROM requests WHERE status >= 500"
[queries.errors.sink]
type  = "postgres"
dsn   = "{dsn}"
table = "errors"

[queries.least]
cql = "SELECT host, min(status) AS least, max(at) AS latest FROM requests GROUP BY host"
[queries.least.sink]
type = "delta"
path = "least"
key  = ["host"]

[engine]
batch_rows = 10
"""
ROWS = [(n, "abc"[n * n % 3], 500 if n % 4 == 0 else 200) for n in range(60)]


class Gone(BaseException):
    """The end of a process."""


def written(folder: Path, *names: str) -> "Counter[tuple[Any, ...]]":
    tables = [pq.read_table(f).to_pylist() for f in folder.glob("*.parquet")]
    return Counter(tuple(row[n] for n in names) for rows in tables for row in rows)


def test_cut_off_at_every_point_of_a_delivery(
    spark: Any, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requests.csv").write_text("".join(f"{a},{h},{s}\n" for a, h, s in ROWS))
    (tmp_path / "job.toml").write_text(JOB.format(dsn=postgres.dsn))
    monkeypatch.setenv("TEST_DSN", postgres.dsn)
    out = tmp_path / "out"
    crashed: list[str] = []

    def hook(point: str) -> None:
        if point not in crashed and point in (*faults.SINK_POINTS, "delivery.committed"):
            crashed.append(point)
            raise Gone(point)

    faults.set_hook(hook)
    try:
        for _ in range(6):
            try:
                code = cli.run(["run", str(tmp_path / "job.toml"), "--out", str(out), "--quiet"])
                break
            except Gone:
                continue
    finally:
        faults.set_hook(None)
    assert code == 0
    assert set(crashed) == {*faults.SINK_POINTS, "delivery.committed"}
    totals = Counter(postgres.rows("SELECT host, n, s, ts FROM totals"))
    assert totals == written(out / "totals", "host", "n", "s", "ts")
    hosts = {host for _, host, _ in ROWS}
    expected = {
        (h, sum(r[1] == h for r in ROWS), sum(r[2] for r in ROWS if r[1] == h)) for h in hosts
    }
    assert {row[:3] for row in totals} == expected
    errors = Counter(postgres.rows("SELECT host, status, ts FROM errors"))
    assert errors == written(out / "errors", "host", "status", "ts")
    assert sum(errors.values()) == sum(row[2] == 500 for row in ROWS)
    least = DeltaTable(tmp_path / "least").to_pyarrow_table().to_pylist()
    found = Counter((r["host"], r["least"], r["latest"], r["ts"]) for r in least)
    assert found == written(out / "least", "host", "least", "latest", "ts")
    assert {r["host"]: r["latest"] for r in least} == {host: at for at, host, _ in ROWS}
    home = b"".join(f.read_bytes() for f in (out / ".millstream").glob("*") if f.is_file())
    assert postgres.dsn.encode() not in home
