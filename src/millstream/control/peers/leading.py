"""How a member of a cluster without a manager becomes one for a while, and what it then knows.

A member that accepts a query leads for as long as its deployment takes. It begins with nothing but
the other members, learns from them what they run (`control/recovery/learning.py`, as a manager does
that has lost its memory), and uses the manager's own state machine: there is one way to turn a
placement into commands. A member that only looks learns for ever and so tells nobody anything.
Pure: states in, states out.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from millstream.control.manager.connections import blueprint, increments
from millstream.control.manager.decisions import FRAGMENTS
from millstream.control.manager.state import (
    Live,
    Lost,
    ManagerState,
    OperatorRecord,
    Processor,
    Query,
    Settings,
    Statistics,
)
from millstream.control.peers.records import Records, coordinator_of
from millstream.control.protocol.commands import Join
from millstream.control.protocol.member_messages import QueryRecord
from millstream.control.recovery.learning import FOUND
from millstream.core.errors import UsageError

BEAT_S = 0.5
LEARN_S = 0.3  # least time in which a leader listens before it tells anybody anything
SETTINGS = Settings(
    placer=FRAGMENTS, beat_s=BEAT_S, silent_after_s=6.0, patience_s=30.0, asks_strangers=False
)  # gossip says who is there
LOOKING = replace(SETTINGS, silent_after_s=2.0, patience_s=5.0)
FOREVER = float("inf")


def beginning(
    known: ManagerState,
    up: Mapping[str, Join],
    away: Mapping[str, Join],
    now_s: float,
    *,
    lineage: str,
    epoch: int,
    records: Records | None = None,
    lost: Mapping[str, Join] | None = None,
    looks_only: bool = False,
) -> ManagerState:
    """What a leader knows when it begins: who is there; what was measured and decided before."""
    joins = {**away, **up}
    return ManagerState(
        epoch=epoch,
        lineage=lineage,
        settings=LOOKING if looks_only else SETTINGS,
        processors={
            j.id: Processor(j.id, j.url, j.epoch, j.properties, home=j.home) for j in joins.values()
        },
        decisions=known.decisions,
        counter=known.counter,
        now_s=now_s,
        live={name: _live(known, join, now_s, there=name in up) for name, join in joins.items()},
        statistics=known.statistics,
        checked_s=now_s,  # balancing looks after what runs
        learning_until_s=FOREVER if looks_only else now_s + LEARN_S,
        elsewhere=_elsewhere(records or {}),
        lost={j.id: Lost(j.id, now_s, now_s, j.home) for j in (lost or {}).values()},
    )


def _elsewhere(records: Records) -> frozenset[str]:
    """What members who are away may have: operators of queries that were deployed, and queries
    whose deployment began. Of all others they have nothing, and nobody waits for them."""
    known = [record for record in records.values() if record.phase != "gone"]
    operators = {o for record in known for o in record.places}
    return frozenset(operators | {record.name for record in known if record.unfinished})


def _live(known: ManagerState, join: Join, now_s: float, *, there: bool) -> Live:
    """Nothing is believed of a member but what it has reported in this life of its home."""
    before, record = known.live.get(join.id), known.processors.get(join.id)
    same = record is not None and record.epoch == join.epoch
    return Live(
        state="joining" if there else "silent",
        heard_s=before.heard_s if before is not None and not there else now_s,
        since_s=now_s,
        version=before.version if before is not None and same else 0,
        beat_due_s=now_s,
    )


def has_learned(state: ManagerState) -> bool | None:
    """Whether a leader may act."""
    return True if not state.learning_until_s or state.superseded else None


def is_done(state: ManagerState) -> bool | None:
    """Whether everybody who answers has carried out all that it should: what a leader has not said
    when it ends, nobody remembers."""
    if state.superseded:
        return True
    plan = blueprint(state)
    for name, live in state.live.items():
        if live.state == "silent":
            continue
        if live.work is not None or live.actual is None or increments(state, plan, name):
            return None
    return None if state.outbox else True


def is_busy(state: ManagerState, wished: Collection[str]) -> bool:
    """Whether something goes on that a leader began. What others began and cannot go on now, such
    as a query with a part on a member that is away, keeps nobody waiting."""
    moving = any(not move.over for move in state.moves.values())
    phases = [state.queries[name].phase for name in wished if name in state.queries]
    return moving or any(p not in ("running", "failed") for p in phases) or not is_done(state)


def has_looked(state: ManagerState) -> bool | None:
    """Whether everybody who answers has told what it has, and what that means is known."""
    told = all(v.state == "silent" or (v.actual is not None and v.version) for v in
               state.live.values())  # fmt: skip
    read = not any(q.phase == "compiling" for q in state.queries.values())
    return True if told and read else None


def shown(state: ManagerState, records: Records, up: Collection[str]) -> ManagerState:
    """What was learned, with what is remembered: who accepted a query, which ones have failed, and
    those of which nobody who answers has anything."""
    queries = {name: _with_record(state, q, records.get(name), up)
               for name, q in state.queries.items()}  # fmt: skip
    operators = dict(state.operators)
    for record in records.values():
        if record.name in queries or record.phase not in ("running", "dropping"):
            continue
        away = [place for place in record.places.values() if place not in up]
        if not away:
            continue  # it has been dropped, and its record does not know yet
        queries[record.name] = _remembered(record, up)
        for name, place in record.places.items():
            operators.setdefault(name, OperatorRecord(name, "?", name, (), processor=place))
    known = replace(state, queries=queries, operators=operators)
    return replace(known, statistics=_still(state.statistics, known))


def _still(figures: Statistics, state: ManagerState) -> Statistics:
    """Figures of what is still there."""
    streams = state.operators.keys() | {stream.id for stream in state.streams.values()}
    return Statistics(
        {k: v for k, v in figures.processors.items() if k in state.processors},
        {k: v for k, v in figures.operators.items() if k in state.operators},
        {k: v for k, v in figures.streams.items() if k in streams},
        {k: v for k, v in figures.edges.items() if k.split(">")[0] in streams},
        {k: v for k, v in figures.queries.items() if k in state.queries},
    )


def _with_record(
    state: ManagerState, query: Query, record: QueryRecord | None, up: Collection[str]
) -> Query:
    if query.reason == FOUND:
        query = replace(query, reason="")
    told = state.statistics.queries.get(query.name, {})
    if told.get("state") == "failed" and query.phase in ("running", "deploying"):
        query = replace(query, phase="failed", reason=str(told.get("reason", "")))
    if record is None or record.phase == "gone":
        return query
    query = replace(query, deliver_to=record.deliver_to, latency_s=record.latency_s)
    if record.phase == "dropping":
        query = replace(query, phase="dropping", ending=True)
    elif record.phase == "running" and query.phase == "deploying":
        query = replace(query, phase="running")  # a part of it is with somebody who is away
    return replace(query, admission={**query.admission, **_who(record, up)})


def _who(record: QueryRecord, up: Collection[str]) -> dict[str, str]:
    return {"acceptor": record.acceptor, "coordinator": coordinator_of(record, up)}


def _remembered(record: QueryRecord, up: Collection[str]) -> Query:
    return Query(
        record.name, record.cql, record.from_beginning, submitted_s=record.submitted_s, found=True,
        phase="running" if record.phase == "running" else "dropping", admission=_who(record, up),
        operators=tuple(record.places), deliver_to=record.deliver_to, latency_s=record.latency_s,
    )  # fmt: skip


def check_new(records: Records, name: str, cql: str, me: str, up: Collection[str]) -> None:
    """Of several members that are sent one query, the first to lead has it; the others say so."""
    record = records.get(name)
    if record is None or record.phase == "gone" or record.acceptor == me:
        return
    if record.unfinished and record.cql == cql and coordinator_of(record, up) == me:
        return  # its acceptor is gone, and this member takes its place
    raise UsageError(
        f"query {name} exists already", detail=f"{record.acceptor} has accepted it",
        hint="drop it first, or choose another name",
    )  # fmt: skip


def outcome(state: ManagerState, record: QueryRecord) -> dict[str, object]:
    """How a leader's work on a query changes its record."""
    query = state.queries.get(record.name)
    if query is None or query.phase == "failed":
        reason = query.reason if query is not None else ""
        return {"phase": "gone", "reason": reason, "places": {}}
    if query.phase == "running":
        places = {o: state.operators[o].processor for o in query.operators if o in state.operators}
        return {"phase": "running", "places": places, "reason": ""}
    return {"reason": query.reason}
