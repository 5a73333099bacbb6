"""A Spark session as the data plane of engines: the one place where its parts come together."""

import contextlib
import subprocess
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyspark.sql import SparkSession

from millstream.core.errors import MillstreamError
from millstream.engine.ports import SourceSetting
from millstream.language.cql.catalog import StreamDefinition
from millstream.spark.compiler import SparkCompiler
from millstream.spark.deadlines import Deadlines
from millstream.spark.evaluator import SparkEvaluator
from millstream.spark.failures import java_gone, java_process
from millstream.spark.ingest.parsers import Parsers
from millstream.spark.ingest.stream_source import StreamSource
from millstream.spark.prepared.hoppers import SmallSession
from millstream.spark.prepared.steps import PreparedSteps
from millstream.spark.reading import Schemas
from millstream.spark.surroundings import in_one_process, require_reach
from millstream.store.arrivals.appending import Appender
from millstream.store.segments import SegmentStore


class SparkPlane(Parsers):
    """`engine.ports.DataPlane` over one Spark session."""

    files = SegmentStore

    def __init__(
        self, spark: SparkSession, *, prepared: bool = True, foreign: bool = False
    ) -> None:
        self.spark = spark
        self._small = SmallSession(spark)
        self.machine = SparkMachine(spark, foreign=foreign)
        self.compiler = SparkCompiler(spark, self._small.forget, self.machine.process())
        self._schemas = Schemas()
        self._prepared = prepared  # whether small steps run from plans that were made once

    def evaluator(self, files: SegmentStore) -> SparkEvaluator:
        require_reach(self.spark, files.folder)
        steps = PreparedSteps(self._small, files, self._schemas) if self._prepared else None
        return SparkEvaluator(
            self.spark,
            files,
            self._schemas,
            steps,
            deadlines=self.machine.deadlines,
            counted=not in_one_process(self.spark),
        )

    def open_stream(
        self, definition: StreamDefinition, appender: Appender, setting: SourceSetting
    ) -> StreamSource:
        return StreamSource(definition, appender, self.spark, setting)


class SparkMachine:
    """`engine.ports.Machine`: the Java process of a session."""

    def __init__(self, spark: SparkSession, *, foreign: bool = False) -> None:
        self._spark, self._foreign = spark, foreign
        self.deadlines = Deadlines(spark.sparkContext, self.process())

    def cores(self) -> int:
        return int(self._spark.sparkContext.defaultParallelism)

    def address(self) -> str:
        return str(self._spark.sparkContext.master)

    def memory(self) -> tuple[int | None, int | None]:
        """Heap in use and its limit."""
        with contextlib.suppress(Exception):  # Spark may be ending
            java: Any = self._spark.sparkContext._jvm
            runtime = java.java.lang.Runtime.getRuntime()
            return int(runtime.totalMemory() - runtime.freeMemory()), int(runtime.maxMemory())
        return None, None

    def process(self) -> "subprocess.Popen[bytes] | None":
        """None where it is not ours: whoever has it may end it."""
        return None if self._foreign else java_process(self._spark)

    def gone(self) -> MillstreamError | None:
        return java_gone(self._spark)

    def within(self, seconds_max: float, *, by_task: bool) -> AbstractContextManager[None]:
        if self._foreign:  # a group of jobs would stay with the user's own thread
            return nullcontext()
        return self.deadlines.within(seconds_max, by_task=by_task)
