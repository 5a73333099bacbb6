"""Admission to what runs: a query is taken as things stand, or by moving what runs, or refused.

First the planner's own answer, in which a few deliveries may be planned again. If that is no, or
its moves have no safe order, single running operators are tried elsewhere, the smallest that would
do first, then several of one host. The answer says which operators move, in an order that has room
at every moment. Decides on paper: carrying it out is the manager's business.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from millstream.decide.place.live.owned import (
    Places,
    in_safe_order,
    moves_between,
    operators_at,
    relocate,
    worse,
)
from millstream.decide.place.live.relays import without_idle_relays
from millstream.decide.place.online import Decision, Totals, admitted
from millstream.decide.place.problem import Query
from millstream.decide.place.reuse.cheapest import Plan
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner, SqprSettings
from millstream.decide.place.reuse.state import CPU, PlanState, Shortage

# Nobody waits for a later, cheaper query: what can be made to fit is taken.
LIVE = SqprSettings(repair_tries=8, repair_cost=inf, repair_looks=48)
TRIALS = 96  # moves of single operators tried on paper for one query
LOOKS = 400  # moves of single operators looked at, with or without room at their target
MOVES_MAX = 4  # operators that leave one host for one query
TARGETS = 3  # hosts tried for an operator, the emptiest first


@dataclass(frozen=True, slots=True)
class Answer:
    """A decision, where everything runs then, and the moves that come first, in order."""

    decision: Decision
    places: Mapping[str, str]  # operator -> host, those of the query included
    moves: tuple[Mapping[str, str], ...] = ()  # operator -> host, one after the other
    state: PlanState | None = None  # as it would be


def admit(
    make: Callable[[], PlanState],
    query: Query,
    movable: Collection[str],
    popular: Mapping[str, int] | None = None,
) -> Answer:
    """What becomes of a query; `make` gives the placement that runs, anew each time, and `popular`
    tells how many running queries could read a stream."""
    state = make()
    before = operators_at(state)
    planner = _planner(state, popular or {})
    (decision,) = planner.submit((query,))
    if decision.admitted:
        answer = _answer(planner.state, decision, before, make, movable)
        if answer is not None:
            return answer
    elif decision.refusal is not None and decision.refusal.reason in ("latency", "no_plan"):
        return Answer(decision, {})
    found = _Trial(make(), query, movable, popular or {}).answer() if movable else None
    return found or Answer(_refusal(make(), query, decision), {})


def _planner(state: PlanState, popular: Mapping[str, int]) -> SqprPlanner:
    planner = SqprPlanner(state.catalog, LIVE, state)
    planner.demand.wanted.update({state.catalog.stream_at[s]: n for s, n in popular.items()})
    for operator in operators_at(state):
        planner.demand.ran(state.catalog.cpu[operator])
    return planner


def _refusal(state: PlanState, query: Query, decision: Decision) -> Decision:
    """The refusal as things stand, where the planner's yes could not be carried out."""
    if not decision.admitted:
        return decision
    planner = SqprPlanner(state.catalog, SqprSettings(sweep_slice=0, repair_tries=0), state)
    return planner.submit((query,))[0]


def _answer(
    state: PlanState,
    decision: Decision,
    before: Places,
    make: Callable[[], PlanState],
    movable: Collection[str],
) -> Answer | None:
    """The planner's yes with the moves it needs, or None where they cannot be made."""
    catalog = state.catalog
    mark = state.mark()
    without_idle_relays(state)
    if worse(state, mark) is not None:
        return None
    after = operators_at(state)
    names, hosts = catalog.operator_ids, catalog.host_ids
    moved = moves_between(before, after)
    if any(names[operator] not in movable for operator in moved):
        return None
    order: tuple[Places, ...] | None = ()
    if moved:
        order = in_safe_order(make(), moved)
    if order is None:
        return None
    return Answer(
        decision,
        {names[operator]: hosts[host] for operator, host in after.items()},
        tuple({names[o]: hosts[h] for o, h in group.items()} for group in order),
        state,
    )


