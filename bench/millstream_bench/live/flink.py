"""The side of Flink in the benchmark of live rows: one statement set over files that appear.

Flink's print connector writes results to a pipe; a row has come when it is read there. Flink gets
the same files as plain Structured Streaming, as CSV, each written whole before it has its name.
"""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from millstream.core.errors import ResourceError
from millstream_bench.live import flink_peer
from millstream_bench.live.sides import Load, Results, Trial, timed, trial
from millstream_bench.live.workload import STREAMS, Producer, constant_of
from millstream_bench.throughput.flink import end_group, flink_python

KINDS = ("filter", "average", "join")
NAMES = {
    "filter": ("k", "v", "sent", "at"),
    "average": ("g", "mean", "at"),
    "join": ("k", "v", "w", "sent", "at"),
}
READY_S_MAX = 180.0
QUIET_S, QUIET_S_MAX = 3.0, 60.0  # nothing has come for so long: what was on its way is here
CHUNK = 1 << 20


@dataclass(slots=True)
class Printed:
    """What Flink prints, with the time at which it was read; looked into afterwards."""

    chunks: list[tuple[float, bytes]] = field(default_factory=list)
    ready: threading.Event = field(default_factory=threading.Event)

    def read(self, pipe: Any) -> None:
        while chunk := os.read(pipe.fileno(), CHUNK):
            self.chunks.append((time.time(), chunk))
            if not self.ready.is_set() and b"ready\n" in chunk:
                self.ready.set()

    def wait_for_quiet(self, quiet_s: float, seconds_max: float) -> None:
        """Returns when nothing has been printed for a while."""
        began = time.time()
        while (now := time.time()) < began + seconds_max:
            last = max(began, self.chunks[-1][0] if self.chunks else began)
            if now - last >= quiet_s:
                return
            time.sleep(quiet_s / 10)

    def into(self, results: Results, load: Load) -> None:
        """Rows of compared queries, and the delays of all."""
        kept = {f"q{n}": n for n in load.compared()}
        rows: dict[str, list[str]] = {name: [] for name in kept}
        rest = b""
        for at, chunk in self.chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            known: set[tuple[str, float]] = set()
            for line in lines:
                name, found, values = line.decode().partition("> +I[")
                if not found:
                    continue
                fields = values.rstrip("]").split(", ")
                name = name.partition(":")[0]
                number = int(name[1:])
                sent = float(fields[-1]) / 1e6 if number % 3 == 1 else float(fields[-2])
                known.add((name, sent))
                if name in kept:
                    rows[name].append(",".join(fields))
            results.delays.seen += [(at, at - sent) for _, sent in known]
        for name, found_rows in rows.items():
            if found_rows:
                number = kept[name]
                results.tables[number] = [_table(KINDS[number % 3], found_rows)]


def _table(kind: str, rows: list[str]) -> pa.Table:
    options = pa_csv.ReadOptions(column_names=list(NAMES[kind]))
    table = pa_csv.read_csv(pa.py_buffer("\n".join(rows).encode()), read_options=options)
    at = pc.cast(table["at"], pa.timestamp("us", tz="UTC"))
    kinds = {"k": pa.int32(), "g": pa.int32()}
    columns = [pc.cast(table[n], kinds.get(n, pa.float64())) for n in NAMES[kind] if n != "at"]
    return pa.table([*columns, at], names=NAMES[kind])


def side(parallelism: int) -> Callable[[Load], Trial]:
    """Flink with so many tasks of each operator."""
    python = flink_python()
    return lambda load: _flink(python, load, parallelism)


def _flink(python: str, load: Load, parallelism: int) -> Trial:
    home = Path(tempfile.mkdtemp(prefix="millstream-live-flink-"))
    results, printed, written = Results(), Printed(), [0]
    for stream in STREAMS:
        (home / stream).mkdir()

    def write(stream: str, rows: pa.Table) -> None:
        written[0] += 1
        draft = home / f".{written[0]}"
        table = rows.set_column(0, "t", pc.cast(rows["at"], pa.int64()))
        pa_csv.write_csv(table, draft, pa_csv.WriteOptions(include_header=False))
        draft.rename(home / stream / f"{written[0]:08d}.csv")

    process = _started(python, load, home, parallelism)
    try:
        assert process.stdout is not None
        reader = threading.Thread(target=printed.read, args=(process.stdout,), daemon=True)
        reader.start()
        if not printed.ready.wait(READY_S_MAX):
            raise ResourceError("Flink did not begin", hint=f"see {home / 'flink.log'}")
        producer = Producer(write, STREAMS, load.rate, load.seed)
        told = timed(load, producer)
        printed.wait_for_quiet(QUIET_S, QUIET_S_MAX)
    finally:
        end_group(process)
        shutil.rmtree(home, ignore_errors=True)
    reader.join()
    printed.into(results, load)
    # the last windows stay open: no later row passes them; what waits is not waited for
    compared = results.compared(load, producer, partial=lambda n: n % 3 == 1)
    return trial(load, producer, results, told, compared)


def _started(python: str, load: Load, home: Path, parallelism: int) -> "subprocess.Popen[bytes]":
    asks = [
        {"name": f"q{n}", "kind": KINDS[n % 3], "c": constant_of(n, load.queries)}
        for n in range(load.queries)
    ]
    with open(home / "flink.log", "wb") as log:
        process = subprocess.Popen(
            [python, flink_peer.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdin is not None
    task = {"data": str(home), "asks": asks, "parallelism": parallelism}
    process.stdin.write(json.dumps(task).encode())
    process.stdin.close()
    return process
