"""The manager's part of a move: what is heard goes in, what is said comes out."""

from dataclasses import replace

import pytest

from millstream.control.manager.events import RequestMove
from millstream.control.manager.reconciliation import reconcile
from millstream.control.manager.state import (
    Live,
    ManagerState,
    Move,
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
    Complete,
    Host,
    Prepare,
    Progress,
    Seal,
    TakeOver,
    Undo,
)
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import (
    Done,
    Inventory,
    MoveRecord,
    Progressed,
    Refusal,
    Reply,
    Sealed,
    SealedStream,
)

ID = "m1-1"
HOST = Host("q", "SELECT 1", 0, ("o:a",), True)
P1, P2 = Peer("p1", "http://p1"), Peer("p2", "http://p2")
PREPARE = Prepare(ID, (HOST,), {"s:x": P1}, P1)
SEAL = Seal(ID, ("o:a",), P2)
SEALED = Sealed({"o:a": SealedStream(7, 2, {"s:x": 5})})
READY = Progressed(Phase.READY)
BUSY = Refusal("busy", "not now")


def inventory(expected: tuple[str, ...] = ()) -> Inventory:
    return Inventory({}, (), {}, {}, {}, {"s:x": expected}, {}, {})


class Manager:
    """A manager of p1, which has `o:a` over its own stream `s:x`, and p2."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.state = ManagerState(
            processors={p: Processor(p, f"http://{p}", 1) for p in ("p1", "p2")},
            streams={"x": StreamRecord("x", {"name": "x"}, "p1")},
            queries={"q": Query("q", HOST.cql, phase="running", start=0, operators=("o:a",),
                                result="o:a")},
            operators={"o:a": OperatorRecord("o:a", "map", "a", ("s:x",), 8, {}, "p1", 1)},
            live={p: Live(state="up", actual=inventory()) for p in ("p1", "p2")},
        )  # fmt: skip
        turn = self._turn()
        migration.request(turn, RequestMove(("o:a",), "p2", "a test"))
        self._end(turn)

    def _turn(self) -> Turn:
        self.now_s += 1.0
        return Turn(self.state, self.now_s)

    def _end(self, turn: Turn) -> None:
        migration.advance(turn)
        self.state = turn.state

    @property
    def move(self) -> Move:
        return self.state.moves[ID]

    def hears(self, processor: str, command: Command, reply: Reply) -> None:
        turn = self._turn()
        migration.note(turn, processor, command, reply)
        self._end(turn)

    def learns(self, processor: str, have: Inventory) -> None:
        turn = self._turn()
        turn.live(processor, actual=have)
        reconcile(turn, processor, have)
        self._end(turn)

    def says(self) -> dict[str, list[Command]]:
        told = {p: migration.commands_for(self.state, p) for p in ("p1", "p2")}
        return {p: commands for p, commands in told.items() if commands}

    def goes_to(self, phase: Phase) -> None:
        """The way of a move that goes well, as far as a phase."""
        self.learns("p1", inventory(("p2",)))
        steps: dict[Phase, tuple[str, Command, Reply]] = {
            Phase.PREPARING: ("p2", PREPARE, Done()),
            Phase.READY: ("p2", Progress(ID), READY),
            Phase.SEALED: ("p1", SEAL, SEALED),
            Phase.OWNED: ("p2", Progress(ID), Progressed(Phase.OWNED)),
        }
        for heard in steps.values():
            if self.move.phase is phase:
                return
            self.hears(*heard)
        assert self.move.phase is phase


def test_a_move_from_beginning_to_end() -> None:
    manager = Manager()
    assert manager.move.phase is Phase.PREPARING
    assert manager.says() == {}, "first the owners of its inputs keep rows for the target"
    manager.learns("p1", inventory(("p2",)))
    assert manager.says() == {"p2": [PREPARE]}
    manager.hears("p2", PREPARE, Done())
    manager.now_s += 1.0
    manager.hears("p2", Progress(ID), Progressed(Phase.PREPARING, 10))
    manager.state = replace(manager.state, now_s=manager.now_s + 5.0)
    assert manager.says() == {"p2": [Progress(ID)]}
    manager.hears("p2", Progress(ID), READY)
    assert manager.says() == {"p1": [SEAL]}
    manager.hears("p1", SEAL, SEALED)
    assert manager.says() == {"p2": [TakeOver(ID, P1)]}
    assert (manager.state.operators["o:a"].processor, manager.state.operators["o:a"].epoch) == (
        "p2", 2,
    )  # fmt: skip
    manager.hears("p2", TakeOver(ID, P1), Done())
    manager.learns("p1", inventory())
    manager.hears("p2", Progress(ID), Progressed(Phase.OWNED))
    assert manager.move.settled
    assert manager.says() == {"p1": [Complete(ID)], "p2": [Complete(ID)]}
    manager.hears("p1", Complete(ID), Done())
    assert manager.says() == {"p2": [Complete(ID)]}
    manager.hears("p2", Complete(ID), Done())
    assert manager.says() == {}
    assert [(e.phase, e.by) for e in manager.move.story.events] == [
        ("preparing", "manager"), ("ready", "p2"), ("sealed", "p1"), ("owned", "p2"),
        ("done", "manager"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("phase", "processor", "command", "reply", "why"),
    [
        (Phase.PREPARING, "p2", PREPARE, Refusal("mistake", "no"), "p2 cannot take it: no"),
        (Phase.PREPARING, "p2", Progress(ID), Progressed(Phase.PREPARING, reason="full"),
         "p2 could not prepare: full"),
        (Phase.PREPARING, "p2", Progress(ID), Progressed(Phase.UNDONE),
         "p2 could not prepare: it is undone there"),
        (Phase.READY, "p1", SEAL, Refusal("unknown", "what"), "p1 cannot hand over: what"),
    ],
)  # fmt: skip
def test_before_the_seal_what_goes_wrong_undoes_the_move(
    phase: Phase, processor: str, command: Command, reply: Reply, why: str
) -> None:
    manager = Manager()
    manager.goes_to(phase)
    manager.hears(processor, command, reply)
    assert manager.move.undoing
    assert manager.move.outcome == why
    assert manager.says() == {"p2": [Undo(ID)]}
    manager.hears("p2", Undo(ID), BUSY)
    assert manager.says() == {"p2": [Undo(ID)]}, "said until it was heard"
    manager.hears("p2", Undo(ID), Done())
    assert (manager.move.phase, manager.says()) == (Phase.UNDONE, {})
    assert manager.move.story.events[-1].why == why


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.READY])
@pytest.mark.parametrize("undoing", [False, True])
def test_a_seal_that_nobody_here_knew_of_is_asked_for_again(phase: Phase, undoing: bool) -> None:
    manager = Manager()
    manager.goes_to(phase)
    if undoing:
        turn = manager._turn()
        migration.undo(turn, turn.state.moves[ID], "a test")
        manager.state = turn.state
    sealed = replace(
        inventory(("p2",)), moves={ID: MoveRecord("old", Phase.SEALED, ("o:a",), "p2")}
    )
    manager.learns("p1", sealed)
    assert (manager.move.phase, manager.move.outcome) == (Phase.READY, "")
    assert manager.says() == {"p1": [SEAL]}
    manager.hears("p1", SEAL, SEALED)
    assert manager.says() == {"p2": [TakeOver(ID, P1)]}


def test_who_says_that_it_is_sealed_is_believed_by_who_undoes() -> None:
    manager = Manager()
    manager.goes_to(Phase.READY)
    manager.hears("p1", SEAL, Refusal("unknown", "what"))
    manager.hears("p2", Undo(ID), Refusal("sealed", "it is sealed"))
    assert manager.says() == {"p1": [SEAL]}


@pytest.mark.parametrize("phase", [Phase.SEALED, Phase.OWNED])
@pytest.mark.parametrize(
    "reply", [BUSY, Refusal("mistake", "no"), Progressed(Phase.READY), Progressed(Phase.REQUESTED)]
)
def test_after_the_seal_there_is_only_forward(phase: Phase, reply: Reply) -> None:
    manager = Manager()
    manager.goes_to(phase)
    for command in (PREPARE, Progress(ID), SEAL, Undo(ID)):
        for processor in ("p1", "p2"):
            manager.hears(processor, command, reply)
            assert manager.move.phase is phase
            assert not manager.move.undoing


def test_a_target_that_has_forgotten_is_told_again() -> None:
    manager = Manager()
    manager.goes_to(Phase.PREPARING)
    manager.hears("p2", PREPARE, Done())
    manager.hears("p2", Progress(ID), Progressed(Phase.REQUESTED))
    assert manager.says() == {"p2": [PREPARE]}


def test_a_move_of_what_is_moving_waits() -> None:
    manager = Manager()
    turn = manager._turn()
    state = turn.state
    turn.put(replace(state.operators["o:a"], id="o:b", inputs=("o:a",)))
    turn.put(replace(state.queries["q"], operators=("o:a", "o:b"), result="o:b"))
    migration.request(turn, RequestMove(("o:b",), "p2", "a test"))
    manager._end(turn)
    second = list(manager.state.moves.values())[-1]
    assert second.phase is Phase.REQUESTED
