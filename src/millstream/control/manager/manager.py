"""The distribution manager as a pure function: `step(state, event, now) -> (state, messages)`.

Four components share the work (D-CAPE, figure 4.7): the runtime monitor (`manager_monitor`) knows
who is there, the query plan manager (`manager_plans`) takes queries from text to running and checks
distributions, the decision maker (`manager_decisions`, `admission`) chooses places and moves, the
connection manager (`manager_connections`) says what differs from what should be; `migration` leads
moves. A driver feeds events and sends messages; the simulator is another driver. After every event
the same things happen: queries and moves go as far as they can, then every processor that has no
message under way gets the next one. Mistakes of a user are raised before anything has changed.
"""

from dataclasses import replace
from typing import assert_never

from millstream.control.admission.rules import answers
from millstream.control.manager import (
    decisions,
    measures,
    monitor,
    plans,
    quality,
    reconciliation,
    tiers,
)
from millstream.control.manager.belief import after
from millstream.control.manager.connections import blueprint, increments
from millstream.control.manager.events import (
    Change,
    DeclareStream,
    Drain,
    Drop,
    Event,
    ForgetStream,
    FromAbove,
    Halt,
    Introduced,
    Joined,
    Pause,
    Remove,
    Replied,
    RequestMove,
    Restart,
    Send,
    SetGoals,
    SetSchedule,
    StartStreams,
    Submit,
    Tick,
    Unanswered,
)
from millstream.control.manager.state import DURABLE, NOBODY, ManagerState, Sent, StreamRecord
from millstream.control.manager.turn import Turn
from millstream.control.moves import migration
from millstream.control.protocol.commands import (
    Acquaint,
    Command,
    Compile,
    Complete,
    Configure,
    Declare,
    Disconnect,
    Hold,
    Host,
    Join,
    KeepReplicas,
    Prepare,
    Progress,
    Report,
    Reset,
    Seal,
    Stop,
    TakeInventory,
    TakeOver,
    Undo,
)
from millstream.control.protocol.envelope import MESSAGES_MAX, Envelope
from millstream.control.protocol.replies import (
    Done,
    Held,
    Inventory,
    Refusal,
    Replicas,
    Reply,
    Reported,
)
from millstream.control.recovery import (
    failed_queries,
    learning,
    losing,
    pausing,
    replication,
    silence,
    takeover,
)
from millstream.core.errors import UsageError
from millstream.core.names import problem_of

MOVE_COMMANDS = (Prepare, Progress, Seal, TakeOver, Undo, Complete)
COMPILES_MAX = 20  # texts in one message
MESSAGE_MESSAGES_MAX = MESSAGES_MAX // 2
DECLARED_AGAIN_S = 60.0  # after which a stream that was refused is told again


def step(state: ManagerState, event: Event, now_s: float) -> tuple[ManagerState, tuple[Send, ...]]:
    """One event; the same state, event and time give the same answer."""
    after, sends = _stepped(state, event, now_s)
    if all(getattr(after, kind) is getattr(state, kind) for kind in DURABLE):
        return after, sends
    revision = after.revision + 1  # what is said from here on was remembered before
    told = tuple(replace(s, envelope=replace(s.envelope, revision=revision)) for s in sends)
    return replace(after, revision=revision), told


def _stepped(
    state: ManagerState, event: Event, now_s: float
) -> tuple[ManagerState, tuple[Send, ...]]:
    turn = Turn(state, max(now_s, state.now_s))
    if not state.superseded:
        monitor.begin(turn)
    _handle(turn, event)
    if turn.state.superseded:
        looks = learning.looks_again(turn)
        return turn.state, looks
    monitor.watch(turn)
    plans.advance(turn)
    losing.advance(turn)
    replication.review(turn)
    if not learning.advance(turn):
        return _send(turn)
    for name in takeover.advance(turn):
        losing.lose(turn, name, whole=True)
    _relocate(turn)
    migration.advance(turn)
    failed_queries.review(turn)
    quality.tidy(turn)
    tiers.tidy(turn)
    for move in decisions.review(turn):
        _move_if_possible(turn, RequestMove((move.operator,), move.target, move.reason))
    for wish in _placed_anew(turn):
        _move_if_possible(turn, wish)
    _plan_again(turn)
    _scale(turn)
    return _send(turn)


