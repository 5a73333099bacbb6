"""What runs is planned again when the world has changed (SQPR, section IV.B).

At its interval the manager looks whether a processor has for a while had a tenth more to do than it
gives away, whether rates have departed from those it planned with, and whether processors have
come, gone or changed, queries were dropped, or weights were set. Overloaded processors are relieved
by as few moves as it takes; otherwise a change is an occasion to plan all again, carried out if it
saves enough by what was measured. Where nothing has changed nothing moves. The moves are those of
`control/moves/relocations`: one after the other, within the budget, each with its reason.
"""

from collections.abc import Mapping
from dataclasses import replace

from millstream.control.admission.estimates import Estimate, estimates
from millstream.control.admission.planning_state import planning
from millstream.control.admission.rules import answers, at_any_rate
from millstream.control.admission.ways import Choices
from millstream.control.manager.state import PLACED, ManagerState, PlannedWith
from millstream.control.manager.turn import Turn
from millstream.control.moves import relocations, routes
from millstream.core.operator_graph import OperatorGraph
from millstream.decide.place.live.owned import Places
from millstream.decide.place.live.relief import improved, overloaded, relieved, vacated
from millstream.decide.place.reuse.state import PlanState

DEPARTED = 0.2  # of a stream's rate: more is another rate
REMIND_S = 600.0  # between notices that there is too much to do
REST_S = 120.0  # that an operator stays after a move, so that nothing swings
WAYS = ("holding", "placing", "deploying")


def review(turn: Turn) -> None:
    """At its interval, the moves that the present load and the last changes call for."""
    state, settings = turn.state, turn.state.settings
    if turn.now_s - state.replanned_s < settings.replan_s:
        return
    turn.set(replanned_s=turn.now_s)
    if relocations.under_way(state) or any(not move.over for move in state.moves.values()):
        return
    if any(query.phase in WAYS for query in state.queries.values()):
        return
    known, unhurried = _demands(state)
    world = planning(state, Choices({}, {}, known))
    movable = world.movable - _restless(state) - unhurried
    if world.routes is not None:
        routes.keep(turn, world.routes)
    plan = world.state()
    crowded = overloaded(plan)
    now = _planned_with(state, known, frozenset(_named(plan, crowded)))
    before = state.planned_with
    changes = () if before is None else _changes(before, now)
    turn.set(planned_with=now if before is None else _remembered(before, now))
    if crowded:
        lasting = before is not None and now.crowded <= before.crowded  # no mere peak
        if lasting:
            _relieve(turn, plan, movable, _told(plan, crowded))
        return
    if not changes:
        return
    sure = frozenset(name for name in movable if known[name].measured)  # no move for a guess
    better, saved = improved(world.state, sure, settings.replan_gain)
    if better:
        why = f"{'; '.join(changes)}: traffic and load cost {saved:.0%} less"
        _ask(turn, plan, better, why)


def vacating(state: ManagerState, processor: str) -> dict[str, str]:
    """Where the operators of a processor that is drained go: those for which there is room."""
    world = planning(state)
    plan = world.state()
    names, hosts = plan.catalog.operator_ids, plan.catalog.host_ids
    going = vacated(plan, plan.catalog.host_at[processor], world.movable)
    return {names[operator]: hosts[host] for operator, host in going.items()}


def _relieve(
    turn: Turn, plan: PlanState, movable: frozenset[str], crowded: tuple[str, ...]
) -> None:
    """Operators leave processors that have too much to do; told once where none can."""
    weight: dict[str, float] = {}
    for query in turn.state.queries.values():
        for name in query.operators:
            weight[name] = max(weight.get(name, 0.0), query.weight)
    moves = relieved(plan, movable, weight)
    why = "; ".join(crowded)
    if moves:
        _ask(turn, plan, moves, why)
        return
    sentence = "processors have too much to do, and no move would help"
    last = next((d for d in reversed(turn.state.decisions) if d.sentence == sentence), None)
    if last is None or turn.now_s - last.at_s > REMIND_S:
        turn.decide("notice", sentence, why)


