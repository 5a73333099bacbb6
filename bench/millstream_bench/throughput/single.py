"""One query at a time: plain Structured Streaming and ours, on the same files, in one run.

Both sides are warmed up first. Each is timed from its start until all input is processed and its
results lie in Parquet files, once with the same rows a batch and once each at its best setting.
Beside it: what a ledger commit costs, how many segments a window scan opens, and how a step's time
grows with its window.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.engine.steps.reports import StepReport
from millstream.engine.steps.trains import alone
from millstream.language.cql.catalog import StreamDefinition
from millstream.spark.plane import SparkPlane
from millstream.spark.session import session
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW
from millstream.store.delivery import FileSink
from millstream_bench.throughput.workload import (
    COLUMNS,
    TWO_STREAMS,
    cql,
    definition,
    plain_query,
    write_stream,
)

Progress = Callable[[str], None]
KINDS = ("filter", "average", "join")
TARGETS = {"filter": 1.0, "average": 2.0, "join": 3.0}
FILES_A_TRIGGER = 2
CONSTANT = 50.0
WINDOWS = (10_000, 100_000, 1_000_000)


def run(quick: bool = False, seed: int = 1, progress: Progress = print) -> dict[str, Any]:
    """All figures, ready for JSON."""
    rows, files = (40_000, 8) if quick else (400_000, 40)
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    spark = session(log=folder / "spark.log")
    try:
        write_stream(folder / "a", rows, files, seed)
        write_stream(folder / "b", rows, files, seed + 1)
        write_stream(folder / "warm-a", rows // 10, 4, seed + 2)
        write_stream(folder / "warm-b", rows // 10, 4, seed + 3)
        progress(f"{rows:,} rows a stream in {files} files")
        figures: dict[str, Any] = {"rows": rows, "queries": {}}
        batch = FILES_A_TRIGGER * rows // files
        steps: list[StepReport] = []
        for kind in KINDS:
            warm = (folder / "warm-a", folder / "warm-b")
            real = (folder / "a", folder / "b")
            times: dict[str, float] = {}
            plain_seconds(spark, kind, *warm, FILES_A_TRIGGER, folder / "out")
            ours_seconds(spark, kind, *warm, batch, folder / "out", [])
            times["plain"] = plain_seconds(spark, kind, *real, FILES_A_TRIGGER, folder / "out")
            times["ours"] = ours_seconds(spark, kind, *real, batch, folder / "out", steps)
            times["plain_best"] = plain_seconds(spark, kind, *real, None, folder / "out")
            times["ours_best"] = ours_seconds(spark, kind, *real, rows, folder / "out", [])
            ratio = times["plain"] / times["ours"]
            best = times["plain_best"] / times["ours_best"]
            figures["queries"][kind] = times | {"ratio": ratio, "ratio_best": best}
            progress(
                f"{kind:<8} same batches ({batch:,} rows): plain {times['plain']:6.1f} s, ours "
                f"{times['ours']:6.1f} s, ratio {ratio:4.1f} (target {TARGETS[kind]:.0f}); each at "
                f"its best: plain {times['plain_best']:6.1f} s, ours {times['ours_best']:6.1f} s, "
                f"ratio {best:4.1f}"
            )
        figures["ledger"] = _ledger(steps, folder, progress)
        figures["windows"] = _windows(spark, folder, quick, progress)
        return figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def plain_seconds(
    spark: Any,
    kind: str,
    a: Path,
    b: Path,
    files_a_trigger: int | None,
    out: Path,
    constant: float = CONSTANT,
) -> float:
    """Seconds until a Structured Streaming query has processed all files."""
    shutil.rmtree(out, ignore_errors=True)
    frame = plain_query(spark, kind, constant, a, b, files_a_trigger)
    writer = (
        frame.writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(out / "plain"))
        .option("checkpointLocation", str(out / "checkpoint"))
    )
    clock = time.perf_counter()
    if files_a_trigger is None:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    else:
        query = writer.start()
        query.processAllAvailable()
        query.stop()
    return time.perf_counter() - clock


def ours_seconds(
    spark: Any,
    kind: str,
    a: Path,
    b: Path,
    batch: int,
    out: Path,
    steps: list[StepReport],
    constant: float = CONSTANT,
) -> float:
    """Seconds until Millstream has processed all files and written the results."""
    shutil.rmtree(out, ignore_errors=True)
    engine = Engine(
        out / "home", SparkPlane(spark), EngineSettings(batch_rows=batch, step_rows_max=2 * batch)
    )
    try:
        clock = time.perf_counter()
        engine.add_stream(definition("a", a))
        if kind in TWO_STREAMS:
            engine.add_stream(definition("b", b))
        engine.add_query("q", cql(kind, constant))
        engine.deliver("q", FileSink(out / "ours", "parquet"))
        engine.on_step.append(steps.append)
        Loop(engine).run()
        return time.perf_counter() - clock
    finally:
        engine.close()


def _ledger(steps: list[StepReport], folder: Path, progress: Progress) -> dict[str, float]:
    commits = [s.commit_seconds for s in steps]
    opened = max(s.tail_segments for s in steps)
    syncs = []
    with (folder / "sync").open("wb") as file:
        for _ in range(50):
            clock = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            syncs.append(time.perf_counter() - clock)
    commit_ms, sync_ms = median(commits) * 1e3, median(syncs) * 1e3
    progress(
        f"ledger commit: median {commit_ms:.1f} ms (target 5), the disk's own sync {sync_ms:.1f} ms"
    )
    progress(f"segments that a window scan opened: at most {opened} (target 32)")
    return {"commit_ms": commit_ms, "sync_ms": sync_ms, "segments_opened_max": opened}


def _windows(spark: Any, folder: Path, quick: bool, progress: Progress) -> list[dict[str, float]]:
    """A join step of 20,000 new rows against windows of growing size."""
    figures = []
    for size in WINDOWS[: 2 if quick else 3]:
        home = folder / f"window-{size}"
        engine = Engine(home, SparkPlane(spark), EngineSettings(step_rows_max=10_000_000))
        try:
            seconds = _window_step(engine, size)
        finally:
            engine.close()
        figures.append({"window_rows": size, "step_s": seconds})
        progress(f"step of 2 x 10,000 new rows against windows of {size:>9,} rows: {seconds:.2f} s")
    return figures


def _window_step(engine: Engine, size: int) -> float:
    """The median of three warm steps; the window holds `size` rows of both streams together."""
    for name in ("a", "b"):
        engine.add_stream(StreamDefinition(name, COLUMNS, "at", source={"source": "push"}))
    engine.add_query(
        "q",
        "SELECT a.k, a.v, b.v AS other FROM a [RANGE 1 DAY] JOIN b [RANGE 1 DAY] "
        "ON a.k = b.k AND a.v > b.v",
    )
    (operator,) = engine.operators.values()
    random = np.random.default_rng(size)
    at = 0
    seconds: list[float] = []
    chunks = [10_000] * (size // 20_000) + [10_000] * 5
    for rows in chunks:
        for name in ("a", "b"):
            engine.appenders[name].append(_made_up(random, rows, at), {})
        at += rows * 1_000
        report = engine.runner.run(alone(operator), 10_000_000)
        engine.maintenance.compact("s:a")
        engine.maintenance.compact("s:b")
        if report is not None:
            seconds.append(report.whole.seconds)
    return median(seconds[-3:])


def _made_up(random: np.random.Generator, rows: int, at: int) -> pa.Table:
    """Rows whose keys rarely meet, so that the scan is measured and not the result."""
    ts = at + np.arange(rows, dtype=np.int64) * 1_000
    nothing = pa.array([None] * rows, pa.string())
    return pa.table(
        [
            pa.array(ts).cast(pa.timestamp("us", tz="UTC")),
            pa.array(random.integers(0, 2_000_000_000, rows, dtype=np.int32)),
            pa.array(random.random(rows)),
            pa.array(ts),
            nothing,
            nothing,
            nothing,
            pa.array(np.arange(rows, dtype=np.int64)),
        ],
        ["c0", "c1", "c2", "_ts", REASON, RECORD, FILE, ROW],
    )
