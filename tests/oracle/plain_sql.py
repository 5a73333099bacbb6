"""Constructs judged by SQL written out for each: the whole input in DuckDB, one answer a query.

For constructs that the model of `model.py` does not make up. A case is a query with the SQL that
must give the same rows over a stream's rows that are not late, as a table
`name(pos, ts_us, columns...)`.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from oracle.compare import difference
from oracle.evaluate import table_of
from oracle.model import Column, Row, Stream

SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """CQL and the SQL that gives its rows; without `ts` where the result is a table."""

    cql: str
    sql: str


def made_up(
    name: str, columns: Sequence[Column], values: Mapping[str, Sequence[Any]], *,
    rows: int, seed: int, lateness: int = 3 * SECOND,
) -> Stream:  # fmt: skip
    """Rows about a second apart, out of order, some of them late, with ties."""
    dice = random.Random(seed)
    made, now = [], 100 * SECOND
    for _ in range(rows):
        now += dice.choice((0, 0, SECOND // 2, SECOND, 3 * SECOND))
        back = dice.choice((0, 0, 0, SECOND, 2 * SECOND, 7 * SECOND))
        made.append(Row(now - back, tuple(dice.choice(values[c.name]) for c in columns)))
    return Stream(name, tuple(columns), tuple(made), lateness)


def windows(length_s: int, slide_s: int, condition: str = "TRUE", *, table: str = "s") -> str:
    """FROM and WHERE of rows in windows [e - length, e) for the multiples e of a slide."""
    length, slide = length_s * SECOND, slide_s * SECOND
    ends = (
        f"SELECT DISTINCT unnest(generate_series(ts_us - ts_us % {slide} + {slide}, "
        f"ts_us - ts_us % {slide} + {length}, {slide})) AS e FROM {table}"
    )
    return f"{table}, ({ends}) WHERE ts_us >= e - {length} AND ts_us < e AND ({condition})"


def answers(
    streams: Sequence[Stream], cases: Mapping[str, Case], *views: str
) -> dict[str, list[dict[str, Any]]]:
    """What DuckDB gives for each case."""
    connection = duckdb.connect(config={"threads": 1})
    for stream in streams:
        connection.register("_incoming", table_of(stream))
        connection.execute(
            f"CREATE TABLE {stream.name} AS SELECT * EXCLUDE (_before) FROM (SELECT *, max(ts_us) "
            "OVER (ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS _before "
            f"FROM _incoming) WHERE coalesce(ts_us >= _before - {stream.lateness}, TRUE)"
        )
        connection.unregister("_incoming")
    for view in views:
        connection.execute(view)
    found = {}
    for name, case in cases.items():
        cursor = connection.execute(case.sql)
        names = [part[0] for part in cursor.description]
        found[name] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    connection.close()
    return found


def problems(
    streams: Sequence[Stream],
    cases: Mapping[str, Case],
    results: Mapping[str, Sequence[Mapping[str, Any]]],
    *views: str,
) -> list[str]:
    """How results differ from DuckDB's, case by case."""
    told = []
    for name, expected in answers(streams, cases, *views).items():
        assert expected, f"{name} judges nothing: {cases[name].cql}"
        columns = list(expected[0])
        wanted, given = ([_told(row) for row in rows] for rows in (expected, results[name]))
        found = difference(wanted, given, columns)
        if found:
            told.append(
                f"{name}: {cases[name].cql}\n{columns}\nmissing {found.missing[:5]}\n"
                f"extra   {found.extra[:5]}"
            )
    return told


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as texts, so that rows can be compared as wholes."""
    return {n: repr(list(v)) if isinstance(v, list | tuple) else v for n, v in row.items()}
