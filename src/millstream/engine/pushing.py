"""Rows that a program hands over or posts over HTTP: each call is one batch and one commit.

Spark parses and converts as it does for files, so that a malformed row is rejected with a reason
and never takes its neighbours with it. A producer numbers its batches: one that was committed is
acknowledged and passed over, a gap is refused, and the answer comes after the commit. So a producer
that repeats what was not answered loses nothing and doubles nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from millstream.cql.catalog import StreamDefinition, lookup
from millstream.cql.suggestions import did_you_mean
from millstream.engine.appending import FILE, REASON, RECORD, ROW, Appended, Appender
from millstream.engine.declared import CORRUPT, LOST, Value, converted, with_time
from millstream.engine.malformed import json_reason
from millstream.errors import StateError, UsageError
from millstream.plan.sql_text import quoted

NAME_MAX = 200  # characters of a producer's name
REPEATED = Appended(0, 0, 0, 0.0, repeated=True)


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
        self._pushed = pushed  # told after each commit
        self.failure: BaseException | None = None
        self.spark = spark.newSession()
        # without ANSI a value that cannot be converted becomes null instead of ending the job
        self.spark.conf.set("spark.sql.ansi.enabled", "false")
        self._names = [f.name for f in definition.columns]

    def push(
        self, rows: Sequence[Any] | pa.Table, *, producer: str = "", number: int | None = None
    ) -> Appended:
        """Adds rows: mappings, sequences in order of columns, JSON texts, or an Arrow table.

        With a producer's running number, a batch counts once however often it is sent.
        """
        _check(producer, number)
        with self.appender.lock:
            position = self.appender.ledger.ingest_position(self.appender.stream)
            if number is not None and not self._follows(producer, number):
                return REPEATED
            if position.get("ended"):
                raise StateError(f"stream {self.definition.name} has ended")
            start = int(position.get("pos", 0))
            table = self._parsed(rows, start)
            numbers = {} if number is None else {self._key(producer): {"number": number}}
            appended = self.appender.append(table, {}, numbers)
        self._tell()
        return replace(appended, reasons=tuple((r - start, why) for r, why in appended.reasons))

    def expected(self, producer: str) -> int:
        """The number of the batch that a producer should send next; 1 for a new one."""
        position = self.appender.ledger.ingest_position(self._key(producer))
        return int(position.get("number", 0)) + 1

    def _follows(self, producer: str, number: int) -> bool:
        """Whether a batch is new; False where it was committed before, GapError after a gap."""
        known = self.appender.ledger.ingest_position(self._key(producer))
        if not known and number == 0:
            return True  # who counts from 0 may
        expected = self.expected(producer)
        if number > expected:
            raise GapError(producer, number, expected)
        return number == expected

    def _key(self, producer: str) -> str:
        return f"{self.appender.stream}@{producer}"

    def finish(self) -> None:
        """No more rows will come."""
        self.appender.finish()
        self._tell()

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

    def _parsed(self, rows: Sequence[Any] | pa.Table, start: int) -> pa.Table:
        if isinstance(rows, pa.Table):
            frame, count = self._from_table(rows), rows.num_rows
        else:
            texts = [self._text(row) for row in rows]
            frame, count = self._from_texts(texts), len(texts)
        if count == 0:
            return self._schema().empty_table()
        return self._shaped(frame.toArrow(), start)

    def _text(self, row: Any) -> str:
        if isinstance(row, str):
            return row
        if not isinstance(row, Mapping):
            if not isinstance(row, Sequence) or len(row) != len(self._names):
                return json.dumps(row, default=str)  # no object: rejected with its text
            row = dict(zip(self._names, row, strict=True))
        unknown = [key for key in row if not lookup(str(key), self._names)]
        if unknown:
            near = did_you_mean(str(unknown[0]), self._names)
            raise UsageError(
                f"stream {self.definition.name} has no column {unknown[0]}{near}",
                hint=f"columns: {', '.join(self._names)}",
            )
        spelt = {self._names[lookup(str(k), self._names)[0]]: v for k, v in row.items()}
        return json.dumps(spelt, default=_json_value, ensure_ascii=False)

    def _from_texts(self, texts: list[str]) -> DataFrame:
        columns = self.definition.columns
        fields = [StructField(f.name, _parse_datatype_string(f.type)) for f in columns]
        schema = StructType([*fields, StructField(CORRUPT, StringType())])
        lines = self.spark.createDataFrame(pa.table({"line": pa.array(texts, pa.string())}))
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        parsed = lines.select(F.from_json("line", schema, options).alias("r"), "line")
        texts_of = [f"r.{quoted(f.name)} AS {quoted(f.name)}" for f in columns]
        # text that is no object at all parses to a row of nulls
        corrupt = f"coalesce(r.{CORRUPT}, IF(r IS NULL OR NOT line LIKE '%{{%', line, NULL))"
        data = parsed.selectExpr(*texts_of, f"{corrupt} AS {CORRUPT}", "line")
        more = [f"{CORRUPT} AS _corrupt", "CAST(NULL AS STRING) AS _lost"]
        return with_time(data, self.definition, more)

    def _from_table(self, rows: pa.Table) -> DataFrame:
        values = []
        for field in self.definition.columns:
            found = lookup(field.name, rows.column_names)
            if not found:
                raise UsageError(
                    f"the rows have no column {field.name}"
                    f"{did_you_mean(field.name, rows.column_names)}",
                    hint=f"columns: {', '.join(self._names)}",
                )
            kind = from_arrow_type(rows.schema.field(found[0]).type).simpleString()
            values.append(Value(quoted(rows.column_names[found[0]]), kind))
        data = converted(self.spark.createDataFrame(rows), self.definition, values)
        more = ["CAST(NULL AS STRING) AS _corrupt", f"{LOST} AS _lost"]
        return with_time(data, self.definition, more)

    def _shaped(self, table: pa.Table, start: int) -> pa.Table:
        count, columns = table.num_rows, self.definition.columns
        reasons = np.full(count, None, object)
        corrupt, lost = table["_corrupt"].to_pylist(), table["_lost"].to_pylist()
        for row in range(count):
            if corrupt[row] is not None:
                values = [table[f"c{i}"][row] for i in range(len(columns))]
                known = [v if v.is_valid else None for v in values]
                reasons[row] = json_reason(corrupt[row], known, columns)
            elif lost[row] is not None:
                reasons[row] = lost[row]
        arrays = [table[f"c{i}"] for i in range(len(columns))]
        arrays += [table["_ts"], pa.array(reasons, pa.string()), table["_corrupt"]]
        arrays += [pa.array(["pushed"] * count, pa.string())]
        arrays += [pa.array(np.arange(start, start + count), pa.int64())]
        return pa.table(arrays, self._schema().names).cast(self._schema())

    def _schema(self) -> pa.Schema:
        fields = [
            pa.field(f"c{i}", to_arrow_type(_parse_datatype_string(f.type), timezone="UTC"))
            for i, f in enumerate(self.definition.columns)
        ]
        texts = [pa.field(name, pa.string()) for name in (REASON, RECORD, FILE)]
        return pa.schema([*fields, pa.field("_ts", pa.int64()), *texts, pa.field(ROW, pa.int64())])


def _check(producer: str, number: int | None) -> None:
    if number is None:
        return
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise UsageError(
            f"the number {number!r} of a batch is not a whole number",
            hint="a producer counts its batches: 1, 2, 3, ...",
        )
    if not isinstance(producer, str) or len(producer) > NAME_MAX:
        raise UsageError("a producer's name is a text", hint=f"of at most {NAME_MAX} characters")


def _json_value(value: Any) -> Any:
    """Values that JSON does not know, as Spark's parser reads them."""
    import base64  # noqa: PLC0415
    from datetime import date, datetime  # noqa: PLC0415

    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if hasattr(value, "item"):  # numpy's numbers
        return value.item()
    return str(value)
