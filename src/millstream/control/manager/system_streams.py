"""Streams about a cluster: declared while a query reads one, and the rows a manager knows.

A `sys.` stream is a base stream like any other, entered on one processor; the manager that a query
was submitted to posts its rows (`edge/manager/system_feed.py`). Rows about operators, steps and
queries come from the processors, rows about moves, admissions and alarms from the manager's own
state, here; a manager below tells of its moves too, and of everything that its processors tell it.
From two states it is decided what has happened between them; nothing is sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.control.admission.rules import descriptions
from millstream.control.manager.connections import placed_operators
from millstream.control.manager.state import (
    PLACED,
    Decision,
    ManagerState,
    Move,
    Processor,
    Query,
    StreamRecord,
)
from millstream.control.manager.turn import Turn
from millstream.control.moves.table import Phase
from millstream.control.snapshot.alarm_rows import Key, by_key, changes
from millstream.control.snapshot.model import Alarm
from millstream.control.snapshot.of_manager import snapshot_of
from millstream.language.cql.system_streams import COLUMNS, IDLE_US, PREFIX

OPERATORS, STEPS, MOVES, ADMISSIONS = "sys.operators", "sys.steps", "sys.moves", "sys.admissions"
QUERIES, ALARMS = "sys.queries", "sys.alarms"
FROM_PROCESSORS = frozenset({OPERATORS, STEPS, QUERIES})
# Operators move within a manager below; about a query it decides nothing, it was given it.
FROM_MANAGERS = FROM_PROCESSORS | {MOVES}
WORDS = {"admission": "admitted", "refusal": "refused", "drop": "dropped", "failure": "failed"}
Row = dict[str, Any]
Alarms = Mapping[Key, Alarm]


def declare(turn: Turn, streams: Iterable[str]) -> bool:
    """Declares those streams about the system that a query reads; whether there were such."""
    names = sorted({s.removeprefix("s:") for s in streams} & COLUMNS.keys())
    for name in names:
        turn.put(StreamRecord(name, table_of(name), _place(turn.state, name), start_wanted=True))
    return bool(names)


def table_of(name: str) -> Row:
    """A stream about the system as a job file would declare it."""
    return {
        "name": name, "columns": dict(COLUMNS[name]), "time": "at", "idle": f"{IDLE_US} us",
        "source": "push",
    }  # fmt: skip


def _place(state: ManagerState, name: str) -> str:
    """Where its rows enter: where they did before, else where fewest streams do."""
    places = [p.id for p in descriptions(state)] or list(state.processors)
    entered = [s.processor for s in state.streams.values()]
    before = {p for p, v in state.live.items() if v.actual and v.actual.declared.get(name)}
    return min(places, key=lambda p: (p not in before, entered.count(p), p))


def tidy(turn: Turn) -> None:
    """Forgets streams about the system that no query reads any more; below another manager, that
    one says when."""
    if turn.state.above:
        return
    own = [s for s in turn.state.streams.values() if s.name.startswith(PREFIX)]
    used = {s for q in turn.state.queries.values() for s in q.sources} if own else set()
    for stream in own:
        if stream.id not in used:
            turn.remove("streams", stream.name)


def wanted(state: ManagerState) -> frozenset[str]:
    """The streams about the system that are read now and fed here; for others nothing is collected.

    What a manager above reads tells of processors beyond ours, too: that one feeds it.
    """
    placed = [q for q in state.queries.values() if q.phase in PLACED]
    own = {s for q in placed if not q.given for s in q.sources}
    hosted = {o for q in placed if q.given for o in q.operators} & state.operators.keys()
    from_above = {s for o in hosted for s in state.operators[o].inputs} | state.promises.keys()
    fed = own - from_above
    return frozenset(n for n in state.streams if n.startswith(PREFIX) and f"s:{n}" in fed)


def asked_of(processor: Processor, streams: frozenset[str]) -> frozenset[str]:
    """The streams to whose rows a processor, or a manager in its place, has something to say."""
    manager = processor.properties.get("kind") == "manager"
    return streams & (FROM_MANAGERS if manager else FROM_PROCESSORS)


# -- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """What has been told already."""

    decision: int = 0  # the number of the last one
    moves: Mapping[str, str] = field(default_factory=dict)
    queries: Mapping[str, str] = field(default_factory=dict)
    alarms: Mapping[Key, Alarm] = field(default_factory=dict)


def known(state: ManagerState, stream: str = "", alarms: Alarms | None = None) -> Told:
    """Everything up to now, as if it had been told; alarms are judged for their own stream only.

    `alarms` are those that there are with what the processors say of themselves; without them those
    that a manager sees by itself.
    """
    return Told(
        state.decisions[-1].number if state.decisions else 0,
        {m.id: _end_of(m) for m in state.moves.values() if _end_of(m)},
        {q.name: _standing(state, q) for q in state.queries.values()},
        _alarms(state, alarms) if stream == ALARMS else {},
    )


def _alarms(state: ManagerState, alarms: Alarms | None) -> Alarms:
    return by_key(snapshot_of(state).overview.alarms) if alarms is None else alarms


def standing_rows(state: ManagerState, stream: str, alarms: Alarms | None = None) -> list[Row]:
    """How things stand when a stream begins to be read: queries and alarms that there are."""
    if stream == ALARMS:
        return changes({}, _alarms(state, alarms))
    if stream != ADMISSIONS:
        return []
    return [
        _admission(state, q.name, _standing(state, q), q.reason)
        for q in state.queries.values()
        if _standing(state, q)
    ]


def news(state: ManagerState, stream: str, told: Told, alarms: Alarms | None = None) -> list[Row]:
    """Rows about what has happened since."""
    if stream == MOVES:
        return [
            row
            for move in state.moves.values()
            if _end_of(move) and told.moves.get(move.id) != _end_of(move)
            for row in _moved(state, move)
        ]
    if stream == ALARMS:
        return changes(told.alarms, _alarms(state, alarms))
    if stream == ADMISSIONS:
        return [*_decided(state, told), *_changed(state, told)]
    return []


def _end_of(move: Move) -> str:
    """How a move has ended, or is about to end; empty while that is open."""
    if move.outcome:
        return Phase.UNDONE
    return Phase.DONE if move.settled else ""


def _moved(state: ManagerState, move: Move) -> list[Row]:
    undone = _end_of(move) == Phase.UNDONE
    ends = ((move.source, "undone"),) if undone else ((move.source, "out"), (move.target, "in"))
    reason = move.outcome if undone else move.reason
    kinds = {o: state.operators[o].kind if o in state.operators else "" for o in move.operators}
    return [
        {"operator": o, "kind": kinds[o], "processor": p, "direction": d, "reason": reason}
        for o in move.operators
        for p, d in ends
    ]


def _decided(state: ManagerState, told: Told) -> list[Row]:
    return [
        _admission(state, d.subject, WORDS[d.kind], _reason(d), int(d.at_s * 1e6))
        for d in state.decisions
        if d.number > told.decision and d.kind in WORDS and d.subject_kind == "query"
    ]


def _reason(decision: Decision) -> str:
    """A decision's sentence begins with what the row's columns say already."""
    said = decision.sentence.partition(": ")[2]
    return "; ".join(part for part in (said, decision.reason) if part)


def _changed(state: ManagerState, told: Told) -> list[Row]:
    """What no decision tells: queries that wait for room, are parked, or go on after that."""
    found = []
    for query in state.queries.values():
        before, now = told.queries.get(query.name, ""), _standing(state, query)
        if now == before or not now:
            continue
        if now in ("queued", "parked"):
            reason = query.reason or str(_figures(state, query).get("reason", ""))
            found.append(_admission(state, query.name, now, reason))
        elif before == "parked" and now == "admitted":
            found.append(_admission(state, query.name, "running", ""))
    return found


def _standing(state: ManagerState, query: Query) -> str:
    """In the words of the stream; empty for a query on its way."""
    if query.phase in PLACED:
        return "parked" if _figures(state, query).get("state") == "parked" else "admitted"
    return query.phase if query.phase in ("queued", "failed") else ""


def told_now(
    state: ManagerState, told: Told, stream: str = "", alarms: Alarms | None = None
) -> Told:
    """What has been told after `news`; a query on its way keeps what was told of it last."""
    fresh = known(state, stream, alarms)
    kept = {name: word or told.queries.get(name, "") for name, word in fresh.queries.items()}
    return Told(fresh.decision, fresh.moves, kept, fresh.alarms)


def _figures(state: ManagerState, query: Query) -> Mapping[str, Any]:
    return state.statistics.queries.get(query.name, {})


def _admission(state: ManagerState, name: str, word: str, reason: str, at_us: int = 0) -> Row:
    query = state.queries.get(name)
    mine = query.operators if query is not None and word != "dropped" else ()
    others = {
        o for q in state.queries.values() if q.name != name for o in placed_operators(q)
    }  # fmt: skip
    row: Row = {
        "query": name, "decision": word, "reason": reason, "operators": len(mine),
        "shared": sum(o in others for o in mine),
    }  # fmt: skip
    return {**row, "at": at_us} if at_us else row


def stamped(rows: Sequence[Row], last_us: int, now_us: int) -> list[Row]:
    """Rows in order of time, none older than what was sent before: clocks of processors differ, and
    their rows come a moment later, but none of them shall be late.

    >>> [r["at"] for r in stamped([{"at": 9}, {"at": 3}, {}], 5, 7)]
    [5, 7, 7]
    """
    timed = [{**row, "at": min(max(row.get("at", now_us), last_us), now_us)} for row in rows]
    return sorted(timed, key=lambda row: int(row["at"]))