def _scale(turn: Turn) -> None:
    """Processors that come and go; looked at where they may."""
    if turn.state.settings.bounds.most:
        from millstream.control.admission import scaling  # noqa: PLC0415

        for asked in scaling.review(turn):
            _drain(turn, asked.processor, asked.back)


def _relocate(turn: Turn) -> None:
    """Moves that planning wants; its libraries are loaded where there are any."""
    if turn.state.relocations:
        from millstream.control.moves import relocations  # noqa: PLC0415

        relocations.advance(turn)


def _plan_again(turn: Turn) -> None:
    """What runs is planned again where queries are admitted by planning."""
    settings = turn.state.settings
    if settings.placer == decisions.SQPR and settings.replan_s and settings.moves_a_minute:
        from millstream.control.admission import replanning  # noqa: PLC0415

        replanning.review(turn)


def _placed_anew(turn: Turn) -> tuple[RequestMove, ...]:
    """Periodic re-placement; its libraries are loaded where it is asked for."""
    if not turn.state.settings.replace_s:
        return ()
    from millstream.control.admission import replacement  # noqa: PLC0415

    return replacement.review(turn)


def _handle(turn: Turn, event: Event) -> None:
    match event:
        case Joined(join):
            _joined(turn, join)
        case Replied():
            _replied(turn, event)
        case Unanswered():
            _unanswered(turn, event)
        case Tick():
            pass
        case DeclareStream():
            _declare(turn, event)
        case StartStreams(names):
            _start(turn, names)
        case ForgetStream(name):
            _forget(turn, name)
        case Submit():
            plans.submit(turn, event)
        case Drop():
            plans.drop(turn, event)
        case Restart(name):
            failed_queries.restart(turn, name)
        case Pause(name, wanted):
            pausing.pause(turn, name, wanted=wanted)
        case RequestMove():
            migration.request(turn, event)
        case Drain(processor, back):
            _drain(turn, processor, back)
        case Halt():
            _halt(turn, event)
        case Remove(processor, lost):
            if lost:
                losing.lose(turn, processor)
            else:
                _remove(turn, processor)
        case Change(settings):
            turn.set(settings=settings)
        case SetGoals():
            quality.set_goals(turn, event)
        case SetSchedule():
            quality.set_schedule(turn, event)
        case FromAbove(envelope):
            tiers.receive(turn, envelope)
        case Introduced(stream, consumer):
            known_stream = turn.state.outside.get(stream)
            if known_stream is not None:
                introduced = known_stream.introduced | {consumer}
                turn.put(replace(known_stream, introduced=introduced))
        case _:
            assert_never(event)


def _joined(turn: Turn, join: Join) -> None:
    known = turn.state.processors.get(join.id)
    monitor.join(turn, join)
    takeover.joined(turn, join.id)
    if known is not None and known.url != join.url:
        migration.tell_again(turn)


# -- answers --------------------------------------------------------------------------------------


def _replied(turn: Turn, event: Replied) -> None:
    live = turn.state.live.get(event.processor)
    sent = getattr(live, event.channel, None) if live else None
    if live is None or sent is None or sent.number != event.number:
        return  # an answer to what was given up
    turn.live(event.processor, **{event.channel: None})
    codes = {r.code for r in event.replies if isinstance(r, Refusal)}
    if "not_me" in codes:  # another processor answers at that address
        _failed(turn, event.processor)
    elif "stale" in codes:
        told = next(r for r in event.replies if isinstance(r, Refusal) and r.code == "stale")
        learning.outdone(turn, event.processor, told)
    else:
        learning.followed(turn)
        monitor.heard(turn, event.processor)
        for command, reply in zip(sent.commands, event.replies, strict=False):
            _note(turn, event.processor, command, reply)


