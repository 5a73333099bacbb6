"""The side of Flink in the benchmark of Nexmark: one statement set in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from millstream.core.errors import UsageError
from millstream_bench.nexmark import flink_peer
from millstream_bench.throughput.flink import end_group
from millstream_bench.throughput.resources import family_cpu_s


def write_csv(folder: Path, target: Path) -> None:
    """The same files as CSV, which PyFlink reads without more."""
    for file in sorted(folder.glob("*/*.parquet")):
        table = pq.read_table(file)
        for name in ("date_time", "expires"):
            if name in table.column_names:
                at = pc.cast(table[name], pa.timestamp("ms", tz="UTC"))
                text = pc.strftime(at, "%Y-%m-%d %H:%M:%S")
                table = table.set_column(table.column_names.index(name), name, text)
        folder_of = target / file.parent.name
        folder_of.mkdir(parents=True, exist_ok=True)
        options = pa_csv.WriteOptions(include_header=False, quoting_style="none")
        pa_csv.write_csv(table, folder_of / f"{file.stem}.csv", options)


def run_flink(
    python: str, warm: Path, data: Path, out: Path, names: Sequence[str], streams: Sequence[str]
) -> tuple[float, float]:
    """Seconds and CPU seconds of the queries over all rows, when code has been compiled."""
    task = {
        "warm": str(warm),
        "data": str(data),
        "out": str(out),
        "names": list(names),
        "streams": list(streams),
        "parallelism": os.cpu_count() or 2,
    }
    log = out.parent / f"{out.name}.log"
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(log, "wb") as errors,
        subprocess.Popen(
            [python, flink_peer.__file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            _say(process, json.dumps(task))
            _heard(process, "warm", log)
            before = family_cpu_s(process.pid)
            _say(process, "")
            seconds = float(_heard(process, "seconds", log))
            return seconds, family_cpu_s(process.pid) - before
        finally:
            end_group(process)


def _say(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _heard(process: "subprocess.Popen[str]", key: str, log: Path) -> Any:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)[key]
    text = log.read_text(errors="replace")
    print(text[-6000:], file=sys.stderr)
    raise UsageError("Flink did not run", detail=text.strip().split("\n")[-1][:300])
