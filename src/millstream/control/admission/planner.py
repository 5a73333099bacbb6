"""Admission with reuse: a query is taken if it fits, placed where it costs least, or refused.

The placer `sqpr` plans a query with everything that runs (`planning_state`): all processors,
streams, operators and queries, distances, where the result is wanted and how late it may be. Where
it does not fit as things stand, running operators are moved on paper until it does
(`decide/place/live`); the answer names those moves, and the query waits for them. A refusal says
that no such plan was found. The planner's answer is checked by the independent checker before use.

A file that is read as fast as it is processed asks for no rate that could be met or missed: a query
over such streams alone always fits, and is spread by the distribution pattern.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from millstream.control.admission.distances import distances_ms
from millstream.control.admission.planning_state import Planning, planning
from millstream.control.admission.rules import (
    PLACERS,
    Placed,
    Refused,
    Verdict,
    Wait,
    answers,
    at_any_rate,
    by_pattern,
    descriptions,
)
from millstream.control.admission.ways import Choices, at_cost, choices, other_ways
from millstream.control.manager.state import NOBODY, ManagerState, OperatorRecord, Query
from millstream.core.operator_graph import OperatorGraph
from millstream.core.placement import Placement, ProcessorDescription
from millstream.decide.place.check import check
from millstream.decide.place.live.making_room import admit
from millstream.decide.place.live.relays import routes_of
from millstream.decide.place.problem import Query as Wish
from millstream.decide.place.problem import Weights
from millstream.decide.place.reuse.state import PlanState

ROOMS_MAX = 3  # times that running operators are moved for one query


@PLACERS.member("sqpr")
def by_reuse(state: ManagerState, query: Query, operators: Mapping[str, OperatorRecord]) -> Verdict:
    """Where the query costs least with all that runs, or what it would need."""
    processors = descriptions(state)
    if not processors:
        return Wait("no processor answers")
    new = {n: o for n, o in operators.items() if o.processor == NOBODY}
    read = {stream for o in operators.values() for stream in o.inputs}
    base = [s for s in state.streams.values() if s.id in read]
    homeless = [s.name for s in base if not s.processor]
    if homeless:
        return Wait(f"stream {homeless[0]} enters nowhere yet")
    anywhere = not query.deliver_to and query.latency_s is None
    if anywhere and base and all(at_any_rate(s.table) for s in base):
        return by_pattern(state, query, operators)
    away = [s for s in base if not answers(state, s.processor)]
    if away:
        return Wait(f"stream {away[0].name} enters at {away[0].processor}, which does not answer")
    choice = choices(state, new, other_ways(state, query))
    best: Placed | None = None
    refusal: Verdict = Wait("no processor answers at that site")
    for target in _targets(processors, query.deliver_to):
        verdict = _planned(state, query, operators, choice, target)
        if isinstance(verdict, Placed):
            cheaper = best is None or (verdict.bandwidth or 0.0) < (best.bandwidth or 0.0)
            best = verdict if cheaper else best
        else:
            refusal = verdict
    return best or refusal


def _targets(processors: tuple[ProcessorDescription, ...], site: str) -> tuple[str | None, ...]:
    """Processors at which a result may be handed over; None where anywhere will do."""
    if not site:
        return (None,)
    return tuple(p.id for p in processors if site in (p.id, str(p.properties.get("site", ""))))


def _planned(
    state: ManagerState,
    query: Query,
    operators: Mapping[str, OperatorRecord],
    choice: Choices,
    target: str | None,
) -> Verdict:
    bound = None if query.latency_s is None else query.latency_s * 1000
    world = planning(state, choice, Wish(query.name, query.result, target, bound))
    movable = world.movable if query.rooms < ROOMS_MAX else frozenset()
    answer = admit(world.state, world.problem.queries[-1], movable, world.popular)
    refusal = answer.decision.refusal
    if refusal is not None:
        return Refused(
            refusal.reason, refusal.host or "",
            f"query {query.name} does not fit: {refusal.detail}",
            what_fits(operators.values(), refusal.detail),
        )  # fmt: skip
    assert answer.state is not None
    wrong = _objection(world, answer.state)
    if wrong is not None:
        return wrong
    mine = choice.chosen(state, query.result, answer.places)
    new = {name: o for name, o in mine.items() if o.processor == NOBODY}
    known = at_cost(choice, new.values())
    names = {(o.id, o.inputs): name for name, o in choice.ways.items()}
    table = {o.id: answer.places[names.get((o.id, o.inputs), o.id)] for o in mine.values()}
    fresh = (f for f in answer.state.flows() if f not in world.flows)
    flows = tuple((f.stream, f.source, f.target) for f in fresh)
    reused = tuple(name for name in mine if name not in new)
    crossing = sum(known[s].bytes_out for s, _, _ in flows if s in known)
    cpu = sum(known[name].cpu for name in new)
    delay_ms = _delay_ms(state, query, mine, table, target)
    detail: dict[str, Any] = {
        "crosses": [
            {"stream": s, "from": a, "to": b, "bytes_per_s": round(known[s].bytes_out)}
            for s, a, b in flows
            if s in known
        ],
        "delay_ms": delay_ms,
        "estimates": {
            name: [known[name].rows_out, known[name].bytes_out, known[name].cpu] for name in new
        },
        "measured": sorted(name for name in known if known[name].measured),
        "weights": asdict(world.problem.weights),
        "objective": _objective(world.problem.weights, query.weight),
    }
    sentence = _sentence(table, new, reused, cpu, crossing, delay_ms)
    moves = tuple(dict(group) for group in answer.moves)
    routes = None if world.routes is None else routes_of(answer.state)
    if moves:
        count = sum(map(len, moves))
        sentence += f"; {count} running operator{'' if count == 1 else 's'} moved to make room"
    if set(mine) == set(operators) and not any(o.another_way for o in new.values()):
        return Placed(table, sentence, reused, cpu, crossing, detail, moves, (), routes)
    parts = [o.label for o in mine.values() if o.id not in operators]
    if parts:
        sentence += f"; joined by way of {', '.join(parts)}"
    detail["ways"] = {o.id: list(o.inputs) for o in mine.values() if o.another_way}
    return Placed(
        table, sentence, reused, cpu, crossing, detail, moves, tuple(new.values()), routes
    )


def _objection(world: Planning, after: PlanState) -> Refused | None:
    """The independent checker's word; what runs may be too much already, and no worse now."""
    broken = check(world.problem, world.solution(after))
    if not broken:
        return None
    served = world.problem.queries[:-1]
    before = check(replace(world.problem, queries=served), world.solution(world.state()))
    known = {(b.rule, b.where) for b in before}
    fresh = [b for b in broken if (b.rule, b.where) not in known]
    if not fresh:
        return None
    return Refused(fresh[0].rule, fresh[0].where, f"the plan is not valid: {fresh[0]}")