def _note(turn: Turn, processor: str, command: Command, reply: Reply) -> None:
    match command, reply:
        case Report(), Reported():
            monitor.note_report(turn, processor, reply)
        case TakeInventory(), Inventory():
            turn.live(processor, state="up", actual=reply)
            if learning.learn(turn, processor, reply):
                return
            strays = reconciliation.reconcile(turn, processor, reply)
            if strays:
                known = turn.state.outbox.get(processor, ())
                turn.in_table("outbox", processor, (*known, *strays))
        case Compile(), _:
            plans.compiled(turn, command, reply)
        case _ if isinstance(command, MOVE_COMMANDS):
            move = turn.state.moves.get(command.move)
            if isinstance(reply, Refusal) and (move is None or move.over):
                _refused(turn, processor, command, reply)  # it still has what is no more
            else:
                migration.note(turn, processor, command, reply)
        case Configure(), _:
            quality.note(turn, processor, command, reply)
        case KeepReplicas(), Replicas():
            replication.note(turn, processor, reply)
        case KeepReplicas(), _:
            pass
        case Reset(), _:
            turn.live(processor, actual=None)
        case Acquaint(peers), Done():
            turn.live(processor, acquainted=peers)
        case _, Refusal():
            _refused(turn, processor, command, reply)
        case _:
            live = turn.state.live[processor]
            if live.actual is not None:
                turn.live(processor, actual=after(live.actual, command, reply))
            if isinstance(command, Hold) and isinstance(reply, Held):
                plans.held(turn, processor, command, reply)
            elif isinstance(command, Disconnect):
                _farewell(turn, processor, command.stream)


def _farewell(turn: Turn, consumer: str, stream: str) -> None:
    """Who ends a copy says so to its source: nobody is believed to keep the stream for it now."""
    for name, live in list(turn.state.live.items()):
        kept = live.actual.expected.get(stream, ()) if live.actual else ()
        if live.actual is not None and consumer in kept:
            left = tuple(c for c in kept if c != consumer)
            expected = {**live.actual.expected, stream: left}
            turn.live(name, actual=replace(live.actual, expected=expected))


def _refused_stream(turn: Turn, processor: str, name: str, reply: Refusal) -> None:
    """A declaration is no good there: it alone waits, with who reads it, and is tried again."""
    known = turn.state.live[processor].refused
    turn.live(processor, refused={**known, name: turn.now_s + DECLARED_AGAIN_S})
    told = f"{processor} refused to declare {name}: {reply.message}"
    if not any(d.sentence == told for d in turn.state.decisions):
        turn.decide("notice", told, reply.detail, about=("stream", name))


def _refused(turn: Turn, processor: str, command: Command, reply: Refusal) -> None:
    """A command was not carried out: ask what is there, and try again later, not for ever."""
    if isinstance(command, Declare) and reply.code == "mistake":
        _refused_stream(turn, processor, str(command.stream["name"]), reply)
        return
    later = turn.now_s + min(30.0, 0.5 * 2 ** min(turn.state.live[processor].failures, 6))
    failures = turn.state.live[processor].failures + 1
    turn.live(processor, actual=None, retry_at_s=later, failures=failures)
    if reply.code == "busy":
        return
    turn.decide(
        "notice", f"{processor} refused to {command.do.replace('_', ' ')}: {reply.message}",
        reply.detail, about=("processor", processor),
    )  # fmt: skip
    query = turn.state.queries.get(command.query) if isinstance(command, Host) else None
    if query is None or query.phase != "deploying":
        return
    attempts = query.attempts + 1
    turn.query(query.name, attempts=attempts)
    if attempts >= turn.state.settings.attempts_max:
        reason = f"{processor} cannot host it: {reply.message}"
        turn.query(query.name, phase="failed", reason=reason)
        turn.decide("failure", f"query {query.name} failed", reason, about=("query", query.name))


def _unanswered(turn: Turn, event: Unanswered) -> None:
    live = turn.state.live.get(event.processor)
    sent = getattr(live, event.channel, None) if live else None
    if live is None or sent is None or sent.number != event.number:
        return
    turn.live(event.processor, **{event.channel: None})
    _failed(turn, event.processor)
    if event.channel == "work":
        turn.live(event.processor, actual=None)  # it may have taken effect, or not
        again = tuple(c for c in sent.commands if isinstance(c, Reset))
        if again:
            turn.in_table("outbox", event.processor, again)


def _failed(turn: Turn, processor: str) -> None:
    """Tried again soon, then ever more rarely; silence is the monitor's matter."""
    failures = turn.state.live[processor].failures + 1
    wait = min(turn.state.settings.beat_s, 0.25 * 2 ** min(failures, 6))
    turn.live(processor, failures=failures, retry_at_s=turn.now_s + wait)


