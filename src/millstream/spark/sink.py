"""Results to any format that Spark can write in batches: at least once, with a batch id.

The id is the last sequence number of the batch. It stands in a column, and wherever an option of
the sink says `{batch}`, so that a sink that knows such ids makes delivery exactly once.
"""

from collections.abc import Mapping

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from millstream.core.errors import UsageError
from millstream.spark.session import frame_of
from millstream.store.delivery import Result
from millstream.store.machine_failures import first_line

BATCH = "{batch}"
MODES = ("append", "overwrite", "ignore")


class SparkSink:
    """Appends each batch with Spark's batch writer."""

    def __init__(
        self,
        spark: SparkSession,
        kind: str,
        options: Mapping[str, str] | None = None,
        *,
        batch_column: str | None = "batch",
        mode: str = "append",
    ) -> None:
        if mode not in MODES:
            raise UsageError(f"unknown mode {mode!r} of a sink", hint=f"one of {', '.join(MODES)}")
        self._spark, self._kind = spark, kind
        self._options = {str(k): str(v) for k, v in (options or {}).items()}
        self._batch_column, self._mode = batch_column, mode

    def recover(self, following: int) -> None:
        """What was written and not acknowledged is written again, under the same batch id."""

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        data = frame_of(self._spark, table)
        if self._batch_column is not None:
            data = data.withColumn(self._batch_column, F.lit(last))
        options = {k: v.replace(BATCH, str(last)) for k, v in self._options.items()}
        try:
            data.write.format(self._kind).mode(self._mode).options(**options).save()
        except (AnalysisException, Py4JJavaError) as error:
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            raise UsageError(
                f"query {result.query}: Spark has no sink of format {self._kind}",
                detail=first_line(error),
                hint="connectors that Spark does not bring are named in spark.jars.packages",
            ) from None
