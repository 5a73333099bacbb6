"""Timestamps in CSV and JSON: read as they are written, and converted where a date is in them.

Spark's parsers take a time of day alone for one of today, so they never see a timestamp: a CSV file
gives texts, JSON gives variants, which tell a text ("2020", a year) from a number (2020, seconds).
Where the user names a pattern (`timestampFormat`), Spark parses by it and adds no day.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from millstream.core.errors import UsageError
from millstream.language.plan.sql_text import dated_sql, quoted
from millstream.spark.frames import spelling


def as_written(declared: DataType, kind: str, options: Mapping[str, Any]) -> DataType:
    """The type to read a column with, so that its timestamps come as they are written.

    >>> as_written(ArrayType(TimestampType()), "json", {}).simpleString()
    'array<variant>'
    >>> as_written(TimestampType(), "csv", {"timestampFormat": "yyyy"}).simpleString()
    'timestamp'
    """
    if kind not in ("csv", "json") or option(options, "timestampFormat"):
        return declared
    return _written(declared, StringType() if kind == "csv" else VariantType())


def _written(declared: DataType, raw: DataType) -> DataType:
    match declared:
        case TimestampType():
            return raw
        case ArrayType():
            return ArrayType(_written(declared.elementType, raw))
        case MapType():
            return MapType(declared.keyType, _written(declared.valueType, raw))
        case StructType():
            fields = [StructField(f.name, _written(f.dataType, raw)) for f in declared.fields]
            return StructType(fields)
        case _:
            return declared


def option(options: Mapping[str, Any], name: str) -> str:
    """An option of Spark's readers, whatever its case; empty where it is not given."""
    found = [str(v) for k, v in options.items() if str(k).lower() == name.lower()]
    return found[-1] if found else ""


def refuse_fallback(stream: str, options: Mapping[str, Any]) -> None:
    """Refuses the option by which Spark tries more than the pattern, and adds the day."""
    if option(options, "enableDateTimeParsingFallback").lower() == "true":
        raise UsageError(
            f"stream {stream}: the option enableDateTimeParsingFallback is not supported",
            detail="a time of day alone would become one of the day of the run",
            hint="leave it out, or leave out timestampFormat: then all usual spellings are read",
        )


def read_times(
    sql: str, old: DataType, new: DataType, zone: str, depth: int = 0
) -> tuple[str, str]:
    """SQL of a value whose texts become timestamps, and of whether one of them is lost.

    >>> read_times("a", ArrayType(StringType()), ArrayType(TimestampType()), "")[1][:40]
    'exists(a, x0 -> (x0 IS NOT NULL AND try_'
    """
    x = f"x{depth}"
    match old, new:
        case ArrayType(), ArrayType():
            made, lost = read_times(x, old.elementType, new.elementType, zone, depth + 1)
            return f"transform({sql}, {x} -> {made})", f"exists({sql}, {x} -> {lost})"
        case MapType(), MapType() if old.keyType == new.keyType:
            made, lost = read_times(x, old.valueType, new.valueType, zone, depth + 1)
            return (
                f"transform_values({sql}, (k{depth}, {x}) -> {made})",
                f"exists(map_values({sql}), {x} -> {lost})",
            )
        case StructType(), StructType() if len(old.fields) == len(new.fields):
            return _read_fields(sql, old, new, zone, depth)
        case VariantType(), TimestampType():
            text = _timestamp(f"try_variant_get({sql}, '$', 'string')", zone)
            made = (
                f"(CASE schema_of_variant({sql}) WHEN 'STRING' THEN {text} "
                f"WHEN 'BIGINT' THEN try_cast(CAST({sql} AS BIGINT) AS TIMESTAMP) END)"
            )
            lost = f"({sql} IS NOT NULL AND NOT is_variant_null({sql}) AND {made} IS NULL)"
            return made, lost
        case StringType(), TimestampType():
            made = _timestamp(sql, zone)
        case _:
            made = f"try_cast({sql} AS {spelling(new)})"
    return made, f"({sql} IS NOT NULL AND {made} IS NULL)"


def _read_fields(
    sql: str, old: StructType, new: StructType, zone: str, depth: int
) -> tuple[str, str]:
    parts, checks = [], []
    for before, after in zip(old.fields, new.fields, strict=True):
        value = f"{sql}.{quoted(before.name)}"
        made, lost = value, ""
        if before.dataType != after.dataType:
            made, lost = read_times(value, before.dataType, after.dataType, zone, depth)
        name = after.name.replace("\\", "\\\\").replace("'", "\\'")
        parts.append(f"'{name}', {made}")
        checks += [lost] if lost else []
    struct = f"IF({sql} IS NULL, NULL, named_struct({', '.join(parts)}))"
    return struct, f"({' OR '.join(checks) or 'FALSE'})"


def _timestamp(text: str, zone: str) -> str:
    """A text as a timestamp, NULL where it is none; `zone` is that of texts without one."""
    own = f"try_cast({dated_sql(text)} AS TIMESTAMP)"
    if not zone:
        return own
    name = zone.replace("\\", "").replace("'", "")
    tried = [
        f"try_cast({dated_sql(text)} || '{more} {name}' AS TIMESTAMP)"
        for more in ("", ":00", " 00:00:00")
    ]
    return f"coalesce({', '.join(tried)}, {own})"
