"""Where Spark runs, looked at before rows depend on it: are there executors, do they see the home.

On a cluster a job without executors waits for ever, and executors that write a folder of their own
lose rows without a word. A small job that reads and writes in the home tells both at once. In one
process there is nothing to ask.
"""

import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from millstream.core.errors import ResourceError
from millstream.spark.collecting import PARTS, readable, write_parquet
from millstream.spark.connect.sessions import is_connect, parallelism
from millstream.store.machine_failures import first_line

EXECUTORS_WAIT_S = 120.0
CUT_S = 1.0  # between attempts to end what takes too long
GROUP = "millstream-surroundings"
OF_A_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


def in_one_process(spark: SparkSession) -> bool:
    """Whether driver and executors are the same process."""
    if is_connect(spark):
        return False  # a server's own process, on whatever machine
    java: Any = spark.sparkContext._jsc
    return bool(java.sc().isLocal())


def tasks_at_once(spark: SparkSession) -> int:
    if is_connect(spark):
        return parallelism(spark)
    return int(spark.sparkContext.defaultParallelism)


def address(spark: SparkSession) -> str:
    return "Spark Connect" if is_connect(spark) else str(spark.sparkContext.master)


def require_reach(spark: SparkSession, folder: Path) -> None:
    """Refuses a cluster that gives no executor, or whose executors do not see a folder."""
    if in_one_process(spark):
        return
    probe = folder / f"{uuid.uuid4().hex}.probe"
    tasks = max(2, tasks_at_once(spark))
    probe.mkdir(parents=True)
    try:
        (probe / "from_driver.txt").write_text("millstream\n" * tasks)
        with _cut_off(spark) as late:
            try:
                # each task reads a part of what the driver wrote, and writes for the driver to read
                lines = spark.read.text(readable(probe / "from_driver.txt"))
                found = write_parquet(lines.repartition(tasks), probe / "from_executors")
                seen = spark.read.parquet(readable(probe / "from_executors")).count()
            except Exception as error:
                if late.is_set():
                    raise _no_executors(spark) from None
                raise _unseen(folder, first_line(error)) from None
        if seen != tasks or not found:
            raise _unseen(folder, f"of {tasks} rows that they wrote there are {seen}")
    finally:
        shutil.rmtree(probe, ignore_errors=True)


@contextmanager
def all_written(data: DataFrame, folder: str) -> Iterator[DataFrame]:
    """In the block, the frame that it gives is written to a folder; all rows have arrived there."""
    observed = Observation()
    yield data.observe(observed, F.count(F.lit(1)).alias("rows"))
    sent = observed.get["rows"]
    found = sum(pq.read_metadata(part).num_rows for part in Path(folder).glob(PARTS))
    if found != sent:
        raise _unseen(Path(folder).parent, f"of {sent} rows that they wrote there are {found}")


def _unseen(folder: Path, detail: str) -> ResourceError:
    return ResourceError(
        f"executors of Spark do not see the folder {folder}",
        detail=detail,
        hint="put the run or the home on storage that driver and executors have under the same "
        "name, with local_disk = false on a network file system",
    )


def _no_executors(spark: SparkSession) -> ResourceError:
    return ResourceError(
        f"{address(spark)} gave no executor within {EXECUTORS_WAIT_S:g} s",
        detail="it is full, its workers have less memory or fewer cores than an executor asks for, "
        "or executors cannot reach the driver",
        hint="free the cluster, ask for less (spark.executor.memory, spark.executor.cores, "
        "spark.cores.max), or set spark.driver.host to an address that executors reach",
    )


@contextmanager
def _cut_off(spark: SparkSession) -> Iterator[threading.Event]:
    """Jobs of the block end after a while; the event says whether they were ended."""
    late, over = threading.Event(), threading.Event()
    group = f"{GROUP}-{uuid.uuid4().hex}"
    with _named(spark, group) as cancel:

        def end() -> None:
            wait_s = EXECUTORS_WAIT_S
            while not over.wait(wait_s):  # again: what was not begun yet cannot be ended
                late.set()
                cancel(group)
                wait_s = CUT_S

        threading.Thread(target=end, name="millstream-surroundings", daemon=True).start()
        try:
            yield late
        finally:
            over.set()


@contextmanager
def _named(spark: Any, group: str) -> Iterator[Callable[[str], Any]]:
    """In the block, this thread's jobs have a name; gives what ends them by it."""
    if is_connect(spark):
        spark.addTag(group)
        try:
            yield spark.interruptTag
        finally:
            spark.removeTag(group)
        return
    context: Any = spark.sparkContext
    before = {key: context.getLocalProperty(key) for key in OF_A_GROUP}
    context.setJobGroup(group, "what Millstream's surroundings are", True)
    try:
        yield context.cancelJobGroup
    finally:
        for key, value in before.items():
            context.setLocalProperty(key, value)
