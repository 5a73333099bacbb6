"""The manager's side of a move: the next step, its messages and receivers, undone or completed.

The six steps of D-CAPE (section 6.3, algorithm 6) in the phases of `moves.py`. The seal at the old
owner is the commit point: before it a move that cannot continue is undone, after it there is only
forward, however long the two owners are away. At most one move touches a stream at a time, as its
subject or beside it; others wait. What the owners say is the truth; this state machine only
remembers what to ask. Within a phase `told` has what is known already:

    requested   another move is near
    preparing   inputs: their owners keep rows for the target    new: the target has begun
    ready       asked: the old owner has sealed, and is asked for the details
    sealed      new: the target has been told to take over
    owned       readers: those left behind are connected         old, new: they have forgotten it
"""

from collections.abc import Iterable

from millstream.control.admission.rules import answers
from millstream.control.manager.connections import (
    hosting_of,
    outside_inputs,
    owner_of,
    placed_operators,
    readers,
)
from millstream.control.manager.events import RequestMove
from millstream.control.manager.reconciliation import found_sealed
from millstream.control.manager.state import NOBODY, ManagerState, Move, StreamRecord
from millstream.control.manager.turn import Turn
from millstream.control.moves import base_streams
from millstream.control.moves.table import COMMITTED, ENDED, Phase
from millstream.control.protocol.commands import (
    Command,
    Complete,
    Prepare,
    Progress,
    Seal,
    TakeOver,
    Undo,
)
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import Done, Progressed, Refusal, Reply, Sealed
from millstream.control.recovery.silence import WAYS, silence
from millstream.core.errors import UsageError

ASK_S = 0.2  # between questions how far a move is; after a while they become rarer
ASK_S_MAX = 2.0
LOOK_AGAIN_S = (5.0, 30.0, 120.0)


def request(turn: Turn, asked: RequestMove) -> None:
    """Operators shall run elsewhere: one move for each processor they are on now."""
    state = turn.state
    problem = objection(state, asked.operators, asked.target)
    if problem:
        raise UsageError(problem)
    sources: dict[str, list[str]] = {}
    for name in dict.fromkeys(asked.operators):
        if (owner := owner_of(state, name)) != asked.target:
            sources.setdefault(owner, []).append(name)
    for source, operators in sources.items():
        number = turn.count()
        move = Move(
            f"m{state.epoch}-{number}", tuple(operators), source, asked.target, asked.reason,
            begun_s=turn.now_s,
        )  # fmt: skip
        turn.put(move)
        labels = ", ".join(base_streams.label_of(state, o) for o in operators)
        turn.decide(
            "move",
            f"{labels} {'goes' if len(operators) == 1 else 'go'} from {source} to {asked.target}",
            asked.reason,
            about=("processor", asked.target),
            subjects=tuple(operators),
        )


def objection(state: ManagerState, operators: Iterable[str], target: str) -> str:
    """Why a move is impossible; empty if it is not."""
    if target not in state.processors:
        return f"there is no processor {target}"
    if not answers(state, target):
        return f"processor {target} does not answer"
    moving = {o: m for m in state.moves.values() if not m.over for o in m.operators}
    for name in operators:
        record = base_streams.record_of(state, name)
        if record is None or record.processor == NOBODY:
            return f"there is no running operator {name}"
        if quiet := silence(state, record.processor):
            return f"{quiet}, and has {name}: {WAYS.format(record.processor)}"
        if name in moving and not (moving[name].settled or moving[name].undoing):
            return f"operator {name} is on its way to {moving[name].target} already"
        if isinstance(record, StreamRecord):
            if problem := base_streams.objection(state, record, target):
                return problem
            continue
        # its owner there would have to keep it for the target, and is not ours to ask
        beyond = [s for s in record.inputs if s in state.outside]
        if beyond:
            return f"operator {name} reads {beyond[0]}, from outside this manager's cluster"
    return ""


# -- what is said ---------------------------------------------------------------------------------


