"""What digests cost: of writing a segment, and of reading one for the first time in a process.

Writing is a small part of what a row costs on its way: the share of it that digests have is far
more than their share of a system's throughput, which `ns_a_row` tells for each segment on the way.
`through` takes rows the whole way, from files over queries to files, by turns with digests and
without: what is left of the throughput is the ratio. On a machine that has other work, the share of
digests in the CPU time of a run, Java's included, says more.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.edge.processor.statistics_gatherer import usage
from millstream.store import file_formats, segments
from millstream.store.delivery import FileSink
from millstream.store.integrity import digests
from millstream.store.integrity.digests import digest_of, digest_of_file
from millstream.store.segments import Segment, SegmentStore

ROWS = 200_000
REPEATS = 7
ROWS_THROUGH, FILES, TURNS = 1_000_000, 10, 5
QUERIES = (
    "SELECT k, v FROM s WHERE v > 0.5",
    "SELECT k, count(*) AS n, avg(v) AS mean FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k",
    "SELECT a.k, a.v, b.v AS w FROM s [RANGE 50 MILLISECONDS] a, s [RANGE 50 MILLISECONDS] b "
    "WHERE a.k = b.k AND a.v > 0.9 AND b.v > 0.9",
)


def run(rows: int = ROWS, repeats: int = REPEATS) -> dict[str, Any]:
    """Milliseconds of each part, the best of several; shares of digests in per cent."""
    chance = np.random.default_rng(7)
    table = pa.table(
        {
            "_ts": np.sort(chance.integers(0, 1 << 40, rows)),
            "_pos": np.arange(rows),
            "c0": chance.integers(0, 1000, rows),
            "c1": chance.random(rows),
            "c2": [f"name-{n}" for n in chance.integers(0, 5000, rows)],
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        store = SegmentStore(Path(folder))
        written = store.write(table)
        assert written.file is not None
        path = store.path(written.file)
        data = Path(path).read_bytes()
        segment = Segment.of("s", 1, written, 0, 0.0)
        figures = {
            "write_ms": _best(lambda: store.write(table), repeats),
            "digest_of_written_ms": _best(lambda: digest_of(data), repeats),
            "read_ms": _best(lambda: pq.read_table(path), repeats),
            "first_check_ms": _best(lambda: digest_of_file(path), repeats),
            "later_check_ms": _best(lambda: store.check([segment]), repeats),
        }
    of_write = figures["digest_of_written_ms"] / figures["write_ms"]
    of_read = figures["first_check_ms"] / (figures["first_check_ms"] + figures["read_ms"])
    return figures | {
        "rows": rows,
        "bytes": len(data),
        "ns_a_row": 1e6 * figures["digest_of_written_ms"] / rows,
        "share_of_write_percent": 100 * of_write,
        "share_of_first_read_percent": 100 * of_read,
    }


def _best(work: Callable[[], Any], repeats: int) -> float:
    found = []
    for _ in range(repeats):
        clock = time.perf_counter()
        work()
        found.append(time.perf_counter() - clock)
    return 1000 * min(found)


def through(
    quick: bool = False, seed: int = 1, progress: Callable[[str], None] = print
) -> dict[str, Any]:
    """Seconds of a run with digests and without, the best of several turns, and their ratio."""
    from millstream.app.runs.local_system import shared_spark  # noqa: PLC0415  (brings Spark)

    cpu = {"digests": 0.0, "all": 0.0}
    rows, turns = (ROWS_THROUGH // 20, 2) if quick else (ROWS_THROUGH, TURNS)
    stop = shared_spark("local[2]")
    with tempfile.TemporaryDirectory() as folder:
        _write_input(Path(folder) / "in", rows, seed)
        _once(Path(folder), "warm")
        found: dict[str, list[float]] = {"on": [], "off": []}
        for turn in range(turns):
            for kind in ("on", "off") if turn % 2 else ("off", "on"):
                with unchecked() if kind == "off" else counted(cpu):
                    seconds, worked = _once(Path(folder), f"{kind}{turn}")
                found[kind].append(seconds)
                cpu["all"] += worked if kind == "on" else 0.0
    if stop is not None:
        stop()
    on, off = min(found["on"]), min(found["off"])
    progress(f"with digests {on:.2f} s, without {off:.2f} s: ratio {on / off:.3f}")
    progress(f"digests: {cpu['digests']:.3f} s of {cpu['all']:.1f} s of CPU time")
    return {
        "rows": rows,
        "with_digests_s": found["on"],
        "without_s": found["off"],
        "rows_a_second": rows / on,
        "cost_percent": 100 * (on - off) / off,
        "digest_cpu_s": cpu["digests"],
        "cpu_s": cpu["all"],
        "cpu_percent": 100 * cpu["digests"] / cpu["all"],
    }


@contextmanager
def unchecked() -> Iterator[None]:
    """Segments without digests, which nobody checks: for comparison alone."""
    nothing: dict[str, Any] = {"digest_of": lambda _: "", "digest_of_file": lambda _: ""}
    with (
        patch.multiple(segments, **nothing),
        patch.object(file_formats, "digest_of_file", nothing["digest_of_file"]),
    ):
        yield


@contextmanager
def counted(cpu: dict[str, float]) -> Iterator[None]:
    """Adds up the CPU time of digests."""

    def timed(work: Callable[[Any], str]) -> Callable[[Any], str]:
        def digest(of: Any) -> str:
            clock = time.thread_time()
            try:
                return work(of)
            finally:
                cpu["digests"] += time.thread_time() - clock

        return digest

    with (
        patch.object(segments, "digest_of", timed(digest_of)),
        patch.object(segments, "digest_of_file", timed(digest_of_file)),
        patch.object(digests, "digest_of_file", timed(digest_of_file)),
        patch.object(file_formats, "digest_of_file", timed(digest_of_file)),
    ):
        yield


def _write_input(folder: Path, rows: int, seed: int) -> None:
    folder.mkdir()
    chance = np.random.default_rng(seed)
    for number in range(FILES):
        count = rows // FILES
        at = (np.arange(count, dtype=np.int64) + number * count) * 1_000
        table = pa.table(
            {
                "k": chance.integers(0, 100, count),
                "v": chance.random(count),
                "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            }
        )
        pq.write_table(table, folder / f"{number:02d}.parquet")


def _once(folder: Path, name: str) -> tuple[float, float]:
    """Seconds of a run, and of CPU time in this process and in Java."""
    from millstream.app.session.session import Session  # noqa: PLC0415  (brings Spark)

    home = folder / name
    columns = {"k": "bigint", "v": "double", "at": "timestamp"}
    with Session(home) as session:
        path = str(folder / "in")
        session.stream("s", columns=columns, time="at", path=path, format="parquet")
        for number, cql in enumerate(QUERIES):
            handle = session.query(cql, name=f"q{number}", from_beginning=True)
            session.system.deliver(handle.name, FileSink(home / "out" / handle.name, "parquet"))
        machine = session.here("CPU time").engine.plane.machine
        java = getattr(None if machine is None else machine.process(), "pid", None)
        before, clock = usage(java)[1], time.perf_counter()
        session.wait()
        took, worked = time.perf_counter() - clock, usage(java)[1] - before
    shutil.rmtree(home)
    return took, worked
