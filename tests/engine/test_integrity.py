"""Bytes that change are found before anybody believes them; who does not read them goes on."""

import json
import os
import random
import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from damaged_homes import all_there, delivered, expected, gone_on, half_done, opened

from millstream.app import cli
from millstream.core.errors import DamageError, StateError
from millstream.engine.loop import Loop
from millstream.store.delivery import FileSink, Result
from millstream.store.integrity.scrub import scrub
from millstream.store.integrity.set_aside import SetAside
from millstream.store.ledger import Ledger
from millstream.store.ledger_file import SCHEMA
from millstream.store.segments import Segment, SegmentStore
from millstream.store.streams import Streams
from plain_plane import write


def flip(path: Path, at: int = 20) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_segment_is_checked_once_and_again_when_it_changes(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    segment = Segment.of("s:a", 1, write(store, [(1, 5), (2, 6)]), 2, 0.0)
    assert segment.digest
    assert segment.file is not None
    path = tmp_path / segment.file
    anew = SegmentStore(tmp_path)
    assert anew.read(segment)["c0"].to_pylist() == [5, 6]
    flip(path, path.stat().st_size // 2)
    for reader in (SegmentStore(tmp_path), anew):  # the writer has it in memory
        with pytest.raises(DamageError, match="a segment of stream s:a is damaged") as error:
            reader.read(segment)
        assert error.value.file == str(path)
        assert error.value.exit_code == 5
        assert "put the file back" in error.value.hint
    path.unlink()
    with pytest.raises(DamageError) as error:
        store.check([segment])
    assert error.value.detail == "the file is missing"


def with_rows_for_two(folder: Path) -> tuple[Path, Path]:
    """A half-done home where query two has a result that was not delivered; and its file."""
    for seed in range(100):
        place = folder / str(seed)
        place.mkdir()
        out = half_done(place, random.Random(seed))
        engine = opened(out)
        waiting = [s for s in engine.ledger.segments("s:a+1+2") if s.file]
        found = [Path(engine.store.path(str(s.file))) for s in waiting]
        engine.close()
        if found:
            return out, found[-1]
    raise AssertionError("no kill has left such a file")


def test_only_the_readers_of_a_damaged_file_are_parked(tmp_path: Path) -> None:
    out, path = with_rows_for_two(tmp_path)  # which only query two reads
    whole = path.read_bytes()
    flip(path)
    outcome = gone_on(out)
    assert outcome.parked == {"two"}
    assert outcome.said is not None
    assert str(path) in outcome.said.message
    assert delivered(out / "one") == expected("one")
    path.write_bytes(whole)
    assert gone_on(out).said is None
    assert delivered(out / "two") == expected("two")


def test_a_damaged_file_is_not_merged(tmp_path: Path) -> None:
    engine = opened(half_done(tmp_path, random.Random(0)))
    loop = Loop(engine)

    def damaged(stream: str) -> int:
        raise DamageError("damaged", file="x")

    engine.maintenance.compact = damaged  # type: ignore[method-assign]
    loop._compact("s:a")
    assert loop.damage.streams == {"s:a"}
    engine.close()


# -- the ledger -----------------------------------------------------------------------------------


def test_a_changed_row_of_the_ledger_is_found(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    with ledger.transaction():
        ledger.add_stream("s:a", "base")
        ledger.set_meta("x", "1")
        ledger.set_meta("x", "2")  # replaces: a row goes unseen without recursive triggers
        ledger.set_cursor("o", "s:a", 4, 0)
    ledger.close()
    Ledger(tmp_path / "ledger.db").close()
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.execute("UPDATE cursors SET next = 5")
    with pytest.raises(DamageError, match="is damaged") as error:
        Ledger(tmp_path / "ledger.db")
    assert "not those that were committed" in error.value.detail


def test_what_was_undone_counts_for_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")

    def half() -> None:
        with ledger.transaction():
            ledger.set_meta("x", "1")
            ledger.publish("s:a", [], 1)

    with pytest.raises(StateError, match="not in the ledger"):
        half()
    with ledger.transaction():
        ledger.add_stream("s:b", "base")
    ledger.close()
    again = Ledger(tmp_path / "ledger.db")
    assert [r["id"] for r in again.streams()] == ["s:b"]
    again.close()


def test_a_ledger_that_has_lost_commits_is_refused_and_nothing_goes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    streams = Streams(home)
    with streams.ledger.transaction() as ledger:
        ledger.add_stream("s:a", "base")
    shutil.copy(home / "ledger.db", tmp_path / "old.db")
    log = (home / "ledger.db-wal").read_bytes()
    for number in range(3):
        with streams.ledger.transaction() as ledger:
            ledger.publish("s:a", [write(streams.files, [(number, number)])], number)
    files = sorted(streams.files.files())
    streams.close()
    shutil.copy(tmp_path / "old.db", home / "ledger.db")
    (home / "ledger.db-wal").write_bytes(log)
    with pytest.raises(DamageError, match="older than the files beside it") as error:
        Streams(home)
    assert "remove" in error.value.hint
    assert sorted(p.name for p in (home / "segments").iterdir()) == files
    assert cli.run(["check", str(home)]) == 5
    (home / "ledger.db-water").unlink()  # as the hint says
    Streams(home).close()
    assert sorted(p.name for p in (home / "set-aside").rglob("*.parquet")) == files


def test_a_missing_or_empty_ledger_is_not_a_new_one(tmp_path: Path) -> None:
    streams = Streams(tmp_path)
    with streams.ledger.transaction() as ledger:
        ledger.add_stream("s:a", "base")
    streams.close()
    (tmp_path / "ledger.db").write_bytes(b"")
    with pytest.raises(DamageError):
        Streams(tmp_path)
    (tmp_path / "ledger.db").unlink()
    with pytest.raises(DamageError):
        Streams(tmp_path)


def test_a_ledger_of_the_format_before_gets_digests(tmp_path: Path) -> None:
    old = SCHEMA.replace("  digest TEXT NOT NULL DEFAULT '',\n", "")
    assert old != SCHEMA
    store = SegmentStore(tmp_path / "segments")
    written = write(store, [(1, 5)])
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.executescript(old + "INSERT INTO meta VALUES ('version', '2'), ('epoch', '3');")
        db.execute("INSERT INTO streams VALUES ('s:a', 'base', 2, 1, 1, 1, 0, '')")
        db.execute(
            "INSERT INTO segments VALUES ('s:a', 1, 1, ?, NULL, 1, 9, 1, 1, 1, 1, 0.5)",
            (written.file,),
        )
    streams = Streams(tmp_path)
    (segment,) = streams.ledger.segments("s:a")
    assert segment.digest == written.digest
    assert streams.ledger.epoch == 4
    streams.close()
    Streams(tmp_path).close()


def test_what_no_ledger_names_is_kept_for_a_while(tmp_path: Path) -> None:
    streams = Streams(tmp_path)
    name = write(streams.files, [(1, 1)]).file
    streams.close()
    Streams(tmp_path).close()
    (kept,) = (tmp_path / "set-aside").rglob("*.parquet")
    assert kept.name == name
    os.rename(kept.parent, kept.parent.with_name("1000000000"))
    SetAside(tmp_path).expire()
    assert not (tmp_path / "set-aside").exists()


# -- sinks ----------------------------------------------------------------------------------------

RESULT = Result("q", "o:1", ())


def part(*values: int) -> pa.Table:
    return pa.table({"v": list(values)})


def test_what_a_sink_holds_goes_only_once_it_is_there_again(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "q", "csv")
    for number in (1, 2, 3):
        sink.deliver(RESULT, number, number, part(number))
    sink.recover(2)
    parts = sorted(p.name for p in (tmp_path / "q").glob("part-*"))
    assert parts == ["part-0000000001-0000000001.csv"]
    aside = tmp_path / "q" / ".uncommitted"
    assert len(list(aside.iterdir())) == 2
    sink.deliver(RESULT, 2, 2, part(2))
    assert [p.name for p in aside.iterdir()] == ["part-0000000003-0000000003.csv"]
    sink.deliver(RESULT, 3, 5, part(3, 4))
    assert not aside.exists()


def test_a_ledger_that_does_not_know_what_was_delivered_is_refused(tmp_path: Path) -> None:
    out = half_done(tmp_path, random.Random(3))
    sink = FileSink(out / "one", "parquet")
    sink.deliver(RESULT, 998, 999, part(1))
    before = all_there(out / "two")
    with pytest.raises(DamageError, match="older than the files that it has delivered"):
        opened(out)
    assert all_there(out / "two") == before
    assert (out / "one" / "part-0000000998-0000000999.parquet").exists()


# -- millstream check -----------------------------------------------------------------------------


def test_check_names_what_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = half_done(tmp_path, random.Random(1))
    assert cli.run(["check", str(out)]) == 0
    told = capsys.readouterr().out
    assert "ledger ok" in told
    assert "0 damaged" in told
    segment = min((out / ".millstream" / "segments").glob("*.parquet"))
    sunk = min((out / "one").glob("part-*.parquet"))
    for path in (segment, sunk):
        flip(path)
    assert cli.run(["check", str(out), "--json"]) == 5
    report = json.loads(capsys.readouterr().out)
    assert {f["file"] for f in report["findings"]} == {str(segment), str(sunk)}
    assert all(f["problem"] and f["remedy"] for f in report["findings"])
    assert cli.run(["check", str(tmp_path)]) == 2


def test_check_leaves_a_home_in_use_alone(tmp_path: Path) -> None:
    streams = Streams(tmp_path)
    with streams.ledger.transaction() as ledger:
        ledger.add_stream("s:a", "base")
        ledger.publish("s:a", [write(streams.files, [(1, 1)])], 1)
    assert scrub(tmp_path).findings == []
    with streams.ledger.transaction() as ledger:  # nobody has taken it over
        ledger.add_stream("s:b", "base")
    streams.close()
