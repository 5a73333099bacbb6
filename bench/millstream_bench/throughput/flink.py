"""Flink as a second peer of the sharing benchmark, where somebody has installed it.

It runs in an environment of its own (`apache-flink` and Spark want other versions of the same
libraries); Millstream only starts it. Input is written as CSV, which PyFlink reads without more.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from millstream.core.errors import UsageError
from millstream_bench.throughput import flink_peer
from millstream_bench.throughput.mix import mix

PYTHON = "MILLSTREAM_FLINK_PYTHON"
SECONDS_MAX = 300


def flink_python() -> str:
    """The Python that has Flink; UsageError where none is named or it has none."""
    found = os.environ.get(PYTHON)
    hint = (
        f"python3.11 -m venv flink && flink/bin/pip install apache-flink; {PYTHON}=flink/bin/python"
    )
    if not found:
        raise UsageError(f"Flink runs in an environment of its own; {PYTHON} names none", hint=hint)
    asked = subprocess.run([found, "-c", "import pyflink"], capture_output=True, check=False)
    if asked.returncode:
        raise UsageError(f"{found} has no apache-flink", hint=hint)
    return found


def end_group(process: "subprocess.Popen[Any]") -> None:
    """Flink's Python and its Java, which were started as a group of their own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def write_csv(folder: Path, target: Path) -> None:
    """The same files as CSV."""
    for name in ("a", "b"):
        (target / name).mkdir(parents=True)
        for file in sorted((folder / name).iterdir()):
            table = pq.read_table(file)
            at = pc.strftime(
                pc.cast(table["at"], pa.timestamp("ms", tz="UTC")), "%Y-%m-%d %H:%M:%S"
            )
            table = table.set_column(0, "at", at)
            options = pa_csv.WriteOptions(include_header=False, quoting_style="none")
            pa_csv.write_csv(table, target / name / f"{file.stem}.csv", options)


def run_flink(
    python: str, data: Path, out: Path, queries: int, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Seconds of one statement set with so many queries; none where it took too long."""
    asks = [{"name": a.name, "kind": a.kind, "c": a.constant} for a in mix(queries)]
    task = {"data": str(data), "out": str(out), "asks": asks, "parallelism": os.cpu_count() or 2}
    try:
        done = subprocess.run(
            [python, flink_peer.__file__],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        progress(f"flink: {queries} queries not done in {SECONDS_MAX} s")
        return {"seconds": None}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        print(done.stderr[-6000:], file=sys.stderr)
        raise UsageError("Flink did not run", detail=done.stderr.strip().split("\n")[-1][:300])
    told: dict[str, Any] = json.loads(lines[-1])
    progress(f"flink: {told['seconds']:.1f} s with {queries} queries")
    return told
