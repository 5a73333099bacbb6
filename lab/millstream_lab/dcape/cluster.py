"""A real cluster for the experiments of D-CAPE's chapter 4: processes, input, what they cost.

A manager and processors as `millstream up` starts them, on this machine, fed from files that are
replayed. Figures come from the operating system (CPU seconds, resident memory) and from the
manager's own count of what it says and hears. Needs minutes and a few gigabytes.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from millstream.edge.peers.local_cluster import LocalCluster

TICKS = os.sysconf("SC_CLK_TCK")
MISSING = 0.5  # seconds between two looks
ROW_US = 2000  # event time between two rows of a stream


def write_rows(path: Path, rows: int, seed: int) -> None:
    """Rows with a key, a value and a time."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    generator = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "at": pa.array(np.arange(rows) * ROW_US),
            "k": pa.array(generator.integers(0, 1000, rows)),
            "v": pa.array(generator.integers(0, 100, rows)),
        }
    )
    pq.write_table(table, path)


def stream_table(name: str, path: Path, rate: float | None = None) -> dict[str, Any]:
    """A stream of such a file, replayed at a rate or as fast as possible."""
    table: dict[str, Any] = {
        "name": name,
        "path": str(path),
        "format": "parquet",
        "columns": {"at": "long", "k": "long", "v": "long"},
        "time": "timestamp_micros(at)",
    }
    if rate is not None:
        table["rate"] = rate
    return table


def queries_over(first: str, second: str, count: int) -> dict[str, str]:
    """A quarter of them joins, as in plan 2, the rest filters, each with another constant."""
    found = {}
    for number in range(count):
        if number % 4 == 0:
            found[f"join{number}"] = (
                f"SELECT x.k AS k, x.v + y.v AS v FROM {first} [RANGE 2 SECONDS] x "
                f"JOIN {second} [RANGE 2 SECONDS] y ON x.k = y.k WHERE x.v > {number}"
            )
        else:
            found[f"filter{number}"] = f"SELECT k, v FROM {first} WHERE v > {50 + number}"
    return found


@contextmanager
def cluster(
    processors: int, say: Callable[[str], None], *, beat_s: float = 5.0
) -> Iterator[LocalCluster]:
    """Started, and stopped whatever happens."""
    with tempfile.TemporaryDirectory(prefix="millstream-lab-") as folder:
        made = LocalCluster(
            Path(folder), processors, spark="local[1]", heap="512m", say=say,
            manager_options=("--placer", "pattern", "--beat", str(beat_s)),
        )  # fmt: skip
        try:
            say(f"starting a manager and {processors} processors")
            made.start()
            yield made
        finally:
            made.stop()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def tree(pid: int) -> list[int]:
    """A process and all below it: a processor's Java is its child."""
    found = [pid]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found += tree(int(entry.name))
    return found


def until(done: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} took more than {seconds:.0f} s")
        time.sleep(MISSING)
