"""Runs the oracle: input tables in DuckDB, one answer for each query."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from oracle.duckdb_sql import Evaluation, evaluation, quoted
from oracle.model import Query, Stream

ARROW_TYPES = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.int64(),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query must give: rows in any order; of a relation, its final table."""

    evaluation: Evaluation
    rows: list[dict[str, Any]]


def decimal_type(text: str) -> pa.DataType:
    """
    >>> decimal_type("decimal(10,2)")
    Decimal128Type(decimal128(10, 2))
    """
    precision, scale = text.removeprefix("decimal(").removesuffix(")").split(",")
    return pa.decimal128(int(precision), int(scale))


def arrow_type(text: str) -> pa.DataType:
    return ARROW_TYPES.get(text) or decimal_type(text)


def table_of(stream: Stream) -> pa.Table:
    """A stream as (pos, ts_us, columns …), timestamps as integers."""
    data: dict[str, pa.Array] = {
        "pos": pa.array(range(len(stream.rows)), pa.int64()),
        "ts_us": pa.array([row.ts for row in stream.rows], pa.int64()),
    }
    for number, column in enumerate(stream.columns):
        values = [row.values[number] for row in stream.rows]
        data[column.name] = pa.array(values, arrow_type(column.type), from_pandas=False)
    return pa.table(data)


class Oracle:
    """A DuckDB holding the whole input; answers one query after the other."""

    def __init__(self, streams: Mapping[str, Stream]) -> None:
        self._streams = dict(streams)
        self._connection = duckdb.connect(config={"threads": 1})
        for name, stream in self._streams.items():
            self._connection.register("_incoming", table_of(stream))
            self._connection.execute(f"CREATE TABLE {quoted(name)} AS FROM _incoming")
            self._connection.unregister("_incoming")

    def answer(self, query: Query) -> Answer:
        asked = evaluation(query, self._streams)
        cursor = self._connection.execute(asked.sql)
        names = list(asked.columns) + ([] if asked.relation else ["ts"])
        rows = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
        return Answer(asked, rows)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "Oracle":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["Answer", "Oracle", "arrow_type", "table_of"]
