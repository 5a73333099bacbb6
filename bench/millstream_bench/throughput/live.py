"""Live rows: two streams at a steady rate, many queries, the delay from a row's push to its result.

A third filters, a third sliding averages, a third window joins, as in the mix of `sharing` with
short windows. Each row carries the time at which its producer sent it, and each result the time of
the latest row in it; of a window the time of its end counts, for its rows have waited for that.
Ours takes pushes in this process. Plain Structured Streaming runs one query each over files that
appear at the same rate, with no wait between two of its batches.
"""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import millstream
from millstream.spark.session import session as spark_session
from millstream_bench.throughput.resources import Meter

TICK_S = 0.1
SENSORS, SITES = 5_000, 100
COLUMNS = {"at": "timestamp", "k": "int", "g": "int", "v": "double", "sent": "double"}
DDL = "at TIMESTAMP, k INT, g INT, v DOUBLE, sent DOUBLE"
STREAMS = ("a", "b")
PLAIN_QUERIES_MAX = 12  # more of them only make a queue that grows
Progress = Callable[[str], None]


@dataclass(slots=True)
class Delays:
    """When results came, and how old the latest row in each was."""

    seen: list[tuple[float, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, sent: pa.ChunkedArray) -> None:
        """Results of one batch; those that wait for the same push count as one."""
        now = time.time()
        with self.lock:
            self.seen += [(now, now - at) for at in pc.unique(sent).to_pylist() if at is not None]

    def figures(self, since: float) -> dict[str, float | int | None]:
        found = sorted(delay for at, delay in self.seen if at >= since)
        if not found:
            return {"results": 0, "median_s": None, "p95_s": None, "p99_s": None}
        return {
            "results": len(found),
            "median_s": round(found[len(found) // 2], 3),
            "p95_s": round(found[int(len(found) * 0.95)], 3),
            "p99_s": round(found[int(len(found) * 0.99)], 3),
        }


def run(
    *, quick: bool = False, seed: int = 1, queries: str = "1,3,30", progress: Progress = print
) -> dict[str, Any]:
    """Delay and pace at 1,000 rows a second in each stream."""
    seconds = 8.0 if quick else 30.0
    counts = [int(n) for n in queries.split(",")]
    found: dict[str, Any] = {"rows_a_second": 2 * 1_000, "seconds": seconds, "runs": []}
    spark_session()
    for count in counts:
        sides = {"ours": _ours(count, seconds, seed)}
        if count <= PLAIN_QUERIES_MAX:
            sides["plain"] = _plain(count, seconds, seed)
        for side, figures in sides.items():
            progress(_line(count, side, figures))
        found["runs"].append({"queries": count, **sides})
    return found


def _line(count: int, side: str, figures: Mapping[str, Any]) -> str:
    delay = figures["delay"]
    return (
        f"{count:5} queries, {side}: {figures['sent_rows']:,} of {figures['wanted_rows']:,} rows "
        f"sent, delay median {delay['median_s']} s, 95 % {delay['p95_s']} s, "
        f"99 % {delay['p99_s']} s, CPU {figures['cpu_s']:.1f} s"
        + (f", push {figures['push_ms']:.1f} ms" if "push_ms" in figures else "")
    )


# -- rows -----------------------------------------------------------------------------------------


def _batch(random: np.random.Generator, rows: int) -> pa.Table:
    """Rows of the last tick, in order of time."""
    now = time.time()
    at = np.linspace(now - TICK_S, now, rows, endpoint=False) * 1e6
    return pa.table(
        {
            "at": pa.array(at.astype(np.int64)).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array(random.integers(0, SENSORS, rows, np.int32)),
            "g": pa.array(random.integers(0, SITES, rows, np.int32)),
            "v": pa.array(random.uniform(0, 100, rows)),
            "sent": pa.array(np.full(rows, now)),
        }
    )


def _produce(seconds: float, seed: int, send: Callable[[str, pa.Table], None]) -> tuple[int, int]:
    """Sends a batch of each stream a tick; rows sent and rows that the rate asks for."""
    random = np.random.default_rng(seed)
    rows, sent, began = int(1_000 * TICK_S), 0, time.time()
    due = began
    while time.time() < began + seconds:
        for stream in STREAMS:
            send(stream, _batch(random, rows))
            sent += rows
        due = max(due + TICK_S, time.time() - TICK_S)
        time.sleep(max(0.0, due - time.time()))
    return sent, int(seconds / TICK_S) * rows * len(STREAMS)


def constant_of(number: int, count: int) -> float:
    return round(10 + 80 * (number + 0.5) / count, 3)


# -- ours -----------------------------------------------------------------------------------------


def _ours(count: int, seconds: float, seed: int) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="millstream-live-"))
    delays, pushes = Delays(), []
    with millstream.Session(home) as session:
        for stream in STREAMS:
            session.stream(stream, columns=COLUMNS, time="at")
        began = time.perf_counter()
        for number in range(count):
            query = session.query(cql(number, constant_of(number, count)), f"q{number}")
            query.on_batch(lambda table, _: delays.take(known(table)))
        registered_s = time.perf_counter() - began

        def push(stream: str, rows: pa.Table) -> None:
            clock = time.perf_counter()
            session.push(stream, rows)
            pushes.append(time.perf_counter() - clock)

        _produce(seconds / 2, seed, push)  # code is generated and compiled
        pushes.clear()
        since, meter = time.time(), Meter()
        sent, wanted = _produce(seconds, seed + 1, push)
        used = meter.usage().cpu_s
    shutil.rmtree(home, ignore_errors=True)
    return {
        "sent_rows": sent,
        "wanted_rows": wanted,
        "delay": delays.figures(since),
        "cpu_s": used,
        "push_ms": 1e3 * median(pushes),
        "registered_s": round(registered_s, 2),
    }


def known(rows: pa.Table) -> pa.ChunkedArray:
    """When all that a result needs was there, in seconds."""
    if "sent" in rows.column_names:
        return rows["sent"]
    return pc.divide(pc.cast(pc.cast(rows["ts"], pa.int64()), pa.float64()), 1e6)


def cql(number: int, constant: float) -> str:
    match number % 3:
        case 0:
            return f"SELECT k, v, sent FROM a WHERE v > {constant}D"
        case 1:
            return (
                "SELECT g, avg(v) AS mean FROM a [RANGE 2 SECONDS SLIDE 1 SECOND]"
                f" WHERE v > {constant}D GROUP BY g"
            )
        case _:
            return (
                "SELECT x.k, x.v, y.v AS w, greatest(x.sent, y.sent) AS sent FROM a AS x"
                " [RANGE 5 SECONDS] JOIN b AS y [RANGE 5 SECONDS] ON x.k = y.k"
                f" WHERE x.v > {constant}D"
            )


# -- plain ----------------------------------------------------------------------------------------


def _plain(count: int, seconds: float, seed: int) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="millstream-live-plain-"))
    spark, delays = spark_session(), Delays()
    for stream in STREAMS:
        (home / stream).mkdir()
    queries = [
        _started(spark, home, number, constant_of(number, count), delays) for number in range(count)
    ]
    written = 0

    def write(stream: str, rows: pa.Table) -> None:
        nonlocal written
        written += 1
        draft = home / f".{written}"
        pq.write_table(rows, draft)
        draft.rename(home / stream / f"{written:08d}.parquet")

    _produce(seconds / 2, seed, write)
    since, meter = time.time(), Meter()
    sent, wanted = _produce(seconds, seed + 1, write)
    used = meter.usage().cpu_s
    for query in queries:
        query.stop()
    shutil.rmtree(home, ignore_errors=True)
    return {
        "sent_rows": sent,
        "wanted_rows": wanted,
        "delay": delays.figures(since),
        "cpu_s": used,
    }


