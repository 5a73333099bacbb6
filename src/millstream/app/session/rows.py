"""Rows as a program has them to rows as a stream takes them: mappings by declared name."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.catalog import StreamDefinition, lookup


def as_mappings(rows: Any, definition: StreamDefinition) -> list[dict[str, Any]]:
    """Mappings, sequences in order of columns, an Arrow table or a pandas frame.

    A misspelt column is the program's mistake, told at once; a value of another type is the row's,
    which is rejected.
    """
    if hasattr(rows, "columns") and hasattr(rows, "iloc"):
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, pa.Table):
        rows = rows.to_pylist()
    names = [f.name for f in definition.columns]
    return [_mapping(row, names, definition.name) for row in rows]


def _mapping(row: Any, names: Sequence[str], stream: str) -> dict[str, Any]:
    hint = f"columns: {', '.join(names)}"
    if isinstance(row, Mapping):
        return {_spelt(str(key), names, stream, hint): value for key, value in row.items()}
    if isinstance(row, str | bytes) or not isinstance(row, Sequence):
        raise UsageError(f"a row of stream {stream} is a {type(row).__name__}", hint=hint)
    if len(row) != len(names):
        raise UsageError(f"a row of stream {stream} has {len(row)} values", hint=hint)
    return dict(zip(names, row, strict=True))


def _spelt(key: str, names: Sequence[str], stream: str, hint: str) -> str:
    found = lookup(key, names)
    if not found:
        raise UsageError(
            f"stream {stream} has no column {key}{did_you_mean(key, names)}", hint=hint
        )
    return names[found[0]]
