"""Rows as a stream declares them: values of the declared types, a time, and what was lost.

Spark computes all of it, whatever the rows come from. A value that cannot be converted, or a time
that cannot be computed, never ends a job: it marks its row, which is then rejected with a reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, _parse_datatype_string

from millstream.language.cql.binding.streams import guarded_time
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.times_of_text import becomes_time
from millstream.language.cql.types import INTEGERS
from millstream.language.plan.sql_text import quoted
from millstream.spark.analyzer import SparkAnalyzer
from millstream.spark.frames import spelling
from millstream.spark.ingest.text_times import read_times

CORRUPT = "__millstream_corrupt"  # names that no user's column has
SURPLUS = "__millstream_surplus"
LOST = "__millstream_lost"
FRACTIONAL = ("float", "double", "decimal")


@dataclass(frozen=True, slots=True)
class Value:
    """Where a declared column comes from: SQL over what was read, and its type there."""

    sql: str
    type: str
    zone: str = ""  # of texts that name none and become timestamps; empty: the session's


def values_of(
    definition: StreamDefinition, read: Sequence[DataType], zone: str = ""
) -> list[Value]:
    """Columns that were read under their declared names, with types that may differ."""
    values = []
    for field, type_ in zip(definition.columns, read, strict=True):
        same = type_ == _parse_datatype_string(field.type)
        values.append(Value(quoted(field.name), field.type if same else spelling(type_), zone))
    return values


def tried(time: str) -> str:
    """SQL of a timestamp that is null where it would raise.

    Spark has a node for that, and no SQL but a sum of times that is tried as a whole: a second too
    many for `timestamp_seconds` would otherwise end the job and take the good rows of a file with
    it.
    """
    return f"try_add({time}, INTERVAL 0 SECONDS)"


def valid_text(text: str) -> str:
    """SQL of a string that may hold any bytes, as text that everybody can read."""
    return f"make_valid_utf8({text})"


def event_time(definition: StreamDefinition, spark: SparkSession) -> str:
    """SQL of a stream's time over its declared names, as `with_time` takes it."""
    return guarded_time(definition, SparkAnalyzer(spark))


def with_time(
    data: DataFrame, definition: StreamDefinition, event_time: str, more: Sequence[str]
) -> DataFrame:
    """Columns c0.. and `_ts` of a frame that has the declared names and types; and `more`."""
    columns = [
        F.expr(valid_text(quoted(f.name)) if f.type == "string" else quoted(f.name)).alias(f"c{i}")
        for i, f in enumerate(definition.columns)
    ]
    time = F.expr(f"unix_micros({tried(f'CAST(({event_time}) AS TIMESTAMP)')})").alias("_ts")
    return data.select(*columns, time, *(F.expr(text) for text in more))


def converted(
    data: DataFrame, definition: StreamDefinition, values: Sequence[Value], *more: str
) -> DataFrame:
    """A frame with the declared names and types; `LOST` says what a row lost on the way."""
    texts, checks = [], []
    for field, value in zip(definition.columns, values, strict=True):
        text, check = conversion(value, field.type)
        texts.append(f"{text} AS {quoted(field.name)}")
        if check:
            name = field.name.replace("\\", "\\\\").replace("'", "\\'")
            shown = f"left(CAST({value.sql} AS STRING), 40)"
            reason = f"concat('cannot read ', {shown}, ' as {field.type} (column {name})')"
            checks.append(f"WHEN {check} THEN {reason}")
    lost = f"CASE {' '.join(checks)} END" if checks else "CAST(NULL AS STRING)"
    return data.selectExpr(*texts, f"{lost} AS {LOST}", *more)


def conversion(value: Value, type_: str) -> tuple[str, str]:
    """SQL of a value as another type, and of whether that loses it; empty where it cannot.

    >>> conversion(Value("`a`", "int"), "int")
    ('`a`', '')
    >>> conversion(Value("`a`", "string"), "int")
    ('try_cast(`a` AS int)', '(`a` IS NOT NULL AND try_cast(`a` AS int) IS NULL)')
    """
    if value.type == type_:
        return value.sql, ""
    if becomes_time(value.type, type_):
        old, new = _parse_datatype_string(value.type), _parse_datatype_string(type_)
        return read_times(value.sql, old, new, value.zone)
    cast = f"try_cast({value.sql} AS {type_})"
    lost = f"({value.sql} IS NOT NULL AND {cast} IS NULL)"
    if type_ in INTEGERS and value.type.startswith(FRACTIONAL):
        lost = f"({lost} OR {value.sql} <> {cast})"  # a cast would cut off the fraction
    return cast, lost
