"""The connection manager: what every processor should have, and the increments that lead there.

From the places of operators follows who hosts what, which streams must be connected where, and what
owners keep for whom (D-CAPE, algorithm 4, with its slips mended: each edge once, none between
operators on one processor). The difference to what a processor is believed to have becomes
commands, several in one message; what is so already is never said again. Streams of operators that
are moving are left alone: they are the move's business. Reads the state, changes nothing.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from millstream.control.manager.state import (
    NOBODY,
    OUTSIDE,
    PLACED,
    ManagerState,
    Move,
    Query,
)
from millstream.control.moves.routes import standing
from millstream.control.protocol.commands import (
    Command,
    Connect,
    Declare,
    Disconnect,
    Expect,
    Forget,
    Hold,
    Host,
    Release,
    StartStream,
    TakeFrom,
    Unexpect,
    Unhost,
)
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import Inventory

REASON_MAX = 2000  # characters of why a query has failed that are told on
EARLY = ("compiling", "holding", "placing", "deploying")  # rows must not come yet


@dataclass(slots=True)
class Wanted:
    """What one processor should have."""

    declared: dict[str, bool] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    queries: dict[str, list[str]] = field(default_factory=dict)
    holds: dict[str, set[str]] = field(default_factory=dict)
    expected: dict[str, set[str]] = field(default_factory=dict)
    connected: dict[str, str] = field(default_factory=dict)  # stream: the owner
    relays: dict[str, str] = field(default_factory=dict)  # stream: who sends it on


@dataclass(slots=True)
class Blueprint:
    """What all processors should have, from one pass over the state."""

    processors: dict[str, Wanted]
    frozen: set[str]  # operators that are moving
    fetching: dict[str, set[str]]  # by processor: inputs of operators that move from or to it


def owner_of(state: ManagerState, stream: str) -> str:
    """The processor that owns a stream; nobody where it has no place yet."""
    if stream in state.outside:
        return OUTSIDE
    if stream in state.operators:
        return state.operators[stream].processor
    known = state.streams.get(stream.removeprefix("s:")) if stream.startswith("s:") else None
    return known.processor if known is not None else NOBODY


def placed_operators(query: Query) -> tuple[str, ...]:
    """The operators that run for a query, or rest for it while it can be restarted: all, or, once
    it has failed for good, the one with its rows."""
    if query.phase in PLACED or (query.phase == "failed" and query.resumable):
        return query.operators
    return (query.result,) if query.phase == "failed" and query.result else ()


def kept_operators(state: ManagerState, query: Query) -> tuple[str, ...]:
    """The operators that stay for a query: those that run for it, and all of one that is being
    dropped while a part of it moves, because a move can only end with its inputs there."""
    if query.phase == "dropping":
        moved = {o for m in state.moves.values() if m.frozen for o in m.operators}
        return query.operators if not moved.isdisjoint(query.operators) else ()
    return placed_operators(query)


def outside_inputs(state: ManagerState, move: Move) -> tuple[str, ...]:
    """Streams that moving operators read from operators that do not move with them."""
    moved = set(move.operators)
    found = {s: None for o in move.operators if o in state.operators
             for s in state.operators[o].inputs if s not in moved}  # fmt: skip
    return tuple(found)


def ways_of(state: ManagerState, operators: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What operators read, of those that do not read what a text says first."""
    records = ((o, state.operators.get(o)) for o in operators)
    return {o: known.inputs for o, known in records if known is not None and known.another_way}


def moving(state: ManagerState, streams: Iterable[str]) -> bool:
    """Whether a move under way has one of these streams as its subject or input."""
    touched = {
        s for m in state.moves.values() if m.frozen
        for s in (*m.operators, *outside_inputs(state, m))
    }  # fmt: skip
    return not touched.isdisjoint(streams)


def readers(state: ManagerState) -> dict[str, set[str]]:
    """By stream: the processors with an operator in use that reads it."""
    used = {o for q in state.queries.values() for o in kept_operators(state, q)}
    found: dict[str, set[str]] = {}
    for name in sorted(used & state.operators.keys()):
        operator = state.operators[name]
        if operator.processor != NOBODY:
            for stream in operator.inputs:
                found.setdefault(stream, set()).add(operator.processor)
    return found


