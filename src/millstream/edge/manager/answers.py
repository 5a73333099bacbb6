"""What a manager tells those who ask, as plain values: status, queries, placement, moves, reasons.

Reads the manager's state, changes nothing. The dashboard has its own view of the same state.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any

from millstream.control.manager.connections import owner_of, placed_operators, readers
from millstream.control.manager.decisions import consider, placement
from millstream.control.manager.state import ManagerState, Move, Query, StreamRecord
from millstream.control.moves import base_streams
from millstream.control.moves.migration import objection
from millstream.control.moves.routes import standing
from millstream.control.protocol.records import ASKED, PAUSED
from millstream.control.protocol.replies import HostedQuery
from millstream.control.recovery import losing
from millstream.core.errors import UsageError
from millstream.core.secrets import masked_table
from millstream.edge.manager.driver import Traffic
from millstream.edge.views.readiness import told

Answer = dict[str, Any]
DECIDES_S = 60.0  # without a decision, be it that nothing is to be done


RATIO_FIGURES = ("ratio", "ratio_processing", "ratio_communication", "delay_s", "evaluation_s")


def ratios(state: ManagerState) -> dict[str, dict[str, float]]:
    """Performance ratios of the queries that have given results, the worst first (seed 002)."""
    found = {
        name: {figure: float(served[figure]) for figure in RATIO_FIGURES if figure in served}
        for name, served in state.statistics.queries.items()
        if name in state.queries and "ratio" in served
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1]["ratio"], item[0])))


def status(state: ManagerState, traffic: Traffic, started_s: float) -> Answer:
    """The whole cluster in a few figures."""
    phases: dict[str, int] = {}
    for query in state.queries.values():
        phases[query.phase] = phases.get(query.phase, 0) + 1
    return {
        "epoch": state.epoch,
        "started": started_s,
        "superseded": state.superseded,
        "learning": bool(state.learning_until_s),
        "lost": {
            one.id: {
                "since": one.since_s,
                "queries": list(one.queries),
                "streams": list(one.streams),
            }
            for one in state.lost.values()
        },
        "processors": {name: processor(state, name) for name in state.processors},
        "streams": {name: stream(state, name) for name in state.streams},
        "queries": phases,
        "operators": len(placement(state)),
        "moves": [m.id for m in state.moves.values() if not m.over],
        "ratios": ratios(state),
        "traffic": {
            "out_bytes": traffic.out_bytes,
            "in_bytes": traffic.in_bytes,
            "messages": traffic.messages,
            "steps": traffic.steps,
        },
        "settings": settings(state),
    }


def readiness(state: ManagerState, fed_s: float) -> Answer:
    """Whether the manager decides; those who are silent and queries that failed are told beside."""
    reasons = [state.superseded] if state.superseded else []
    age_s = time.monotonic() - fed_s
    if age_s > DECIDES_S:
        reasons.append(f"nothing was decided for {age_s:.0f} s")
    silent = sum(live.state == "silent" for live in state.live.values())
    failed = sum(query.phase == "failed" for query in state.queries.values())
    return told(reasons, silent=silent, failed=failed, queries=len(state.queries))


def settings(state: ManagerState) -> Answer:
    s = state.settings
    return {
        "placer": s.placer,
        "pattern": s.pattern,
        "cost_model": s.cost_model,
        "policy": s.policy,
        "redistribute": s.redistribute,
        "percent_difference": s.parameters.percent_difference,
        "check_s": s.parameters.check_s,
        "moves_max": s.parameters.moves_max,
        "eligible_operators": _listed(s.parameters.eligible_operators),
        "eligible_processors": _listed(s.parameters.eligible_processors),
        "state_rows_min": s.parameters.state_rows_min,
        "state_rows_max": most if (most := s.parameters.state_rows_max) < inf else None,
        "replace_s": s.replace_s,
        "replace_gain": s.replace_gain,
        "replace_planner": s.replace_planner,
        "replace": s.replace,
        "replan_s": s.replan_s,
        "replan_gain": s.replan_gain,
        "moves_a_minute": s.moves_a_minute,
        "relays": s.relays,
        "weight_admit": s.weight_admit,
        "weight_network": s.weight_network,
        "weight_cpu": s.weight_cpu,
        "weight_balance": s.weight_balance,
        "restart": s.restart,
        "restarts_max": s.restarts_max,
    }


def _listed(names: frozenset[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def processor(state: ManagerState, name: str) -> Answer:
    if name not in state.processors:
        raise UsageError(f"there is no processor {name}")
    known, live = state.processors[name], state.live.get(name)
    figures = state.statistics.processors.get(name)
    return {
        "url": known.url,
        "state": ("draining" if known.draining and live and live.state == "up" else live.state)
        if live
        else "silent",
        "epoch": known.epoch,
        "heard": live.heard_s if live else 0.0,
        "properties": dict(known.properties),
        "operators": sum(p == name for p in placement(state).values()),
        "streams": [s.name for s in state.streams.values() if s.processor == name],
        "figures": dict(figures.values) if figures else {},
    }


def stream(state: ManagerState, name: str) -> Answer:
    known = state.streams[name]
    figures = state.statistics.streams.get(known.id)
    live = state.live.get(known.processor)
    started = live is not None and live.actual is not None and name in live.actual.started
    return {
        "processor": known.processor,
        "url": state.processors[known.processor].url
        if known.processor in state.processors
        else None,
        "below": _is_manager(state, known.processor),
        "started": started,
        "table": masked_table(known.table),
        "figures": dict(figures.values) if figures else {},
        "rows_per_s": figures.rates.get("rows", 0.0) if figures else 0.0,
    }


def entering(state: ManagerState, processor: str) -> list[Answer]:
    """Base streams that stay at a processor although it is drained, and why: the kind of a source,
    nobody to take it, or what the one who was asked could not read."""
    found = []
    for known in state.streams.values():
        if known.processor != processor:
            continue
        figures = state.statistics.streams.get(known.id)
        ended = bool(figures and figures.values.get("ended"))
        reason = _staying(state, known)
        kind = base_streams.kind_of(known)
        found.append({"stream": known.name, "source": kind, "ended": ended, "reason": reason})
    return found


def _staying(state: ManagerState, stream: StreamRecord) -> str:
    if (why := base_streams.STAY.get(base_streams.kind_of(stream))) is not None:
        return why
    moves = [m for m in state.moves.values() if stream.id in m.operators]
    if moves and not moves[-1].over:
        return f"its move to {moves[-1].target} is {moves[-1].phase}"
    if moves and moves[-1].outcome:
        return moves[-1].outcome
    return "no other processor can take it now"


def query(state: ManagerState, name: str) -> Answer:
    """A query with the place of its result: whom to ask for rows."""
    known = state.queries.get(name)
    if known is None:
        raise UsageError(f"there is no query {name}")
    told: Mapping[str, Any] = state.statistics.queries.get(name, {})
    away = losing.away(state, known) if known.phase == "running" else ""
    owner = owner_of(state, known.result) if known.result else ""
    figures = state.statistics.streams.get(known.result)
    return {
        "name": name,
        "cql": known.cql,
        "state": _shown(known, told, away, reason=_why(known, told)),
        "phase": known.phase,
        "reason": known.reason or _why(known, told) or away or known.lost,
        "paused": known.paused,
        "lost": known.lost,
        "start": known.start,
        "from_beginning": known.from_beginning,
        "relation": known.relation,
        "columns": [list(c) for c in known.columns],
        "result": known.result,
        "processor": owner,
        "url": state.processors[owner].url if owner in state.processors else None,
        "below": _is_manager(state, owner),
        "operators": [operator(state, o) for o in known.operators if o in state.operators],
        "sources": [s.removeprefix("s:") for s in known.sources],
        "admission": dict(known.admission),
        "weight": known.weight,
        "rows": figures.values.get("rows", 0.0) if figures else 0.0,
        "watermark_us": figures.values.get("watermark_us") if figures else None,
        "culprits": told.get("culprits", []),
        **{name: told.get(name) for name in RATIO_FIGURES},
    }


def restarted(state: ManagerState, name: str, restarts: int) -> bool:
    """Whether every processor with a part of a query knows that it was restarted so often."""
    query = state.queries.get(name)
    if query is None or query.phase != "running" or query.restarts > restarts:
        return True  # what became of it is told
    return all(have is not None and have.restarts >= restarts for have in _parts(state, query))


def paused(state: ManagerState, name: str, pauses: int) -> bool:
    """Whether every processor with a part of a query was told so often to let it rest or go on."""
    query = state.queries.get(name)
    if query is None or query.phase != "running" or query.pauses > pauses:
        return True  # what became of it is told
    return all(have is not None and have.pauses >= pauses for have in _parts(state, query))


def _parts(state: ManagerState, query: Query) -> Iterator[HostedQuery | None]:
    """What each processor with a part of a query is believed to have of it."""
    for place in {state.operators[o].processor for o in query.operators if o in state.operators}:
        have = state.live[place].actual if place in state.live else None
        yield have.queries.get(query.name) if have is not None else None


def _why(known: Query, told: Mapping[str, Any]) -> str:
    """Why a query does not run, as far as its processors say."""
    if known.paused:
        return f"{PAUSED}{ASKED}"
    reason = str(told.get("reason", ""))
    return "" if reason.startswith(PAUSED) else reason  # what it says is older than the resume


def _is_manager(state: ManagerState, name: str) -> bool:
    """Whether a processor is a manager with processors of its own."""
    known = state.processors.get(name)
    return known is not None and known.properties.get("kind") == "manager"


def _shown(known: Query, told: Mapping[str, Any], away: str, *, reason: str) -> str:
    if known.phase == "running" and away:
        return "stalled"
    if known.phase == "dropping" and known.lost and not known.ending:
        return "lost"  # with a processor; it begins again
    if known.phase == "running" and (known.paused or (told.get("state") == "parked" and reason)):
        return "parked"
    if known.phase in ("running", "failed", "dropping", "queued"):
        return known.phase
    return "starting"


def operator(state: ManagerState, name: str) -> Answer:
    known = state.operators[name]
    figures = state.statistics.operators.get(name)
    moving = next((m for m in state.moves.values() if not m.over and name in m.operators), None)
    return {
        "id": name,
        "kind": known.kind,
        "label": known.label,
        "inputs": list(known.inputs),
        "processor": known.processor,
        "epoch": known.epoch,
        "queries": [q.name for q in state.queries.values() if name in placed_operators(q)],
        "moving_to": moving.target if moving else None,
        "figures": {**figures.values, **{f"{k}_per_s": v for k, v in figures.rates.items()}}
        if figures
        else {},
    }


def moves_since(state: ManagerState, counter: int) -> list[dict[str, Any]]:
    """The moves that were decided after a count."""
    return [move(m) for m in state.moves.values() if int(m.id.split("-")[-1]) > counter]


def settled(state: ManagerState, moves: Iterable[str]) -> bool | None:
    """Whether moves are sealed and taken over, or undone; None while they are under way."""
    phases = {state.moves[move].phase for move in moves}
    return True if phases <= {"completing", "done", "undone"} else None


def move(known: Move) -> Answer:
    return {
        "id": known.id,
        "operators": list(known.operators),
        "from": known.source,
        "to": known.target,
        "phase": known.phase,
        "reason": known.reason,
        "outcome": known.outcome,
        "rows_missing": known.rows_missing,
        "begun": known.begun_s,
        "sealed": known.sealed_s,
        "story": [str(event) for event in known.story.events],
    }


def distribution(state: ManagerState) -> Answer:
    """Who runs what, and which streams cross between processors: from their owner, or by another
    reader that sends them on."""
    edges = []
    relays = standing(state, readers(state))
    for known in state.operators.values():
        for source in known.inputs:
            owner = owner_of(state, source)
            if owner and known.processor and owner != known.processor:
                figures = state.statistics.edges.get(f"{source}>{known.processor}")
                edges.append(
                    {
                        "stream": source,
                        "from": owner,
                        "to": known.processor,
                        "relayed_by": relays.get(known.processor, {}).get(source),
                        "figures": dict(figures.values) if figures else {},
                    }
                )
    return {
        "operators": [operator(state, o) for o in state.operators if state.operators[o].processor],
        "edges": edges,
    }


def redistribution(state: ManagerState) -> Answer:
    """What the policy would do now, and from which costs."""
    costs, decision, _, _ = consider(state)
    return {
        "model": costs.model,
        "policy": state.settings.policy,
        "processors": dict(costs.processors),
        "operators": dict(costs.operators),
        "sentence": decision.sentence,
        "moves": [
            {"operator": m.operator, "from": m.source, "to": m.target, "reason": m.reason}
            for m in decision.moves
        ],
    }


def chosen_operators(state: ManagerState, given: str, *, subplan: bool = False) -> tuple[str, ...]:
    """Operators by id, by an unambiguous beginning of it, by label, or all of a query; or where
    rows of a stream enter, by its id or its name."""
    placed = placement(state)
    if given in state.queries:
        return tuple(o for o in state.queries[given].operators if o in placed)
    if given.removeprefix("s:") in state.streams:
        return (state.streams[given.removeprefix("s:")].id,)
    fits = [o for o in placed if given in (o, state.operators[o].label)] or [
        o for o in placed if o.startswith(given) or o.removeprefix("o:").startswith(given)
    ]
    if not fits:
        raise UsageError(f"there is no operator {given}", hint="millstream placement lists them")
    if len(fits) > 1:
        names = ", ".join(sorted(fits)[:5])
        raise UsageError(f"{given} may be any of {len(fits)} operators", detail=names)
    if not subplan:
        return (fits[0],)
    found = {fits[0]: None}
    for name in (waiting := [fits[0]]):
        for source in state.operators[name].inputs:
            if source in placed and source not in found:
                found[source] = None
                waiting.append(source)
    return tuple(found)


def planned_move(state: ManagerState, operators: tuple[str, ...], target: str) -> Answer:
    """What a move would do, without doing it."""
    problem = objection(state, operators, target)
    if problem:
        raise UsageError(problem)
    going = [o for o in operators if owner_of(state, o) != target]
    state_rows = sum(
        figures.values.get("state_rows", 0.0)
        for o in going
        if (figures := state.statistics.operators.get(o)) is not None
    )
    labels = ", ".join(base_streams.label_of(state, o) for o in going)
    sources = sorted({owner_of(state, o) for o in going})
    sentence = (
        f"{labels} would go from {', '.join(sources)} to {target}"
        if going
        else f"nothing to do: it is on {target}"
    )
    return {"sentence": sentence, "operators": going, "to": target, "state_rows": state_rows}
