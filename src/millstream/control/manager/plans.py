"""The query plan manager: the way of a query from its text to running, and whether plans are valid.

A query is compiled once, by a living processor; what it reads is held wherever there is a copy, its
start follows from the marks and gives its operators their ids, it is placed by the decision maker,
checked (every operator exactly once, every processor alive), deployed by the connection manager,
and runs. An invalid placement goes back to the decision maker, a bounded number of times. An
operator that several queries share stays while any of them uses it; one that nobody uses is gone
before a new query may have it again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millstream.control.admission.rules import (
    Placed,
    Refused,
    answers,
    descriptions,
    record_of,
)
from millstream.control.manager import system_streams
from millstream.control.manager.connections import (
    EARLY,
    Blueprint,
    blueprint,
    deployed,
    hold_places,
    kept_operators,
    moving,
    placed_operators,
    readers,
)
from millstream.control.manager.decisions import place_query
from millstream.control.manager.events import Drop, Submit
from millstream.control.manager.monitor import forget_figures
from millstream.control.manager.query_names import made_whole
from millstream.control.manager.state import NOBODY, ManagerState, Query
from millstream.control.manager.turn import Turn
from millstream.control.moves import routes
from millstream.control.protocol.commands import Compile, Hold, Unhost
from millstream.control.protocol.replies import (
    Compiled,
    Held,
    Refusal,
    Reply,
    StreamMark,
)
from millstream.control.recovery import failed_queries, losing
from millstream.control.recovery.silence import WAYS
from millstream.core.errors import UsageError
from millstream.core.operator_graph import GraphOperator, OperatorGraph
from millstream.core.placement import problems
from millstream.language.share.join_orders import by_ways

QUERIES_MAX = 20_000


def submit(turn: Turn, asked: Submit) -> None:
    asked = made_whole(turn.state, asked)
    if asked.name in turn.state.queries:
        known = turn.state.queries[asked.name]
        same = known.cql == asked.cql and (
            known.found or known.from_beginning == asked.from_beginning
        )
        if known.phase == "dropping":
            raise UsageError(f"query {asked.name} is being dropped", hint="try again in a moment")
        if same and not asked.dry_run:
            return  # said twice
        raise UsageError(f"query {asked.name} exists already", hint="drop it first")
    if len(turn.state.queries) >= QUERIES_MAX:
        raise UsageError(f"there are {QUERIES_MAX} queries already")
    if not any(live.state != "silent" for live in turn.state.live.values()):
        raise UsageError(
            "no processor is left",
            detail="none has joined" if not turn.state.live else "every one of them is silent",
            hint="start one: millstream processor --manager URL --home DIR",
        )
    refusals = {k: v for k, v in turn.state.refusals.items() if k != asked.name}
    turn.set(refusals=refusals)
    turn.put(
        Query(
            asked.name, asked.cql, asked.from_beginning, submitted_s=turn.now_s,
            deliver_to=asked.deliver_to, latency_s=asked.latency_s, queue=asked.queue,
            dry_run=asked.dry_run, weight=asked.weight, replicas=asked.replicas,
            pauses=int(asked.paused),
        )
    )  # fmt: skip
    considered = {k: v for k, v in turn.state.considered.items() if k != asked.name}
    turn.set(considered=dict(list(considered.items())[-100:]))


def drop(turn: Turn, asked: Drop) -> None:
    query = turn.state.queries.get(asked.name)
    if query is None:
        raise UsageError(f"there is no query {asked.name}")
    turn.query(asked.name, phase="dropping", ending=True)
    turn.remove("marks", asked.name)
    _end_handed(turn, query)
    turn.decide("drop", f"query {asked.name} is dropped", about=("query", asked.name))


def _end_handed(turn: Turn, query: Query) -> None:
    """Former owners of operators that nobody uses any more keep their rows for nobody."""
    used = {o for q in turn.state.queries.values() for o in placed_operators(q)}
    for move in turn.state.moves.values():
        gone = tuple(o for o in move.operators if o in query.operators and o not in used)
        if gone and move.settled and not move.outcome:
            waiting = turn.state.outbox.get(move.source, ())
            turn.in_table("outbox", move.source, (*waiting, Unhost(query.name, gone)))


# -- compiling ------------------------------------------------------------------------------------


def questions(state: ManagerState) -> list[Compile]:
    """What has to be compiled now, each text once."""
    waiting = (q for q in state.queries.values() if q.phase == "compiling" and q.compiled is None)
    return list(dict.fromkeys(Compile(query.cql) for query in waiting))


def can_compile(state: ManagerState, processor: str) -> bool:
    """Whether a processor can be asked now what a text means."""
    return state.live[processor].ask is None and knows_streams(state, processor)


def knows_streams(state: ManagerState, processor: str) -> bool:
    """Whether a processor answers and has been told of all streams that it takes."""
    live = state.live[processor]
    if live.state != "up" or live.actual is None:
        return False
    told = live.actual.declared.keys() | live.refused.keys()
    return all(s.name in told for s in state.streams.values() if not s.forgotten)


def compiled(turn: Turn, command: Compile, reply: Reply) -> None:
    """An answer to a question goes to every query that asks it."""
    for query in list(turn.state.queries.values()):
        if query.cql != command.cql or query.phase != "compiling":
            continue
        if isinstance(reply, Refusal):
            if reply.code in ("mistake", "failed") and query.found:
                turn.query(query.name, phase="failed", reason=reply.message)
            elif reply.code in ("mistake", "failed"):
                turn.refuse(query.name, reply)
        elif isinstance(reply, Compiled) and query.found and query.start is not None:
            _bound(turn, query, reply.starting(query.start), "deploying")  # it runs
            turn.query(query.name, compiled=reply)  # unless it turns out not to
        elif isinstance(reply, Compiled) and query.given and query.start is not None:
            _bound(turn, query, reply.starting(query.start))  # who placed it here holds it
        elif isinstance(reply, Compiled):
            turn.query(query.name, compiled=reply, sources=reply.sources)


def _begin_hold(turn: Turn, query: Query, reply: Compiled) -> None:
    """Lets everybody keep what a query reads, once no move touches that."""
    unknown = [s for s in reply.sources if s.removeprefix("s:") not in turn.state.streams]
    if unknown and not system_streams.declare(turn, unknown):
        missing = f"stream {unknown[0]} is not declared"
        turn.refuse(query.name, Refusal("mistake", missing))
        return
    if query.dry_run:
        _consider(turn, query, reply)
        return
    failed_queries.take_over(turn, query.name, {o.id for o in reply.operators})
    used = {o for q in turn.state.queries.values() for o in placed_operators(q)}
    shared = tuple(o.id for o in reply.operators if o.id in used)
    if moving(turn.state, (*reply.sources, *shared)):
        turn.query(query.name, reason="it waits for a move of what it reads")
        return  # what it shares may have changed by then
    turn.query(query.name, phase="holding", shared=shared, reason="")


def _consider(turn: Turn, query: Query, reply: Compiled) -> None:
    """What would become of a query; nothing of it stays."""
    state = turn.state
    records = {o.id: state.operators.get(o.id) or record_of(o) for o in reply.operators}
    names = tuple(records)
    trial = replace(query, operators=names, result=reply.result, compiled=reply)
    verdict = place_query(replace(state, operators={**state.operators, **records}), trial)
    told: dict[str, Any] = {"sentence": verdict.sentence}
    match verdict:
        case Placed():
            told |= {
                "verdict": "admitted", "places": dict(verdict.table), "cpu": verdict.cpu,
                "reused": list(verdict.reused), "bandwidth": verdict.bandwidth, **verdict.detail,
                "moves": [dict(group) for group in verdict.moves],
            }  # fmt: skip
        case Refused():
            told |= {
                "verdict": "queued" if query.queue else "refused", "resource": verdict.resource,
                "host": verdict.host, "fits": verdict.fits,
            }  # fmt: skip
        case _:
            told["verdict"] = "undecided"
    turn.remove("queries", query.name)
    turn.in_table("considered", query.name, told)


def _bound(turn: Turn, query: Query, reply: Compiled, phase: str = "placing") -> None:
    if query.ways:
        meant = by_ways(reply.operators, reply.ways, query.ways, (reply.result,))
        reply = replace(reply, operators=tuple(meant.values()))
    mine = [o for o in reply.operators if not query.given or o.id in query.given]
    turn.query(
        query.name,
        phase=phase,
        sources=reply.sources if query.found else query.sources,
        operators=tuple(o.id for o in mine),
        result=reply.result if any(o.id == reply.result for o in mine) else "",
        columns=reply.columns,
        relation=reply.relation,
        plan=reply.plan,
        attempts=0,
    )
    for found in mine:
        known = turn.state.operators.get(found.id)
        if known is None:
            turn.put(record_of(found, another_way=found.id in query.ways))
        elif found.id in query.ways and known.inputs != found.inputs:
            turn.put(replace(known, kind=found.kind, inputs=found.inputs, another_way=True))


# -- the start ------------------------------------------------------------------------------------


def held(turn: Turn, processor: str, command: Hold, reply: Held) -> None:
    query = turn.state.queries.get(command.query)
    asked = any(command.query in above.holds for above in turn.state.above.values())
    if not asked and (query is None or query.phase != "holding"):
        return
    marks = dict(turn.state.marks.get(command.query, {}))
    marks |= {(processor, stream): mark for stream, mark in reply.streams.items()}
    turn.in_table("marks", command.query, marks)


def start_of(
    query: Query,
    places: Mapping[str, tuple[str, ...]],
    marks: Mapping[tuple[str, str], StreamMark],
    owners: Mapping[str, str],
) -> int:
    """One event time (semantics, start of a query): the greatest watermark of the base streams, or
    with FROM BEGINNING the least time from which they are wholly retained; but never before what is
    wholly retained in every place that has a copy, because any of them may come to be read."""
    at_owner = [marks[owners[s], s] for s in query.sources]
    column = "retained_from" if query.from_beginning else "watermark"
    start = max(getattr(mark, column) for mark in at_owner)
    end = max(mark.ts_max + 1 for mark in at_owner)
    kept = max(marks[p, s].retained_from for s, where in places.items() for p in where)
    return int(min(max(start, kept), end))


def _fix_start(turn: Turn, query: Query, reading: Mapping[str, set[str]]) -> None:
    """Once everything a query will read is held, its start; one that has its start already keeps
    it if what it came to share is retained since then."""
    state = turn.state
    places = {s: hold_places(state, s, reading) for s in query.sources}
    lacking = [s for s, where in places.items() if not where]
    if lacking and not query.given:
        name = lacking[0].removeprefix("s:")
        turn.query(query.name, reason=f"no processor that answers has the rows of {name}")
        return
    for stream in query.shared:  # what nobody uses any more is made anew, for this query alone
        if stream in state.operators and not retiring(state, stream):
            places[stream] = hold_places(state, stream, reading)
    marks = state.marks.get(query.name, {})
    unmarked = {p for s, where in places.items() for p in where if (p, s) not in marks}
    if unmarked:
        silent = sorted(p for p in unmarked if not answers(state, p))
        reason = (
            f"processor {silent[0]}, which has what it reads, does not answer" if silent else ""
        )
        if reason != query.reason:
            turn.query(query.name, reason=reason)
        return
    turn.remove("marks", query.name)
    retained = {
        s: max(marks[p, s].retained_from for p in where) for s, where in places.items() if where
    }
    # a part that began later is of no use to it; what its text says first would have its very id
    compiled = query.compiled.operators if query.compiled is not None else ()
    first = {*query.operators, *(o.id for o in compiled)}
    others = [s for s in query.shared if s in retained and s not in first]
    avoided = tuple(s for s in others if retained[s] > (query.start or 0))
    kept = max((at for s, at in retained.items() if s not in avoided), default=0)
    if query.start is not None and (kept <= query.start or query.given):
        turn.query(query.name, phase="placing", avoided=avoided)
        return
    owners = {s: state.streams[s.removeprefix("s:")].processor for s in query.sources}
    places = {s: where for s, where in places.items() if s not in avoided}
    start = start_of(query, places, marks, owners)
    start = start if query.floor is None else max(start, query.floor)
    assert query.compiled is not None
    _bound(turn, turn.query(query.name, start=start), query.compiled.starting(start))


# -- places ---------------------------------------------------------------------------------------


def validity(state: ManagerState, query: Query, table: Mapping[str, str]) -> tuple[str, ...]:
    """Why a distribution of a query cannot be used: an operator without a processor, one that the
    query does not have, a processor that does not answer; a running operator may not change place.
    """
    graph = OperatorGraph(
        tuple(GraphOperator(o, state.operators[o].inputs) for o in query.operators)
    )
    alive = [p for p in state.processors if answers(state, p)]
    moved = [
        f"{o} runs on {state.operators[o].processor} and was put on {p}"
        for o, p in table.items()
        if o in state.operators and state.operators[o].processor not in (NOBODY, p)
    ]
    return (*problems(graph, table, alive), *moved)


def _place(turn: Turn, query: Query) -> None:
    state = turn.state
    leaving = [o for o in query.operators if retiring(state, o)]
    if leaving:  # nobody has used them since, but they are not gone everywhere
        silent = [p for p, live in state.live.items() if live.state == "silent"]
        who = f": {silent[0]} is silent, {WAYS.format(silent[0])}" if silent else ""
        reason = f"operator {leaving[0]} of a dropped query is not gone yet{who}"
        turn.query(query.name, reason=reason)
        return
    untold = [p for p in state.processors.values() if p.untold]
    if untold and _elsewhere(state, query):  # two who make one stream would be the end of it
        who = f"processor {untold[0].id} has not said yet what it runs"
        turn.query(query.name, reason=f"{who}: {WAYS.format(untold[0].id)}")
        return
    sought = [o for o in losing.sought(state) if o in query.operators]
    if sought:
        label = state.operators[sought[0]].label
        turn.query(query.name, reason=f"no processor that has joined runs {label}")
        return
    used = {o for q in state.queries.values() for o in placed_operators(q)}
    meaning = query.meaning()
    asked = query.operators if meaning is None else (*query.operators, *meaning.part_ids)
    unheld = [o for o in asked if o in used and o not in query.shared]
    if unheld and moving(state, unheld):
        return
    if unheld:  # deployed for another query since this one was compiled
        turn.query(query.name, phase="holding", shared=(*query.shared, *unheld))
        return
    if not descriptions(state) or turn.now_s < query.retry_s:
        return
    for found in meaning.operators if meaning is not None else ():
        known = state.operators.get(found.id)
        if known is not None and known.processor == NOBODY and known.another_way:
            turn.put(record_of(found))  # the way was that of a query that is gone
    state = turn.state
    verdict = place_query(state, query)
    if isinstance(verdict, Refused):
        grows = _grows(turn, query, verdict)
        if query.queue or grows:  # its start is fixed anew when there is room
            turn.query(
                query.name, phase="queued", reason=verdict.sentence, start=None, compiled=None,
                operators=(), shared=(), retry_s=turn.now_s + state.settings.queue_s,
            )  # fmt: skip
            _decide_once(turn, query, f"query {query.name} is queued: {verdict.sentence}")
            return
        turn.refuse(query.name, Refusal(verdict.resource, verdict.sentence, hint=verdict.fits))
        return
    if isinstance(verdict, Placed) and verdict.moves:
        _make_room(turn, query, verdict)
        return
    wrong = _wrong(state, query, verdict) if isinstance(verdict, Placed) else ()
    if isinstance(verdict, Placed) and not wrong:
        _deploy(turn, query, verdict)
        return
    reason = "; ".join(wrong) or getattr(verdict, "sentence", "")
    attempts = query.attempts + 1
    if attempts >= state.settings.attempts_max:
        message = f"no valid distribution in {attempts} tries"
        turn.refuse(query.name, Refusal("invalid", message, reason))
        return
    later = turn.now_s + state.settings.beat_s
    turn.query(query.name, attempts=attempts, reason=reason, retry_s=later)


def _elsewhere(state: ManagerState, query: Query) -> bool:
    """Whether a processor that has not been heard may run what a query needs."""
    if state.elsewhere is None:
        return True
    unplaced = [o for o in query.operators if state.operators[o].processor == NOBODY]
    return not state.elsewhere.isdisjoint((query.name, *unplaced))


def _grows(turn: Turn, query: Query, verdict: Refused) -> bool:
    """Whether another processor may come for it; that it is wanted is noted."""
    if not turn.state.settings.bounds.most:
        return False
    from millstream.control.admission import scaling  # noqa: PLC0415

    if not scaling.can_grow(turn.state, verdict):
        turn.remove("short", query.name)
        return False
    turn.in_table("short", query.name, verdict.resource)
    return True


def _wrong(state: ManagerState, query: Query, verdict: Placed) -> tuple[str, ...]:
    if _other_ways(query, verdict):
        chosen = {o.id: o for o in verdict.operators}
        state = replace(state, operators={**state.operators, **chosen})
        query = replace(query, operators=tuple(verdict.table))
    return validity(state, query, verdict.table)


def _other_ways(query: Query, verdict: Placed) -> bool:
    """Whether a plan has other operators than the text says first, be it that what runs already
    was made by another way."""
    return bool(verdict.operators) or set(verdict.table) != set(query.operators)


def _make_room(turn: Turn, query: Query, verdict: Placed) -> None:
    """Running operators go elsewhere first; the query waits, holds nothing and is planned again."""
    from millstream.control.moves import relocations  # noqa: PLC0415  (with the planner's libraries)

    ours = not relocations.under_way(turn.state)
    turn.query(
        query.name, phase="queued", reason="it waits for room that is being made", start=None,
        compiled=None, operators=(), shared=(), retry_s=turn.now_s, awaits_room=True,
        rooms=query.rooms + ours,
    )  # fmt: skip
    if ours:  # else after the moves that are under way, by then for what is left
        reason = f"query {query.name} needs the room"
        asked = relocations.ask_for(turn, verdict.moves, reason, query=query.name)
        count = sum(len(one.operators) for one in asked)
        sentence = f"room is made for query {query.name}: {count} running operators move first"
        turn.decide("notice", sentence, verdict.sentence, about=("query", query.name))


def _room_is_made(turn: Turn, query: Query) -> bool:
    from millstream.control.moves import relocations  # noqa: PLC0415

    return not query.awaits_room or not relocations.under_way(turn.state)


def _decide_once(turn: Turn, query: Query, sentence: str) -> None:
    """A query that is tried again and again is not told of each time."""
    since = [d for d in turn.state.decisions if d.subject == query.name]
    if not since or since[-1].sentence != sentence:
        turn.decide("notice", sentence, about=("query", query.name))


def _deploy(turn: Turn, query: Query, verdict: Placed) -> None:
    if verdict.routes is not None:
        routes.keep(turn, verdict.routes)
    for chosen in verdict.operators:
        turn.put(chosen)
    if _other_ways(query, verdict):
        turn.query(query.name, operators=tuple(verdict.table))
    for name, place in verdict.table.items():
        record = turn.state.operators[name]
        if record.processor != place:
            turn.put(replace(record, processor=place))
    told = {
        "sentence": verdict.sentence, "reused": list(verdict.reused), "cpu": verdict.cpu,
        "bandwidth": verdict.bandwidth, **verdict.detail,
    }  # fmt: skip
    meaning = query.meaning()
    turn.query(
        query.name, phase="deploying", reason="", compiled=None, admission=told,
        readable=() if meaning is None else meaning.readable,
    )  # fmt: skip
    turn.decide(
        "admission", f"query {query.name} is taken: {verdict.sentence}", about=("query", query.name)
    )


def retiring(state: ManagerState, operator: str) -> bool:
    """Whether an operator is known, has a place, and no query uses it."""
    record = state.operators.get(operator)
    if record is None or record.processor == NOBODY:
        return False
    return not any(operator in placed_operators(q) for q in state.queries.values())


# -- every turn -----------------------------------------------------------------------------------


def advance(turn: Turn) -> None:
    """Takes every query as far as it goes now, and forgets what is over."""
    for query in list(turn.state.queries.values()):
        if query.phase == "queued" and turn.now_s >= query.retry_s:
            if _room_is_made(turn, query):
                turn.query(query.name, phase="compiling", awaits_room=False)
        elif query.phase == "compiling" and query.compiled is not None:
            _begin_hold(turn, query, query.compiled)
    waiting = [q for q in turn.state.queries.values() if q.phase in ("holding", "placing")]
    if waiting:
        waiting.sort(key=lambda query: -query.weight)  # of two for one room, the weightier
        reading = readers(turn.state)
        for query in waiting:
            if query.phase == "holding":
                _fix_start(turn, query, reading)
            else:
                _place(turn, query)
    if any(q.phase in ("deploying", "dropping") for q in turn.state.queries.values()):
        plan = blueprint(turn.state)
        for query in list(turn.state.queries.values()):
            if query.phase == "deploying" and deployed(turn.state, plan, query):
                turn.query(query.name, phase="running")
            elif query.phase == "dropping" and _gone(turn.state, plan, query):
                turn.remove("queries", query.name)
                if query.lost and not query.ending:
                    turn.put(losing.again(query, turn.now_s))
    system_streams.tidy(turn)
    collect(turn)


def _gone(state: ManagerState, plan: Blueprint, query: Query) -> bool:
    """Whether no processor that answers has anything of a dropped query."""
    if any(o in plan.frozen for o in query.operators):
        return False
    for live in state.live.values():
        have = live.actual
        if have is None and live.state != "silent":
            return False  # it is asked
        if have is not None and (query.name in have.queries or query.name in have.holds):
            return False
    return True


def collect(turn: Turn) -> None:
    """Forgets operators that nobody uses once no processor has anything of them."""
    state = turn.state
    used = {o for q in state.queries.values() for o in kept_operators(state, q)}
    used |= {o for m in state.moves.values() if m.frozen for o in m.operators}
    coming = {o for q in state.queries.values() if q.phase in EARLY for o in q.operators}
    unused = state.operators.keys() - used
    unused -= {o for o in coming & unused if state.operators[o].processor == NOBODY}
    if not unused:
        return
    if any(live.actual is None for live in state.live.values()):
        unused = {o for o in unused if state.operators[o].processor == NOBODY}
    for live in state.live.values():
        if live.actual is not None:
            have = live.actual
            unused = unused - {o for q in have.queries.values() for o in q.operators}
            unused = unused - have.connected.keys() - have.expected.keys()
    for name in unused:
        if name in coming:
            turn.put(replace(state.operators[name], processor=NOBODY, epoch=0))
        else:
            turn.remove("operators", name)
    if unused:
        forget_figures(turn, set(unused))
