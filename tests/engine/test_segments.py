"""Segment files: synced, described, adopted; several streams in one."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.engine import segments
from millstream.engine.reading import tag_of
from millstream.engine.segments import EMPTY, Segment, SegmentStore, Written
from millstream.engine.steps import Removals


def table(*times: int, ends: list[int] | None = None) -> pa.Table:
    columns = {"_ts": pa.array(times, pa.int64()), "c0": pa.array([str(t) for t in times])}
    if ends is not None:
        columns["_until"] = pa.array(ends, pa.int64())
    return pa.table(columns)


def as_segment(part: Written) -> Segment:
    return Segment(
        "s", 1, 1, part.file, part.tag, part.rows, part.size, part.ts_min, part.ts_max,
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


def test_rows_of_several_streams_in_one_file(store: SegmentStore) -> None:
    parts = store.write_tagged({7: table(1, 2), 8: table(), 9: table(5)})
    assert parts[8] == EMPTY
    assert parts[7].file == parts[9].file
    assert (parts[7].rows, parts[9].rows, parts[9].ts_min) == (2, 1, 5)
    assert store.read(as_segment(parts[7]))["c0"].to_pylist() == ["1", "2"]
    assert store.read(as_segment(parts[9]))["c0"].to_pylist() == ["5"]
    meta = pq.read_metadata(store.path(str(parts[7].file)))
    assert meta.num_row_groups == 2, "a reader skips what it does not want"
    assert store.write_tagged({7: table()}) == {7: EMPTY}


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


def test_tags_are_the_same_everywhere() -> None:
    assert tag_of("o:abc") == tag_of("o:abc")
    assert tag_of("o:abc") != tag_of("o:abd")
    assert 0 <= tag_of("o:abc") < 2**31


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
