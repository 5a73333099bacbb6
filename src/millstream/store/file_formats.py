"""Rows as files that people read: Parquet, CSV or JSON. A file appears whole or not at all."""

import base64
import json
import math
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from millstream.store.integrity.delivered import note_digest
from millstream.store.integrity.digests import digest_of_file
from millstream.store.segments import disk_errors, repeating, sync


def write_file(table: pa.Table, target: Path, kind: str) -> None:
    """Writes a file that appears whole or not at all, and stays; notes its digest beside it."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    with disk_errors():
        if kind == "parquet":
            pq.write_table(table, draft, compression="zstd", use_dictionary=repeating(table.schema))
        elif kind == "csv":
            pa_csv.write_csv(_flat(table), draft)
        else:
            _write_json(table, draft)
        sync(str(draft))
        note_digest(target.parent, target.name, digest_of_file(draft))
        os.replace(draft, target)
        sync(str(target))


def _write_json(table: pa.Table, target: Path) -> None:
    with target.open("w", encoding="utf-8") as file:
        for line in json_lines(table):
            file.write(line + "\n")


def json_lines(table: pa.Table) -> Iterator[str]:
    """A row a line; times as ISO 8601, bytes as base64, NaN and infinities as text."""
    for batch in _readable(table).to_batches(max_chunksize=10_000):
        for row in _rows(batch):
            yield json.dumps(_plain(row), default=_json_value, ensure_ascii=False)


def zoned(table: pa.Table) -> pa.Table:
    """Moments as texts with their zone, which every reader understands alike."""
    columns = [
        pc.strftime(table[f.name], format="%Y-%m-%dT%H:%M:%SZ")
        if pa.types.is_timestamp(f.type) and f.type.tz == "UTC"
        else table[f.name]
        for f in table.schema
    ]
    return pa.table(columns, table.schema.names)


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError:
        columns = [_valid(c) if pa.types.is_string(c.type) else c for c in batch.columns]
        return list(pa.table(columns, batch.schema.names).to_pylist())


def _plain(value: Any) -> Any:
    """JSON has no word for numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _json_value(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _readable(table: pa.Table) -> pa.Table:
    """Times as text: Arrow can spell years that Python cannot."""
    columns = [
        _spelt(table[f.name]) if pa.types.is_timestamp(f.type) else table[f.name]
        for f in table.schema
    ]
    return pa.table(columns, table.schema.names)


def _spelt(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.strftime(pc.cast(times, pa.timestamp("us")), format="%Y-%m-%d %H:%M:%S")


def _valid(texts: pa.ChunkedArray) -> pa.Array:
    """Text that holds bytes of no character, with marks in their place."""
    found = pc.cast(texts, pa.binary()).to_pylist()
    return pa.array([None if b is None else b.decode(errors="replace") for b in found], pa.string())


def _flat(table: pa.Table) -> pa.Table:
    """CSV knows no nested values: they become JSON text. Times are ISO 8601."""
    columns = []
    for field in table.schema:
        column = table[field.name]
        if pa.types.is_nested(field.type):
            texts = [
                None if v is None else json.dumps(_plain(v), default=_json_value)
                for v in column.to_pylist()
            ]
            column = pa.array(texts, pa.string())
        elif pa.types.is_binary(field.type):
            texts = [None if v is None else _json_value(v) for v in column.to_pylist()]
            column = pa.array(texts, pa.string())
        elif pa.types.is_timestamp(field.type):
            column = _spelt(column)
        columns.append(column)
    return pa.table(columns, table.schema.names)
