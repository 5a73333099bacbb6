"""The benchmark of large input: its rows, and its comparison with DuckDB; no Spark."""

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.core.errors import UsageError
from millstream_bench.large import workload
from millstream_bench.large.bench import flat, run
from millstream_bench.large.oracle import Oracle
from millstream_bench.large.workload import PARTS, Asked, asked, write

ROWS = 30_000
JOIN = (
    'SELECT x."at", y."at" AS bt, x.k, x.v, y.v AS bv FROM a AS x JOIN b AS y ON x.k = y.k AND '
    'greatest(x."at", y."at") <= least(x."at", y."at") + INTERVAL 5 SECOND WHERE x.v > {limit}'
)
MEAN = (
    "WITH e AS (SELECT unnest(generate_series("
    '(SELECT time_bucket(INTERVAL {slide}, min("at")) FROM a), '
    '(SELECT max("at") + INTERVAL {range} + INTERVAL {slide} FROM a), INTERVAL {slide})) AS ts) '
    'SELECT g, avg(v) AS mean, ts FROM e JOIN a ON "at" >= ts - INTERVAL {range} AND "at" < ts '
    "WHERE v > {limit} GROUP BY g, ts"
)
EXPECTED = {
    "filter": 'SELECT "at", k, v FROM a WHERE v > {limit}',
    "join": JOIN,
    "average": MEAN.replace("{range}", "10 SECOND").replace("{slide}", "5 SECOND"),
    "day": MEAN.replace("{range}", "1 DAY").replace("{slide}", "1 SECOND"),
}


@pytest.mark.parametrize(("part", "rows"), [("mix", ROWS), ("skew", ROWS), ("day", 300)])
def test_right_rows_agree_and_wrong_ones_are_told(
    part: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "CHUNK", 7_000)
    monkeypatch.setattr("millstream_bench.large.oracle.CHUNK", 7_000)
    write(tmp_path / "in", PARTS[part], rows, seed=1)
    asks = asked(part, 3)
    _right(tmp_path / "in", PARTS[part].streams, asks, tmp_path / "out")
    found = _differences(tmp_path, part, rows, asks)
    assert all(count for count, _ in found.values())
    assert all(wrong == 0 for _, wrong in found.values()), found
    for ask in asks:  # one row too few, and one value that is another
        file = tmp_path / "out" / ask.name / "part.parquet"
        whole = pq.read_table(file)
        pq.write_table(whole.slice(1), file)
        assert _differences(tmp_path, part, rows, asks)[ask.name][1] == 1
        name = "mean" if "mean" in whole.column_names else "v"
        values = whole[name].to_numpy().copy()
        values[0] += 1e-6
        column = whole.column_names.index(name)
        pq.write_table(whole.set_column(column, name, pa.array(values)), file)
        assert _differences(tmp_path, part, rows, asks)[ask.name][1] >= 1
        pq.write_table(whole, file)


def _right(data: Path, streams: tuple[str, ...], asks: list[Asked], out: Path) -> None:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for stream in streams:
            files = f"read_parquet('{data}/{stream}/*.parquet')"
            database.execute(f"CREATE VIEW {stream} AS SELECT * FROM {files}")
        for ask in asks:
            (out / ask.name).mkdir(parents=True)
            rows = database.sql(EXPECTED[ask.kind].format(limit=ask.limit)).to_arrow_table()
            pq.write_table(rows, out / ask.name / "part.parquet")


def _differences(
    folder: Path, part: str, rows: int, asks: list[Asked]
) -> dict[str, tuple[int, int]]:
    oracle = Oracle(folder / "in", PARTS[part], rows, folder / "scratch")
    try:
        return oracle.differences(asks, folder / "out")
    finally:
        oracle.close()


def test_rows_are_those_asked_for(tmp_path: Path) -> None:
    write(tmp_path, PARTS["skew"], 50_000, seed=1)
    rows = pq.read_table(tmp_path / "a")
    assert rows.num_rows == 50_000
    assert (np.diff(rows["at"].cast(pa.int64()).to_numpy()) == 1_000).all()
    keys = np.bincount(rows["k"].to_numpy())
    assert keys[0] > 0.09 * rows.num_rows > 4 * keys[9]


def test_a_heap_that_grows_is_told() -> None:
    assert flat([500, 700, 650, 710])
    assert not flat([300, 500, 700, 900])


def test_wrong_options_are_told() -> None:
    with pytest.raises(UsageError, match="unknown part mixx; did you mean mix"):
        run(parts="mixx")
    with pytest.raises(UsageError, match="--rows takes numbers"):
        run(rows="many")
