"""The manager's part in a move of a base stream: what is heard goes in, what is said comes out."""

from dataclasses import replace

import pytest

from millstream.control.manager.connections import blueprint, increments
from millstream.control.manager.events import Drain, ForgetStream, RequestMove
from millstream.control.manager.manager import step
from millstream.control.manager.reconciliation import reconcile
from millstream.control.manager.state import (
    Live,
    Lost,
    ManagerState,
    OperatorRecord,
    Processor,
    Query,
    StreamRecord,
)
from millstream.control.manager.turn import Turn
from millstream.control.moves import migration
from millstream.control.moves.table import Phase
from millstream.control.protocol.commands import (
    Command,
    Declare,
    Prepare,
    Progress,
    Seal,
    StartStream,
    TakeOver,
)
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import (
    Done,
    Inventory,
    Progressed,
    Reply,
    Sealed,
    SealedStream,
)
from millstream.core.errors import UsageError

ID = "m1-1"
TABLE = {"name": "x", "source": "http"}
P1, P2 = Peer("p1", "http://p1"), Peer("p2", "http://p2")
PREPARE = Prepare(ID, (), {}, P1, (TABLE,))
SEAL = Seal(ID, ("s:x",), P2)
SEALED = Sealed({"s:x": SealedStream(7, 2, {})})


def inventory(ingest: bool, **more: object) -> Inventory:
    owned = {"s:x": 1} if ingest else {}
    started = ("x",) if ingest else ()
    have = Inventory({"x": ingest}, started, {}, owned, {}, {}, {}, {})
    return replace(have, **more)  # type: ignore[arg-type]


def managed(source: str = "http") -> ManagerState:
    """A manager of p1, where rows of `x` enter, and p2; `o:a` at p1 reads them."""
    return ManagerState(
        processors={p: Processor(p, f"http://{p}", 1) for p in ("p1", "p2")},
        streams={"x": StreamRecord("x", {**TABLE, "source": source}, "p1", True, epoch=1)},
        queries={"q": Query("q", "SELECT 1", phase="running", start=0, operators=("o:a",),
                            result="o:a", sources=("s:x",))},
        operators={"o:a": OperatorRecord("o:a", "map", "a", ("s:x",), 8, {}, "p1", 1)},
        live={"p1": Live(state="up", actual=inventory(True)),
              "p2": Live(state="up", actual=inventory(False))},
    )  # fmt: skip


class Manager:
    def __init__(self) -> None:
        self.now_s, self.state = 0.0, managed()
        turn = Turn(self.state, 0.0)
        migration.request(turn, RequestMove(("s:x",), "p2", "a test"))
        self._end(turn)

    def _end(self, turn: Turn) -> None:
        migration.advance(turn)
        self.state = turn.state

    def hears(self, processor: str, command: Command, reply: Reply) -> None:
        self.now_s += 1.0
        turn = Turn(self.state, self.now_s)
        migration.note(turn, processor, command, reply)
        self._end(turn)

    def has(self, processor: str, have: Inventory) -> None:
        self.now_s += 1.0
        turn = Turn(self.state, self.now_s)
        turn.live(processor, actual=have)
        reconcile(turn, processor, have)
        self._end(turn)

    def says(self) -> dict[str, list[Command]]:
        told = {p: migration.commands_for(self.state, p) for p in ("p1", "p2")}
        return {p: commands for p, commands in told.items() if commands}

    def declares(self, processor: str) -> list[Command]:
        plan = blueprint(self.state)
        said = increments(self.state, plan, processor)
        return [c for c in said if c.do in ("declare", "start_stream")]


def test_a_stream_moves_from_beginning_to_end() -> None:
    manager = Manager()
    assert manager.says() == {"p2": [PREPARE]}, "it reads nothing that others keep"
    assert PREPARE.operators == ("s:x",)
    manager.hears("p2", PREPARE, Done())
    manager.hears("p2", Progress(ID), Progressed(Phase.READY))
    assert manager.says() == {"p1": [SEAL]}
    manager.hears("p1", SEAL, SEALED)
    assert (manager.state.streams["x"].processor, manager.state.streams["x"].epoch) == ("p2", 2)
    assert manager.says() == {"p2": [TakeOver(ID, P1)]}
    handed = {"s:x": replace(P2, epoch=2)}
    manager.has("p1", inventory(False, handed=handed, connected={"s:x": replace(P2, epoch=2)}))
    for processor in ("p1", "p2"):
        assert manager.declares(processor) == [], "it is taken over, not declared"
    manager.hears("p2", Progress(ID), Progressed(Phase.OWNED))
    manager.has("p2", inventory(True, owned={"s:x": 2}))
    assert manager.state.moves[ID].settled
    for processor in ("p1", "p2"):
        assert manager.declares(processor) == []


def test_who_has_handed_a_stream_on_is_not_told_to_begin_with_it_again() -> None:
    """The seal took effect and nobody has heard of it: its pointer is news."""
    manager = Manager()
    manager.state = replace(manager.state, moves={})  # a manager that has forgotten the move
    away = inventory(False, handed={"s:x": Peer("p9", "http://p9", 2)})
    manager.has("p1", away)
    assert manager.declares("p1") == []
    lost = replace(manager.state, lost={"p9": Lost("p9", 0.0, 0.0)})
    manager.state = lost
    declared = Declare(dict(lost.streams["x"].table), True)
    assert manager.declares("p1") == [declared, StartStream("x")]
    manager = Manager()
    manager.state = replace(manager.state, moves={})
    manager.has("p1", inventory(False, handed={"s:x": replace(P2, epoch=2)}))
    assert manager.state.streams["x"].processor == "p2", "its pointer is followed"


def test_what_keeps_a_stream_where_it_is() -> None:
    assert "checkpoint" in migration.objection(managed("spark"), ("s:x",), "p2")
    assert migration.objection(managed(), ("s:x",), "p2") == ""
    assert "no running operator" in migration.objection(managed(), ("s:y",), "p2")
    below = managed()
    processors = {**below.processors, "p2": Processor("p2", "", 1, {"kind": "manager"})}
    assert "into or out of a manager's" in migration.objection(
        replace(below, processors=processors), ("s:x",), "p2"
    )


def test_a_stream_that_moves_is_not_forgotten() -> None:
    manager = Manager()
    alone = replace(manager.state, queries={}, operators={})
    with pytest.raises(UsageError, match="moving"):
        step(alone, ForgetStream("x"), 1.0)


def test_a_drained_processor_gives_its_streams_away() -> None:
    state, _ = step(managed(), Drain("p1"), 1.0)
    moving = {o: m.target for m in state.moves.values() for o in m.operators}
    assert moving == {"o:a": "p2", "s:x": "p2"}
    stays, _ = step(managed("spark"), Drain("p1"), 1.0)
    assert any("checkpoint" in d.sentence for d in stays.decisions)
