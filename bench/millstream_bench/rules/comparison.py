"""What came against what DuckDB says should have come, row for row."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
DIGITS = 9  # to which doubles agree


def row_key(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        f"{v:.{DIGITS}g}" if isinstance(v, float)
        else (v - EPOCH) // MICROSECOND if isinstance(v, datetime)
        else v
        for v in values
    )  # fmt: skip


def counted(tables: Sequence[pa.Table]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for table in tables:
        columns = [table[name].to_pylist() for name in table.column_names]
        found.update(row_key(row) for row in zip(*columns, strict=True))
    return found


class Database:
    """DuckDB over the rows that were sent."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._db = duckdb.connect()
        self._db.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            # DuckDB reads `at` as a word of its own
            names = ["t" if n == "at" else n for n in table.column_names]
            self._db.register(name, table.rename_columns(names))

    def rows(self, sql: str) -> Counter[tuple[Any, ...]]:
        return Counter(row_key(row) for row in self._db.execute(sql).fetchall())

    def differences(self, got: Sequence[pa.Table], sql: str, *, whole: bool) -> int:
        """Rows that are missing or too many; of a query that was dropped only the latter."""
        ours, theirs = counted(got), self.rows(sql)
        more = sum((ours - theirs).values())
        return more + (sum((theirs - ours).values()) if whole else 0)
