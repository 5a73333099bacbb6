"""A processor is lost for good: a user says so, and its queries are given up and begun again.

What only that processor had is gone: rows that entered there and were not handed on, the states of
its operators. Queries that need any of it end everywhere and are registered anew under their names,
with a new start and a mark that says what is missing since when; others continue. Streams that
entered there enter elsewhere once no processor has anything of their former life. Owners no longer
keep rows for the lost processor, and its home is refused if it comes back.
"""

from dataclasses import replace
from datetime import UTC, datetime

from millstream.control.admission.rules import descriptions
from millstream.control.manager.connections import placed_operators
from millstream.control.manager.decisions import least_entered
from millstream.control.manager.state import (
    NOBODY,
    Lost,
    ManagerState,
    Processor,
    Query,
    Replication,
)
from millstream.control.manager.turn import Turn
from millstream.control.moves.table import Phase
from millstream.control.protocol.commands import Unhost
from millstream.control.protocol.records import NOWHERE
from millstream.control.recovery import takeover
from millstream.control.recovery.silence import quiet
from millstream.core.errors import UsageError

# Figures travel as floats; what is further away means never and always.
EARLIEST, LATEST = -(2**55), 2**57


def lose(turn: Turn, name: str, *, whole: bool = False) -> None:
    """A processor will not come back: who keeps a copy of its home goes on, where there is one, and
    with the `whole` of it gone, everything begins again that needs it."""
    state = turn.state
    known = state.processors.get(name)
    if known is None:
        if not sought(state):
            raise UsageError(f"there is no processor {name}")
        known = Processor(name, NOWHERE, 0)  # nobody who answers has heard of it
    live = state.live.get(name)
    if live is not None and live.state != "silent":
        raise UsageError(
            f"processor {name} is not silent",
            detail="something was heard of it lately",
            hint=f"millstream drain {name}, or stop it and wait until it is silent",
        )
    if not whole and takeover.possible(state, name):
        takeover.begin(turn, name, told=True)
        return
    since_s = live.heard_s if live is not None else turn.now_s
    queries = [q.name for q in state.queries.values() if needs(state, q, name)]
    entered = _on_the_way(state, name)
    if known.untold and not any(p.untold for p in state.processors.values() if p.id != name):
        entered |= {s.id for s in state.streams.values() if s.processor == NOBODY}  # else where?
    streams = [s.name for s in state.streams.values() if s.processor == name or s.id in entered]
    operators = sum(o.processor == name for o in state.operators.values())
    for query in [q for q in state.queries.values() if q.resumable and _placed_at(state, q, name)]:
        turn.query(query.name, resumable=False)
    mark = _mark(name, since_s)
    for gone in queries:
        turn.query(gone, phase="dropping", lost=mark, floor=_reached(state, gone))
        turn.remove("marks", gone)
    for stream in streams:
        base = state.streams[stream]
        started = base.start_wanted or known.untold  # who read it never told this manager
        turn.put(replace(base, processor=NOBODY, start_wanted=started))
    _end_handed(turn, queries)
    for reader, other in list(state.live.items()):
        copied = other.actual.connected.values() if other.actual is not None else ()
        if any(peer.processor == name for peer in copied):
            turn.live(reader, actual=None)  # by now it may ask somebody else
    moves = _end_moves(turn, name, queries)
    turn.put(
        Lost(name, since_s, turn.now_s, known.home, tuple(queries), tuple(streams), tuple(moves))
    )
    turn.remove("processors", name)
    turn.remove("live", name)
    turn.remove("outbox", name)
    if name in state.replications:
        turn.put(Replication(name, state.replications[name].number + 1))
    turn.set(relocations=(), relocating=frozenset())  # planned with it
    turn.decide(
        "failure",
        f"processor {name} is lost: {operators} operators, {len(streams)} streams; "
        f"{len(queries)} queries begin again",
        mark, about=("processor", name), subjects=tuple(queries),
    )  # fmt: skip


def sought(state: ManagerState) -> tuple[str, ...]:
    """Operators of queries that were found on processors, and that no processor has said to run."""
    found = (q for q in state.queries.values() if q.found and q.phase == "deploying")
    return tuple(
        o for q in found for o in q.operators
        if o in state.operators and state.operators[o].processor == NOBODY
    )  # fmt: skip


def give_up(turn: Turn, query: Query, operator: str) -> None:
    """A query begins again: all processors that are left have said that they do not run a part of
    it, and this manager, which learned from them, does not know who did."""
    label = turn.state.operators[operator].label
    _begin_again(turn, query, f"what only a lost processor had is gone: no other runs {label}")
    _end_handed(turn, [query.name])


def _begin_again(turn: Turn, query: Query, mark: str) -> None:
    turn.query(query.name, phase="dropping", lost=mark, floor=_reached(turn.state, query.name))
    turn.remove("marks", query.name)
    turn.decide("failure", f"query {query.name} begins again", mark, about=("query", query.name))


def _mark(name: str, since_s: float) -> str:
    return f"what only {name} had is gone: it was lost, last heard at {_clock(since_s)}"


def _reached(state: ManagerState, name: str) -> int | None:
    """How far a query's sources were, as last heard; one from the beginning begins there again."""
    query = state.queries[name]
    if query.from_beginning:
        return None
    figures = [state.statistics.streams[s] for s in query.sources if s in state.statistics.streams]
    marks = [f.values["watermark_us"] for f in figures if "watermark_us" in f.values]
    usual = [int(mark) for mark in marks if EARLIEST < mark < LATEST]
    return max([*usual, query.start or 0, query.floor or 0]) if usual else query.start