def blueprint(state: ManagerState) -> Blueprint:
    """What everybody should have."""
    plan = Blueprint({p: Wanted() for p in state.processors}, set(), {})
    _want_streams(state, plan)
    for query in state.queries.values():
        for name in kept_operators(state, query):
            operator = state.operators.get(name)
            if operator is not None and operator.processor in plan.processors:
                wanted = plan.processors[operator.processor]
                wanted.queries.setdefault(query.name, []).append(name)
    reading = readers(state)
    for stream, places in reading.items():
        owner = owner_of(state, stream)
        for place in places - {owner}:
            if place in plan.processors and owner != NOBODY:
                plan.processors[place].connected[stream] = owner
            if owner in plan.processors:
                plan.processors[owner].expected.setdefault(stream, set()).add(place)
    for reader, relays in standing(state, reading).items():
        if reader in plan.processors:
            plan.processors[reader].relays = relays
    for promise in state.promises.values():  # readers beyond our own processors
        owner = owner_of(state, promise.id)
        if owner in plan.processors:
            plan.processors[owner].expected.setdefault(promise.id, set()).update(promise.consumers)
    _want_moves(state, plan)
    _want_holds(state, plan, reading)
    return plan


def _want_streams(state: ManagerState, plan: Blueprint) -> None:
    early = any(q.phase in EARLY and not q.found for q in state.queries.values())
    for stream in state.streams.values():
        if stream.forgotten:
            continue
        for name, place in plan.processors.items():
            place.declared[stream.name] = name == stream.processor
        if stream.start_wanted and not early and stream.processor in plan.processors:
            plan.processors[stream.processor].started.add(stream.name)


def _want_moves(state: ManagerState, plan: Blueprint) -> None:
    for move in state.moves.values():
        inputs = outside_inputs(state, move)
        if move.undoing:  # until it has heard of that, the target may go on copying
            plan.fetching.setdefault(move.target, set()).update({*inputs, *move.operators})
        if not move.frozen:
            continue
        plan.frozen.update(move.operators)
        for end in (move.source, move.target):
            plan.fetching.setdefault(end, set()).update(inputs)
        for stream in inputs:
            owner = owner_of(state, stream)
            if owner != move.target and owner in plan.processors:
                plan.processors[owner].expected.setdefault(stream, set()).add(move.target)


def _want_holds(state: ManagerState, plan: Blueprint, reading: Mapping[str, set[str]]) -> None:
    """Everything a query on its way will read stays wherever there is a copy of it."""
    for query in state.queries.values():
        if query.phase not in ("holding", "placing", "deploying"):
            continue
        for stream in (*query.sources, *query.shared):
            for place in hold_places(state, stream, reading):
                if place in plan.processors:
                    plan.processors[place].holds.setdefault(query.name, set()).add(stream)
    for above in state.above.values():
        for query_name, streams in above.holds.items():
            for stream in streams:
                for place in hold_places(state, stream, reading):
                    if place in plan.processors:
                        plan.processors[place].holds.setdefault(query_name, set()).add(stream)


def hold_places(
    state: ManagerState, stream: str, reading: Mapping[str, set[str]]
) -> tuple[str, ...]:
    """The owner of a stream and all who have a copy."""
    owner = owner_of(state, stream)
    return tuple(sorted({owner, *reading.get(stream, ())} - {NOBODY, OUTSIDE}))


# -- increments -----------------------------------------------------------------------------------


def increments(state: ManagerState, plan: Blueprint, processor: str) -> list[Command]:
    """The commands that bring a processor from what it has to what it should have.

    Owners keep before consumers ask, copies are held before an operator reads them; what ends comes
    last, readers before what they read. An owner keeps rows for a consumer until that one is known
    to have ended its copy: a copy that goes on must find no gap.
    """
    live = state.live[processor]
    if live.actual is None or processor not in plan.processors:
        return []
    have, want = live.actual, plan.processors[processor]
    return [
        *_declarations(state, have, want, plan, live.refused),
        *_expects(have, want, plan),
        *_connects(state, processor, have, want, plan),
        *_relays(state, have, want),
        *_holds(state, processor, have, want),
        *_hosts(state, have, want, plan),
        *_releases(have, want),
        *_starts(state, have, want, plan, live.refused),
        *_unhosts(state, have, want, plan),
        *_disconnects(processor, have, want, plan),
        *_unexpects(state, have, want, plan),
        *(Forget(s) for s in sorted(set(have.declared) - set(want.declared))),
    ]


