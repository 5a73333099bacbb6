"""Columns of Parquet files from their footers, as Spark names the types.

Reads no rows. The first file that can be read decides; rows of others that do not fit are rejected
when they are read.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException

from millstream.errors import UsageError
from millstream.plan.schema import Field

# Spark reads unsigned integers as the next wider signed ones.
UNSIGNED = {
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
}


def parquet_columns(files: Sequence[Path]) -> tuple[Field, ...]:
    """The columns of the first readable file."""
    problem = "there is no file"
    for path in files:
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            problem = f"{path.name} cannot be read: {str(error).splitlines()[0]}"
            continue
        return tuple(Field(f.name, _spark_type(path, f)) for f in schema)
    raise UsageError(f"columns cannot be taken from a Parquet footer: {problem}")


def _spark_type(path: Path, field: pa.Field) -> str:
    from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415

    if field.type in UNSIGNED:
        return UNSIGNED[field.type]
    if pa.types.is_dictionary(field.type):
        return _spark_type(path, pa.field(field.name, field.type.value_type))
    try:
        return str(from_arrow_type(field.type, prefer_timestamp_ntz=True).simpleString())
    except PySparkException:
        raise UsageError(
            f"column {field.name} of {path.name} has type {field.type}, which Spark cannot read",
            hint="declare the columns that are wanted",
        ) from None