def commands_for(state: ManagerState, processor: str) -> list[Command]:
    """What a processor is to be told or asked about moves now."""
    found: list[Command] = []
    for move in state.moves.values():
        if processor in (move.source, move.target) and not move.over:
            found += _said(state, move, processor)
    return found


def _said(state: ManagerState, move: Move, processor: str) -> list[Command]:
    new = processor == move.target
    match move.phase:
        case Phase.PREPARING | Phase.READY if move.undoing:
            return [Undo(move.id)] if new else []  # it asks the old owner first
        case Phase.PREPARING if new and "inputs" in move.told:
            if "new" not in move.told:
                return [_prepare(state, move)]
            return [Progress(move.id)] if _due(state, move) else []
        case Phase.READY if not new:
            if not answers(state, move.target) and "asked" not in move.told:
                return [Progress(move.id)]  # sealed or not? nobody would take over now
            return [Seal(move.id, move.operators, _peer(state, move.target))]
        case Phase.SEALED if new:
            if "new" not in move.told:
                return [TakeOver(move.id, _peer(state, move.source))]
            return [Progress(move.id)] if _due(state, move) else []
        case Phase.OWNED if "readers" in move.told and ("new" if new else "old") not in move.told:
            return [Complete(move.id)]
    return []


def _due(state: ManagerState, move: Move) -> bool:
    """Questions come quickly at first: most moves are short."""
    waited = max(0.0, state.now_s - max(move.begun_s, move.sealed_s))
    return state.now_s - move.asked_s >= min(ASK_S_MAX, max(ASK_S, waited / 20))


def _peer(state: ManagerState, processor: str, stream: str = "") -> Peer:
    epoch = state.operators[stream].epoch if stream in state.operators else 0
    return Peer(processor, state.processors[processor].url, epoch)


def _prepare(state: ManagerState, move: Move) -> Prepare:
    hosts = []
    for query in state.queries.values():
        mine = tuple(o for o in placed_operators(query) if o in move.operators)
        if mine and query.start is not None:
            hosts.append(hosting_of(state, query, mine, result=query.result in mine))
    inputs = {
        s: _peer(state, owner_of(state, s), s)
        for s in outside_inputs(state, move)
        if owner_of(state, s) != move.target
    }
    streams = base_streams.tables(state, move.operators)
    return Prepare(move.id, tuple(hosts), inputs, _peer(state, move.source), streams)


# -- what is heard --------------------------------------------------------------------------------


def note(turn: Turn, processor: str, command: Command, reply: Reply) -> None:
    """An answer about a move."""
    move = turn.state.moves.get(getattr(command, "move", ""))
    if move is None or move.over:
        return
    match command:
        case Prepare() if move.phase is Phase.PREPARING and not move.undoing:
            if isinstance(reply, Done):
                if not _current(turn.state, (command.old, *command.inputs.values())):
                    return  # somebody has moved house since it was said
                turn.move(move.id, told=move.told | {"new"}, asked_s=turn.now_s)
            elif isinstance(reply, Refusal) and reply.code != "busy":
                undo(turn, move, f"{move.target} cannot take it: {reply.message}")
        case Seal() if move.phase is Phase.READY:
            _note_seal(turn, move, reply)
        case TakeOver(_, old) if move.phase is Phase.SEALED:
            # who knows of no such move may have ended it, led by a manager whose memory is lost
            ended = isinstance(reply, Refusal) and reply.code == "unknown"
            heard = isinstance(reply, Done) and old is not None and _current(turn.state, (old,))
            if ended or heard:
                turn.move(move.id, told=move.told | {"new"}, asked_s=turn.now_s)
        case Progress() if isinstance(reply, Progressed):
            _note_progress(turn, move, processor, reply)
        case Complete() if move.phase is Phase.OWNED and not _busy(reply):
            _note_complete(turn, move, "new" if processor == move.target else "old")
        case Undo() if move.undoing and not _busy(reply):
            if isinstance(reply, Refusal) and reply.code == "sealed":
                found_sealed(turn, move, processor)
            else:
                turn.move_on(move, Phase.UNDONE, processor, move.outcome)
                turn.live(processor, actual=None)  # what it had for the move is gone


