"""Leaves of a prepared plan: rows that can be exchanged without planning again.

A hopper is a buffer in Spark's process that holds one batch of Arrow. Spark sends its bytes with
each task, so that a plan over it gives, whenever it runs, the result over what lies there then.
That holds only for plans without an exchange: Spark keeps what has gone through one.
"""

import os
import tempfile
import weakref
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from millstream.spark.versions import arrow_schema

CAPACITY_MIN = 1 << 16
THROUGH_GATEWAY_MAX = 1 << 16  # bytes: more of them go through a file, the gateway's text is slow
# one task, nothing exchanged, and rows always as an RDD: what the optimiser believes to be constant
# it would compute once
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.maxSinglePartitionBytes": str(2**63 - 1),
    "spark.sql.defaultSizeInBytes": "1000",  # of rows that Spark knows nothing of
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.adaptive.enabled": "false",
    # what Spark infers for filters grows with each column that is made of another
    "spark.sql.constraintPropagation.enabled": "false",
}


class SmallSession:
    """A session beside the user's own, with the same functions, set for plans of one task."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.generation = 0  # plans of another one know other functions
        self._java: Any = None

    def forget(self) -> None:
        """Functions have changed."""
        self.generation += 1
        self._java = None

    @property
    def java(self) -> Any:
        if self._java is None:
            own: Any = self.spark._jsparkSession
            clone = own.cloneSession()
            for key, value in SETTINGS.items():
                clone.conf().set(key, value)
            self._java = clone
        return self._java


class HopperFullError(Exception):
    """More rows than the hopper has room for."""


class Hopper:
    """One leaf: a frame, and a way to change its rows."""

    def __init__(self, session: SmallSession, schema: StructType, capacity: int) -> None:
        self.schema = arrow_schema(schema)
        self.capacity = capacity
        context: Any = session.spark.sparkContext
        jvm, gateway = context._jvm, context._gateway
        # The gateway hands bytes over by value. Only an array of arrays is known by reference, and
        # reflection alone reaches the inner one without its passing through here.
        outer = gateway.new_array(jvm.byte, 1, capacity)
        inner = gateway.new_array(jvm.java.lang.Object, 1)
        jvm.java.lang.System.arraycopy(outer, 0, inner, 0, 1)
        kinds = gateway.new_array(jvm.java.lang.Class, 1)
        kinds[0] = jvm.java.lang.Class.forName("[B")
        wrap = jvm.java.lang.Class.forName("java.nio.ByteBuffer").getMethod("wrap", kinds)
        self._buffer = wrap.invoke(None, inner)
        batches = jvm.java.util.Arrays.asList(inner).iterator()
        batches = jvm.scala.jdk.javaapi.CollectionConverters.asScala(batches)
        rows = jvm.PythonSQLUtils.toDataFrame(batches, schema.json(), session.java)
        self.frame = DataFrame(rows, session.spark).coalesce(1)
        self._jvm = jvm
        self._file = -1
        self._channel: Any = None

    def fill(self, batch: bytes) -> None:
        """From now on the frame has these rows; at most `capacity` bytes."""
        if len(batch) > self.capacity:
            raise HopperFullError
        self._buffer.clear()
        if len(batch) <= THROUGH_GATEWAY_MAX:
            self._buffer.put(batch)
            return
        if self._channel is None:
            self._file = self._shared_file()
        os.pwrite(self._file, batch, 0)
        self._buffer.limit(len(batch))
        if self._channel.read(self._buffer, 0) < len(batch):
            raise ValueError("the hopper's file was read in part")

    def _shared_file(self) -> int:
        """A file without a name that both processes have open while there is the hopper."""
        file, path = tempfile.mkstemp(prefix="millstream-hopper-")
        weakref.finalize(self, os.close, file)
        self._channel = self._jvm.java.io.RandomAccessFile(path, "r").getChannel()
        os.unlink(path)
        return file


def batch_of(table: pa.Table) -> bytes:
    """A table as one batch, as a hopper takes it."""
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    return bytes(batch.serialize())
