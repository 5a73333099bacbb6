"""A move without a manager: the old owner leads it, and this decides its next messages.

Two pure functions, `said` and `noted`, over one `Handover`: the next messages with their receivers,
and the effect of an answer. The commands are those of any move (control/protocol/commands.py), with
the same commit point: the seal in the old owner's own ledger. Before it whatever goes wrong undoes
the move; after it there is only forward. Since no participant sees the whole, the leader first
engages all processors that deal with the streams: a processor is engaged in one move at a time, and
a busy one says so instead of making others wait. So at most one move touches a stream, as with a
manager. The phases are those of `moves.py`: a requested move engages all of them; one that is done
or undone releases them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field

from millstream.control.moves.table import Phase, Story
from millstream.control.protocol.commands import Complete, Prepare, Progress, Seal, Undo
from millstream.control.protocol.records import Name, Peer
from millstream.control.protocol.replies import Done, Progressed, Refusal, Reply, Sealed
from millstream.core.errors import UsageError

AGAIN = ("busy", "stale")  # refusals that may be otherwise a little later


@dataclass(frozen=True, slots=True)
class Engage:
    """Take part in no other move for a while; `load` is what will come to the target."""

    move: Name
    load: Annotated[float, Field(ge=0, le=1000)] = 0.0
    lease_s: Annotated[float, Field(gt=0, le=600)] = 180.0  # after which nobody need end it
    do: Literal["engage"] = "engage"


@dataclass(frozen=True, slots=True)
class Disengage:
    move: Name
    do: Literal["disengage"] = "disengage"


PeerCommand = Engage | Disengage | Prepare | Progress | Undo | Complete


@dataclass(frozen=True, slots=True)
class Say:
    to: str
    command: PeerCommand | Seal


@dataclass(frozen=True, slots=True)
class Handover:
    """One move, led by its old owner."""

    prepare: Prepare
    me: str
    target: Peer
    near: tuple[str, ...]  # owners of inputs and readers of results, the two ends included
    load: float = 0.0  # as it is at its old owner
    arriving: float = 0.0  # as it will be at the target
    story: Story = field(default_factory=Story)
    begun_s: float = 0.0
    told: frozenset[str] = frozenset()  # who has confirmed the present phase
    engaged: frozenset[str] = frozenset()
    outcome: str = ""  # why it is, or is to be, undone; empty where it is not
    sealed: Mapping[str, int] = field(default_factory=dict)  # streams: their new epoch
    prepare_s_max: float = 120.0

    def __post_init__(self) -> None:
        if self.me == self.target.processor:
            raise UsageError("operators move to another processor, not to their own")

    @property
    def id(self) -> str:
        return self.prepare.move

    @property
    def phase(self) -> Phase:
        return self.story.phase

    @property
    def moved(self) -> bool:
        return bool(self.sealed)

    @property
    def over(self) -> bool:
        """Whether everybody has heard of the end."""
        return said(self) is None


def resumed(move: str, operators: tuple[str, ...], me: str, target: Peer, story: Story) -> Handover:
    """A move found sealed after a restart: there is only forward."""
    prepare = Prepare(move, (), {}, Peer(me, "-"))
    sealed = dict.fromkeys(operators, 0)
    return Handover(prepare, me, target, (), story=story, sealed=sealed)


def said(move: Handover) -> Say | None:
    """What is to be said now; None when the move is over."""
    target = move.target.processor
    match move.phase:
        case Phase.REQUESTED:
            return Say(_first(move.near, move.engaged), Engage(move.id, move.arriving))
        case Phase.PREPARING | Phase.READY if move.outcome:
            return Say(move.me, Undo(move.id))
        case Phase.PREPARING if "new" not in move.told:
            return Say(target, move.prepare)
        case Phase.PREPARING | Phase.SEALED:
            return Say(target, Progress(move.id))
        case Phase.READY:
            return Say(move.me, Seal(move.id, move.prepare.operators, move.target))
        case Phase.OWNED:
            return Say(move.me if "old" not in move.told else target, Complete(move.id))
        case Phase.UNDONE if "new" not in move.told:
            return Say(target, Undo(move.id))
        case _ if move.engaged:
            return Say(min(move.engaged), Disengage(move.id))
        case _:
            return None


def _first(near: tuple[str, ...], engaged: frozenset[str]) -> str:
    """In one order everywhere: who comes first gets all, and nobody waits for another."""
    return min(name for name in near if name not in engaged)


def noted(
    move: Handover, command: PeerCommand | Seal, reply: Reply | None, now_s: float
) -> Handover:
    """The move after an answer, or after silence."""
    match command:
        case Engage():
            return _after_engage(move, reply, now_s)
        case Prepare():
            return _after_prepare(move, reply, now_s)
        case Progress():
            return _after_progress(move, reply, now_s)
        case Seal():
            return _after_seal(move, reply, now_s)
        case Undo():
            return _after_undo(move, reply, now_s)
        case Complete():
            return _after_complete(move, reply, now_s)
        case _:  # who does not hear of its release is free when its lease ends
            return replace(move, engaged=move.engaged - {min(move.engaged)})


def _moved_on(
    move: Handover, phase: Phase, by: str, now_s: float, told: frozenset[str] = frozenset()
) -> Handover:
    return replace(move, story=move.story.then(phase, by, now_s, move.outcome), told=told)


def _after_engage(move: Handover, reply: Reply | None, now_s: float) -> Handover:
    asked = _first(move.near, move.engaged)
    if not isinstance(reply, Done):
        why = reply.message if isinstance(reply, Refusal) else "no answer"
        move = replace(move, outcome=f"{asked} takes no part: {why}")
        return _moved_on(move, Phase.UNDONE, asked, now_s, frozenset({"new"}))  # it knows nothing
    move = replace(move, engaged=move.engaged | {asked})
    whole = move.engaged.issuperset(move.near)
    return _moved_on(move, Phase.PREPARING, move.me, now_s) if whole else move


def _after_prepare(move: Handover, reply: Reply | None, now_s: float) -> Handover:
    if isinstance(reply, Done):
        return replace(move, told=frozenset({"new"}))
    if isinstance(reply, Refusal) and reply.code not in AGAIN:
        return undo(move, f"{move.target.processor} cannot take it: {reply.message}")
    return _in_time(move, now_s)


def _in_time(move: Handover, now_s: float) -> Handover:
    if now_s - move.begun_s > move.prepare_s_max:
        return undo(move, f"not ready after {move.prepare_s_max:.0f} s")
    return move


def _after_progress(move: Handover, reply: Reply | None, now_s: float) -> Handover:
    target = move.target.processor
    phase = reply.phase if isinstance(reply, Progressed) else None
    if move.phase is Phase.SEALED:
        owned = phase in (Phase.OWNED, Phase.DONE)
        return _moved_on(move, Phase.OWNED, target, now_s) if owned else move
    if isinstance(reply, Progressed) and (reply.reason or phase is Phase.UNDONE):
        why = reply.reason or "it is undone there"
        return undo(move, f"{target} could not prepare: {why}")
    if phase is Phase.REQUESTED:
        return replace(_in_time(move, now_s), told=frozenset())  # say it again
    if phase is Phase.READY:
        return _moved_on(move, Phase.READY, target, now_s)
    return _in_time(move, now_s)


def _after_seal(move: Handover, reply: Reply | None, now_s: float) -> Handover:
    if isinstance(reply, Sealed):
        epochs = {stream: told.epoch for stream, told in reply.streams.items()}
        return replace(_moved_on(move, Phase.SEALED, move.me, now_s), sealed=epochs)
    if isinstance(reply, Refusal) and reply.code not in AGAIN:
        return undo(move, f"it cannot be handed over: {reply.message}")
    return _in_time(move, now_s)


def undo(move: Handover, why: str) -> Handover:
    """Before the seal: as if it had never begun, once the old owner's ledger says so."""
    return replace(move, told=frozenset(), outcome=why)


def _after_undo(move: Handover, reply: Reply | None, now_s: float) -> Handover:
    if move.phase is Phase.UNDONE:
        # A target that does not hear of it finds out from us: the move is undone in our ledger.
        return replace(move, told=move.told | {"new"})
    if isinstance(reply, Refusal) and reply.code == "sealed":
        sealed = dict.fromkeys(move.prepare.operators, 0)
        story = move.story.through(Phase.SEALED, move.me, now_s, "it was sealed already")
        return replace(move, story=story, told=frozenset(), outcome="", sealed=sealed)
    return _moved_on(move, Phase.UNDONE, move.me, now_s, frozenset({"old"}))


def _after_complete(move: Handover, reply: Reply | None, now_s: float) -> Handover:
    if "old" not in move.told:
        return replace(move, told=frozenset({"old"})) if isinstance(reply, Done) else move
    return _moved_on(move, Phase.DONE, move.me, now_s)