# -- streams and processors -----------------------------------------------------------------------


def _declare(turn: Turn, event: DeclareStream) -> None:
    name = event.table.get("name")
    if not isinstance(name, str) or not name:
        raise UsageError("a stream needs a name")
    if problem := problem_of(name):
        raise UsageError(problem, hint="choose another name for the stream")
    replication.check(event.table.get("replicas", 1))
    known = turn.state.streams.get(name)
    if known is not None:
        if dict(known.table) != dict(event.table):
            raise UsageError(
                f"stream {name} is declared with another meaning",
                hint="choose another name, or drop its queries and forget it first",
            )
        place = known.processor  # nobody's: it was learned, and who has its rows never joined
        if place == NOBODY:
            _demand_all_heard(turn.state, name)
            place = event.processor or decisions.least_entered(turn.state)
        started = known.start_wanted or event.start
        turn.put(replace(known, processor=place, start_wanted=started))
        return
    if event.processor != NOBODY and event.processor not in turn.state.processors:
        raise UsageError(f"there is no processor {event.processor}")
    if turn.state.settings.asks_strangers:
        _demand_all_heard(turn.state, name)
    place = event.processor or decisions.least_entered(turn.state)
    turn.put(StreamRecord(name, dict(event.table), place, event.start))
    for processor, live in list(turn.state.live.items()):  # what was refused was another
        if name in live.refused:
            left = {n: again_s for n, again_s in live.refused.items() if n != name}
            turn.live(processor, refused=left)


def _demand_all_heard(state: ManagerState, stream: str) -> None:
    """Of a stream with two entrances each row would come twice."""
    for processor in state.processors.values():
        if processor.untold:
            raise UsageError(
                f"processor {processor.id} has not said yet whether {stream} enters there",
                detail="this manager's home was empty or older, and the processor is silent",
                hint=silence.WAYS.format(processor.id),
            )


def _start(turn: Turn, names: tuple[str, ...]) -> None:
    for name in names or tuple(turn.state.streams):
        stream = turn.state.streams.get(name)
        if stream is None:
            raise UsageError(f"there is no stream {name}")
        if not stream.start_wanted:
            turn.put(replace(stream, start_wanted=True))


def _forget(turn: Turn, name: str) -> None:
    stream = turn.state.streams.get(name)
    if stream is None:
        raise UsageError(f"there is no stream {name}")
    users = [q.name for q in turn.state.queries.values() if stream.id in q.sources]
    if users:
        raise UsageError(f"stream {name} is read by query {users[0]}", hint="drop the query first")
    if any(stream.id in m.operators for m in turn.state.moves.values() if not m.over):
        raise UsageError(f"stream {name} is moving", hint="forget it when it has arrived")
    turn.remove("streams", name)


def _drain(turn: Turn, name: str, back: bool) -> None:
    known = turn.state.processors.get(name)
    if known is None:
        raise UsageError(f"there is no processor {name}")
    if not back and (reason := silence.silence(turn.state, name)):
        raise UsageError(reason, hint=silence.WAYS.format(name))
    turn.put(replace(known, draining=not back))
    if back:
        turn.decide("notice", f"processor {name} takes part again", about=("processor", name))
        return
    turn.decide("notice", f"processor {name} is drained", about=("processor", name))
    reason = f"{name} is drained"
    for target, operators in decisions.emptied(turn.state, name).items():
        _move_if_possible(turn, RequestMove(tuple(operators), target, reason))
    for stream, target in decisions.entering_elsewhere(turn.state, name).items():
        _move_if_possible(turn, RequestMove((stream,), target, reason))


def _move_if_possible(turn: Turn, asked: RequestMove) -> None:
    problem = migration.objection(turn.state, asked.operators, asked.target)
    if problem:
        turn.decide("notice", f"no move to {asked.target}: {problem}", asked.reason)
    else:
        migration.request(turn, asked)