class _Trial:
    """A query that does not fit, on a placement in which operators are moved until it does."""

    def __init__(
        self,
        state: PlanState,
        query: Query,
        movable: Collection[str],
        popular: Mapping[str, int],
    ) -> None:
        self.state, self.query, self.movable = state, query, movable
        self.planner = _planner(state, popular)
        catalog = state.catalog
        self.stream = catalog.stream_at[query.stream]
        self.at = None if query.deliver_to is None else catalog.host_at[query.deliver_to]
        state.remember_wishes((query,))
        self.before = Totals(state)
        self.left, self.looks = TRIALS, LOOKS

    def answer(self) -> Answer | None:
        """One operator elsewhere, or several away from one host; None where neither helps."""
        short = self.planner.shortage(self.stream, self.at)
        if short is None:
            return None
        found = self._single(short)
        for host in self._roomiest() if short.resource == CPU else ():
            if found is not None or self.left <= 0:
                break
            found = self._cleared(host, short.need)
        return found

    def _single(self, short: Shortage) -> Answer | None:
        for operator, target in _candidates(self.state, short, self.movable):
            mark = self.state.mark()
            self.looks -= 1
            if relocate(self.state, {operator: target}) is None:
                found = self._served(({operator: target},))
                if found is not None:
                    return found
            self.state.rollback(mark)
            if self.left <= 0 or self.looks <= 0:
                break
        return None

    def _roomiest(self) -> list[int]:
        free = self.state.catalog.cpu_offered - self.state.cpu_used
        return sorted(range(len(free)), key=lambda host: (-float(free[host]), host))

    def _cleared(self, host: int, need: float) -> Answer | None:
        """The query after several operators have left a host, the largest first."""
        state, catalog = self.state, self.state.catalog
        mark = state.mark()
        mine = [o for o, place in operators_at(state).items() if place == host]
        mine = [o for o in mine if catalog.operator_ids[o] in self.movable]
        gone: list[Places] = []
        for operator in sorted(mine, key=lambda o: (-catalog.cpu[o], o)):
            if len(gone) == MOVES_MAX:
                break
            for target in self._roomiest()[:TARGETS]:
                if target != host and relocate(state, {operator: target}) is None:
                    gone.append({operator: target})
                    break
            if gone and catalog.cpu_offered[host] - state.cpu_used[host] >= need:
                found = self._served(tuple(gone))
                if found is not None:
                    return found
        state.rollback(mark)
        return None

    def _served(self, moves: tuple[Places, ...]) -> Answer | None:
        """The query on the state as it is now, after these moves."""
        self.left -= 1
        plan = self.planner.find(self.stream, self.at, self.query.latency_bound)
        if not isinstance(plan, Plan):
            return None
        state, catalog = self.state, self.state.catalog
        self.planner.serve(plan, (self.query.id,))
        decision = admitted(state, self.query, plan.host, plan.steps, self.before)
        names, hosts = catalog.operator_ids, catalog.host_ids
        return Answer(
            decision,
            {names[o]: hosts[h] for o, h in operators_at(state).items()},
            tuple({names[o]: hosts[h] for o, h in group.items()} for group in moves),
            state,
        )


def _candidates(
    state: PlanState, short: Shortage, movable: Collection[str]
) -> Iterator[tuple[int, int]]:
    """Operators and where they might go instead, so that the shortage ends; the smallest first."""
    catalog = state.catalog
    free = (catalog.cpu_offered - state.cpu_used).tolist()
    emptiest = sorted(range(len(free)), key=lambda host: (-free[host], host))
    running = sorted(
        ((catalog.cpu[o], o, h) for o, h in operators_at(state).items()), key=lambda item: item[:2]
    )
    for cost, operator, host in running:
        if catalog.operator_ids[operator] not in movable:
            continue
        if short.resource == CPU and free[host] + cost < short.need:
            continue
        if (
            short.resource != CPU
            and host != short.host
            and not _reads(state, operator, host, short)
        ):
            continue
        roomy = [t for t in emptiest if t != host and catalog.alive[t] and free[t] >= cost]
        if short.resource != CPU and host != short.host:
            roomy = [t for t in roomy if t == short.host]
        yield from ((operator, target) for target in roomy[:TARGETS])


def _reads(state: PlanState, operator: int, host: int, short: Shortage) -> bool:
    """Whether it reads a stream that the host that is short sends."""
    sender = short.host if short.sender < 0 else short.sender
    inputs = state.catalog.inputs[operator]
    return any(state.source.get((name, host)) == ~sender for name in inputs)