def _current(state: ManagerState, peers: Iterable[Peer]) -> bool:
    """Whether all addresses of a command still hold."""
    known = state.processors
    return all(p.processor in known and known[p.processor].url == p.url for p in peers)


def _busy(reply: Reply) -> bool:
    return isinstance(reply, Refusal) and reply.code == "busy"


def _note_seal(turn: Turn, move: Move, reply: Reply) -> None:
    if isinstance(reply, Sealed):
        streams = {s: (told.next, told.epoch) for s, told in reply.streams.items()}
        turn.move_on(
            move, Phase.SEALED, move.source, outcome="", streams=streams, sealed_s=turn.now_s,
            asked_s=turn.now_s,
        )  # fmt: skip
        for name in move.operators:
            record = base_streams.record_of(turn.state, name)
            if record is not None:
                epoch = streams.get(name, (0, record.epoch + 1))[1]
                base_streams.settle(turn, name, move.target, epoch)
        turn.live(move.source, actual=None)  # it has less now: ask
    elif isinstance(reply, Refusal) and reply.code not in ("busy", "stale") and not move.undoing:
        undo(turn, move, f"{move.source} cannot hand over: {reply.message}")


def _note_progress(turn: Turn, move: Move, processor: str, told: Progressed) -> None:
    turn.move(move.id, asked_s=turn.now_s, rows_missing=told.rows_missing)
    move = turn.state.moves[move.id]
    if move.undoing:
        return
    if move.phase is Phase.PREPARING and processor == move.target:
        if told.phase in COMMITTED:
            found_sealed(turn, move, processor)
        elif told.reason or told.phase in ENDED:
            why = told.reason or f"it is {told.phase} there"
            undo(turn, move, f"{move.target} could not prepare: {why}")
        elif told.phase is Phase.REQUESTED:
            turn.move(move.id, told=move.told - {"new"})  # say it again
        elif (
            told.phase is Phase.READY and told.rows_missing <= turn.state.settings.rows_missing_max
        ):
            turn.move_on(move, Phase.READY, processor)
    elif move.phase is Phase.READY and processor == move.source:
        if told.phase in COMMITTED:
            found_sealed(turn, move, processor)
        elif not answers(turn.state, move.target):
            undo(turn, move, f"{move.target} went silent before the hand-over")
    elif move.phase is Phase.SEALED and processor == move.target:
        if told.phase in (Phase.OWNED, Phase.DONE):
            turn.move_on(move, Phase.OWNED, processor)
            turn.live(move.target, actual=None)
        elif told.phase is not Phase.SEALED:
            turn.move(move.id, told=frozenset())  # say it again


def _note_complete(turn: Turn, move: Move, side: str) -> None:
    told = move.told | {side}
    turn.move(move.id, told=told)
    if told >= {"new", "old"}:
        turn.move_on(move, Phase.DONE, "manager")
        turn.live(move.source, actual=None)  # who has not followed the pointer yet?


def undo(turn: Turn, move: Move, why: str) -> None:
    """Before the seal: as if it had never been asked for."""
    turn.move(move.id, outcome=why, told=frozenset())
    told_anything = move.phase is Phase.READY or "inputs" in move.told
    if not told_anything:
        turn.move_on(turn.state.moves[move.id], Phase.UNDONE, "manager", why)
    turn.decide(
        "notice", f"the move {move.id} to {move.target} is undone", why,
        about=("processor", move.target), subjects=move.operators,
    )  # fmt: skip


# -- every turn -----------------------------------------------------------------------------------