def _delay_ms(
    state: ManagerState,
    query: Query,
    operators: Mapping[str, OperatorRecord],
    table: Placement,
    target: str | None,
) -> float | None:
    """The longest way of a row from where it enters to where the result is wanted."""
    names = sorted({*table.values(), *state.processors})
    known = distances_ms(state, names)
    if known is None:
        return None
    entered = {s.id: s.processor for s in state.streams.values()}

    def hop(origin: str, place: str) -> float:
        return float(known[names.index(origin), names.index(place)]) if origin in names else 0.0

    reached: dict[str, tuple[str, float]] = {}
    for operator in OperatorGraph(operators.values()).by_depth():
        here = table[operator.id]
        ways = [reached.get(i) or (entered.get(i, table.get(i, "")), 0.0) for i in operator.inputs]
        reached[operator.id] = here, max((d + hop(p, here) for p, d in ways), default=0.0)
    place, delay = reached[query.result]
    return round(delay + (hop(place, target) if target else 0.0), 3)


def what_fits(operators: Any, detail: str) -> str:
    """What a user could change, by what the query is made of."""
    share = next((w for w in detail.split() if w.endswith("%")), "")
    kinds = {o.kind for o in operators}
    ways = []
    if "combine" in kinds:
        ways.append("a longer slide")
    if kinds & {"join", "semijoin", "interval"}:
        ways.append("a smaller window")
    ways.append("a stronger filter")
    ways.append("more of that resource, or another processor")
    about = f" (about {share} of the load would fit)" if share else ""
    return f"{', '.join(ways)}{about}"


def _objective(weights: Weights, query_weight: float) -> str:
    """What the plan weighs, in words (O1 to O4 of SQPR)."""
    told = ", ".join(f"{name} {value:g}" for name, value in asdict(weights).items())
    return f"weights of planning: {told}; of the query: {query_weight:g}"


def _sentence(
    table: Placement,
    new: Mapping[str, OperatorRecord],
    reused: tuple[str, ...],
    cpu: float,
    crossing: float,
    delay_ms: float | None,
) -> str:
    places = ", ".join(sorted({table[name] for name in new})) or "what runs already"
    told = f"{len(new)} new operators on {places}, {len(reused)} reused"
    told += f"; about {cpu:.3f} CPU seconds a second and {crossing:,.0f} bytes a second more"
    return told if delay_ms is None else f"{told}; results after {delay_ms:g} ms on the way"
