"""A manager that remembers less than its processors: it takes an epoch above theirs, and learns.

Its home was empty, or older than what has happened since. Processors refuse it as `stale` and say
what they have seen. If they have heard another manager lately, that one leads and this one only
watches. Otherwise it continues under a higher epoch and a new lineage, so that every processor
reports what it has: streams, queries, owners. While it learns it changes nothing. The processors
are right: the manager takes up what they run and forgets what none of them has.
"""

from collections.abc import Sequence
from dataclasses import replace

from millstream.control.admission.rules import answers
from millstream.control.manager import monitor, reconciliation
from millstream.control.manager.connections import owner_of
from millstream.control.manager.events import Send
from millstream.control.manager.state import (
    LIVES_KEPT,
    NOBODY,
    PLACED,
    ManagerState,
    Move,
    Processor,
    Query,
    Sent,
    StreamRecord,
)
from millstream.control.manager.turn import Turn
from millstream.control.moves.table import COMMITTED, Phase, Story
from millstream.control.protocol.commands import Report
from millstream.control.protocol.envelope import Envelope
from millstream.control.protocol.records import NOWHERE, UNTOLD, Peer
from millstream.control.protocol.replies import Inventory, Refusal
from millstream.control.recovery import losing, pausing

LEASE_BEATS = 2.4  # reports after which a manager that said nothing leads no more
LEARN_BEATS = 2.0  # least time in which unknown processors register
EPOCH_MAX = 1 << 50  # beyond it, what was heard is no epoch
FOUND = "found on processors"  # why a query is there, until all that is there is known


# -- leading --------------------------------------------------------------------------------------


def outdone(turn: Turn, processor: str, told: Refusal) -> None:
    """A processor has seen a later message: of another manager, or of what this one forgot."""
    state = turn.state
    lease_s = LEASE_BEATS * state.settings.beat_s
    followers = (v for v in state.live.values() if v.state == "up")
    tied = told.outranks and any(turn.now_s - v.heard_s < lease_s for v in followers)
    if told.other_s is not None and told.other_s < lease_s and not tied:
        if not state.superseded:
            why = f"processor {processor} follows another manager, heard {told.other_s:.0f} s ago"
            turn.set(superseded=why)
            turn.decide("failure", "this manager stops acting", why)
        turn.set(again_s=turn.now_s + lease_s / 2)
    elif told.epoch > EPOCH_MAX:
        turn.live(processor, retry_at_s=turn.now_s + lease_s)
        _once(turn, f"processor {processor} reports an impossible epoch: {told.epoch}")
    else:
        _take(turn, max(told.epoch, state.epoch) + 1, processor)


def _take(turn: Turn, epoch: int, processor: str) -> None:
    """Leads from here on; what was under way is refused, and what others have must be learned."""
    root = turn.state.lineage.partition(".")[0]
    lives = (*turn.state.lives, turn.state.lineage)[-LIVES_KEPT:]
    turn.set(epoch=epoch, lineage=f"{root}.{epoch}", lives=lives, superseded="", again_s=0.0)
    for name in turn.state.live:
        turn.live(name, beat=None, work=None, ask=None, actual=None, retry_at_s=0.0, failures=0)
    turn.set(outbox={}, relocations=(), relocating=frozenset())
    begin(turn)
    turn.decide(
        "notice",
        f"this manager continues with epoch {epoch}, and learns what processors have",
        f"{processor} has seen a later one: this manager's home was empty or older",
        about=("processor", processor),
    )


def looks_again(turn: Turn) -> tuple[Send, ...]:
    """Now and then, while another manager leads: is it still there?"""
    state = turn.state
    if turn.now_s < state.again_s:
        return ()
    turn.set(again_s=turn.now_s + LEASE_BEATS * state.settings.beat_s / 2)
    sends = []
    for name, known in state.processors.items():
        number = turn.state.number + 1
        turn.set(number=number)
        asked = (Report(0),)
        turn.live(name, beat=Sent(number, turn.now_s, asked))
        envelope = Envelope(state.epoch, 0, name, asked, lineage=state.lineage)
        sends.append(Send(name, known.url, "beat", number, envelope))
    return tuple(sends)


