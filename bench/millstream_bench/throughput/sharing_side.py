"""One side of the sharing benchmark, in a process of its own: plain Spark or Millstream.

Started by `bench.sharing` with a task as JSON on standard input; prints one line of JSON for each
measurement. A process of its own shows CPU seconds and peak memory of one side alone.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane
from millstream.spark.session import session
from millstream.store.delivery import FileSink
from millstream_bench.throughput.mix import Ask, batch, definition, mix, plain
from millstream_bench.throughput.resources import Meter

FILES_A_TRIGGER = 2


def plain_streaming(
    spark: SparkSession, asks: list[Ask], data: Path, out: Path, *, best: bool
) -> None:
    """A streaming query each, all at once, fair; until each has processed all files."""
    running = []
    for ask in asks:
        # each query in a pool of its own, as Spark's documentation advises for fairness
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", ask.name)
        frame = plain(ask, spark, data, None if best else FILES_A_TRIGGER)
        writer = (
            frame.writeStream.format("parquet")
            .outputMode("append")
            .option("path", str(out / ask.name))
            .option("checkpointLocation", str(out / "checkpoints" / ask.name))
        )
        running.append((writer.trigger(availableNow=True) if best else writer).start())
    for query in running:
        if best:
            query.awaitTermination()
        else:
            query.processAllAvailable()
            query.stop()
        failure = query.exception()
        if failure is not None:
            raise failure


def by_hand(spark: SparkSession, asks: list[Ask], data: Path, out: Path) -> None:
    """One `foreachBatch` job over everything, its input cached, each query written in turn."""
    ddl = "at TIMESTAMP, k INT, g INT, v DOUBLE"

    def work(rows: DataFrame, _: int) -> None:
        a = rows.persist()
        b = spark.read.schema(ddl).parquet(str(data / "b")).persist()
        for ask in asks:
            batch(ask, a, b).write.mode("overwrite").parquet(str(out / ask.name))
        a.unpersist()
        b.unpersist()

    stream = spark.readStream.schema(ddl).parquet(str(data / "a"))
    query = (
        stream.writeStream.foreachBatch(work)
        .trigger(availableNow=True)
        .option("checkpointLocation", str(out / "checkpoint"))
        .start()
    )
    query.awaitTermination()


def ours(spark: SparkSession, asks: list[Ask], data: Path, out: Path) -> None:
    """Millstream with its default settings."""
    engine = Engine(out / "home", SparkPlane(spark), EngineSettings())
    try:
        for name in sorted({s for ask in asks for s in streams_of(ask)}):
            engine.add_stream(definition(name, data / name))
        for ask in asks:
            engine.add_query(ask.name, ask.cql())
            engine.deliver(ask.name, FileSink(out / ask.name, "parquet"))
        Loop(engine).run()
    finally:
        engine.close()


def streams_of(ask: Ask) -> tuple[str, ...]:
    return (ask.a, ask.b) if ask.kind == "join" else (ask.a,)


SIDES: dict[str, Callable[[SparkSession, list[Ask], Path, Path], None]] = {
    "plain": lambda *args: plain_streaming(*args, best=False),
    "plain_best": lambda *args: plain_streaming(*args, best=True),
    "by_hand": by_hand,
    "ours": ours,
}


def main() -> None:
    task: dict[str, Any] = json.load(sys.stdin)
    out = Path(task["out"])
    run = SIDES[task["side"]]
    spark = session(log=out.parent / f"{out.name}.spark.log")
    spark.conf.set("spark.sql.streaming.stopTimeout", "60000")
    warm = Path(task["warm"])
    for number in range(task["warm_ups"]):
        run(spark, mix(task["warm_queries"]), warm, out / f"warm-{number}")
        shutil.rmtree(out / f"warm-{number}")
    for queries in task["queries"]:
        target = out / str(queries)
        meter = Meter()
        clock = time.perf_counter()
        run(spark, mix(queries, overlap=task["overlap"]), Path(task["data"]), target)
        seconds = time.perf_counter() - clock
        usage = meter.usage()
        told = {"queries": queries, "seconds": seconds, "cpu_s": usage.cpu_s}
        print(json.dumps(told | {"peak_mb": usage.peak_mb}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
