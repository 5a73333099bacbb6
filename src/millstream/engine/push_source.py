"""Rows pushed from Python or posted over HTTP: each call is one batch and one commit.

Spark parses and converts as it does for files, so that a malformed row is rejected with a reason
and never takes its neighbours with it. A producer numbers its batches: one that was committed is
acknowledged and passed over, a gap is refused, and the answer comes after the commit. So a producer
that repeats what was not answered loses nothing and doubles nothing.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from millstream.cql.catalog import StreamDefinition
from millstream.errors import StateError, UsageError
from millstream.plan.sql_text import quoted
from millstream.spark.collecting import collected
from millstream.spark.declared_columns import CORRUPT, with_time
from millstream.store.appending import FILE, REASON, RECORD, ROW, Appended, Appender
from millstream.store.malformed import json_reason

NAME_MAX = 200  # characters of a producer's name
ROWS_MAX = 500_000  # of a batch
REPEATED = Appended(0, 0, 0, 0.0, repeated=True)
Row = Mapping[str, Any]


class GapError(UsageError):
    """A batch whose number does not follow the producer's last one."""

    def __init__(self, producer: str, number: int, expected: int) -> None:
        super().__init__(
            f"producer {producer} sent batch {number} where {expected} follows",
            hint=f"send batch {expected} first",
        )
        self.expected = expected


class PushSource:
    """The door of one stream for rows from outside."""

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        spark: SparkSession,
        pushed: Callable[[str], None] | None = None,
    ) -> None:
        self.definition, self.appender = definition, appender
        self.failure: BaseException | None = None
        self._spark = spark
        self._pushed = pushed  # told after each commit
        fields = [StructField(f.name, _parse_datatype_string(f.type)) for f in definition.columns]
        self._wanted = StructType([*fields, StructField(CORRUPT, StringType())])

    def push(self, producer: str, number: int, rows: Sequence[Row]) -> Appended:
        """Appends a batch of mappings by column; returns after the commit.

        In the answer, rows are counted from 0 within the batch.
        """
        _check(producer, number, rows)
        with self.appender.lock:
            expected = self.expected(producer)
            if number < expected:
                return REPEATED
            if number > expected:
                raise GapError(producer, number, expected)
            if self.ended:
                raise StateError(f"stream {self.definition.name} has ended")
            table = self._parsed(rows, producer)
            appended = self.appender.append(table, {}, {self._key(producer): {"number": number}})
        self._tell()
        return appended

    def expected(self, producer: str) -> int:
        """The number of the batch that a producer should send next; the first is 1."""
        position = self.appender.ledger.ingest_position(self._key(producer))
        return int(position.get("number", 0)) + 1

    def finish(self) -> None:
        """No more rows will come."""
        self.appender.finish()
        self._tell()

    def _key(self, producer: str) -> str:
        return f"{self.appender.stream}@{producer}"

    def _tell(self) -> None:
        if self._pushed is not None:
            self._pushed(self.definition.name)

    # -- as a source of the loop ----------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return bool(self.appender.ledger.ingest_position(self.appender.stream).get("ended"))

    def start(self) -> None:
        """Rows come by themselves."""

    def stop(self) -> None:
        """Nothing runs in between."""

    def silent_since(self) -> float:
        return self.appender.arrived

    # -- parsing --------------------------------------------------------------------------------

    def _collected(self, rows: Sequence[Row]) -> pa.Table:
        """Parsed by Spark, in halves where it is too much at once."""
        table = collected(self._frame(rows))
        if table is not None:
            return table
        if len(rows) == 1:
            raise UsageError(
                f"a row pushed to stream {self.definition.name} is larger than the driver can take",
                hint="give it more memory: spark.driver.memory",
            )
        half = len(rows) // 2
        return pa.concat_tables([self._collected(rows[:half]), self._collected(rows[half:])])

    def _parsed(self, rows: Sequence[Row], producer: str) -> pa.Table:
        """The rows as an appender takes them."""
        columns, count = self.definition.columns, len(rows)
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
            lines = self._spark.createDataFrame(pa.table({"line": texts})).coalesce(1)
        else:
            lines = self._spark.createDataFrame([], "line STRING")
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        parsed = lines.select(F.from_json("line", self._wanted, options).alias("r"))
        names = [f"r.{quoted(f.name)} AS {quoted(f.name)}" for f in self.definition.columns]
        data = parsed.selectExpr(*names, f"r.{CORRUPT} AS {CORRUPT}")
        return with_time(data, self.definition, [f"{CORRUPT} AS _corrupt"])


def _check(producer: str, number: int, rows: Sequence[Row]) -> None:
    if not isinstance(producer, str) or not 0 < len(producer) <= NAME_MAX:
        raise UsageError(
            "a batch needs the name of its producer",
            hint=f"a text of at most {NAME_MAX} characters",
        )
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise UsageError(
            f"the number {number!r} of a batch is not a whole number from 1 on",
            hint="a producer counts its batches: 1, 2, 3, ...",
        )
    if len(rows) > ROWS_MAX:
        raise UsageError(
            f"a batch of {len(rows)} rows is too large", hint=f"at most {ROWS_MAX} rows at a time"
        )
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UsageError(f"row {index} is not an object with a value for each column")


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