def followed(turn: Turn) -> None:
    """A processor has answered as to its manager: no other manager leads it any more."""
    if turn.state.superseded:
        turn.set(superseded="", again_s=0.0)
        turn.decide("notice", "this manager acts again", "a processor follows it")


# -- learning -------------------------------------------------------------------------------------


def begin(turn: Turn) -> None:
    """The manager sends nothing before all present processors have reported what they have."""
    if not turn.state.learning_until_s:
        turn.set(remembered=frozenset(turn.state.streams))
        for query in list(turn.state.queries.values()):
            if query.found and query.phase == "running":
                turn.query(query.name, found=False)  # that was another time: now it is remembered
    until_s = turn.now_s + LEARN_BEATS * turn.state.settings.beat_s
    turn.set(learning_until_s=max(turn.state.learning_until_s, until_s))


def learn(turn: Turn, processor: str, have: Inventory) -> bool:
    """Takes up what a processor has that another manager, or this one's lost memory, gave it."""
    if turn.state.processors[processor].untold:
        turn.put(replace(turn.state.processors[processor], untold=False))
    foreign = _foreign(turn.state, processor, have)
    if foreign and not turn.state.learning_until_s:
        begin(turn)
        turn.decide(
            "notice", f"processor {processor} has what this manager does not remember",
            "another manager, or this one since, gave it; it is taken up",
            about=("processor", processor),
        )  # fmt: skip
    if not turn.state.learning_until_s:
        return False
    if foreign:
        _learn_streams(turn, processor, have)
        _learn_queries(turn, have)
        for peer in (*have.connected.values(), *have.handed.values()):
            _learn_processor(turn, peer)
        if turn.state.settings.asks_strangers:
            _learn_strangers(turn, have)
    _learn_places(turn)
    return True


def _foreign(state: ManagerState, processor: str, have: Inventory) -> bool:
    """Whether its state came from another manager, or after this memory was saved."""
    if have.led_by == state.lineage:
        return False
    if have.led_by in state.lives:
        return have.revision > state.loaded
    if not have.led_by:  # its manager did not name its lineage, as in older versions
        return _news(state, processor, have)
    return bool(have.queries or have.declared or have.moves)


def _news(state: ManagerState, processor: str, have: Inventory) -> bool:
    """Whether a processor has what is not remembered as being there."""
    for name, hosted in have.queries.items():
        known = state.queries.get(name)
        if known is None or (known.cql, known.start) != (hosted.cql, hosted.start):
            return True
    for name, ingest in have.declared.items():
        stream = state.streams.get(name)
        if stream is None or (ingest and stream.processor != processor):
            return True
    return False


def _learn_streams(turn: Turn, processor: str, have: Inventory) -> None:
    for name, ingest in have.declared.items():
        known = turn.state.streams.get(name)
        table = {**have.tables.get(name, {}), "name": name}
        if known is None:
            place = processor if ingest else NOBODY
            turn.put(StreamRecord(name, table, place, start_wanted=name in have.started))
        elif ingest:
            started = known.start_wanted or name in have.started
            turn.put(replace(known, table=table, processor=processor, start_wanted=started))


def _learn_queries(turn: Turn, have: Inventory) -> None:
    for name, hosted in have.queries.items():
        known = turn.state.queries.get(name)
        same = known is not None and (known.cql, known.start) == (hosted.cql, hosted.start)
        if known is not None and same and (known.found or known.phase in PLACED):
            if known.found and not hosted.ways.items() <= known.ways.items():
                # the processors that run its operators report them, one after the other
                ways = {**known.ways, **hosted.ways}
                turn.query(name, ways=ways, phase="compiling", compiled=None)
            pausing.learn(turn, name, hosted)
            continue
        turn.put(
            Query(name, hosted.cql, submitted_s=turn.now_s, start=hosted.start, found=True,
                  reason=FOUND, ways=hosted.ways, pauses=hosted.pauses)
        )  # fmt: skip


def _learn_processor(turn: Turn, peer: Peer) -> None:
    """Whom a processor copies from is asked too, before it says by itself that it is there."""
    known = turn.state.processors.get(peer.processor)
    if peer.url != NOWHERE and (known is None or known.url == NOWHERE):
        turn.put(Processor(peer.processor, peer.url, 0))
        monitor.begin(turn)


