"""The data plane over a session of Spark Connect.

Steps are planned at the server, rows come and go as Arrow, segments are files that both see. What
needs the driver itself is left out: plans that are made once and run again, and sources of
Structured Streaming, whose batches would have to be handed to this process.
"""

import subprocess
from contextlib import AbstractContextManager, nullcontext

from pyspark.sql import SparkSession

from millstream.core.errors import MillstreamError, UsageError
from millstream.engine.ports import LiveSource, SourceSetting
from millstream.language.cql.catalog import StreamDefinition
from millstream.spark.compiler import SparkCompiler
from millstream.spark.connect.sessions import parallelism
from millstream.spark.evaluator import SparkEvaluator
from millstream.spark.ingest.parsers import Parsers
from millstream.spark.reading import Schemas
from millstream.spark.surroundings import address, require_reach
from millstream.store.arrivals.appending import Appender
from millstream.store.segments import SegmentStore


class ConnectPlane(Parsers):
    """`engine.ports.DataPlane` over one session of Connect."""

    files = SegmentStore

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.compiler = SparkCompiler(spark)
        self.machine = ConnectMachine(spark)
        self._schemas = Schemas()

    def evaluator(self, files: SegmentStore) -> SparkEvaluator:
        require_reach(self.spark, files.folder)
        return SparkEvaluator(self.spark, files, self._schemas, counted=True)

    def open_stream(
        self, definition: StreamDefinition, appender: Appender, setting: SourceSetting
    ) -> LiveSource:
        raise UsageError(
            f"stream {definition.name}: sources of Structured Streaming do not work through "
            "Spark Connect",
            detail="their batches come to Spark's driver, which is at the server",
            hint="read files, take rows over HTTP or from a broker (source = kafka, mqtt, nats), "
            "or start a processor beside the server: millstream processor --spark MASTER",
        )


class ConnectMachine:
    """`engine.ports.Machine`: a server of which nothing is seen but that it answers."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._cores = 0

    def cores(self) -> int:
        self._cores = self._cores or parallelism(self._spark)
        return self._cores

    def address(self) -> str:
        return address(self._spark)

    def memory(self) -> tuple[int | None, int | None]:
        return None, None

    def process(self) -> "subprocess.Popen[bytes] | None":
        return None

    def gone(self) -> MillstreamError | None:
        return None

    def within(self, seconds_max: float, *, by_task: bool) -> AbstractContextManager[None]:
        del seconds_max, by_task  # the server has limits of its own
        return nullcontext()
