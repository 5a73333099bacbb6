"""The manager's planning state: everything that runs, as the planners with reuse see it.

One problem (SQPR, section III) of all processors, all streams and operators with what they cost by
measurement or estimate, and all queries that run, with the operators that are to be placed beside
them; and the placement that runs, as the planner's own state. Both are derived from the manager's
records whenever something is planned: nothing can come apart. Decides nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millstream.control.admission.distances import distances_ms
from millstream.control.admission.estimates import Estimate, estimates, ingest_cpu
from millstream.control.admission.rules import answers, leads_managers
from millstream.control.admission.ways import Choices
from millstream.control.manager.state import (
    PLACED,
    ManagerState,
    Processor,
    Query,
    Settings,
)
from millstream.control.moves.migration import objection
from millstream.core.placement import ProcessorDescription
from millstream.decide.place.live.owned import running_state
from millstream.decide.place.live.relays import Routes, lightened, routes_of
from millstream.decide.place.problem import Host, Links, Operator, Problem, Stream, Weights
from millstream.decide.place.problem import Query as Wish
from millstream.decide.place.reuse.state import PlanState
from millstream.decide.place.solution import Flow, Solution

BANDWIDTH = 12.5e6  # bytes a second of a processor that says nothing: 100 Mbit/s
HEADROOM = 0.9  # of a processor's CPU that is given away


@dataclass(frozen=True, slots=True)
class Planning:
    """What there is, what of it runs where, and what it costs."""

    problem: Problem
    running: Mapping[str, str]  # operator -> processor
    known: Mapping[str, Estimate]
    movable: frozenset[str]  # operators that the planner may send elsewhere
    popular: Mapping[str, int]  # by stream: the queries that could read it
    routes: Routes | None  # who sends copies on besides owners; None where nobody may
    flows: frozenset[Flow]  # what crosses between processors now
    ready: list[PlanState]  # the placement that runs, once

    def state(self) -> PlanState:
        """The placement that runs, to be worked on, each time anew."""
        return (
            self.ready.pop()
            if self.ready
            else running_state(self.problem, self.running, self.routes)
        )

    def solution(self, state: PlanState) -> Solution:
        """A placement in the form that the checker reads."""
        return Solution(tuple(state.served), (), state.placed(), state.flows(), state.delivered())


def planning(
    state: ManagerState,
    choice: Choices | None = None,
    wish: Wish | None = None,
) -> Planning:
    """The manager's world, with operators and a wish that are to be placed."""
    known = estimates(state, {}) if choice is None else choice.known
    hosts = tuple(_hosts(state, known))
    names = {host.id for host in hosts}
    running = {
        o.id: o.processor
        for o in state.operators.values()
        if o.processor in names and o.id in known
    }
    streams = [
        Stream(s.id, known[s.id].bytes_out, s.processor)
        for s in state.streams.values()
        if s.processor in names and s.id in known
    ]
    records = [state.operators[name] for name in running]
    streams += [Stream(o.id, known[o.id].bytes_out) for o in records]
    streams += choice.streams() if choice is not None else ()
    there = {stream.id for stream in streams}
    operators = [
        Operator(o.id, tuple(i for i in o.inputs if i in there), o.id, known[o.id].cpu)
        for o in records
    ]
    operators += choice.operators(there) if choice is not None else ()
    wishes = [Wish(q.name, q.result) for q in _served(state) if q.result in running]
    problem = Problem(
        hosts,
        tuple(streams),
        tuple(operators),
        (*wishes, *(() if wish is None else (wish,))),
        Links(distance=distances_ms(state, [host.id for host in hosts])),
        weights_of(state.settings),
    )
    movable = _movable(state, running) if state.settings.moves_a_minute > 0 else ()
    names = set() if choice is None else {record.id for record in choice.ways.values()}
    popular = Counter(s for q in _served(state) for s in q.readable if s in names)
    told = _routes(state)
    plan = running_state(problem, running, told)
    lightened(plan)
    plan.commit()
    return Planning(
        problem, running, known, frozenset(movable), popular,
        None if told is None else routes_of(plan), frozenset(plan.flows()), [plan],
    )  # fmt: skip


def _routes(state: ManagerState) -> Routes | None:
    """Who sends copies on, as planned last; None where nobody may."""
    if not state.settings.relays or leads_managers(state):
        return None
    return {(r.stream, r.reader): r.relay for r in state.routes.values()}


def weights_of(settings: Settings) -> Weights:
    """The weights lambda of SQPR's objectives O1 to O4."""
    return Weights(
        settings.weight_admit,
        settings.weight_network,
        settings.weight_cpu,
        settings.weight_balance,
    )


def _hosts(state: ManagerState, known: Mapping[str, Estimate]) -> Iterable[Host]:
    """Every processor; one that is silent offers nothing, one that is drained no CPU."""
    taken = ingest_cpu(state, known, state.processors)
    for move in state.moves.values():  # it runs at its old place, and is prepared at the new one
        if not move.over and not move.undoing:
            for name in move.operators:
                record = state.operators.get(name)
                if record is not None and record.processor != move.target and name in known:
                    taken[move.target] = taken.get(move.target, 0.0) + known[name].cpu
    for processor in state.processors.values():
        yield _host(state, processor, taken.get(processor.id, 0.0))


def _host(state: ManagerState, processor: Processor, taken: float) -> Host:
    if not answers(state, processor.id):
        return Host(processor.id, 0.0, 0.0, 0.0)
    told = ProcessorDescription(processor.id, processor.properties)
    cpu = 0.0 if processor.draining else max(0.0, told.number("cpu", 1.0) * HEADROOM - taken)
    return Host(
        processor.id,
        cpu,
        told.number("bandwidth_in", BANDWIDTH),
        told.number("bandwidth_out", BANDWIDTH),
    )


def _served(state: ManagerState) -> Iterable[Query]:
    return (query for query in state.queries.values() if query.phase in PLACED)


def _movable(state: ManagerState, running: Mapping[str, str]) -> Iterable[str]:
    """Operators of running queries that go anywhere: those with a site or a bound stay, because
    they are placed by distance (`replacement`). Above other managers nothing moves: operators do
    not go into or out of one."""
    if leads_managers(state):
        return
    tied: set[str] = set()
    used: set[str] = set()
    for query in state.queries.values():
        if query.phase != "running" or query.deliver_to or query.latency_s is not None:
            tied.update(query.operators)
        used.update(query.operators)
    for name in used - tied:
        place = running.get(name)
        if place is not None and answers(state, place) and not objection(state, (name,), place):
            yield name
