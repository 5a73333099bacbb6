"""The ledger: atomic, gapless, refused to whoever was taken over."""

import sqlite3
import threading
from pathlib import Path

import pytest

from millstream.core.errors import ResourceError, StateError
from millstream.language.plan.windows import BEGINNING, FOREVER
from millstream.store.consumers import Consumer, hold_of
from millstream.store.ledger import Ledger
from millstream.store.ledger_file import VERSION
from millstream.store.segments import Written


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    opened = Ledger(tmp_path / "ledger.db")
    with opened.transaction():
        opened.add_stream("s:a", "base")
    return opened


def written(file: str, rows: int = 10, ts: int = 5) -> Written:
    return Written(file, None, rows, 100 * rows, ts, ts + 1, ts + 1)


def publish(ledger: Ledger, *parts: Written, watermark: int = BEGINNING) -> None:
    with ledger.transaction():
        ledger.publish("s:a", parts, watermark)


def test_numbers_follow_each_other(ledger: Ledger) -> None:
    publish(ledger, written("1"), written("2"), watermark=3)
    publish(ledger, watermark=4)
    publish(ledger, written("3"))
    found = ledger.segments("s:a")
    assert [(s.first, s.last, s.file) for s in found] == [
        (1, 1, "1"), (2, 2, "2"), (3, 3, None), (4, 4, "3"),
    ]  # fmt: skip
    row = ledger.stream("s:a")
    assert row is not None
    assert (row["next"], row["rows"], row["watermark"]) == (5, 30, 4)


def test_only_the_last_segment_of_a_step_promises(ledger: Ledger) -> None:
    """Those before it precede rows of the same step, which may be older than the promise."""
    publish(ledger, written("1"), watermark=2)
    publish(ledger, written("2"), written("3"), watermark=9)
    assert [s.watermark for s in ledger.segments("s:a")] == [2, 2, 9]


def test_an_empty_segment_only_where_it_tells_something(ledger: Ledger) -> None:
    publish(ledger, watermark=7)
    publish(ledger, watermark=7)
    publish(ledger, watermark=6)
    assert [s.watermark for s in ledger.segments("s:a")] == [7]


def test_a_change_that_fails_leaves_nothing(ledger: Ledger) -> None:
    """Neither on the disk nor in the copies in memory."""
    publish(ledger, written("1"))

    def half_a_step() -> None:
        with ledger.transaction():
            ledger.publish("s:a", [written("2")], 50)
            ledger.set_cursor("reader", "s:a", 2, 50)
            ledger.count("steps")
            ledger.drop_consumer("other")
            raise KeyboardInterrupt

    assert ledger.cursor("reader", "s:a") == (1, BEGINNING)
    with pytest.raises(KeyboardInterrupt):
        half_a_step()
    assert [s.file for s in ledger.segments("s:a")] == ["1"]
    assert ledger.cursor("reader", "s:a") == (1, BEGINNING)
    assert ledger.counters() == {}
    row = ledger.stream("s:a")
    assert row is not None
    assert row["next"] == 2


def test_what_was_committed_is_there_again(ledger: Ledger, tmp_path: Path) -> None:
    publish(ledger, written("1"), watermark=4)
    with ledger.transaction():
        ledger.set_cursor("reader", "s:a", 2, 4)
        ledger.record_step("op", {"version": 3}, 10, 5, 0.25)
        ledger.record_step("op", {"version": 4}, 1, 1, 0.25)
        ledger.set_ingest_position("s:a", {"file": 2})
    again = Ledger(tmp_path / "ledger.db")
    assert again.cursor("reader", "s:a") == (2, 4)
    assert again.progress("op") == {"version": 4}
    statistics = again.operator_statistics()["op"]
    assert (statistics["rows_in"], statistics["rows_out"], statistics["steps"]) == (11, 6, 2)
    assert again.ingest_position("s:a") == {"file": 2}
    assert again.epoch == ledger.epoch + 1


