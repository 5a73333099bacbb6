"""What a ledger keeps in memory of what is asked at every choice: it is what the file says."""

import random
import sqlite3
from pathlib import Path

import pytest

from millstream.core.errors import StateError
from millstream.language.plan.windows import BEGINNING
from millstream.store.consumers import subscriber
from millstream.store.ledger import Ledger
from millstream.store.segments import Written

STREAMS = ("s:a", "o:1", "o:2")


def _written(random_: random.Random, number: int) -> Written:
    file = f"{number}.parquet"
    return Written(file, None, random_.randrange(1, 9), 10, number, number + 5, number + 5, "d")


def _change(ledger: Ledger, random_: random.Random, number: int) -> None:
    """One of the things that steps, deliveries and retention do."""
    stream = random_.choice(STREAMS)
    match random_.randrange(7):
        case 0 | 1:
            ledger.publish(stream, [_written(random_, number)], number)
        case 2:
            ledger.publish(stream, [], number)
        case 3:
            ledger.set_cursor(random_.choice(("o:1", subscriber("q"))), stream, number, number)
        case 4:
            ledger.record_step("o:1", random_.choice(({}, {"n": number})), 1, 1, 0.1)
        case 5:
            ledger.replace(ledger.segments(stream)[:1], None)
            ledger.retained_from(stream, random_.choice((number - 20, number)))
        case 6:
            random_.choice((
                lambda: ledger.note_last_row("s:b", number),
                lambda: ledger.change("DELETE FROM last_rows"),
                lambda: ledger.drop_consumer("o:1"),
                lambda: ledger.drop_cursor("o:1", stream),
                lambda: ledger.change("UPDATE streams SET next = next + 1 WHERE id = ?", (stream,)),
            ))()  # fmt: skip


def _as_kept(ledger: Ledger) -> list[object]:
    told: list[object] = [ledger.progress("o:1"), ledger.last_row("s:b"), ledger.last_row("s:a")]
    for stream in STREAMS:
        head = ledger.stream(stream)
        assert head is not None
        told += [dict(head), ledger.consumers(stream), ledger.segment_count(stream)]
        told += [[s.first for s in ledger.segments(stream, since)] for since in (0, 1, 3, 9, 99)]
    return told


@pytest.mark.parametrize("seed", range(20))
def test_memory_is_what_the_file_says(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    ledger = Ledger(tmp_path / "ledger.db")
    with ledger.transaction():
        for stream in STREAMS:
            ledger.add_stream(stream, "base" if stream == "s:a" else "map")
    for number in range(1, 60):
        try:
            with ledger.transaction():
                for _ in range(random_.randrange(1, 4)):
                    _change(ledger, random_, number)
                if random_.random() < 0.2:
                    raise InterruptedError
        except InterruptedError:
            pass
        kept = _as_kept(ledger)
        ledger._forget()
        assert kept == _as_kept(ledger), number
    ledger.close()


def test_a_stream_that_was_handed_over_is_refused_from_then_on(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    with ledger.transaction():
        ledger.add_stream("o:1", "map")
        ledger.publish("o:1", [], 1)
        ledger.change("INSERT INTO handed VALUES ('o:1', 1, 1, 'p', 'u')")
    with pytest.raises(StateError, match="handed to another"), ledger.transaction():
        ledger.publish("o:1", [], 2)
    with ledger.transaction():
        ledger.change("DELETE FROM handed WHERE stream = ?", ("o:1",))
        ledger.publish("o:1", [], 3)
    ledger.close()


def test_who_looks_at_all_cursors_hears_of_every_move_but_not_of_rows_that_come(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    with ledger.transaction():
        ledger.add_stream("s:a", "base")
        ledger.add_stream("o:1", "map")
    seen = ledger.moves_seen
    with ledger.transaction():
        ledger.publish("s:a", [_written(random.Random(1), 1)], BEGINNING)
    assert ledger.moves_seen == seen
    moves = (
        lambda: ledger.publish("o:1", [_written(random.Random(1), 2)], 5),
        lambda: ledger.set_cursor("o:1", "s:a", 2, 5),
        lambda: ledger.set_cursor(subscriber("q"), "o:1", 2, 5),
        lambda: ledger.replace(ledger.segments("o:1"), None),
        lambda: ledger.drop_cursor("o:1", "s:a"),
        lambda: ledger.drop_consumer(subscriber("q")),
        lambda: ledger.drop_stream("o:1"),
    )
    for move in moves:
        seen = ledger.moves_seen
        with ledger.transaction():
            move()
        assert ledger.moves_seen > seen
    seen = ledger.moves_seen
    with pytest.raises(sqlite3.OperationalError), ledger.transaction():
        ledger.change("INSERT INTO nowhere VALUES (1)")
    assert ledger.moves_seen > seen, "what was taken back may have been seen"
    ledger.close()
