"""What a processor says it has, against what the manager remembers: the processor is right.

Used when a processor joins, comes back, or a manager was started again: moves continue from what
their two owners say, records of finished moves are cleared, and the owner of a stream is the
processor that has it with the highest epoch.
"""

from millstream.control.manager.connections import owner_of
from millstream.control.manager.state import NOBODY, Move
from millstream.control.manager.turn import Turn
from millstream.control.moves.base_streams import label_of, record_of, settle
from millstream.control.moves.table import BEFORE_SEAL, COMMITTED, Phase, Story
from millstream.control.protocol.commands import Command, Complete, Undo
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import Inventory
from millstream.control.protocol.replies import MoveRecord as Told

LOOK_AGAIN_S = 5.0


def reconcile(turn: Turn, processor: str, have: Inventory) -> list[Command]:
    """What a processor says of moves, against what is remembered; gives what to tell it at once."""
    said: list[Command] = []
    for name, told in have.moves.items():
        move = turn.state.moves.get(name)
        if move is None or move.over:
            said += _stray(turn, processor, name, told, move)
        elif told.role == "old" and told.phase in COMMITTED and move.phase in BEFORE_SEAL:
            found_sealed(turn, move, processor)
    _believe_owners(turn, processor, have)
    _follow_pointers(turn)
    return said


def found_sealed(turn: Turn, move: Move, by: str) -> None:
    """The old owner has sealed what was not known to be: the seal again gives its details."""
    story = move.story.through(Phase.READY, by, turn.now_s, "it is sealed")
    turn.move(move.id, story=story, outcome="", told=frozenset({"asked"}))


def _stray(turn: Turn, processor: str, name: str, told: Told, move: Move | None) -> list[Command]:
    """A move that is over, or that nobody here knows."""
    if move is not None and move.phase is Phase.DONE:
        return [Complete(name)]
    lost = turn.state.lost
    peer_lost = told.peer in lost and told.peer not in turn.state.processors
    if peer_lost or any(name in one.moves for one in lost.values()):
        over = told.phase is Phase.OWNED or (told.role == "old" and told.phase is Phase.SEALED)
        return [Complete(name) if over else Undo(name, lost=True)]
    if told.phase not in COMMITTED and _may_be_sealed(turn, processor, told):
        turn.live(processor, look_again_s=(turn.now_s + LOOK_AGAIN_S,))
        return []
    if told.phase not in COMMITTED:
        return [Undo(name)]
    records = (record_of(turn.state, o) for o in told.operators)
    mine = all(known is None or known.processor == processor for known in records)
    if told.role == "new" and told.phase is Phase.OWNED and mine:
        return [Complete(name)]
    if told.peer in turn.state.processors:  # handed over: there is only forward
        old, new = (processor, told.peer) if told.role == "old" else (told.peer, processor)
        phase = Phase.READY if told.role == "old" else Phase.SEALED
        adopted = Move(
            name, told.operators, old, new, "found under way",
            Story().through(phase, processor, turn.now_s, "found under way"), turn.now_s,
            told=frozenset({"asked"}),
        )  # fmt: skip
        turn.put(adopted)
        turn.decide("notice", f"the move {name} from {old} to {new} was found under way")
    return []


def _may_be_sealed(turn: Turn, processor: str, told: Told) -> bool:
    """Whether the old owner may have handed over what the new one still prepares for: then only
    the new one can go on, and its copy must stay until the old one has been heard."""
    old = turn.state.live.get(told.peer)
    return told.role == "new" and told.peer != processor and old is not None and old.actual is None


def _believe_owners(turn: Turn, processor: str, have: Inventory) -> None:
    """Processors know who owns a stream: the highest epoch counts."""
    moving = {o for m in turn.state.moves.values() if m.frozen for o in m.operators}
    for stream, epoch in have.owned.items():
        record = record_of(turn.state, stream)
        if record is None or stream in moving or epoch < record.epoch:
            continue
        if record.processor == processor:
            if epoch != record.epoch:
                settle(turn, stream, processor, epoch)
        elif epoch > record.epoch and record.processor != NOBODY:
            settle(turn, stream, processor, epoch)
            turn.decide(
                "notice",
                f"{label_of(turn.state, stream)} is on {processor}, not on {record.processor}",
                "its owner says so, with a higher epoch",
                subjects=(stream,),
            )


def _follow_pointers(turn: Turn) -> None:
    """A processor that has handed a stream on knows to whom: processors that balance without a
    manager have moved operators while nobody here was looking. Whoever is asked first, nothing is
    told to a former owner before its pointer has been followed."""
    moving = {o for m in turn.state.moves.values() if m.frozen for o in m.operators}
    running = {o for q in turn.state.queries.values() if q.phase == "running" for o in q.operators}
    entering = {s.id for s in turn.state.streams.values()}
    for stream in sorted(((running & turn.state.operators.keys()) | entering) - moving):
        while (to := _handed_to(turn, stream)) is not None:
            former = owner_of(turn.state, stream)
            settle(turn, stream, to.processor, to.epoch)
            turn.decide(
                "notice",
                f"{label_of(turn.state, stream)} is on {to.processor}, not on {former}",
                "its former owner has handed it over",
                subjects=(stream,),
            )


def _handed_to(turn: Turn, stream: str) -> Peer | None:
    """Who has a stream by now, as the one who is believed to have it says."""
    record = record_of(turn.state, stream)
    assert record is not None
    live = turn.state.live.get(record.processor)
    have = live.actual if live is not None else None
    to = have.handed.get(stream) if have is not None and stream not in have.owned else None
    known = to is not None and to.epoch > record.epoch and to.processor in turn.state.processors
    return to if known else None
