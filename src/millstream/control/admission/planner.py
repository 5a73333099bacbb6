"""Admission with reuse: a query is taken if it fits, placed where it costs least, or refused.

The placer `sqpr` builds a planning problem (SQPR, section III) from what the manager knows: what
processors have left of CPU and bandwidth, the streams that exist and where, what the new operators
cost by estimate, distances, where the result is wanted and how late it may be. Running operators
stay where they are; the planner's answer is checked by the independent checker before use.

A file that is read as fast as it is processed asks for no rate that could be met or missed: a query
over such streams alone always fits, and is spread by the distribution pattern.
"""

from collections.abc import Mapping
from typing import Any

from millstream.control.admission.distances import distances_ms
from millstream.control.admission.estimates import Estimate, estimates, ingest_cpu
from millstream.control.admission.rules import (
    PLACERS,
    Placed,
    Refused,
    Verdict,
    Wait,
    by_pattern,
    descriptions,
)
from millstream.control.manager.state import NOBODY, ManagerState, OperatorRecord, Query
from millstream.core.operator_graph import OperatorGraph
from millstream.core.placement import Placement, ProcessorDescription, crossings
from millstream.decide.place.check import check
from millstream.decide.place.planners import plan_all
from millstream.decide.place.problem import (
    LEAST_RESOURCES,
    Host,
    Links,
    Operator,
    Problem,
    Stream,
)
from millstream.decide.place.problem import Query as Wish
from millstream.decide.place.solution import Solution

BANDWIDTH = 12.5e6  # bytes a second of a processor that says nothing: 100 Mbit/s
HEADROOM = 0.9  # of a processor's CPU that is given away


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
    known = estimates(state, new)
    best: Placed | None = None
    refusal: Verdict = Wait("no processor answers at that site")
    for target in _targets(processors, query.deliver_to):
        verdict = _planned(state, query, operators, new, known, processors, target)
        if isinstance(verdict, Placed):
            cheaper = best is None or (verdict.bandwidth or 0.0) < (best.bandwidth or 0.0)
            best = verdict if cheaper else best
        else:
            refusal = verdict
    return best or refusal


def at_any_rate(table: Mapping[str, Any]) -> bool:
    """Whether a stream comes as fast as it is taken: a finite file without a rate."""
    return bool(table.get("path")) and not table.get("rate") and not table.get("follow")


def _targets(processors: tuple[ProcessorDescription, ...], site: str) -> tuple[str | None, ...]:
    """Processors at which a result may be handed over; None where anywhere will do."""
    if not site:
        return (None,)
    return tuple(p.id for p in processors if site in (p.id, str(p.properties.get("site", ""))))


def _planned(
    state: ManagerState,
    query: Query,
    operators: Mapping[str, OperatorRecord],
    new: Mapping[str, OperatorRecord],
    known: Mapping[str, Estimate],
    processors: tuple[ProcessorDescription, ...],
    target: str | None,
) -> Verdict:
    problem = problem_of(state, query, new, known, processors, target)
    outcome = plan_all(problem, "sqpr")
    (decision,) = outcome.decisions
    if decision.refusal is not None:
        told = decision.refusal
        host = told.host or ""
        return Refused(
            told.reason, host, f"query {query.name} does not fit: {told.detail}",
            what_fits(operators.values(), told.detail),
        )  # fmt: skip
    table = {o.id: o.processor for o in operators.values() if o.processor != NOBODY}
    for placed in outcome.solution.operators:
        table.setdefault(placed.operator, placed.host)
    there = set(_flowing(state))
    flows = tuple(f for f in _direct(state, new, table) if f not in there)
    wrong = _too_much(problem, outcome.solution, flows)
    if wrong is not None:
        return wrong
    reused = tuple(name for name in operators if name not in new)
    crossing = sum(known[s].bytes_out for s, _, _ in flows if s in known)
    cpu = sum(known[name].cpu for name in new)
    delay_ms = _delay_ms(state, query, operators, table, target)
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
    }
    return Placed(table, _sentence(table, new, reused, cpu, crossing, delay_ms), reused, cpu,
                  crossing, detail)  # fmt: skip


