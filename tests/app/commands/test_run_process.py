"""The real `millstream run` as a process: killed, stopped, resumed; quiet; a second one refused."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.process]

ROWS = 3000
JOB = """\
[streams.readings]
path    = "readings.csv"
columns = { at = "long", sensor = "int", value = "int" }
time    = "timestamp_seconds(at)"
rate    = 400

[queries.high]
cql = "SELECT sensor, value FROM readings WHERE value >= 90"

[queries.sums]
cql = '''
SELECT sensor, sum(value) AS total
FROM readings [RANGE 60 SECONDS SLIDE 60 SECONDS]
GROUP BY sensor'''

[queries.counts]
cql = "SELECT sensor, count(*) AS n FROM readings GROUP BY sensor"

[engine]
batch_rows = 200
"""
VALUES = [(second, second % 7, second * 37 % 101) for second in range(ROWS)]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "readings.csv").write_text("".join(f"{a},{s},{v}\n" for a, s, v in VALUES))
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


def start(job: Path, out: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", "from millstream.app.cli import main; main()", "run"]
    return subprocess.Popen(
        [*command, str(job), "--out", str(out), "--master", "local[1]", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process: "subprocess.Popen[str]", folder: Path, files: int) -> None:
    """Until results begin to appear, or the process has ended."""
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        if folder.is_dir() and sum(1 for f in folder.iterdir() if f.name[0] != ".") >= files:
            return
        time.sleep(0.02)


def rows(folder: Path, *names: str) -> "Counter[tuple[object, ...]]":
    found: Counter[tuple[object, ...]] = Counter()
    for file in folder.glob("*.parquet"):
        for row in pq.read_table(file).to_pylist():
            found[tuple(row[name] for name in names)] += 1
    return found


def test_killed_stopped_and_resumed_it_gives_the_same(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed = start(job, out)
    wait_for(killed, out / "high", 1)
    second = start(job, out)
    _, told = second.communicate(timeout=300)
    assert second.returncode == 2
    assert f"in use by another run (pid {killed.pid})" in told
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL

    stopped = start(job, out)
    wait_for(stopped, out / "high", 3)
    stopped.terminate()
    _, told = stopped.communicate(timeout=300)
    assert stopped.returncode == 128 + signal.SIGTERM
    assert "to continue: millstream" in told

    last = start(job, out)
    text, told = last.communicate(timeout=600)
    assert last.returncode == 0, told
    assert "WARN" not in told
    assert "Traceback" not in told
    summary = json.loads(text)
    assert summary["streams"]["readings"] == {"rows": ROWS, "late": 0, "rejected": 0}

    high = Counter((s, v) for _, s, v in VALUES if v >= 90)
    assert rows(out / "high", "sensor", "value") == high
    totals: Counter[tuple[int, int]] = Counter()
    for at, sensor, value in VALUES:
        totals[at // 60, sensor] += value
    expected = Counter((sensor, total) for (_, sensor), total in totals.items())
    assert rows(out / "sums", "sensor", "total") == expected
    counts = Counter((s, sum(1 for _, t, _ in VALUES if t == s)) for s in range(7))
    assert rows(out / "counts", "sensor", "n") == counts
