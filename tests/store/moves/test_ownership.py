"""What a processor knows of others lies in its ledger and survives it."""

from pathlib import Path

import pytest

from millstream.control.moves.table import Phase, Story
from millstream.control.protocol.commands import Host, Prepare
from millstream.control.protocol.records import Peer
from millstream.core.errors import StateError
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.store.consumers import Consumer, Cursor, remote, subscriber
from millstream.store.ledger import Ledger
from millstream.store.moves import ownership as ownership_module
from millstream.store.moves.ownership import Copy, Handed, Ownership, definition_of
from millstream.store.moves.ownership import definition_text as text_of
from millstream.store.moves.records import (
    Extent,
    HandedStream,
    InputExtent,
    Move,
    Place,
    SealedRecord,
    StateRecord,
)
from millstream.store.moves.transfer import Distributor
from millstream.store.retention import Retention
from millstream.store.segments import EMPTY, Segment
from millstream.store.streams import Streams

P1 = Place("p1", "http://127.0.0.1:1")


def reached(phase: Phase) -> Story:
    return Story().through(phase, "p1", 12.5, "a test")


SEGMENT = Segment("o:2", 3, 4, None, None, 5, 60, -7, 8, 9, 10, 11.5)
MOVE = Move(
    "m1", "new", reached(Phase.SEALED), ("o:1",), P1,
    Prepare("m1", (Host("q", "SELECT 1", 0, ("o:1",), True),), {"o:2": Peer("p2", "http://p2", 3)},
            Peer("p1", "http://p1")),
    ("o:2",), (("o:2", P1),),
    SealedRecord(
        Extent({"o:1": {"o:2": Cursor(4, -5)}},
               {"o:2": InputExtent((SEGMENT,), 5, Place("p2"), 3)}),
        {"o:1": HandedStream(6, 2, 7, 8, 9, None, ("p3",), {"q": Cursor(1, 2)}, {"notes": [1, "x"]},
                             {"rows_in": 3, "seconds": 0.5},
                             {"o:1#0": StateRecord("{}", 2, (SEGMENT,))})},
        {"q": ("running", "")},
    ),
)  # fmt: skip


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
        ownership.set_move(MOVE)
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
    assert again.move("m1") == MOVE


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


def test_moves_that_ended_are_forgotten_but_for_the_latest(
    ownership: Ownership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership_module, "ENDED_KEPT", 3)
    with ownership.ledger.transaction():
        ownership.set_move(Move("a", "old", reached(Phase.SEALED), (), P1))
        for number in range(10):
            ownership.set_move(Move(f"m{number}", "old", reached(Phase.DONE), (), P1))
    assert [m.id for m in ownership.moves("old", list(Phase))] == ["a", "m7", "m8", "m9"]
    assert [m.id for m in ownership.moves("old", [Phase.SEALED])] == ["a"]
    assert ownership.moves("new", list(Phase)) == []


def test_who_reads_what(ownership: Ownership) -> None:
    with ownership.ledger.transaction() as ledger:
        for consumer, stream in ((remote("x"), "a"), (remote("x"), "b"), (remote("y"), "a"),
                                 (subscriber("x"), "a"), ("x", "a")):  # fmt: skip
            ledger.set_cursor(consumer, stream, 4, 0)
        ledger.drop_cursor(subscriber("x"), "b")
    assert ledger.consumers_of("processor") == {"x": ["a", "b"], "y": ["a"]}
    assert ledger.consumers_of("subscriber") == ledger.consumers_of("operator") == {"x": ["a"]}
    assert ledger.cursors(remote("x")) == {"a": (4, 0), "b": (4, 0)}
    with ledger.transaction():
        ledger.drop_consumer(remote("x"))
    ledger._forget()  # what lies in the file says the same
    assert set(ledger.consumers("a")) == {remote("y"), subscriber("x"), Consumer("operator", "x")}


def test_a_stream_that_came_back_sends_consumers_the_right_way(tmp_path: Path) -> None:
    """Owned from 1, handed on at 5, back at 5, handed on again at 7, back at 9."""
    streams = Streams(tmp_path)
    own = Ownership(streams.ledger)
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
    served = Distributor(Retention(streams, {}), own)

    def told(after: int, epoch: int) -> tuple[list[int], int, str]:
        page = served.page("o:1", after, "c", epoch)
        to = page.moved.to.processor if page.moved else ""
        return [s.first for s in page.segments], page.epoch, to

    assert told(3, 1) == ([3, 4], 1, "")
    assert told(5, 1) == ([], 2, "p1"), "it goes the way that the stream went"
    assert told(5, 3) == ([5, 6], 3, ""), "sent here by p1"
    assert told(7, 3) == ([], 4, "p2")
    assert told(9, 5) == ([9], 5, "")