def _started(spark: SparkSession, home: Path, number: int, constant: float, delays: Delays) -> Any:
    def rows(stream: str) -> DataFrame:
        read = spark.readStream.schema(DDL).parquet(str(home / stream))
        return read.withWatermark("at", "0 seconds")

    match number % 3:
        case 0:
            result = rows("a").where(F.col("v") > constant).select("k", "v", "sent")
        case 1:
            window = F.window("at", "2 seconds", "1 second")
            grouped = rows("a").where(F.col("v") > constant).groupBy(window, "g")
            means = grouped.agg(F.avg("v").alias("mean"))
            result = means.selectExpr("g", "mean", "CAST(window.end AS DOUBLE) AS sent")
        case _:
            x, y = rows("a").alias("x"), rows("b").alias("y")
            near = "y.at BETWEEN x.at - INTERVAL 5 SECONDS AND x.at + INTERVAL 5 SECONDS"
            joined = x.where(F.col("v") > constant).join(y, F.expr(f"x.k = y.k AND {near}"))
            result = joined.selectExpr("x.k", "x.v", "y.v AS w", "greatest(x.sent, y.sent) AS sent")

    def take(batch: DataFrame, _: int) -> None:
        delays.take(batch.toArrow()["sent"])

    writer = result.writeStream.foreachBatch(take).outputMode("append")
    return writer.option("checkpointLocation", str(home / f"c{number}")).start()