def _declarations(
    state: ManagerState,
    have: Inventory,
    want: Wanted,
    plan: Blueprint,
    refused: Container[str],
) -> list[Command]:
    """Streams that are not known there, or shall enter there. A stream that moves is taken over,
    not declared: who has handed one on must not begin with it again beside the new owner."""
    found: list[Command] = []
    for name, ingest in want.declared.items():
        known = have.declared.get(name)
        enters = ingest and not _handed_on(state, have, plan, name)
        if name in refused:
            continue
        if known is None or (enters and not known):
            found.append(Declare(dict(state.streams[name].table), enters))
    return found


def _starts(
    state: ManagerState,
    have: Inventory,
    want: Wanted,
    plan: Blueprint,
    refused: Container[str],
) -> list[Command]:
    waiting = sorted(s for s in want.started - set(have.started) if s not in refused)
    return [StartStream(s) for s in waiting if not _handed_on(state, have, plan, s)]


def _handed_on(state: ManagerState, have: Inventory, plan: Blueprint, name: str) -> bool:
    """Whether a base stream is under way, or gone on to somebody of whom nobody here knows yet."""
    stream = state.streams[name]
    to = have.handed.get(stream.id)
    news = to is not None and stream.id not in have.owned and to.epoch > stream.epoch
    lost = to is not None and to.processor in state.lost and to.processor not in state.processors
    return stream.id in plan.frozen or (news and not lost)


def _holds(state: ManagerState, processor: str, have: Inventory, want: Wanted) -> list[Command]:
    found: list[Command] = []
    for query, streams in want.holds.items():
        missing = streams - set(have.holds.get(query, ()))
        known = state.queries.get(query)
        if known is None or known.phase == "holding":  # the marks are wanted, not only the hold
            marked = state.marks.get(query, {})
            missing |= {s for s in streams if (processor, s) not in marked}
        if missing:
            found.append(Hold(query, tuple(sorted(missing))))
    return found


def _releases(have: Inventory, want: Wanted) -> list[Command]:
    return [
        Release(query, tuple(sorted(set(streams) - want.holds.get(query, set()))))
        for query, streams in have.holds.items()
        if set(streams) - want.holds.get(query, set())
    ]


def _expects(have: Inventory, want: Wanted, plan: Blueprint) -> list[Command]:
    return [
        Expect(stream, consumer)
        for stream, consumers in want.expected.items()
        if stream not in plan.frozen
        for consumer in sorted(consumers - set(have.expected.get(stream, ())))
    ]


def _unexpects(
    state: ManagerState, have: Inventory, want: Wanted, plan: Blueprint
) -> list[Command]:
    found: list[Command] = []
    for stream, consumers in have.expected.items():
        for consumer in sorted(set(consumers) - want.expected.get(stream, set())):
            if stream in plan.frozen or stream in plan.fetching.get(consumer, ()):
                continue  # the rest of a tail may come from there
            if consumer in state.lost and consumer not in state.processors:
                found.append(Unexpect(stream, consumer))
                continue
            theirs = state.live[consumer].actual if consumer in state.live else None
            # Whom a consumer asks by now is not known: it may have followed a pointer. Who is no
            # processor of ours belongs to a manager below, and ends by itself.
            if theirs is not None and stream not in theirs.connected:
                found.append(Unexpect(stream, consumer))
    return found


