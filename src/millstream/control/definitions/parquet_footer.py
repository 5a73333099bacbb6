"""Columns of Parquet files from their footers, as Spark names the types.

Reads no rows. The first file that can be read decides; rows of others that do not fit are rejected
when they are read.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.core.errors import UsageError
from millstream.language.plan.schema import Field

# Spark's names; it reads unsigned integers as the next wider signed ones.
NAMES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_uint8, "smallint"),
    (pa.types.is_uint16, "int"),
    (pa.types.is_uint32, "bigint"),
    (pa.types.is_uint64, "decimal(20,0)"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date32, "date"),
    (pa.types.is_time64, "time(6)"),
    (pa.types.is_duration, "interval day to second"),
    (pa.types.is_null, "void"),
)
LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def parquet_columns(files: Sequence[Path]) -> tuple[Field, ...]:
    """The columns of the first readable file."""
    problem = "there is no file"
    for path in files:
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            problem = f"{path.name} cannot be read: {str(error).splitlines()[0]}"
            continue
        return tuple(Field(f.name, _column_type(path, f)) for f in schema)
    raise UsageError(f"columns cannot be taken from a Parquet footer: {problem}")


def _column_type(path: Path, field: Any) -> str:
    name = spark_name(field.type)
    if name is None:
        raise UsageError(
            f"column {field.name} of {path.name} has type {field.type}, which Spark cannot read",
            hint="declare the columns that are wanted",
        )
    return name


def spark_name(kind: pa.DataType) -> str | None:
    """What Spark calls a type of Arrow's; None where it has none like it.

    >>> spark_name(pa.list_(pa.timestamp("us", "UTC"))), spark_name(pa.month_day_nano_interval())
    ('array<timestamp>', None)
    """
    if pa.types.is_dictionary(kind):
        return spark_name(kind.value_type)
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if any(test(kind) for test in LISTS):
        return _composed("array", [spark_name(kind.value_type)])
    if pa.types.is_map(kind):
        return _composed("map", [spark_name(kind.key_type), spark_name(kind.item_type)])
    if pa.types.is_struct(kind):
        parts = [(f.name, spark_name(f.type)) for f in kind]
        return _composed("struct", [t and f"{n}:{t}" for n, t in parts])
    return next((name for test, name in NAMES if test(kind)), None)


def _composed(kind: str, parts: Sequence[str | None]) -> str | None:
    return None if None in parts else f"{kind}<{','.join(str(p) for p in parts)}>"