def _halt(turn: Turn, asked: Halt) -> None:
    """A processor that has nothing ends, or begins anew."""
    name = asked.processor
    _refuse_if_used(turn.state, name)
    if not answers(turn.state, name):
        raise UsageError(f"processor {name} does not answer", hint="try again when it does")
    waiting = turn.state.outbox.get(name, ())
    command = Reset() if asked.restart else Stop(asked.again)
    turn.in_table("outbox", name, (*waiting, command))
    ends = "will restart its process" if asked.again else "will end its process"
    told = "will forget everything and begin anew" if asked.restart else ends
    turn.decide("notice", f"processor {name} {told}", about=("processor", name))


def _remove(turn: Turn, name: str) -> None:
    """A processor that has nothing is forgotten."""
    _refuse_if_used(turn.state, name)
    turn.remove("processors", name)
    turn.remove("live", name)
    turn.decide("notice", f"processor {name} is forgotten", about=("processor", name))


def _refuse_if_used(state: ManagerState, name: str) -> None:
    """A processor with operators, streams or moves stays as it is."""
    if name not in state.processors:
        raise UsageError(f"there is no processor {name}")
    operators = [o for o in state.operators.values() if o.processor == name]
    streams = [s for s in state.streams.values() if s.processor == name]
    moves = [m for m in state.moves.values() if name in (m.source, m.target) and not m.over]
    if operators or streams or moves:
        what = operators[0].label if operators else f"stream {streams[0].name}" if streams else ""
        raise UsageError(
            f"processor {name} has {what or 'a move under way'}",
            hint=f"millstream drain {name}; if its home is gone: millstream remove --lost {name}",
        )


# -- messages -------------------------------------------------------------------------------------


def _send(turn: Turn) -> tuple[ManagerState, tuple[Send, ...]]:
    """The next message to every processor that has none under way."""
    sends: list[Send] = []
    plan = blueprint(turn.state)
    for name in turn.state.processors:
        live = turn.state.live[name]
        if any(again_s <= turn.now_s for again_s in live.refused.values()):
            left = {n: again_s for n, again_s in live.refused.items() if again_s > turn.now_s}
            turn.live(name, refused=left)
        if takeover.under_way(turn.state, name):
            continue
        if live.beat is None and turn.now_s >= max(live.beat_due_s, live.retry_at_s):
            turn.live(name, beat_due_s=turn.now_s + turn.state.settings.beat_s)
            said = (Report(live.version), *replication.commands_for(turn.state, name))
            sends.append(_message(turn, name, "beat", said))
        live = turn.state.live[name]
        if live.state == "silent" or live.work is not None or turn.now_s < live.retry_at_s:
            continue
        if live.actual is None:
            sends.append(_message(turn, name, "work", (TakeInventory(),)))
            continue
        if turn.state.learning_until_s or not replication.in_effect(turn.state, name):
            continue
        work = (
            *monitor.acquainting(turn, name),
            *turn.state.outbox.get(name, ()),
            *migration.commands_for(turn.state, name),
            *increments(turn.state, plan, name),
            *quality.commands_for(turn.state, name),
            *measures.commands_for(turn.state, name),
        )[:MESSAGE_MESSAGES_MAX]
        if work:
            turn.remove("outbox", name)
            sends.append(_message(turn, name, "work", work))
    sends += _ask(turn)
    return turn.state, tuple(sends)


def _ask(turn: Turn) -> list[Send]:
    """Texts to compile, to one processor that can."""
    asked = {c for live in turn.state.live.values() if live.ask for c in live.ask.commands}
    open_questions = [q for q in plans.questions(turn.state) if q not in asked]
    if not open_questions:
        return []
    for name in turn.state.processors:
        if plans.can_compile(turn.state, name):
            chosen = tuple(open_questions[:COMPILES_MAX])
            return [_message(turn, name, "ask", chosen)]
    return []


def _message(turn: Turn, name: str, channel: str, commands: tuple[Command, ...]) -> Send:
    number = turn.state.number + 1
    turn.set(number=number)
    turn.live(name, **{channel: Sent(number, turn.now_s, commands)})
    told = number if channel == "work" else 0
    envelope = Envelope(
        turn.state.epoch, told, name, commands, lineage=turn.state.lineage,
        revision=turn.state.revision,
    )  # fmt: skip
    return Send(name, turn.state.processors[name].url, channel, number, envelope)