def _connects(
    state: ManagerState, processor: str, have: Inventory, want: Wanted, plan: Blueprint
) -> list[Command]:
    """New copies, and new addresses of those that are copied from. Who copies a stream that moves
    follows the pointer of its former owner, when it has everything below: nobody needs to say so.
    """
    found: list[Command] = []
    for stream, known in have.connected.items():
        beyond = state.outside.get(stream)
        present = state.processors.get(known.processor)
        url = present.url if present is not None else known.url
        if beyond is not None and beyond.source.processor == known.processor:
            url = beyond.source.url
        if url != known.url:
            found.append(Connect(stream, replace(known, url=url)))
    for stream, owner in want.connected.items():
        beyond = state.outside.get(stream)
        if beyond is not None and processor in beyond.introduced and stream not in have.connected:
            found.append(Connect(stream, beyond.source))
        source = state.processors.get(owner)
        if stream not in have.connected and stream not in plan.frozen and source is not None:
            epoch = state.operators[stream].epoch if stream in state.operators else 0
            found.append(Connect(stream, Peer(owner, source.url, epoch)))
    return found


def _relays(state: ManagerState, have: Inventory, want: Wanted) -> list[Command]:
    """From whom copies take their bytes; hints, so that their order does not matter."""
    if have.relays is None:
        return []
    found: list[Command] = []
    for stream in sorted({*have.relays, *want.relays} & {*have.connected, *want.connected}):
        known, relay = have.relays.get(stream), want.relays.get(stream)
        peer = None if relay is None else Peer(relay, state.processors[relay].url)
        if known != peer:
            found.append(TakeFrom(stream, peer))
    return found


def _disconnects(processor: str, have: Inventory, want: Wanted, plan: Blueprint) -> list[Command]:
    kept = plan.fetching.get(processor, set()) | plan.frozen
    return [
        Disconnect(stream)
        for stream in have.connected
        if stream not in want.connected and stream not in kept and stream not in have.owned
    ]


def _hosts(state: ManagerState, have: Inventory, want: Wanted, plan: Blueprint) -> list[Command]:
    found: list[Command] = []
    for name, operators in want.queries.items():
        query, known = state.queries[name], have.queries.get(name)
        hosted = set(known.operators) if known and name not in have.pending else set()
        missing = [o for o in operators if o not in hosted and o not in plan.frozen]
        result = query.result in operators and query.result not in plan.frozen
        told = tuple(o for o in operators if o not in plan.frozen)
        told_less = known is not None and (
            known.restarts < query.restarts or known.pauses < query.pauses
        )
        if not missing and not (told_less and told) and not (result and known and not known.result):
            continue
        found.append(hosting_of(state, query, told, result=result))
    return found


def hosting_of(
    state: ManagerState, query: Query, operators: tuple[str, ...], *, result: bool
) -> Host:
    """What a processor is told that runs operators of a query, or keeps those of a failed one."""
    assert query.start is not None
    failed = (query.reason or "failed")[:REASON_MAX] if query.phase == "failed" else ""
    return Host(
        query.name, query.cql, query.start, operators, result, query.restarts, failed,
        ways_of(state, operators), query.pauses,
    )  # fmt: skip


def _unhosts(state: ManagerState, have: Inventory, want: Wanted, plan: Blueprint) -> list[Command]:
    found: list[Command] = []
    for name, known in have.queries.items():
        kept = set(want.queries.get(name, ()))
        gone = tuple(o for o in known.operators if o not in kept and o not in plan.frozen)
        if gone:
            query = state.queries.get(name)
            dropped = query is None or query.phase == "dropping"
            found.append(Unhost(name, gone, dropped))
    return found


def deployed(state: ManagerState, plan: Blueprint, query: Query) -> bool:
    """Whether everything a query needs is where it should be, as far as is known."""
    for name in query.operators:
        place = state.operators[name].processor
        have = state.live[place].actual if place in state.live else None
        if have is None or name in plan.frozen:
            return False
        if query.name not in have.queries or name not in have.queries[query.name].operators:
            return False
        if query.name in have.pending:
            return False
        for stream in state.operators[name].inputs:
            if not _flows(state, stream, place, have):
                return False
    return True


def _flows(state: ManagerState, stream: str, place: str, have: Inventory) -> bool:
    """Whether a stream reaches a processor: it is owned there, or kept for it and connected."""
    owner = owner_of(state, stream)
    if owner == place:
        return True
    if owner == OUTSIDE:
        return stream in have.connected
    known = have.connected.get(stream)
    kept = state.live[owner].actual if owner in state.live else None
    return known is not None and kept is not None and place in kept.expected.get(stream, ())