def _learn_strangers(turn: Turn, have: Inventory) -> None:
    """Those who read from a processor, or have moves with it: they may be gone, and then somebody
    has to say that they are lost."""
    named = {consumer for consumers in have.expected.values() for consumer in consumers}
    named |= {told.peer for told in have.moves.values()}
    for name in sorted(named - turn.state.processors.keys() - turn.state.lost.keys()):
        turn.put(Processor(name, NOWHERE, 0))
        monitor.begin(turn)


def _learn_places(turn: Turn) -> None:
    """Operators of what was found are where their owners say; else whence others copy them."""
    state = turn.state
    wanted = {o for q in state.queries.values() if q.found for o in q.operators}
    owners: dict[str, tuple[int, str]] = {}
    copied: dict[str, tuple[int, str]] = {}
    for name, live in state.live.items():
        if live.actual is None:
            continue
        for stream, epoch in live.actual.owned.items():
            owners[stream] = max(owners.get(stream, (0, NOBODY)), (epoch, name))
        for stream, peer in (*live.actual.connected.items(), *live.actual.handed.items()):
            copied[stream] = max(copied.get(stream, (0, NOBODY)), (peer.epoch, peer.processor))
    for name in sorted(wanted & state.operators.keys()):
        record = state.operators[name]
        epoch, place = owners.get(name) or copied.get(name) or (record.epoch, record.processor)
        if (epoch, place) != (record.epoch, record.processor) and epoch >= record.epoch:
            turn.put(replace(record, processor=place, epoch=epoch))
    for base in list(state.streams.values()):
        _, place = owners.get(base.id) or copied.get(base.id) or (0, NOBODY)
        if base.processor == NOBODY and place in state.processors:
            turn.put(replace(base, processor=place))


def advance(turn: Turn) -> bool:
    """Whether the manager may tell processors what to do; ends the learning when all have said."""
    state = turn.state
    if not state.learning_until_s:
        if any(q.found and q.phase == "deploying" for q in state.queries.values()):
            _forget_the_dropped(turn)
            _place_the_rest(turn)  # a silent processor may have reported that it has nothing of it
        return True
    _learn_places(turn)
    asked = any(v.state != "silent" and v.actual is None for v in state.live.values())
    unread = any(q.found and q.phase == "compiling" for q in state.queries.values())
    nobody = not any(v.state == "up" for v in state.live.values())
    if turn.now_s < state.learning_until_s or asked or unread or nobody:
        return False
    _forget_the_dropped(turn)
    _forget_the_gone(turn)
    _learn_moves(turn)
    _place_the_rest(turn)
    for name, live in list(turn.state.live.items()):
        if live.actual is None and name in turn.state.processors:
            turn.put(replace(turn.state.processors[name], untold=True))
        if live.actual is not None:
            strays = reconciliation.reconcile(turn, name, live.actual)
            known = turn.state.outbox.get(name, ())
            turn.in_table("outbox", name, (*known, *strays))
    found = [q for q in turn.state.queries.values() if q.found]
    for query in found:
        if query.reason == FOUND:
            turn.query(query.name, reason="")
    turn.set(learning_until_s=0.0)
    turn.decide(
        "notice", f"this manager knows its processors again: {len(found)} queries were found",
        f"{len(turn.state.processors)} processors, {len(turn.state.streams)} streams",
    )  # fmt: skip
    return True


def _learn_moves(turn: Turn) -> None:
    """Handed-over moves continue. Old owners are heard first: a new one that only prepares
    does not know that it is meant. What is remembered of moves may be long over."""
    for known in list(turn.state.moves.values()):
        both = all(answers(turn.state, end) for end in (known.source, known.target))
        if both and not known.over and known.phase is not Phase.REQUESTED:
            turn.remove("moves", known.id)
    told = [
        (name, move, said)
        for name, live in turn.state.live.items() if live.actual is not None
        for move, said in live.actual.moves.items() if said.phase in COMMITTED
    ]  # fmt: skip
    for name, move, said in sorted(told, key=lambda found: found[2].role == "new"):
        if move in turn.state.moves or said.peer not in turn.state.processors:
            continue
        ends = (name, said.peer) if said.role == "old" else (said.peer, name)
        phase = Phase.READY if said.role == "old" else said.phase
        why = "found under way"
        story = Story().through(phase, name, turn.now_s, why)
        told_so = frozenset({"asked"} if said.role == "old" else ())
        turn.put(Move(move, said.operators, *ends, why, story, turn.now_s, told=told_so))