def advance(turn: Turn) -> None:
    """Takes every move as far as it goes without an answer."""
    for move in list(turn.state.moves.values()):
        if move.over:
            continue
        if move.phase in (Phase.REQUESTED, Phase.PREPARING) and not move.undoing:
            _before_ready(turn, move)
        elif (
            move.phase is Phase.OWNED and "readers" not in move.told and _switched(turn.state, move)
        ):
            turn.move(move.id, told=move.told | {"readers"})
    turn.tidy_moves()


def _before_ready(turn: Turn, move: Move) -> None:
    state = turn.state
    used = {o for q in state.queries.values() for o in placed_operators(q)}
    gone = base_streams.gone(state, move.operators, used)
    for name in (move.source, move.target):
        if not answers(state, name) and _given_up(state, name):
            undo(turn, move, f"{name} does not answer")
            return
    if gone:
        undo(turn, move, f"no query uses {gone[0]} any more")
    elif move.phase is Phase.REQUESTED:
        if _free(state, move):
            _before_ready(turn, turn.move_on(move, Phase.PREPARING, "manager", begun_s=turn.now_s))
    elif turn.now_s - move.begun_s > state.settings.prepare_s_max:
        undo(turn, move, f"not ready after {state.settings.prepare_s_max:.0f} s")
    elif "inputs" not in move.told and _expected(state, move):
        turn.move(move.id, told=move.told | {"inputs"})


def _given_up(state: ManagerState, processor: str) -> bool:
    """Whether a processor is silent, not merely being asked what it has."""
    live = state.live.get(processor)
    return live is None or live.state == "silent"


def _free(state: ManagerState, move: Move) -> bool:
    """Whether no other move is near, and no query is being deployed on the same streams: what was
    held for it must stay where it is."""
    if any(_near(state, move, other) for other in _before(state, move)):
        return False
    touched = _touched(state, move)
    return not any(
        q.phase in ("holding", "placing", "deploying")
        and not touched.isdisjoint((*q.sources, *q.shared, *q.operators))
        for q in state.queries.values()
    )


def _before(state: ManagerState, move: Move) -> list[Move]:
    """Moves under way: those that wait go in the order they were asked for."""
    found = []
    for other in state.moves.values():
        if other.id == move.id:
            break
        if not other.over:
            found.append(other)
    later = [m for m in state.moves.values() if m.frozen and m.id != move.id]
    return found + [m for m in later if m not in found]


def _near(state: ManagerState, move: Move, other: Move) -> bool:
    """Whether two moves concern the same streams, as subject, input or reader."""
    if other.settled:
        return False
    if other.undoing:
        return other.target == move.target and bool(set(other.operators) & set(move.operators))
    return bool(_touched(state, move) & _touched(state, other))


def _touched(state: ManagerState, move: Move) -> set[str]:
    return {*move.operators, *outside_inputs(state, move)}


def _expected(state: ManagerState, move: Move) -> bool:
    """Whether the owners of the inputs keep rows for the target."""
    for stream in outside_inputs(state, move):
        owner = owner_of(state, stream)
        if owner == move.target:
            continue
        live = state.live.get(owner)
        if live is None or live.actual is None:
            return False
        if move.target not in live.actual.expected.get(stream, ()):
            return False
    return True


def _switched(state: ManagerState, move: Move) -> bool:
    """Whether operators left behind on the old owner have a copy of what they read; others follow
    the pointer."""
    live = state.live.get(move.source)
    if live is None or live.actual is None:
        return False
    left = [s for s in move.operators if move.source in readers(state).get(s, ())]
    return all(s in live.actual.connected for s in left)


def tell_again(turn: Turn) -> None:
    """Somebody has a new address: those who wait for another are told where it is, and everybody is
    asked whom they copy from; later again, because pointers of former owners have old addresses."""
    again = tuple(turn.now_s + wait for wait in LOOK_AGAIN_S)
    for name in turn.state.live:
        turn.live(name, actual=None, look_again_s=again)
    for move in list(turn.state.moves.values()):
        if move.phase in (Phase.PREPARING, Phase.SEALED):
            turn.move(move.id, told=move.told - {"new"})
