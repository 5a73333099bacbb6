"""Where a Parquet file has the declared columns: by name, with the file's own types.

Only footers are read. Columns that are not declared may be of any type, Spark never sees them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    DataType,
    DecimalType,
    LongType,
    StructField,
    StructType,
    TimestampType,
    _parse_datatype_string,
)

from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.catalog import StreamDefinition, lookup
from millstream.language.plan.sql_text import quoted
from millstream.spark.frames import spelling
from millstream.spark.ingest.declared_columns import Value
from millstream.spark.versions import spark_type

PROBED_MAX = 20  # files that are looked into when a stream is declared
UNSIGNED = {"uint8": "smallint", "uint16": "int", "uint32": "bigint"}  # as Spark reads them


class UnreadableError(Exception):
    """A file that cannot be read, with the reason."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """How to read a file: the columns to ask Spark for, and each declared column from them."""

    schema: StructType
    values: tuple[Value, ...]


def columns_of(path: Path, definition: StreamDefinition) -> FileColumns:
    """Reads a footer; UnreadableError where the file is no Parquet or has unsuitable columns."""
    try:
        parquet = pq.read_metadata(path).schema
        arrow = parquet.to_arrow_schema()
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(str(error).strip().split("\n")[0][:300]) from None
    old_times = {
        parquet.column(i).path
        for i in range(len(parquet.names))
        if parquet.column(i).physical_type == "INT96"
    }
    fields: dict[str, StructField] = {}
    values = []
    for declared in definition.columns:
        found = lookup(declared.name, arrow.names)
        if len(found) > 1:
            raise UnreadableError(f"it has more than one column {declared.name}")
        if not found:
            values.append(Value(f"CAST(NULL AS {declared.type})", declared.type))
            continue
        column = arrow.field(found[0])
        type_, text = _spark_type(column, column.name in old_times)
        fields[column.name] = StructField(column.name, type_)
        values.append(Value(text, "timestamp" if text != quoted(column.name) else spelling(type_)))
    return FileColumns(StructType(list(fields.values())), tuple(values))


def _spark_type(column: pa.Field, old_time: bool) -> tuple[DataType, str]:
    """The type to read a column with, and SQL of its value."""
    type_, name = column.type, quoted(column.name)
    if pa.types.is_timestamp(type_) and type_.unit == "ns" and not old_time:
        return LongType(), f"timestamp_micros({name} DIV 1000L)"
    if old_time:
        return TimestampType(), name
    if pa.types.is_uint64(type_):
        return DecimalType(20, 0), name
    if str(type_) in UNSIGNED:
        return _parse_datatype_string(UNSIGNED[str(type_)]), name
    try:
        return spark_type(type_), name
    except PySparkException:
        raise UnreadableError(
            f"column {column.name} has type {type_}, which Spark cannot read"
        ) from None


def check_columns(files: Sequence[Path], definition: StreamDefinition) -> None:
    """UsageError where a declared column is in none of the first files that can be read."""
    missing: set[str] | None = None
    names: list[str] = []
    for path in files[:PROBED_MAX]:
        try:
            names = pq.read_schema(path).names
        except (pa.ArrowException, OSError):
            continue
        absent = {f.name for f in definition.columns if not lookup(f.name, names)}
        missing = absent if missing is None else missing & absent
    if missing:
        first = min(missing)
        raise UsageError(
            f"stream {definition.name}: the files have no column {first}"
            f"{did_you_mean(first, names)}",
            hint=f"they have {', '.join(names)}",
        )
