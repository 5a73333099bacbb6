"""Hundreds of queries whose conditions are patterns, lists, or two columns with a constant between.

All run together; DuckDB says what each gives alone.
"""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import millstream
from millstream.app.session.query import QueryHandle
from millstream.language.share.value_lines import IN_CODE_MAX

pytestmark = pytest.mark.spark

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS = {"t": "timestamp", "n": "int", "m": "int", "v": "double", "w": "double", "s": "string"}
MANY = 3 * (IN_CODE_MAX + 15)
LARGEST = (1 << 31) - 1


def condition(number: int, left: str = "", right: str = "") -> str:
    """Of rows of one stream, or of a pair; the same words in both dialects."""
    constant, way = number // 3, number % 12
    sign = ("<", "<=", ">", ">=", "=", "<>")[number // 12 % 6]
    match way:
        case 0 | 3:
            return f"{left}s {'NOT ' * (way > 0)}LIKE 'item {constant % 60}%'"
        case 6:
            return f"{left}s NOT IN ('item {constant}', 'b', 'item {constant + 1}x')"
        case 9:
            return f"length({left}s) {sign} {constant % 9} AND {left}n % 5 <> {constant % 5}"
        case 1 | 4 | 7:
            return f"{left}n {sign} {right}m + {constant - 30}"
        case 10:
            return f"{left}n >= {right}m - {constant} AND {left}n <= {right}m + {constant}"
        case _:
            return f"{left}v {sign if constant % 2 else '>'} {right}w - {constant / 10}"


def rows_of(chance: Random) -> list[dict[str, Any]]:
    texts = (None, "", "b", "item", *(f"item {n}" for n in range(70)), "item 1x", "item 7\u00df")
    numbers = (None, *range(-40, 40))
    return [
        {
            "t": EPOCH + timedelta(milliseconds=50 * i),
            "n": chance.choice(numbers),
            "m": chance.choice(numbers),
            "v": chance.choice((None, *(x / 10 for x in range(90)))),
            "w": chance.choice((None, *(x / 10 for x in range(90)))),
            "s": chance.choice(texts),
        }
        for i in range(120)
    ]


def alone(where: str, tables: str, selected: str, rows: pa.Table) -> "Counter[tuple[Any, ...]]":
    with duckdb.connect() as db:
        db.register("a", rows)
        return Counter(db.execute(f"SELECT {selected} FROM {tables} WHERE {where}").fetchall())


def found(query: QueryHandle, columns: Sequence[str]) -> "Counter[tuple[Any, ...]]":
    table = query.to_arrow()
    return Counter(zip(*(table[name].to_pylist() for name in columns), strict=True))


def test_each_gives_what_it_gives_alone(spark: Any, tmp_path: Path) -> None:
    rows = rows_of(Random(7))
    table = pa.Table.from_pylist(rows)
    pairs = "a AS x JOIN a AS y ON x.s = y.s"
    near = "greatest(x.t, y.t) <= least(x.t, y.t) + INTERVAL 2 SECOND"
    with millstream.Session(tmp_path / "home") as session:
        session.stream("a", columns=COLUMNS, time="t")
        single = {
            n: session.query(f"SELECT n, s FROM a WHERE {condition(n)}", f"q{n}")
            for n in range(MANY)
        }
        double = {
            n: session.query(
                "SELECT x.n AS n, y.m AS m FROM a [RANGE 2 SECONDS] AS x JOIN a [RANGE 2 SECONDS]"
                f" AS y ON x.s = y.s WHERE {condition(n, 'x.', 'y.')}",
                f"p{n}",
            )
            for n in range(1, MANY, 3)
        }
        for begin in range(0, len(rows), 40):
            session.push("a", rows[begin : begin + 40])
            session.wait()
        session.finish("a")
        session.wait()
        for n, query in single.items():
            assert found(query, ("n", "s")) == alone(condition(n), "a", "n, s", table), condition(n)
        for n, query in double.items():
            where = f"{condition(n, 'x.', 'y.')} AND {near}"
            wanted = alone(where, pairs, "x.n, y.m", table)
            assert found(query, ("n", "m")) == wanted, condition(n)


def test_a_sum_that_overflows_stops_who_asked_for_it(spark: Any, tmp_path: Path) -> None:
    """Of queries that are evaluated together: those alone whose own sum has no room."""
    rows = [
        {"t": EPOCH + timedelta(seconds=i), "n": 5, "m": m}
        for i, m in enumerate((1, 2, LARGEST - 20, 3))
    ]
    with millstream.Session(tmp_path / "home") as session:
        session.stream("a", columns=COLUMNS, time="t")
        wide = {c: session.query(f"SELECT m FROM a WHERE n < m + {c}") for c in range(MANY // 3)}
        guarded = session.query("SELECT m FROM a WHERE m < 10 AND n < m + 50")
        session.push("a", [json.loads(json.dumps(row, default=str)) for row in rows])
        session.finish("a")
        session.wait()
        for constant, query in wide.items():
            if constant > 20:
                assert query.state == "failed", constant
                assert "overflow" in query.reason, query.reason
                assert "row 2 of a" in query.reason, query.reason
            else:
                assert query.state != "failed", query.reason
                held = [r["m"] for r in rows if r["m"] + constant > 5]
                assert sorted(query.to_arrow()["m"].to_pylist()) == sorted(held)
        assert sorted(guarded.to_arrow()["m"].to_pylist()) == [1, 2, 3]
