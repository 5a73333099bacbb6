"""Lookups in a reference table: each row has the version that held when it came."""

import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

import millstream
from millstream.app import cli

pytestmark = pytest.mark.spark

LOOKUP = """SELECT o.n, o.sku, p.price FROM orders AS o [NOW] {how} JOIN prices AS p
ON o.sku = p.sku"""
JOB = """\
[streams.orders]
path    = "orders.csv"
columns = { at = "long", n = "int", sku = "string" }
time    = "timestamp_seconds(at)"

[streams.prices]
source  = "reference"
path    = "prices.csv"
columns = { sku = "string", price = "decimal(6,2)", since_when = "date" }
key     = "sku"

[queries.priced]
cql = "SELECT o.n, p.price, p.since_when FROM orders AS o [NOW] JOIN prices AS p ON o.sku = p.sku"

[queries.by_price]
cql = "SELECT price, count(*) AS skus FROM prices GROUP BY price"

[engine]
batch_rows = 10
"""


def write(path: Path, prices: dict[str, int]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text("sku,price\n" + "".join(f"{k},{v}\n" for k, v in prices.items()))
    draft.rename(path)


def test_rows_have_the_version_that_held_when_they_came(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    write(path, {"007": 10, "b": 20})
    with millstream.Session() as session:
        session.stream(
            "orders", columns={"at": "long", "n": "int", "sku": "string"},
            time="timestamp_seconds(at)",
        )  # fmt: skip
        session.stream(
            "prices", source="reference", path=path, key="sku",
            columns={"sku": "string", "price": "int"},
        )  # fmt: skip
        inner = session.query(LOOKUP.format(how=""), "inner_rows")
        outer = session.query(LOOKUP.format(how="LEFT"), "outer_rows")
        table = session.query("SELECT sku, price FROM prices", "all_prices")
        expected: list[tuple[Any, ...]] = []
        versions = [{"007": 10, "b": 20}, {"007": 11, "c": 30}, {}, {"b": 21, "c": 31}]
        for turn, version in enumerate(versions):
            if turn:
                write(path, version)
            deadline = time.monotonic() + 60
            found = {"not": 0, "looked": 0}
            while found != version and time.monotonic() < deadline:
                found = {r["sku"]: r["price"] for r in table.table().to_pylist()}
                time.sleep(0.1)
            assert found == version
            rows = [(turn * 10 + n, turn * 10 + n, s) for n, s in enumerate(("007", "b", "c"))]
            session.push("orders", rows)
            expected += [(n, s, version.get(s)) for _, n, s in rows]
            if turn == 1:
                late = session.query(LOOKUP.format(how=""), "late_rows")
        session.finish("orders")
        told = {
            query.name: sorted((r["n"], r["sku"], r["price"]) for r in query.to_arrow().to_pylist())
            for query in (inner, outer, late)
        }
    with_price = [row for row in expected if row[2] is not None]
    assert told["outer_rows"] == expected
    assert told["inner_rows"] == with_price
    assert [row for row in with_price if row[0] >= 20] == [
        row for row in told["late_rows"] if row[0] >= 20
    ]
    assert set(told["late_rows"]) <= set(with_price), "a query that begins later has the table too"


def test_a_job_reads_a_table_and_ends(spark: Any, tmp_path: Path) -> None:
    orders = [(n, n, "abcd"[n % 4]) for n in range(35)]
    (tmp_path / "orders.csv").write_text("".join(f"{a},{n},{s}\n" for a, n, s in orders))
    (tmp_path / "prices.csv").write_text(
        "price,sku,since_when,unused\n1.50,a,2020-01-01,x\n2.25,b,,y\n1.50,c,2020-03-01,z\n"
    )
    (tmp_path / "job.toml").write_text(JOB)
    arguments = ["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "out"), "--quiet"]
    assert cli.run(arguments) == 0
    duck = duckdb.connect()
    duck.execute("CREATE TABLE orders (moment BIGINT, n INT, sku TEXT)")
    duck.executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
    duck.execute(
        f"CREATE TABLE prices AS FROM read_csv('{tmp_path}/prices.csv', types = "
        "{'price': 'DECIMAL(6,2)', 'since_when': 'DATE'})"
    )
    for query, names, asked in (
        ("priced", "n, price, since_when", "orders JOIN prices USING (sku)"),
        ("by_price", "price, skus", "(SELECT price, count(*) AS skus FROM prices GROUP BY price)"),
    ):
        out = f"read_parquet('{tmp_path}/out/{query}/*.parquet')"
        found = duck.execute(f"SELECT {names} FROM {out}").fetchall()
        wanted = duck.execute(f"SELECT {names} FROM {asked}").fetchall()
        assert sorted(found, key=str) == sorted(wanted, key=str), query