def problem_of(
    state: ManagerState,
    query: Query,
    new: Mapping[str, OperatorRecord],
    known: Mapping[str, Estimate],
    processors: tuple[ProcessorDescription, ...],
    target: str | None = None,
) -> Problem:
    """What is left of every processor, what exists where, and what is to be placed."""
    cpu_used, sent, received = _used(state, known)
    hosts = tuple(
        Host(
            p.id,
            max(0.0, p.number("cpu", 1.0) * HEADROOM - cpu_used.get(p.id, 0.0)),
            max(0.0, p.number("bandwidth_in", BANDWIDTH) - received.get(p.id, 0.0)),
            max(0.0, p.number("bandwidth_out", BANDWIDTH) - sent.get(p.id, 0.0)),
        )
        for p in processors
    )
    up = {h.id for h in hosts}
    owner = {s.id: s.processor for s in state.streams.values()}
    owner |= {o.id: o.processor for o in state.operators.values() if o.processor != NOBODY}
    streams = [Stream(s, known[s].bytes_out, h) for s, h in owner.items() if s in known and h in up]
    streams += [Stream(name, known[name].bytes_out) for name in new]
    made = {s.id for s in streams}
    parts = tuple(
        Operator(o.id, o.inputs, o.id, known[o.id].cpu)
        for o in new.values()
        if all(i in made for i in o.inputs)
    )
    bound = None if query.latency_s is None else query.latency_s * 1000
    wish = Wish(query.name, query.result, target, bound)
    links = Links(distance=distances_ms(state, [h.id for h in hosts]))
    return Problem(hosts, tuple(streams), parts, (wish,), links, LEAST_RESOURCES)


def _used(
    state: ManagerState, known: Mapping[str, Estimate]
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """CPU, outgoing and incoming bytes a second that what runs takes, by processor."""
    cpu = ingest_cpu(state, known, state.processors)
    sent: dict[str, float] = {}
    received: dict[str, float] = {}
    for operator in state.operators.values():
        if operator.processor != NOBODY and operator.id in known:
            cpu[operator.processor] = cpu.get(operator.processor, 0.0) + known[operator.id].cpu
    for stream, source, taker in _flowing(state):
        if stream in known:
            sent[source] = sent.get(source, 0.0) + known[stream].bytes_out
            received[taker] = received.get(taker, 0.0) + known[stream].bytes_out
    return cpu, sent, received


def _flowing(state: ManagerState) -> tuple[tuple[str, str, str], ...]:
    """Streams that cross between processors now."""
    running = {o.id: o for o in state.operators.values() if o.processor != NOBODY}
    return _direct(state, running, {name: o.processor for name, o in running.items()})


def _direct(
    state: ManagerState, operators: Mapping[str, OperatorRecord], table: Placement
) -> tuple[tuple[str, str, str], ...]:
    """Streams that must cross from their owner to a reader, each pair once."""
    owner = {s.id: s.processor for s in state.streams.values()}
    owner |= {o.id: o.processor for o in state.operators.values()}
    owner = {stream: processor for stream, processor in {**owner, **table}.items() if processor}
    placed = (o for o in operators.values() if table.get(o.id))
    return crossings(OperatorGraph(placed), owner)


def _too_much(
    problem: Problem, solution: Solution, flows: tuple[tuple[str, str, str], ...]
) -> Refused | None:
    """The independent checker's word on what would really flow: streams come from their owners."""
    broken = check(problem, solution)
    if broken:
        return Refused(broken[0].rule, broken[0].where, f"the plan is not valid: {broken[0]}")
    rates = {s.id: s.rate for s in problem.streams}
    for host in problem.hosts:
        out = sum(rates.get(s, 0.0) for s, a, _ in flows if a == host.id)
        if out > host.bandwidth_out * (1 + 1e-9):
            return Refused(
                "bandwidth_out", host.id,
                f"bandwidth_out of host {host.id}: {out:.4g} needed, {host.bandwidth_out:.4g} free",
            )  # fmt: skip
    return None


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

    def late(stream: str) -> tuple[str, float]:
        if stream not in operators:
            return entered.get(stream, table.get(stream, "")), 0.0
        here = table[stream]
        ways = [late(i) for i in operators[stream].inputs]
        return here, max((d + hop(p, here) for p, d in ways), default=0.0)

    place, delay = late(query.result)
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
