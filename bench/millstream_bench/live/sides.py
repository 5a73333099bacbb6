"""Two sides of the benchmark of live rows: one trial of ours, one of plain Structured Streaming.

Ours takes pushes in this process. Plain Structured Streaming runs one query each over files that
appear at the same rate, with no wait between two of its batches (its best trigger for delay).
"""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import millstream
from millstream.spark.session import session as spark_session
from millstream_bench.live.comparison import Database
from millstream_bench.live.workload import (
    COLUMNS,
    STREAMS,
    Delays,
    Producer,
    constant_of,
    cql,
    duckdb_sql,
    known,
)
from millstream_bench.throughput.resources import Meter

DDL = "at TIMESTAMP, k INT, g INT, v DOUBLE, sent DOUBLE"
COMPARED_MAX = 9  # queries whose rows are compared with DuckDB's
SENT_PART = 0.98  # of the rows that the rate asks for: less is not keeping up
LATER_TIMES, LATER_S = 1.5, 0.5  # by which the last third's delay may exceed the first third's


@dataclass(frozen=True, slots=True)
class Load:
    """What one trial runs."""

    queries: int
    rate: int  # rows a second in each stream
    warm_s: float  # code is generated and compiled
    seconds: float
    seed: int

    def compared(self) -> range:
        """Queries of every kind: kinds take turns by three."""
        step = max(1, -(-self.queries // COMPARED_MAX))
        return range(0, self.queries, step + (step % 3 == 0))


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it."""

    sent_rows: int
    wanted_rows: int
    delay: dict[str, Any]
    first_p95_s: float | None  # of results that came in the first third of the time
    last_p95_s: float | None
    cpu_s: float
    push_ms: float
    compared_rows: int
    different_rows: int

    @property
    def kept_up(self) -> bool:
        """Whether all rows went out on time and no queue grew."""
        if self.first_p95_s is None or self.last_p95_s is None:
            return False
        flat = self.last_p95_s <= LATER_TIMES * self.first_p95_s + LATER_S
        return flat and self.sent_rows >= SENT_PART * self.wanted_rows

    @property
    def cpu_s_a_million(self) -> float:
        return self.cpu_s / max(1, self.sent_rows) * 1e6


@dataclass(slots=True)
class Results:
    """Rows of the compared queries, and the delays of all."""

    delays: Delays = field(default_factory=Delays)
    tables: dict[int, list[pa.Table]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, number: int, *, keep: bool) -> Callable[[pa.Table, int], None]:
        def take(table: pa.Table, _: int) -> None:
            self.delays.take(known(table))
            if keep:
                with self.lock:
                    self.tables.setdefault(number, []).append(table)

        return take

    def compared(
        self, load: Load, producer: Producer, *, partial: Callable[[int], bool]
    ) -> tuple[int, int]:
        """Rows that were compared and rows that differ."""
        database = Database({s: producer.rows(s) for s in STREAMS})
        rows = different = 0
        for number in load.compared():
            got = self.tables.get(number, [])
            rows += sum(t.num_rows for t in got)
            sql = duckdb_sql(number, constant_of(number, load.queries), 0)
            different += database.differences(got, sql, whole=not partial(number))
        return rows, different


def timed(load: Load, producer: Producer) -> tuple[float, float, float, int]:
    """Lets a producer send: when measuring began and ended, CPU seconds, rows sent meanwhile."""
    with producer:
        time.sleep(load.warm_s)
        producer.pushes.clear()
        since, meter, before = time.time(), Meter(), producer.rows_sent()
        time.sleep(load.seconds)
        until, used, sent = time.time(), meter.usage().cpu_s, producer.rows_sent() - before
    if producer.failure is not None:
        raise producer.failure
    return since, until, used, sent


def trial(
    load: Load, producer: Producer, results: Results, told: tuple[float, float, float, int],
    compared: tuple[int, int],
) -> Trial:  # fmt: skip
    since, until, used, sent = told
    third = (until - since) / 3
    delays = results.delays
    return Trial(
        sent_rows=sent,
        wanted_rows=int(load.rate * (until - since)) * len(STREAMS),
        delay=delays.figures(since, until),
        first_p95_s=delays.figures(since, since + third)["p95_s"],
        last_p95_s=delays.figures(until - third, until)["p95_s"],
        cpu_s=used,
        push_ms=1e3 * median(producer.pushes or [0.0]),
        compared_rows=compared[0],
        different_rows=compared[1],
    )


# -- ours -----------------------------------------------------------------------------------------


@contextmanager
def opened(streams: Sequence[str] = STREAMS) -> Iterator[millstream.Session]:
    """A session with the two streams, or with others of the same columns."""
    home = Path(tempfile.mkdtemp(prefix="millstream-live-"))
    try:
        with millstream.Session(home) as session:
            for stream in streams:
                session.stream(stream, columns=COLUMNS, time="at")
            yield session
    finally:
        shutil.rmtree(home, ignore_errors=True)


def ours(load: Load) -> Trial:
    results = Results()
    with opened() as session:
        for number in range(load.queries):
            text = cql(number, constant_of(number, load.queries))
            take = results.follow(number, keep=number in load.compared())
            session.query(text, f"q{number}").on_batch(take)
        producer = Producer(session.push, STREAMS, load.rate, load.seed)
        told = timed(load, producer)
        for stream in STREAMS:
            session.finish(stream)
        session.wait()
        compared = results.compared(load, producer, partial=lambda _: False)
    return trial(load, producer, results, told, compared)


# -- plain ----------------------------------------------------------------------------------------


def plain(load: Load) -> Trial:
    home = Path(tempfile.mkdtemp(prefix="millstream-live-plain-"))
    spark, results, written = spark_session(), Results(), [0]
    for stream in STREAMS:
        (home / stream).mkdir()

    def write(stream: str, rows: pa.Table) -> None:
        written[0] += 1
        draft = home / f".{written[0]}"
        pq.write_table(rows, draft)
        draft.rename(home / stream / f"{written[0]:08d}.parquet")

    queries: Sequence[Any] = ()
    try:
        queries = [_started(spark, home, number, load, results) for number in range(load.queries)]
        producer = Producer(write, STREAMS, load.rate, load.seed)
        told = timed(load, producer)
        for query in queries:
            query.processAllAvailable()
        # the last windows stay open: no later row passes them
        compared = results.compared(load, producer, partial=lambda n: n % 3 == 1)
    finally:
        for query in queries:
            query.stop()
        shutil.rmtree(home, ignore_errors=True)
    return trial(load, producer, results, told, compared)


def _started(spark: SparkSession, home: Path, number: int, load: Load, results: Results) -> Any:
    constant = constant_of(number, load.queries)

    def rows(stream: str) -> DataFrame:
        read = spark.readStream.schema(DDL).parquet(str(home / stream))
        return read.withWatermark("at", "0 seconds")

    match number % 3:
        case 0:
            result = rows("a").where(F.col("v") > constant).selectExpr("k", "v", "sent", "at AS ts")
        case 1:
            window = F.window("at", "2 seconds", "1 second")
            grouped = rows("a").where(F.col("v") > constant).groupBy(window, "g")
            means = grouped.agg(F.avg("v").alias("mean"))
            result = means.selectExpr("g", "mean", "window.end AS ts")
        case _:
            x, y = rows("a").alias("x"), rows("b").alias("y")
            near = "y.at BETWEEN x.at - INTERVAL 5 SECONDS AND x.at + INTERVAL 5 SECONDS"
            joined = x.where(F.col("v") > constant).join(y, F.expr(f"x.k = y.k AND {near}"))
            result = joined.selectExpr(
                "x.k", "x.v", "y.v AS w", "greatest(x.sent, y.sent) AS sent",
                "greatest(x.at, y.at) AS ts",
            )  # fmt: skip
    take = results.follow(number, keep=number in load.compared())
    writer = result.writeStream.foreachBatch(lambda rows, batch: take(rows.toArrow(), batch))
    writer = writer.outputMode("append")
    return writer.option("checkpointLocation", str(home / f"c{number}")).start()