def _place_the_rest(turn: Turn) -> None:
    """Operators that no processor has: those of a query in deployment are placed, once all have
    been heard; else their processor has not joined yet. That something is held for a query alone
    says little: a processor that was away at the release still holds it."""
    state = turn.state
    unheard = any(live.actual is None for live in state.live.values())
    moving = {o for m in state.moves.values() if not m.over for o in m.operators}
    held = {q for v in state.live.values() if v.actual is not None for q in v.actual.holds}
    for query in list(state.queries.values()):
        lacking = [
            o for o in query.operators
            if o in state.operators and state.operators[o].processor == NOBODY and o not in moving
        ]  # fmt: skip
        if not query.found or query.phase != "deploying" or not lacking:
            continue
        if state.lost and not unheard:
            losing.give_up(turn, query, lacking[0])
        elif query.name in held and not unheard and not _read_by_strangers(state, lacking):
            turn.query(query.name, phase="holding", shared=(), reason="")
        else:
            reason = f"no processor that has joined runs {state.operators[lacking[0]].label}"
            if query.reason != reason:
                turn.query(query.name, reason=reason)


def _read_by_strangers(state: ManagerState, operators: Sequence[str]) -> bool:
    """Whether an unknown processor is to copy what the operators read: it may run them.
    A manager with an empty home has never heard of a processor that is away."""
    inputs = {s for o in operators for s in state.operators[o].inputs}
    readers = {
        consumer
        for live in state.live.values() if live.actual is not None
        for stream, consumers in live.actual.expected.items() if stream in inputs
        for consumer in consumers
    }  # fmt: skip
    return bool(readers - state.live.keys() - state.lost.keys())


def _forget_the_dropped(turn: Turn) -> None:
    """A processor that was away when a query was dropped still has it; the others say when."""
    have = [live.actual for live in turn.state.live.values() if live.actual is not None]
    for query in [q for q in turn.state.queries.values() if q.found]:
        dropped = max((one.dropped.get(query.name, UNTOLD) for one in have), default=UNTOLD)
        hosted = [one.queries[query.name].told for one in have if query.name in one.queries]
        if hosted and all(UNTOLD < told < dropped for told in hosted):
            turn.remove("queries", query.name)
            turn.decide(
                "notice", f"query {query.name} is forgotten",
                "it was dropped while a processor with it was away", about=("query", query.name),
            )  # fmt: skip


def _forget_the_gone(turn: Turn) -> None:
    """What was remembered and no processor has was dropped since. A silent one may still have it,
    and then it stays; not so what another has let go of without handing it on."""
    state = turn.state
    silent = {name for name, live in state.live.items() if live.actual is None}
    have = [live.actual for live in state.live.values() if live.actual is not None]
    there = {
        (name, o) for one in have for name, told in one.queries.items() for o in told.operators
    }
    going = {o for one in have for o in one.handed}
    going |= {o for one in have for told in one.moves.values() for o in told.operators}
    for query in list(state.queries.values()):
        gone = [
            o for o in query.operators
            if (query.name, o) not in there and o not in going
            and not (silent and owner_of(state, o) not in state.live.keys() - silent)
        ]  # fmt: skip
        if query.phase == "running" and not query.found and gone:
            turn.remove("queries", query.name)
            turn.decide(
                "notice", f"query {query.name} is forgotten",
                f"no processor runs {gone[0]} of it: it was dropped", about=("query", query.name),
            )  # fmt: skip
    if silent:
        return
    declared = {name for one in have for name in one.declared}
    used = {s for q in turn.state.queries.values() for s in q.sources}
    for stream in list(state.streams.values()):
        since = stream.name not in state.remembered  # declared while this manager learned
        if not since and stream.name not in declared and stream.id not in used:
            turn.remove("streams", stream.name)


def _once(turn: Turn, sentence: str) -> None:
    if all(d.sentence != sentence for d in turn.state.decisions[-50:]):
        turn.decide("failure", sentence, "its ledger was not written by a manager")