def test_who_was_taken_over_commits_nothing(ledger: Ledger, tmp_path: Path) -> None:
    newer = Ledger(tmp_path / "ledger.db")
    with pytest.raises(StateError, match="another process has taken over"):
        publish(ledger, written("1"))
    assert newer.segments("s:a") == []
    publish(newer, written("2"))
    assert [s.file for s in newer.segments("s:a")] == ["2"]


def test_another_format_is_refused(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").close()
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (str(VERSION + 1),))
    with pytest.raises(StateError, match="this version reads"):
        Ledger(tmp_path / "ledger.db")


def test_a_ledger_whose_making_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch()
    ledger = Ledger(tmp_path / "ledger.db")
    assert ledger.epoch == 1
    assert ledger.streams() == []


def test_a_full_disk_is_told_and_undone(ledger: Ledger) -> None:
    """SQLite itself refuses to grow beyond a number of pages, as on a full disk."""
    pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
    ledger._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(ResourceError, match="the disk is full"):
        publish(ledger, *(written("x" * 500 + str(i)) for i in range(200)), watermark=8)
    assert ledger.segments("s:a") == []
    ledger._db.execute("PRAGMA max_page_count=1000000")
    publish(ledger, written("1"))
    assert [s.first for s in ledger.segments("s:a")] == [1]


def test_replaced_segments_keep_their_numbers(ledger: Ledger) -> None:
    from dataclasses import replace  # noqa: PLC0415

    publish(ledger, written("1"), written("2"), written("3"))
    one, two, _ = ledger.segments("s:a")
    with ledger.transaction():
        gone = ledger.replace([one, two], replace(two, first=one.first, file="12", rows=20))
    assert sorted(gone) == ["1", "2"]
    assert [(s.first, s.last, s.file) for s in ledger.segments("s:a")] == [
        (1, 2, "12"),
        (3, 3, "3"),
    ]
    assert [s.file for s in ledger.segments("s:a", since=2)] == ["12", "3"]


def test_a_file_goes_when_its_last_part_does(ledger: Ledger) -> None:
    with ledger.transaction():
        ledger.add_stream("s:b", "base")
        ledger.publish("s:a", [Written("shared", 1, 5, 50, 1, 2, 2)], 2)
        ledger.publish("s:b", [Written("shared", 2, 5, 50, 1, 2, 2)], 2)
    with ledger.transaction():
        assert ledger.replace(ledger.segments("s:a"), None) == []
    assert ledger.named_files() == {"shared"}
    with ledger.transaction():
        assert ledger.drop_stream("s:b") == ["shared"]
    assert ledger.named_files() == set()


def test_what_consumers_hold(ledger: Ledger) -> None:
    publish(ledger, written("1", rows=1), written("2", rows=2))
    with ledger.transaction():
        ledger.set_cursor("slow", "s:a", 1, BEGINNING)
        ledger.set_cursor("quick", "s:a", 3, BEGINNING)
        ledger.set_cursor(hold_of("q"), "s:a", 2, BEGINNING)
    slow = Consumer("operator", "slow")
    assert ledger.held() == {(slow, "s:a"): 300, (hold_of("q"), "s:a"): 200}
    with ledger.transaction():
        ledger.drop_holds()
    assert ledger.held() == {(slow, "s:a"): 300}
    assert {c.name for c in ledger.consumers("s:a")} == {"slow", "quick"}


def test_an_infinite_watermark_fits(ledger: Ledger) -> None:
    publish(ledger, watermark=FOREVER)
    assert ledger.segments("s:a")[0].watermark == FOREVER


def test_threads_share_it(ledger: Ledger) -> None:
    def work(number: int) -> None:
        for i in range(50):
            with ledger.transaction():
                ledger.publish("s:a", [written(f"{number}-{i}")], BEGINNING)
                ledger.count("published")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [s.first for s in ledger.segments("s:a")] == list(range(1, 201))
    assert ledger.counters() == {"published": 200}


def test_on_shared_storage_there_is_no_write_ahead_log(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", local_disk=False)
    mode = ledger._db.execute("PRAGMA journal_mode").fetchone()[0]
    durable = ledger._db.execute("PRAGMA synchronous").fetchone()[0]
    assert (mode, durable) == ("delete", 2)