def _demands(state: ManagerState) -> tuple[dict[str, Estimate], frozenset[str]]:
    """What everything costs, and what asks for no rate: files that are read as fast as they are
    processed make a processor busy, never overloaded."""
    known = estimates(state, {})
    unhurried = {s.id for s in state.streams.values() if at_any_rate(s.table)}
    for operator in OperatorGraph(state.operators.values()).by_depth():
        if operator.inputs and unhurried.issuperset(operator.inputs):
            unhurried.add(operator.id)
    nothing = Estimate(0.0, 0.0, 0.0, measured=False)
    return known | dict.fromkeys(unhurried & known.keys(), nothing), frozenset(unhurried)


def _remembered(before: PlannedWith, now: PlannedWith) -> PlannedWith:
    """Rates stay those at the last departure, so that a slow change is one too."""
    rates = {
        name: before.rates[name] if name in before.rates and not _departed(before, name, rate)
        else rate
        for name, rate in now.rates.items()
    }  # fmt: skip
    return replace(now, rates=rates)


def _departed(before: PlannedWith, name: str, rate: float) -> bool:
    planned = before.rates.get(name, rate)
    return abs(rate - planned) > DEPARTED * max(planned, 1e-9)


def _ask(turn: Turn, plan: PlanState, moves: tuple[Places, ...], why: str) -> None:
    names, hosts = plan.catalog.operator_ids, plan.catalog.host_ids
    groups = [{names[o]: hosts[h] for o, h in group.items()} for group in moves]
    count = sum(map(len, groups))
    what = "1 operator moves" if count == 1 else f"{count} operators move"
    turn.decide("notice", f"what runs is planned again: {what}", why)
    relocations.ask_for(turn, groups, why)


def _planned_with(
    state: ManagerState, known: Mapping[str, Estimate], crowded: frozenset[str]
) -> PlannedWith:
    settings = state.settings
    measured = (s for s in state.streams.values() if s.table.get("rate") or _seen(known, s.id))
    return PlannedWith(
        {
            p.id: (answers(state, p.id), p.draining, str(sorted(p.properties.items())))
            for p in state.processors.values()
        },
        frozenset(q.name for q in state.queries.values() if q.phase in PLACED),
        {s.name: known[s.id].bytes_out for s in measured if s.id in known},
        (settings.weight_network, settings.weight_cpu, settings.weight_balance),
        crowded,
    )


def _seen(known: Mapping[str, Estimate], stream: str) -> bool:
    return stream in known and known[stream].measured


def _changes(before: PlannedWith, now: PlannedWith) -> tuple[str, ...]:
    """What is otherwise than when it was last looked at, in words."""
    found = []
    for name, there in now.processors.items():
        known = before.processors.get(name)
        if known is None:
            found.append(f"processor {name} has joined")
        elif known != there:
            found.append(f"processor {name} has changed")
    gone = sorted(before.processors.keys() - now.processors.keys())
    found += [f"processor {name} is gone" for name in gone]
    found += [f"query {name} was dropped" for name in sorted(before.queries - now.queries)]
    for name, rate in now.rates.items():
        if _departed(before, name, rate):
            planned = before.rates[name]
            found.append(f"stream {name} brings {rate:.4g} bytes a second, not {planned:.4g}")
    if before.weights != now.weights:
        found.append("the weights were changed")
    return tuple(found)


def _told(plan: PlanState, crowded: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    said = []
    for resource, host in crowded:
        used, offered = (float(amounts[host]) for amounts in plan.use(resource))
        name = plan.catalog.host_ids[host]
        said.append(f"{resource} of {name} is exceeded: {used:.4g} of {offered:.4g}")
    return tuple(said)


def _named(plan: PlanState, crowded: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    return tuple(f"{resource} of {plan.catalog.host_ids[host]}" for resource, host in crowded)


def _restless(state: ManagerState) -> frozenset[str]:
    since_s = state.now_s - REST_S
    return frozenset(
        name for move in state.moves.values() if move.begun_s > since_s for name in move.operators
    )
