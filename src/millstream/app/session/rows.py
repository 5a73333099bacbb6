"""Rows as a program has them to rows as a stream takes them: by declared name."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.catalog import StreamDefinition, lookup
from millstream.store.arrivals.appending import Rows


def as_given(rows: Any, definition: StreamDefinition) -> Rows:
    """Mappings, sequences in order of columns, an Arrow table or batches of one, or a pandas
    frame.

    A misspelt column is the program's mistake, told at once; a value of another type is the row's,
    which is rejected.
    """
    names = [f.name for f in definition.columns]
    if hasattr(rows, "columns") and hasattr(rows, "iloc"):
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, pa.Table):
        return _renamed(rows, names, definition.name)
    listed = [rows] if isinstance(rows, pa.RecordBatch) else list(rows)
    if listed and set(map(type, listed)) == {pa.RecordBatch}:
        return _renamed(pa.Table.from_batches(listed), names, definition.name)
    if set(map(type, listed)) <= {dict}:
        keys: set[Any] = set().union(*listed)
        if keys.issubset(names):
            return listed  # the usual case, without a look at each key
    return [_mapping(row, names, definition.name) for row in listed]


def _renamed(table: pa.Table, names: Sequence[str], stream: str) -> pa.Table:
    hint = f"columns: {', '.join(names)}"
    spelt = [_spelt(key, names, stream, hint) for key in table.column_names]
    last = {name: place for place, name in enumerate(spelt)}  # of several spellings of a name
    return table.select(list(last.values())).rename_columns(list(last))


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
