"""What a processor knows of others lies in its ledger and survives it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.cql.catalog import StreamDefinition
from millstream.engine.path_times import PathTimes
from millstream.errors import StateError
from millstream.plan.schema import Field
from millstream.store.ledger import Ledger
from millstream.store.ownership import Copy, Handed, Ownership, Place, definition_of, remote
from millstream.store.ownership import definition_text as text_of
from millstream.store.segments import EMPTY
from millstream.store.transfer import Distributor

P1 = Place("p1", "http://127.0.0.1:1")


@pytest.fixture
def ownership(tmp_path: Path) -> Ownership:
    return Ownership(Ledger(tmp_path / "ledger.db"))


def test_everything_is_there_again(ownership: Ownership, tmp_path: Path) -> None:
    stream = StreamDefinition("s", (Field("a", "int"),), "a", 5, source={"path": "x"})
    with ownership.ledger.transaction():
        ownership.declare(stream, ingest=True, started=False)
        ownership.host("q", "o:1")
        ownership.host("r", "o:1")
        ownership.keep_result("q")
        ownership.own("o:1", 3, 7)
        ownership.set_copy(Copy("o:2", P1, 2, 4, None, kept=True))
        ownership.set_move("m1", "new", "preparing", {"copied": ["o:2"]})
    ownership.ledger.close()
    again = Ownership(Ledger(tmp_path / "ledger.db"))
    declared = again.declared()["s"]
    assert text_of(declared.definition) == text_of(stream)
    assert (declared.ingest, declared.started) == (True, False)
    assert again.hosted() == {"q": ("o:1",), "r": ("o:1",)}
    assert again.users("o:1") == ("q", "r")
    assert again.kept_results() == {"q"}
    assert again.epoch("o:1") == 3
    assert again.copy("o:2") == Copy("o:2", P1, 2, 4, None, kept=True)
    assert again.move("m1").record == {"copied": ["o:2"]}


def test_definitions_survive_as_text() -> None:
    stream = StreamDefinition("s", (Field("a", "int"),), "a", 5, 6, 7, {"rate": 3})
    assert text_of(definition_of(text_of(stream))) == text_of(stream)


def test_a_stream_that_was_handed_over_takes_no_rows(ownership: Ownership) -> None:
    ledger = ownership.ledger
    with ledger.transaction():
        ledger.add_stream("o:1", "map")
        ownership.own("o:1", 1, 1)
        ledger.publish("o:1", [EMPTY], 5)
        ownership.hand("o:1", 2, 2, P1)
    with pytest.raises(StateError, match="handed"), ledger.transaction():
        ledger.publish("o:1", [EMPTY], 6)
    assert ownership.handed("o:1") == [Handed("o:1", 2, 2, P1)]
    assert ownership.epoch("o:1") == 2
    with ledger.transaction():
        ownership.own("o:1", 3, 9)
        ledger.publish("o:1", [EMPTY], 7)
    assert ledger.stream("o:1")["watermark"] == 7


def test_moves_that_ended_are_forgotten_but_for_the_latest(ownership: Ownership) -> None:
    with ownership.ledger.transaction():
        for number in range(10):
            ownership.set_move(f"m{number}", "old", "done", {})
        ownership.set_move("a", "old", "sealed", {})
        ownership.forget_ended(("done",), 3)
    assert [m.id for m in ownership.moves()] == ["a", "m7", "m8", "m9"]


def test_who_reads_what(ownership: Ownership) -> None:
    with ownership.ledger.transaction() as ledger:
        for consumer, stream in (("p:x", "a"), ("p:x", "b"), ("p:y", "a"), ("q:z", "a")):
            ledger.set_cursor(consumer, stream, 4, 0)
    assert ownership.consumers_named("p:") == {"x": ["a", "b"], "y": ["a"]}
    assert ownership.consumers_with("p:", "a") == {"x": 4, "y": 4}
    assert remote("x") == "p:x"


def test_a_stream_that_came_back_sends_consumers_the_right_way(tmp_path: Path) -> None:
    """Owned from 1, handed on at 5, back at 5, handed on again at 7, back at 9."""
    ledger = Ledger(tmp_path / "ledger.db")
    engine: Any = SimpleNamespace(ledger=ledger, operators={}, on_step=[])
    engine.path_times = PathTimes(engine)
    own = Ownership(engine.ledger)
    p2 = Place("p2")
    with own.ledger.transaction() as ledger:
        ledger.add_stream("o:1", "map")
        own.own("o:1", 1, 1)
        for mark in range(1, 5):
            ledger.publish("o:1", (), mark)
        own.hand("o:1", 5, 2, P1)
        own.own("o:1", 3, 5)
        for mark in range(5, 7):
            ledger.publish("o:1", (), mark)
        own.hand("o:1", 7, 4, p2)
        own.own("o:1", 5, 9)
        ledger.set_head("o:1", 9, 8, 0, 0)
        ledger.publish("o:1", (), 9)
    served = Distributor(engine, own)

    def told(after: int, epoch: int) -> tuple[list[int], int, str]:
        page = served.page("o:1", after, "c", epoch)
        to = page.moved.to.processor if page.moved else ""
        return [s.first for s in page.segments], page.epoch, to

    assert told(3, 1) == ([3, 4], 1, "")
    assert told(5, 1) == ([], 2, "p1"), "it goes the way that the stream went"
    assert told(5, 3) == ([5, 6], 3, ""), "sent here by p1"
    assert told(7, 3) == ([], 4, "p2")
    assert told(9, 5) == ([9], 5, "")
