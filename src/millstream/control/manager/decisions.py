"""The distribution decision maker: places for new queries, and moves when costs have changed.

Two phases (D-CAPE, section 4.4): a placer or distribution pattern for what is new, and a cost model
with a redistribution policy for what runs, each chosen by name, in any combination. `review` looks
at an interval and notes what it decides in a sentence; `consider` gives the same without doing it.
Nothing here sends anything.
"""

from dataclasses import replace

from millstream.control.admission.rules import (
    PLACERS,
    Verdict,
    Wait,
    answers,
    at_any_rate,
    descriptions,
    graph_of,
)
from millstream.control.manager.state import NOBODY, ManagerState, Query
from millstream.control.manager.turn import Turn
from millstream.core.errors import UsageError
from millstream.core.placement import Placement, ProcessorDescription
from millstream.decide.balance.cost_models import COST_MODELS, CostMemory, CostTable, Measured
from millstream.decide.balance.redistribution import (
    Decision,
    Memory,
    Move,
    Situation,
    redistribute,
)
from millstream.decide.place.patterns import distribute

SQPR = "sqpr"
FRAGMENTS = "fragments"


def place_query(state: ManagerState, query: Query) -> Verdict:
    """Where a query's operators go."""
    operators = {name: state.operators[name] for name in query.operators}
    silent = [
        o for o in operators.values() if o.processor != NOBODY and not answers(state, o.processor)
    ]
    if silent:
        return Wait(f"it shares {silent[0].label} with others, on {silent[0].processor}, silent")
    name = state.settings.placer
    if query.deliver_to or query.latency_s is not None:
        name = SQPR  # a pattern knows neither sites nor latency
    if query.given:
        name = "pattern"  # a part of a query, which the manager above has admitted
    if name == SQPR:
        from millstream.control.admission import planner as admission_planner  # noqa: F401, PLC0415  (registers itself)
    if name == FRAGMENTS:
        from millstream.control.admission import fragments  # noqa: F401, PLC0415
    return PLACERS.get(name)(state, query, operators)


def placement(state: ManagerState) -> Placement:
    """The placement in force."""
    return {o.id: o.processor for o in state.operators.values() if o.processor != NOBODY}


def measured(state: ManagerState) -> Measured:
    """What cost models see: the statistics table under their names."""
    table = placement(state)
    ratios = _ratios(state)
    unhurried = _unhurried(state)
    figures = {
        name: {
            **f.values,
            "late_rows": 0.0 if name in unhurried else f.values.get("queue_rows", 0.0),
            "rows_in_per_s": f.rates.get("rows_in", 0.0),
            "rows_out_per_s": f.rates.get("rows_out", 0.0),
            "cpu_s_per_s": f.rates.get("seconds", 0.0),
            "ratio": ratios.get(name, 0.0),
        }
        for name, f in state.statistics.operators.items()
        if name in table
    }
    up = tuple(p for p in state.processors.values() if answers(state, p.id))
    reported = frozenset(p.id for p in up if state.live[p.id].version)
    running = {name: state.operators[name] for name in table}
    return Measured(
        graph_of(replace(state, operators=running)),
        table,
        tuple(ProcessorDescription(p.id, p.properties) for p in up),
        figures,
        reported,
    )


def _unhurried(state: ManagerState) -> set[str]:
    """Operators of queries over finite files alone, which are read as fast as they are taken."""
    hurried = {s.id for s in state.streams.values() if not at_any_rate(s.table)}
    found = {o for q in state.queries.values() for o in q.operators}
    for query in state.queries.values():
        if not hurried.isdisjoint(query.sources):
            found -= set(query.operators)
    return found


def _allowed(state: ManagerState, names: frozenset[str]) -> frozenset[str]:
    """Operators by id, by label, or all of a query."""
    found = {o.id for o in state.operators.values() if not names.isdisjoint((o.id, o.label))}
    for query in state.queries.values():
        if query.name in names:
            found.update(query.operators)
    return frozenset(found)


