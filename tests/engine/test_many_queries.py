"""Hundreds of queries that differ in constants: constants are data, panes are sets of filters.

They come while data flows, more than generated code holds, and go again; each result is DuckDB's
from the query's start on, whichever way its panes were kept meanwhile.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import millstream
from millstream.language.share.shared_panes import FILTERED_MAX
from millstream.language.share.value_lines import IN_CODE_MAX

pytestmark = pytest.mark.spark

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS = {"t": "timestamp", "k": "int", "v": "double", "s": "string"}
MANY = IN_CODE_MAX + 25
FEW = FILTERED_MAX - 10
KEPT = {*range(6), 19, 37, 55}  # three with the same aggregate over rows of other filters
WINDOW = "[RANGE 4 SECONDS SLIDE 2 SECONDS]"
# what differs within a kind is the constant, the function, the operator, a condition above it
CALLS = ("avg(v)", "max(v)", "count(*)", "sum(k)", "count(DISTINCT k)", "max(s)")


def asked(number: int, double: str = "D") -> str:
    constant = f"{number * 37 % 100 / 10}{double}"
    if number % 7 == 3:
        return f"s = '{'abcdefg'[number % 5]}' AND v <= {constant}"
    return f"v {('>', '>=', '<>')[number % 3]} {constant}"


def cql(number: int) -> str:
    match number % 3:
        case 0:
            return f"SELECT k, v FROM a WHERE {asked(number)}"
        case 1:
            call = CALLS[number // 3 % len(CALLS)]
            having = " HAVING count(*) > 1" if number % 2 else ""
            return f"SELECT k, {call} AS w FROM a {WINDOW} WHERE {asked(number)} GROUP BY k{having}"
        case _:
            where = asked(number).replace("v ", "x.v ").replace("s ", "x.s ")
            return (
                "SELECT x.k, x.v, y.v AS w FROM a AS x [RANGE 2 SECONDS]"
                f" JOIN b AS y [RANGE 2 SECONDS] ON x.k = y.k WHERE {where}"
            )


def sql(number: int, start_us: int) -> str:
    """The same in DuckDB's words, over tables a and b, for rows from a start on."""
    start = f"TIMESTAMPTZ '1970-01-01 00:00:00+00' + INTERVAL ({start_us}) MICROSECOND"
    match number % 3:
        case 0:
            where = asked(number, "")
            return f"SELECT k, v, t FROM a WHERE {where} AND t >= {start}"
        case 1:
            call = CALLS[number // 3 % len(CALLS)]
            having = " HAVING count(*) > 1" if number % 2 else ""
            return (
                "WITH e AS (SELECT DISTINCT time_bucket(INTERVAL 2 SECOND, t) + INTERVAL (2 * i)"
                f" SECOND AS e FROM a, range(1, 3) AS r(i)) SELECT k, {call} AS w, e FROM e JOIN a"
                f" ON t >= e - INTERVAL 4 SECOND AND t < e WHERE {asked(number, '')}"
                f" AND e - INTERVAL 4 SECOND >= {start} GROUP BY k, e{having}"
            )
        case _:
            where = asked(number, "").replace("v ", "x.v ").replace("s ", "x.s ")
            return (
                "SELECT x.k, x.v, y.v AS w, greatest(x.t, y.t) AS t FROM a AS x JOIN b AS y"
                " ON x.k = y.k AND greatest(x.t, y.t) <= least(x.t, y.t) + INTERVAL 2 SECOND"
                f" WHERE {where} AND x.t >= {start} AND y.t >= {start}"
            )


@dataclass(slots=True)
class Life:
    """Rows that have come, and what came of them."""

    session: millstream.Session
    chance: random.Random = field(default_factory=lambda: random.Random(5))
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"a": [], "b": []})
    got: dict[int, Counter[Any]] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    now_ms: int = 0

    def add(self, numbers: range) -> None:
        for number in numbers:
            query = self.session.query(cql(number), f"q{number}")
            start = self.session.system.query(query.name).start
            self.starts[number] = 0 if start is None or start < 0 else start
            self.got[number] = Counter()
            query.on_batch(lambda table, _, n=number: self.got[n].update(counted(table)))

    def drop(self, number: int) -> None:
        self.session.drop(f"q{number}")
        self.dropped[number] = self.now_ms - 1_000

    def flow(self, batches: int) -> None:
        for _ in range(batches):
            for name, kept in self.rows.items():
                rows = [self._row(self.now_ms + 40 * i) for i in range(25)]
                self.session.push(name, rows)
                kept.extend(rows)
            self.now_ms += 1_000
            self.session.wait()

    def _row(self, at_ms: int) -> dict[str, Any]:
        return {
            "t": EPOCH + timedelta(milliseconds=at_ms),
            "k": self.chance.randrange(4),
            "v": self.chance.choice((None, *(x / 10 for x in range(100)))),
            "s": self.chance.choice(("a", "b", "c", None)),
        }


def counted(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    columns = [table[name].to_pylist() for name in table.column_names]
    return (_plain(row) for row in zip(*columns, strict=True))


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(round(v, 9) if isinstance(v, float) else v for v in row)


def test_many_constants_come_and_go(spark: Any, tmp_path: Path) -> None:
    with millstream.Session(tmp_path / "home") as session:
        for name in ("a", "b"):
            session.stream(name, columns=COLUMNS, time="t")
        life = Life(session)
        life.add(range(3 * FEW))
        life.flow(3)
        life.add(range(3 * FEW, 3 * MANY))
        life.flow(4)
        for number in set(range(3 * MANY)) - KEPT:  # panes of sets become those of filters
            life.drop(number)
        life.add(range(3 * MANY, 3 * MANY + 6))
        life.flow(3)
        for name in ("a", "b"):
            session.finish(name)
        session.wait()
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for name, rows in life.rows.items():
            database.register(name, pa.Table.from_pylist(rows))
        for number, start in life.starts.items():
            wanted = Counter(map(_plain, database.execute(sql(number, start)).fetchall()))
            assert not life.got[number] - wanted, cql(number)
            # of one that was dropped, all that the rows before it had decided
            until = EPOCH + timedelta(milliseconds=life.dropped.get(number, 1_000_000))
            decided = Counter({row: n for row, n in wanted.items() if row[-1] <= until})
            assert not decided - life.got[number], cql(number)
