"""Segment files: synced, described, adopted; several streams in one."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.core.errors import StateError
from millstream.language.share.shared_plan import Place
from millstream.store import segments
from millstream.store.removals import Removals
from millstream.store.segments import EMPTY, Segment, SegmentStore, Written


def table(*times: int, ends: list[int] | None = None) -> pa.Table:
    columns = {"_ts": pa.array(times, pa.int64()), "c0": pa.array([str(t) for t in times])}
    if ends is not None:
        columns["_until"] = pa.array(ends, pa.int64())
    return pa.table(columns)


def as_segment(part: Written, stream: str = "s", tag: int | None = None) -> Segment:
    return Segment(
        stream, 1, 1, part.file, tag, part.rows, part.size, part.ts_min, part.ts_max,
        part.until_max, 0, 0.0,
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> SegmentStore:
    return SegmentStore(tmp_path / "segments")


def test_a_file_is_described_as_it_is_written(store: SegmentStore) -> None:
    part = store.write(table(5, 3, 9, ends=[7, 30, 10]))
    assert (part.rows, part.ts_min, part.ts_max, part.until_max) == (3, 3, 9, 30)
    assert part.size == os.path.getsize(store.path(str(part.file)))
    assert store.read(as_segment(part))["c0"].to_pylist() == ["5", "3", "9"]
    assert store.write(table()) == EMPTY
    assert store.files() == [part.file]


def test_rows_of_several_streams_in_one_file(tmp_path: Path) -> None:
    places = {
        "o:a": Place(0, 1, {"c0": "c1"}),
        "o:b": Place(0, 2, {"c0": "c2", "c1": "c1", "_until": "c3"}),
        "o:c": Place(0, 4, {"c0": "c1"}),
    }
    store = SegmentStore(tmp_path, {3: places}.__getitem__)
    wide = pa.table(
        {
            "_ts": [5, 3, 9],
            "c0": pa.array([1, 3, 2], pa.int64()),
            "c1": ["x", "y", "z"],
            "c2": [1.0, 2.0, 3.0],
            "c3": [50, 30, 90],
        }
    )
    parts = store.write_wide(wide, places)
    assert parts["o:c"] == EMPTY
    assert parts["o:a"].file == parts["o:b"].file
    told = {s: (w.rows, w.ts_min, w.ts_max, w.until_max) for s, w in parts.items() if w.rows}
    assert told == {"o:a": (2, 3, 5, 5), "o:b": (2, 3, 9, 90)}
    assert parts["o:a"].size == parts["o:b"].size > 0
    for again in (store, SegmentStore(tmp_path, {3: places}.__getitem__)):
        first = again.read(as_segment(parts["o:a"], "o:a", 3))
        assert first.to_pydict() == {"_ts": [5, 3], "c0": ["x", "y"]}
        second = again.read(as_segment(parts["o:b"], "o:b", 3))
        assert second.to_pydict() == {
            "_ts": [3, 9],
            "c0": [2.0, 3.0],
            "c1": ["y", "z"],
            "_until": [30, 90],
        }
    assert store.write_wide(wide.slice(0, 0), places)["o:a"] == EMPTY
    with pytest.raises(StateError, match="layout 3 is not known"):
        SegmentStore(tmp_path).read(as_segment(parts["o:a"], "o:a", 3))


def test_row_groups_are_small_enough_to_skip(
    store: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "ROW_GROUP_ROWS", 10)
    part = store.write(table(*range(95)))
    assert pq.read_metadata(store.path(str(part.file))).num_row_groups == 10


def test_files_of_executors_are_adopted_whole(store: SegmentStore) -> None:
    folder = Path(store.path("x.parquet.writing"))
    folder.mkdir()
    for name, content in (("part-1.parquet", table(4)), ("part-0.parquet", table(1, 2))):
        pq.write_table(content, folder / name)
    pq.write_table(table(), folder / "part-2.parquet")
    (folder / "_SUCCESS").touch()
    parts = store.adopt_spark_output(str(folder))
    assert [(p.rows, p.ts_min, p.ts_max) for p in parts] == [(2, 1, 2), (1, 4, 4)]
    assert not folder.exists()
    assert sorted(store.files()) == sorted(str(p.file) for p in parts)


def test_drafts_of_jobs_that_were_cut_short_go(store: SegmentStore) -> None:
    kept = store.write(table(1))
    Path(store.path("y.parquet.writing")).mkdir()
    store.remove_drafts()
    assert [p.name for p in store.folder.iterdir()] == [kept.file]
    store.remove(str(kept.file))
    store.remove(str(kept.file))  # again: no harm
    assert store.files() == []


@pytest.mark.spark
def test_times_that_executors_write_read_back_as_they_were(spark: Any, store: SegmentStore) -> None:
    """Spark's default would end in the year 2262."""
    folder = store.path("z.parquet.writing")
    text = "SELECT 1L AS _ts, timestamp'9999-12-31 23:59:59.999999' AS c0"
    spark.sql(text).write.parquet(folder)
    (part,) = store.adopt_spark_output(folder)
    (row,) = store.read(as_segment(part)).to_pylist()
    assert row["c0"].replace(tzinfo=UTC) == datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


def test_files_go_when_all_who_may_read_them_have_ended() -> None:
    removals = Removals()
    early = removals.begin()
    removals.add(["a"])
    late = removals.begin()
    assert removals.due() == []
    removals.add(["b"])
    removals.end(early)
    assert removals.due() == ["a"], "who began after the removal cannot know the file"
    assert removals.due() == []
    removals.end(late)
    assert removals.due() == ["b"]
    with removals.reading():
        removals.add(["c"])
        assert removals.due() == []
    assert removals.due() == ["c"]


def test_a_segment_without_a_file_has_nothing_to_read(store: SegmentStore) -> None:
    with pytest.raises(ValueError, match="no rows to read"):
        store.read(replace(as_segment(EMPTY), file=None))
