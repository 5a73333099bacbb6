"""The benchmark of Nexmark: its events, and its comparison of both sides; no Spark."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from millstream.core.errors import UsageError
from millstream.language.cql.parsing.parser import parse_query
from millstream_bench.nexmark import flink_peer
from millstream_bench.nexmark.bench import differences, run
from millstream_bench.nexmark.queries import COLUMNS, QUERIES, tables


def test_events_come_in_order_and_in_nexmarks_shares() -> None:
    pieces = list(tables(5_000, 4, seed=1))
    whole = {name: pa.concat_tables([p[name] for p in pieces]) for name in COLUMNS}
    assert {n: t.num_rows for n, t in whole.items()} == {"person": 100, "auction": 300, "bid": 4600}
    for name, table in whole.items():
        assert table.column_names == list(COLUMNS[name])
        assert (np.diff(table["date_time"].cast(pa.int64()).to_numpy()) >= 0).all()
    assert sorted(whole["auction"]["id"].to_pylist()) == list(range(300))
    known = pc.is_in(whole["bid"]["auction"], whole["auction"]["id"])
    assert pc.all(known).as_py()


def test_queries_are_read() -> None:
    for query in QUERIES.values():
        parse_query(query.ours)
        assert query.plain
        assert set(query.streams) <= set(COLUMNS)


def test_rows_that_one_side_lacks_are_counted(tmp_path: Path) -> None:
    rows = pa.table({"auction": [1, 2, 2], "price": [5, 6, 6]})
    _write(tmp_path, "ours", "q2", rows.append_column("ts", [[0, 0, 0]]))
    _write(tmp_path, "plain", "q2", rows.take([1, 2, 0]))
    assert differences(tmp_path, "q2") == (0, 3)
    _write(tmp_path, "plain", "q2", rows.slice(1))
    assert differences(tmp_path, "q2") == (1, 2)
    _write(tmp_path, "plain", "q2", pa.table({"auction": [1, 2, 3], "price": [5, 6, 6]}))
    assert differences(tmp_path, "q2") == (2, 3)


def test_windows_that_plain_has_not_closed_do_not_count(tmp_path: Path) -> None:
    kind = pa.timestamp("us", "UTC")
    rows = pa.table(
        {
            "price": [1, 2],
            "starttime": pa.array([0, 10], kind),
            "endtime": pa.array([10, 20], kind),
        }
    )
    _write(tmp_path, "ours", "q7a", rows)
    _write(tmp_path, "plain", "q7a", rows.slice(0, 1))
    assert differences(tmp_path, "q7a") == (0, 1)
    _write(tmp_path, "ours", "q7a", rows.slice(1))
    assert differences(tmp_path, "q7a") == (1, 1)


def test_flinks_rows_are_read_as_what_they_are(tmp_path: Path) -> None:
    at = pa.array([0, 10_000], pa.timestamp("us", "UTC"))
    rows = pa.table({"auction": [1, 2], "extra": ["a b", "c"], "endtime": at, "ts": at})
    _write(tmp_path, "ours", "q5a", rows)
    folder = tmp_path / "flink" / "q5a"
    folder.mkdir(parents=True)
    right = '1,"a b","1970-01-01 00:00:00"\n2,c,"1970-01-01 00:00:00.01"\n'
    (folder / "part-1-0").write_text(right)
    assert differences(tmp_path, "q5a", "flink") == (0, 2)
    (folder / "part-1-0").write_text(right.replace("c", "d"))
    assert differences(tmp_path, "q5a", "flink") == (2, 2)
    (folder / "part-1-0").unlink()
    assert differences(tmp_path, "q5a", "flink") == (2, 2)


def test_flink_is_asked_for_the_same_queries() -> None:
    assert set(flink_peer.QUERIES) == set(flink_peer.RESULTS) == set(QUERIES)
    assert set(flink_peer.TABLES) == set(COLUMNS)


def test_an_unknown_query_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown query q99"):
        run(queries="q99")


def _write(folder: Path, side: str, name: str, rows: pa.Table) -> None:
    (folder / side / name).mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / side / name / "part.parquet")
