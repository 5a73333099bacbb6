"""Spark's types in PostgreSQL's words, and values as its COPY reads them.

Nested values are jsonb, bytes bytea. Numbers and times go as text that Arrow writes: it knows years
that Python does not.
"""

import base64
import json
import math
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

PLAIN = {
    "boolean": "boolean",
    "byte": "smallint",
    "tinyint": "smallint",
    "short": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "integer": "integer",
    "long": "bigint",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}


def column_type(name: str) -> str:
    """The type of a column that is made for a result.

    >>> [column_type(t) for t in ("bigint", "decimal(10,2)", "array<int>", "interval day")]
    ['bigint', 'numeric(10,2)', 'jsonb', 'text']
    """
    text = name.strip().lower()
    if found := re.fullmatch(r"decimal(\(.*\))?", text):
        return f"numeric{found[1] or '(10,0)'}"
    if text.startswith(("array<", "map<", "struct<")):
        return "jsonb"
    return PLAIN.get(text, "text")


def copied(table: pa.Table) -> pa.Table:
    """Rows whose values Arrow's CSV can spell, so that COPY reads what was meant."""
    columns = []
    for field in table.schema:
        column = table[field.name]
        if pa.types.is_nested(field.type):
            column = _texts(column, lambda v: json.dumps(_plain(v), default=_odd, sort_keys=True))
        elif pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            column = _texts(column, lambda v: "\\x" + v.hex())
        elif pa.types.is_timestamp(field.type):
            spelt = pc.strftime(pc.cast(column, pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
            column = pc.binary_join_element_wise(spelt, "+00", "") if field.type.tz else spelt
        elif pa.types.is_duration(field.type) or pa.types.is_interval(field.type):
            column = _texts(column, str)
        columns.append(column)
    return pa.table(columns, table.schema.names)


def _texts(column: pa.ChunkedArray, spelt: Any) -> pa.Array:
    found = column.to_pylist()
    return pa.array([None if value is None else spelt(value) for value in found], pa.string())


def _plain(value: Any) -> Any:
    """JSON has no word for numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _odd(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