def _ratios(state: ManagerState) -> dict[str, float]:
    """By operator the worst performance ratio of the queries it serves; only where it is known."""
    found: dict[str, float] = {}
    for query in state.queries.values():
        told = state.statistics.queries.get(query.name, {}).get("ratio")
        if told is not None and query.phase == "running":
            for name in query.operators:
                found[name] = max(found.get(name, 0.0), float(told))
    return found


def consider(state: ManagerState) -> tuple[CostTable, Decision, CostMemory, Memory]:
    """What the policy would do now."""
    seen = measured(state)
    costs, cost_memory = COST_MODELS.get(state.settings.cost_model).costs(seen, state.cost_memory)
    moving = {o for m in state.moves.values() if not m.over for o in m.operators}
    named = state.settings.parameters.eligible_operators
    allowed = seen.table.keys() if named is None else _allowed(state, named)
    eligible = frozenset(allowed - moving)
    takers = state.settings.parameters.eligible_processors
    open_ones = frozenset(p.id for p in descriptions(state))
    parameters = replace(
        state.settings.parameters,
        eligible_operators=eligible,
        eligible_processors=open_ones if takers is None else takers & open_ones,
    )
    state_rows = {o: seen.figure(o, "state_rows") for o in seen.table}
    situation = Situation(seen.graph, seen.table, costs, state_rows)
    decision, memory = redistribute(
        state.settings.policy, situation, parameters, state.policy_memory
    )
    return costs, decision, cost_memory, memory


def review(turn: Turn) -> tuple[Move, ...]:
    """At its interval, the policy's moves; noted whether or not they are carried out."""
    state = turn.state
    if turn.now_s - state.checked_s < state.settings.parameters.check_s:
        return ()
    turn.set(checked_s=turn.now_s)
    if not placement(state) or any(not m.over for m in state.moves.values()):
        return ()
    _, decision, cost_memory, memory = consider(state)
    turn.set(cost_memory=cost_memory, policy_memory=memory)
    if decision.moves and not state.settings.redistribute:
        wishes = "; ".join(str(m) for m in decision.moves)
        turn.decide("notice", f"the policy would move {len(decision.moves)} operators", wishes)
        return ()
    return decision.moves


def emptied(state: ManagerState, processor: str) -> dict[str, list[str]]:
    """Where operators of a processor that is drained go: by target."""
    running = {o: p for o, p in placement(state).items() if p != processor}
    others = tuple(p for p in descriptions(state) if p.id != processor)
    leaving = [o for o, p in placement(state).items() if p == processor]
    if not leaving:
        return {}
    table: dict[str, str] = {}
    if state.settings.placer == SQPR:
        from millstream.control.admission import replanning  # noqa: PLC0415

        table.update(replanning.vacating(state, processor))
    if any(operator not in table for operator in leaving):  # those without room go all the same
        pattern = distribute(graph_of(state), others, state.settings.pattern, {**running, **table})
        table = {**pattern, **table}
    targets: dict[str, list[str]] = {}
    for operator in leaving:
        targets.setdefault(table[operator], []).append(operator)
    return targets


def entering_elsewhere(state: ManagerState, processor: str) -> dict[str, str]:
    """Where rows of the streams of a processor that is drained enter, by stream: each where fewest
    do by then. Nothing where nobody else is left."""
    counts = {p.id: 0 for p in descriptions(state) if p.id != processor}
    for stream in state.streams.values():
        if stream.processor in counts:
            counts[stream.processor] += 1
    found: dict[str, str] = {}
    for stream in state.streams.values():
        if stream.processor == processor and counts:
            target = min(counts, key=lambda p: (counts[p], p))
            counts[target] += 1
            found[stream.id] = target
    return found


def least_entered(state: ManagerState) -> str:
    """Where rows of a new stream enter: where fewest streams do, among those that answer."""
    counts = {p.id: 0 for p in descriptions(state)}
    if not counts:
        counts = {p.id: 0 for p in state.processors.values() if not p.draining}
    if not counts:
        raise UsageError(
            "no processor is left", hint="start one: millstream processor --manager URL --home DIR"
        )
    for stream in state.streams.values():
        if stream.processor in counts:
            counts[stream.processor] += 1
    return min(counts, key=lambda p: (counts[p], p))
