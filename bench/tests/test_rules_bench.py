"""The benchmark of rules: its rows, its queries in DuckDB's words, and its comparison; no Spark."""

import time

import numpy as np
import pyarrow as pa

from millstream.language.cql.parsing.parser import parse_query
from millstream_bench.live.comparison import Database
from millstream_bench.live.workload import (
    STREAMS,
    Producer,
    batch,
    constant_of,
    duckdb_sql,
    limits,
)
from millstream_bench.rules import ajoin
from millstream_bench.rules.bench import RULES_SQL


def test_no_row_is_older_than_one_before_it() -> None:
    pushed: list[pa.Table] = []
    with Producer(lambda _, rows: pushed.append(rows), ("a",), 1_000, 1) as producer:
        time.sleep(0.35)
    times = np.concatenate([t["at"].cast(pa.int64()).to_numpy() for t in pushed])
    assert (np.diff(times) >= 0).all()
    assert producer.rows_sent() == len(times) > 0


def test_of_many_rules_a_row_meets_few() -> None:
    random = np.random.default_rng(1)
    values = random.uniform(0, 100, 2_000)
    met = sum((values > low).sum() for low in limits(random, 5_000, 5_000))
    assert 0.5 < met / len(values) < 2


def test_rows_that_are_missing_or_too_many_are_told() -> None:
    random = np.random.default_rng(1)
    rows = {s: batch(random, 200, time.time() - 9) for s in STREAMS}
    database = Database(rows)
    for number in range(3):
        sql = duckdb_sql(number, constant_of(0, 1), 0)
        expected = database._db.sql(sql).to_arrow_table()
        assert expected.num_rows > 1
        assert database.differences([expected], sql, whole=True) == 0
        part = expected.slice(1)
        assert database.differences([part], sql, whole=True) == 1
        assert database.differences([part], sql, whole=False) == 0
        assert database.differences([expected, expected.slice(0, 1)], sql, whole=False) == 1


def test_joins_of_many_streams_are_those_of_duckdb() -> None:
    at = [pa.array([n], pa.timestamp("us", "UTC")) for n in (0, 900_000, 1_800_000, 2_700_000)]
    tables = {
        stream: pa.table({"at": t, "k": [1], "g": [1], "v": [50.0 + i], "sent": [float(i)]})
        for i, (stream, t) in enumerate(zip("abcd", at, strict=True))
    }
    database = Database(tables)
    for number in range(12):
        parse_query(ajoin.cql(number, 10.0))
        chain, seconds = ajoin.chain_of(number)
        apart = [900_000 * "abcd".index(s) for s in chain]
        near = max(apart) - min(apart) <= seconds * 1_000_000
        rows = database.rows(ajoin.duckdb_sql(number, 10.0, 0))
        assert len(rows) == near, chain
        if near:
            assert rows[0][-1] == max(apart)
        assert not database.rows(ajoin.duckdb_sql(number, 60.0, 0))
        assert not database.rows(ajoin.duckdb_sql(number, 10.0, min(apart) + 1))


def test_rules_hold_until_they_are_replaced_or_removed() -> None:
    at = pa.array([10, 20, 30], pa.timestamp("us", "UTC"))
    rows = pa.table({"at": at, "k": [1, 2, 3], "v": [5.0, 5.0, 5.0], "sent": [0.0, 0.0, 0.0]})
    log = pa.table(
        {
            "rule": ["x", "x", "y"],
            "low": [1.0, None, 9.0],
            "removed": pa.array([None, True, None]),
            "ts": pa.array([15, 30, 0], pa.timestamp("us", "UTC")),
        }
    )
    found = Database({"a": rows, "log": log}).rows(RULES_SQL)
    assert list(found) == [("x", 2, "5", "0", 20)]
