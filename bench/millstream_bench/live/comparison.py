"""What came against what DuckDB says should have come, row for row."""

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

DIGITS = 9  # to which doubles agree


class Database:
    """DuckDB over the rows that were sent."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._db = duckdb.connect()
        self._db.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            # DuckDB reads `at` as a word of its own
            names = ["t" if n == "at" else n for n in table.column_names]
            self._db.register(name, table.rename_columns(names))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows as they are compared: doubles as texts, times in microseconds."""
        return self._db.execute(self._comparable(sql)).fetchall()

    def differences(self, got: Sequence[pa.Table], sql: str, *, whole: bool) -> int:
        """Rows that are missing or too many; of a query that was dropped only the latter."""
        theirs = self._comparable(sql)
        if not got:
            return self._count(theirs) if whole else 0
        self._db.register("got", pa.concat_tables(got))
        ours = self._comparable("SELECT * FROM got")
        more = self._count(f"({ours}) EXCEPT ALL ({theirs})")
        missing = self._count(f"({theirs}) EXCEPT ALL ({ours})") if whole else 0
        self._db.unregister("got")
        return more + missing

    def _comparable(self, sql: str) -> str:
        columns = self._db.execute(f"DESCRIBE ({sql})").fetchall()
        texts = ", ".join(_comparable(f'"{name}"', kind) for name, kind, *_ in columns)
        return f"SELECT {texts} FROM ({sql})"

    def _count(self, sql: str) -> int:
        found = self._db.execute(f"SELECT count(*) FROM ({sql})").fetchall()
        return int(found[0][0])


def _comparable(column: str, kind: str) -> str:
    if kind in ("DOUBLE", "FLOAT"):
        return f"format('{{:.{DIGITS}g}}', {column})"
    return f"epoch_us({column})" if kind.startswith("TIMESTAMP") else column
