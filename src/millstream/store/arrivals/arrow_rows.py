"""Pushed rows as an appender takes them: by Arrow what it reads as Spark does, the rest by Spark.

Decided by the declaration once, then row by row: a row all of whose values are clear (see
`arrow_columns`) never meets Spark. Rows keep their order, whichever of the two reads them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.appending import FILE, REASON, RECORD, ROW, Row, Rows
from millstream.store.arrivals.arrow_columns import TEXT_BYTES_MAX, DeclaredType, Flags
from millstream.store.arrivals.arrow_times import time_of

Parse = Callable[[Sequence[Row], str], pa.Table]
PLAIN = frozenset({str, int, float, bool, type(None)})
DIGITS_BITS_MAX = 1_000  # of a number that nobody asked for; longer ones may meet a limit


class ArrowRows:
    """Reads the rows of one stream; `table` is an `engine.ports.RowParser`."""

    def __init__(self, definition: StreamDefinition, zone: str, parse: Parse) -> None:
        """`zone` is that of the session in which `parse` has Spark read rows."""
        self._parse = parse
        self._names = [f.name for f in definition.columns]
        self._known = frozenset(self._names)
        self._types = [DeclaredType(f.type, zone) for f in definition.columns]
        self._time = time_of(definition, zone)
        distinct = len({n.lower() for n in self._names}) == len(self._names)
        self.able = distinct and self._time is not None and all(t.known for t in self._types)

    def table(self, rows: Rows, producer: str) -> pa.Table:
        """The rows, each with a time, or a reason why it is none."""
        if isinstance(rows, pa.Table) and len(set(rows.column_names)) < rows.num_columns:
            rows = rows.to_pylist()  # the last one of a name counts
        if not self.able:
            return self._parse(_mappings(rows), producer)
        made, unclear = self._read(rows, producer)
        if unclear is None or not unclear.any():
            return made
        chosen = np.flatnonzero(unclear)
        odd = self._parse(_mappings(_picked(rows, chosen)), producer)
        places = pa.array(chosen, pa.int64())
        odd = odd.set_column(odd.column_names.index(ROW), ROW, places).select(made.column_names)
        odd = pa.table(odd.columns, made.column_names).cast(made.schema)
        if len(chosen) == len(unclear):
            return odd
        both = pa.concat_tables([made.filter(pa.array(~unclear)), odd])
        return both.take(pa.array(np.argsort(both[ROW].to_numpy(), kind="stable")))

    def _read(self, rows: Rows, producer: str) -> tuple[pa.Table, Flags | None]:
        """All rows, and which of them are not read as they should be."""
        count = rows.num_rows if isinstance(rows, pa.Table) else len(rows)
        unclear = self._odd_keys(rows)
        arrays: list[pa.Array] = []
        for name, type_ in zip(self._names, self._types, strict=True):
            if not isinstance(rows, pa.Table):
                array, more = type_.of_values([row.get(name) for row in rows])
            elif name in rows.column_names:
                array, more = type_.of_column(rows[name])
            else:
                array, more = pa.nulls(count, type_.arrow), None
            arrays.append(array)
            unclear = more if unclear is None else unclear if more is None else unclear | more
        assert self._time is not None
        times, more = self._time.of(arrays[self._time.column])
        unclear = more if unclear is None else unclear if more is None else unclear | more
        columns = [
            *arrays,
            times,
            pa.nulls(count, pa.string()),
            pa.nulls(count, pa.string()),
            pa.repeat(f"pushed by {producer}", count),
            pa.array(np.arange(count, dtype=np.int64)),
        ]
        names = [f"c{i}" for i in range(len(arrays))]
        return pa.table(columns, [*names, "_ts", REASON, RECORD, FILE, ROW]), unclear

    def _odd_keys(self, rows: Rows) -> Flags | None:
        """Rows with more than declared values, where that might make them malformed to Spark."""
        if isinstance(rows, pa.Table):
            odd = any(f.name not in self._known and not _number(f.type) for f in rows.schema)
            return np.ones(rows.num_rows, bool) if odd else None
        keys: set[Any] = set().union(*rows)
        if keys <= self._known:
            return None
        return np.array([not all(map(self._harmless, row.items())) for row in rows], bool)

    def _harmless(self, item: tuple[Any, Any]) -> bool:
        key, value = item
        if key in self._known:
            return True
        if type(key) is not str or len(key) > TEXT_BYTES_MAX >> 8 or type(value) not in PLAIN:
            return False
        if type(value) is int:
            return value.bit_length() < DIGITS_BITS_MAX
        return type(value) is not str or len(value) < TEXT_BYTES_MAX


def _number(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    return any(is_kind(type_) for is_kind in kinds)


def _picked(rows: Rows, chosen: Any) -> Rows:
    if isinstance(rows, pa.Table):
        return rows.take(pa.array(chosen))
    return [rows[i] for i in chosen]


def _mappings(rows: Rows) -> Sequence[Row]:
    listed: Sequence[Row] = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return listed
