"""kill -9 of the real `millstream run` at random moments, until it gets through: one answer."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from small_engines import file_rows
from test_crashes import QUERIES, write_input

pytestmark = [pytest.mark.spark, pytest.mark.process]

SEED = 4711
KILLS = 3
STREAM = """
[streams.{name}]
path = "{name}"
format = "csv"
columns = {{ at = "long", name = "string", n = "int" }}
time = "timestamp_seconds(at)"
lateness = "3 seconds"
"""


def write_job(folder: Path) -> Path:
    write_input(folder)
    text = "".join(STREAM.format(name=name) for name in ("a", "b"))
    for name, cql in QUERIES.items():
        text += f"\n[queries.{name}]\ncql = {json.dumps(cql)}\n"
    text += "\n[engine]\nbatch_rows = 60\nstep_rows_max = 120\n"
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


def started(job: Path, out: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", "from millstream.app.cli import main; main()"]
    return subprocess.Popen(
        [*command, "run", str(job), "--out", str(out), "--master", "local[1]", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: "subprocess.Popen[str]") -> dict[str, Any]:
    told, problems = process.communicate(timeout=600)
    assert process.returncode == 0, problems
    assert "Traceback" not in problems
    summary: dict[str, Any] = json.loads(told)
    return summary


def results(out: Path) -> dict[str, Counter[str]]:
    """All rows of all results, as texts; a changelog as what it sums to."""
    found: dict[str, Counter[str]] = {}
    for folder in sorted(p for p in out.iterdir() if p.is_dir() and p.name[0] != "."):
        rows: Counter[str] = Counter()
        for row in file_rows(folder):
            op = row.pop("op", "+")
            if folder.name in ("total", "total.changes"):
                row.pop("ts")
            rows[repr(row)] += 1 if op == "+" else -1
        found[folder.name] = +rows
    return found


def begun(process: "subprocess.Popen[str]", out: Path) -> None:
    """Waits until the run has made its ledger: before, there is nothing to lose."""
    deadline = time.monotonic() + 300
    while process.poll() is None and not list(out.rglob("ledger.db")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_killed_again_and_again_it_gives_the_same(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    chance = random.Random(SEED)
    whole = started(job, tmp_path / "whole")
    begun(whole, tmp_path / "whole")
    clock = time.monotonic()
    summary = finished(whole)
    seconds = time.monotonic() - clock
    expected = results(tmp_path / "whole")
    assert set(QUERIES) <= set(expected)

    out = tmp_path / "killed"
    kills = 0
    while kills < KILLS:
        process = started(job, out)
        begun(process, out)
        try:
            process.wait(chance.uniform(0.02, 0.5) * seconds)
            break  # it got through before its time
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            kills += 1
    assert kills >= 2, "the delays were too long to tell anything"
    resumed = finished(started(job, out))
    assert results(out) == expected
    for name, stream in summary["streams"].items():
        for figure in ("rows", "late", "rejected"):
            assert resumed["streams"][name][figure] == stream[figure]