def _placed_at(state: ManagerState, query: Query, processor: str) -> bool:
    """Whether a processor has an operator of a query."""
    places = {state.operators[o].processor for o in query.operators if o in state.operators}
    return processor in places


def needs(state: ManagerState, query: Query, processor: str) -> bool:
    """Whether a query has, or reads, something that only this processor has."""
    if query.phase == "dropping" or query.ended:
        return False
    placed = _placed_at(state, query, processor)
    entered = {
        state.streams[name].processor
        for name in (s.removeprefix("s:") for s in query.sources)
        if name in state.streams
    }
    mine = (*query.operators, *query.sources)
    handed = _on_the_way(state, processor)
    return placed or processor in entered or not handed.isdisjoint(mine)


def _on_the_way(state: ManagerState, processor: str) -> set[str]:
    """What a processor was handing on, or was handed, when it was last heard: nobody else has it
    whole. It may be known as the new owner's already."""
    return {
        o for m in state.moves.values() if not m.over and processor in (m.source, m.target)
        and m.phase is not Phase.OWNED for o in m.operators
        if m.phase is Phase.SEALED or m.target != processor
    }  # fmt: skip


def _end_handed(turn: Turn, queries: list[str]) -> None:
    """Former owners of operators that nobody uses any more keep no rows and no pointers."""
    state = turn.state
    used = {o for q in state.queries.values() for o in placed_operators(q)}
    for query in queries:
        mine = set(state.queries[query].operators) - used
        for move in state.moves.values():
            gone = tuple(o for o in move.operators if o in mine)
            sealed = move.phase in (Phase.SEALED, Phase.OWNED, Phase.DONE) and not move.outcome
            if gone and sealed and move.source in state.processors:
                waiting = turn.state.outbox.get(move.source, ())
                turn.in_table("outbox", move.source, (*waiting, Unhost(query, gone)))


def _end_moves(turn: Turn, name: str, queries: list[str]) -> list[str]:
    """Moves from or to it are over, and so are those of operators that begin again: what they still
    need may be gone. Their ends forget them when they tell of them (`reconciliation`)."""
    state = turn.state
    used = {o for q in state.queries.values() for o in placed_operators(q)}
    ending = {o for query in queries for o in state.queries[query].operators} - used
    ended = []
    for move in list(state.moves.values()):
        ends = (move.source, move.target)
        given_up = move.phase is not Phase.OWNED and not ending.isdisjoint(move.operators)
        if move.over or not (name in ends or given_up):
            continue
        turn.remove("moves", move.id)
        ended.append(move.id)
        for end in ends:
            if end in turn.state.live:
                turn.live(end, actual=None)  # what it says of the move is answered
    return ended


def advance(turn: Turn) -> None:
    """Readers that wait for a lost processor begin again. Its streams enter elsewhere, once nobody
    has a copy of what they were."""
    for name, lost in turn.state.lost.items():
        if name not in turn.state.processors:
            _end_stranded(turn, lost)
    state = turn.state
    known = {s for one in state.lost.values() for s in one.streams}
    entering = set(known)
    if state.lost and all(live.actual is not None for live in state.live.values()):
        # a manager that learned knows no other place of what queries read
        entering |= {s.removeprefix("s:") for q in state.queries.values() for s in q.sources}
    waiting = [
        s for s in state.streams.values() if s.processor == NOBODY and s.name in entering
    ]  # fmt: skip
    if not waiting or any(q.phase == "dropping" for q in state.queries.values()):
        return
    if not descriptions(state):
        return
    for stream in waiting:
        copied = any(
            live.actual is None or stream.id in live.actual.connected
            for live in state.live.values() if live.state != "silent"
        )  # fmt: skip
        if not copied:
            place = least_entered(turn.state)
            started = stream.start_wanted or stream.name not in known  # it was: it is read
            turn.put(replace(stream, processor=place, start_wanted=started))
            turn.decide(
                "notice", f"rows of {stream.name} enter at {place} now",
                "the processor where they entered is lost", about=("processor", place),
            )  # fmt: skip


def _end_stranded(turn: Turn, lost: Lost) -> None:
    """Queries with a copy of a stream that had moved on from the lost processor: its pointer to the
    present owner is gone with it, and so may be rows that the copy lacks."""
    stranded = {
        (name, stream)
        for name, live in turn.state.live.items() if live.actual is not None
        for stream, peer in live.actual.connected.items() if peer.processor == lost.id
    }  # fmt: skip
    ended = []
    for query in list(turn.state.queries.values()) if stranded else ():
        placed = [o for o in placed_operators(query) if o in turn.state.operators]
        records = [turn.state.operators[o] for o in placed]
        waits = any((r.processor, s) in stranded for r in records for s in r.inputs)
        if waits and query.phase != "dropping" and not query.ended:
            _begin_again(turn, query, _mark(lost.id, lost.since_s))
            ended.append(query.name)
    _end_handed(turn, ended)


def again(query: Query, now_s: float) -> Query:
    """A query that was given up with a lost processor, as if it were submitted now."""
    return Query(
        query.name, query.cql, query.from_beginning, submitted_s=now_s,
        deliver_to=query.deliver_to, latency_s=query.latency_s, queue=query.queue, lost=query.lost,
        floor=query.floor, weight=query.weight, replicas=query.replicas,
    )  # fmt: skip


def away(state: ManagerState, query: Query) -> str:
    """Why a query does not run although it should: a processor that it needs does not answer."""
    for name, live in state.live.items():
        if quiet(live) and needs(state, query, name):
            return f"processor {name} does not answer"
    return ""


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
