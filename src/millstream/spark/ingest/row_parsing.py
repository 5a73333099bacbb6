"""Rows pushed from outside as Spark reads them: by way of JSON, as it would read a file's.

A row that does not fit its declaration is marked with a reason and never takes its neighbours with
it.
"""

import base64
import json
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from millstream.core.errors import UsageError
from millstream.language.cql.catalog import StreamDefinition
from millstream.spark.collecting import collected
from millstream.spark.ingest.declared_columns import (
    CORRUPT,
    LOST,
    converted,
    event_time,
    values_of,
    with_time,
)
from millstream.spark.ingest.text_times import as_written
from millstream.spark.session import frame_of
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW, Row
from millstream.store.arrivals.malformed import json_reason

LINE = "__millstream_line"  # a name that no user's column has


class SparkRowParser:
    """Parses the rows of one stream; `table` is an `engine.ports.RowParser`."""

    def __init__(self, definition: StreamDefinition, spark: SparkSession) -> None:
        self._definition, self._spark = definition, spark
        self._time = event_time(definition, spark)
        types = [as_written(_parse_datatype_string(f.type), "json", {}) for f in definition.columns]
        fields = [StructField(f.name, t) for f, t in zip(definition.columns, types, strict=True)]
        self._values = values_of(definition, types)
        self._wanted = StructType([*fields, StructField(CORRUPT, StringType())])

    def _collected(self, rows: Sequence[Row]) -> pa.Table:
        """Parsed by Spark, in halves where it is too much at once."""
        table = collected(self._frame(rows))
        if table is not None:
            return table
        if len(rows) == 1:
            raise UsageError(
                f"a row pushed to stream {self._definition.name} is larger than the driver "
                "can take",
                hint="give it more memory: spark.driver.memory",
            )
        half = len(rows) // 2
        return pa.concat_tables([self._collected(rows[:half]), self._collected(rows[half:])])

    def table(self, rows: Sequence[Row], producer: str) -> pa.Table:
        """The rows as an appender takes them."""
        columns, count = self._definition.columns, len(rows)
        names = [f"c{i}" for i in range(len(columns))]
        table = self._collected(rows)
        corrupt = table["_corrupt"].to_pylist()
        reasons = np.full(count, None, object)
        for index in (i for i, text in enumerate(corrupt) if text is not None):
            known = [v if v.is_valid else None for v in (table[n][index] for n in names)]
            reasons[index] = json_reason(corrupt[index], known, columns)
        extra = [
            pa.array(reasons, pa.string()),
            table["_corrupt"],
            pa.array([f"pushed by {producer}"] * count, pa.string()),
            pa.array(np.arange(count), pa.int64()),
        ]
        return pa.table(
            [*(table[n] for n in names), table["_ts"], *extra],
            [*names, "_ts", REASON, RECORD, FILE, ROW],
        )

    def _frame(self, rows: Sequence[Row]) -> DataFrame:
        """Rows by way of JSON text, which Spark parses as it would a file's."""
        if rows:
            texts = pa.array([_text(row) for row in rows], pa.string())
            # one partition keeps the order
            lines = frame_of(self._spark, pa.table({"line": texts})).coalesce(1)
        else:
            lines = frame_of(self._spark, [], "line STRING")
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        parsed = lines.select("line", F.from_json("line", self._wanted, options).alias("r"))
        data = parsed.selectExpr("line AS " + LINE, "r.*")
        made = converted(data, self._definition, self._values, LINE, CORRUPT)
        corrupt = f"coalesce({CORRUPT}, IF({LOST} IS NULL, NULL, {LINE})) AS _corrupt"
        return with_time(made, self._definition, self._time, [corrupt])


def _text(row: Row) -> str:
    return json.dumps(dict(row), default=_json_value, ensure_ascii=False)


def _json_value(value: Any) -> Any:
    """Values that JSON does not know, as Spark's parser reads them."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if hasattr(value, "item"):  # numpy's numbers
        return value.item()
    return str(value)
