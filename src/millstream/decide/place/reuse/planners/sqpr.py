"""The default planner: admission, placement and reuse at once, in a fraction of a millisecond.

SQPR's problem (III.8), solved for one query at a time as in its algorithm 1, by a dynamic
programme over prices instead of a solver. When no plan fits, a few admitted queries that stand in
the way are planned again (`repair`); between submissions `sweep` does the same for all in turn.
An admitted query is never dropped, a refused one changes nothing. Deterministic.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from millstream.decide.place.online import (
    Decision,
    Totals,
    admitted,
    attach,
    refused,
    same_stream,
    too_late,
)
from millstream.decide.place.problem import Query
from millstream.decide.place.reuse.blocking_deliveries import free_amount, in_the_way, worth_room
from millstream.decide.place.reuse.catalog import LEEWAY, Catalog, Ints
from millstream.decide.place.reuse.cheapest import Plan, cheapest_plan
from millstream.decide.place.reuse.demand import Demand
from millstream.decide.place.reuse.explain import binding_shortage
from millstream.decide.place.reuse.planners.sweep import Sweep
from millstream.decide.place.reuse.prices import (
    SLACK,
    Prices,
    price_curve,
    price_hosts,
)
from millstream.decide.place.reuse.punctual import (
    punctual_plan,
    reachable,
    soonest_plan,
    when_carried_out,
)
from millstream.decide.place.reuse.state import PlanState, Run, Shortage
from millstream.decide.place.reuse.utilisation import utilisation

Found = Plan | Shortage | None


RECENT = 32  # submissions over which the share of refusals fades
FINER = 2  # looks for the soonest plan, when a query is told which latency would fit


@dataclass(frozen=True, slots=True)
class SqprSettings:
    """How much work the planner may do; all counts, so results do not depend on speed.

    Work after a submission is given for a system of `sized_for` hosts and shrinks in larger ones,
    where a plan costs more and a sweep has farther to go: the work for a query stays the same.
    """

    sweep_slice: float = 16.0  # deliveries planned again after each submission
    sweep_groups: float = 4.0  # groups of deliveries likewise
    sweep_seeds: float = 2.0  # popular streams computed on trial likewise
    sweep_flows: float = 2.0  # base streams sent to a host whose readers are planned again
    sweep_from: float = 0.9  # utilisation of the scarcest resource that calls for sweeps
    sweep_refused: float = 0.5  # share of recent submissions refused that calls for them too
    repair_tries: int = 2  # queries moved out of the way, one at a time, before refusing
    repair_cost: float = 1.1  # CPU for which that is done, in that of an average delivery
    repair_looks: int = 24  # candidates looked at for that
    hosts_considered: int = 64  # of a large system, for one query
    sized_for: int = 50


class SqprPlanner:
    """Dynamic programme with prices over a journalled state."""

    def __init__(
        self, catalog: Catalog, settings: SqprSettings | None = None, state: PlanState | None = None
    ) -> None:
        self.settings = settings or SqprSettings()
        self.state = state or PlanState(catalog)
        self.demand = Demand(catalog)
        self.curve = price_curve(catalog.weights)
        self.refused = 0.0  # share of recent submissions, fading
        self.replanned = 0  # deliveries that sweeps and repairs have moved
        self._sweep = Sweep()
        self._due = [0.0, 0.0, 0.0, 0.0]  # trials of each kind that rest has earned
        self._roomy: Ints | None = None
        self._submissions = 0

    # --- admission -----------------------------------------------------------------------------

    def submit(self, batch: Sequence[Query]) -> tuple[Decision, ...]:
        self.state.remember_wishes(batch)
        for query in batch:  # a batch tells more about demand before the first decision
            stream = self.state.catalog.stream_at[query.stream]
            self.demand.see(stream, self.state.catalog.closure(stream))
        self.demand.look()
        ordered = batch if len(batch) == 1 else self._cheapest_first(batch)
        answers: dict[str, Decision] = {}
        for query in ordered:
            answer = answers[query.id] = self._decide(query)
            self.refused += (float(not answer.admitted) - self.refused) / RECENT
            self.state.commit()
        return tuple(answers[query.id] for query in batch)

    def consider(self, query: Query) -> Decision:
        """What `submit` would answer; leaves everything as it is."""
        state, demand = self.state, self.demand
        memory, mark, pinned = demand.remember(), state.mark(), set(state.pinned)
        replanned, submissions = self.replanned, self._submissions
        stream = state.catalog.stream_at[query.stream]
        closure = state.catalog.closure(stream)
        first = demand.see(stream, closure)
        demand.look()
        bounds = dict(state.bounds)
        state.remember_wishes((query,))
        decision = self._decide(query)
        state.rollback(mark)
        state.pinned, state.bounds = pinned, bounds
        if first:
            demand.forget(stream, closure)
        demand.recall(memory)
        self.replanned, self._submissions = replanned, submissions
        return decision

    def _cheapest_first(self, batch: Sequence[Query]) -> list[Query]:
        """Small plans first: of a batch that does not fit whole, more queries fit."""
        catalog = self.state.catalog
        size = {
            query.id: len(catalog.closure(catalog.stream_at[query.stream]).streams)
            for query in batch
        }
        return sorted(batch, key=lambda query: size[query.id])

    def _decide(self, query: Query) -> Decision:
        self._submissions += 1
        state, catalog = self.state, self.state.catalog
        served = same_stream(state, query)
        if served is not None:
            return attach(state, query, served)
        before = Totals(state)
        stream = catalog.stream_at[query.stream]
        at = None if query.deliver_to is None else catalog.host_at[query.deliver_to]
        bound = query.latency_bound
        found = self.find(stream, at, bound)
        moved: tuple[str, ...] = ()
        if bound is not None and not isinstance(found, Plan):
            free = self.find(stream, at)
            if isinstance(free, Plan):
                hidden = reachable(state, catalog.closure(stream), bound, at)
                found, needed = self._soonest(free, at, hopeful=hidden)
                if needed > bound * LEEWAY:
                    return too_late(query, bound, needed)
        if isinstance(found, Plan):
            self.serve(found, (query.id,))
        else:
            short = found or self.shortage(stream, at)
            made_room = None if short is None else self._repair(query, stream, at, short)
            if made_room is None:
                return self._refused(query, stream, at, short)
            found, moved = made_room
        return admitted(state, query, found.host, found.steps, before, moved)

    def serve(self, plan: Plan, queries: Sequence[str]) -> None:
        """Carries out a plan that was found to fit."""
        short = self.state.apply(plan.steps)
        for query in queries:
            short = short or self.state.deliver(query, plan.stream, plan.host)
        assert short is None, "the plan was tried before"
        for step in plan.steps:
            if isinstance(step, Run):
                self.demand.ran(self.state.catalog.cpu[step.operator])

    def find_again(self, delivery: tuple[int, int], queries: Sequence[str]) -> Found:
        """A plan for queries that were served by this delivery, with all they insist on."""
        state = self.state
        at = state.fixed_place(*delivery, queries)
        return self.find(delivery[0], at, state.bound_of(queries))

    def find(
        self, stream: int, at: int | None = None, bound: float | None = None
    ) -> Plan | Shortage | None:
        """The cheapest plan that fits, preferring one that leaves popular streams behind."""
        state, demand = self.state, self.demand
        closure = state.catalog.closure(stream)
        found: Plan | Shortage | None = None
        for prices in self.price_lists(stream, at):
            result = cheapest_plan(state, closure, prices, self.curve, demand.grain, at)
            if isinstance(result, Plan) and bound is not None and self._late(result, bound):
                if not reachable(state, closure, bound, at):
                    return None
                grain = demand.grain
                result = punctual_plan(state, closure, prices, self.curve, grain, bound, at)
                if isinstance(result, Plan) and self._late(result, bound):
                    result = None  # a stream it needs twice comes too late the first time
            if isinstance(result, Plan):
                return result
            found = result or found
            if result is None and prices.hosts is None:
                break  # with all hosts and no way at all, a discount changes nothing
        return found

    def _late(self, plan: Plan, bound: float) -> bool:
        """Whether a plan, carried out, would deliver later than that."""
        return when_carried_out(self.state, plan) > bound * LEEWAY

    def _soonest(self, late: Plan, at: int | None, *, hopeful: bool) -> tuple[Plan, float]:
        """The plan that there is room for and that delivers first, and when that is: looked for in
        slots that become finer with what is found. To hope for more than they tell costs more."""
        plan, needed = late, when_carried_out(self.state, late)
        closure = self.state.catalog.closure(late.stream)
        for _ in range(FINER):
            sooner: tuple[Plan, float] | None = None
            for prices in self.price_lists(late.stream, at):
                grain = self.demand.grain
                sooner = soonest_plan(
                    self.state, closure, prices, self.curve, grain, needed, at, hopeful=hopeful
                )
                if sooner is not None:
                    break
            if sooner is None or sooner[1] >= needed:
                break
            plan, needed = sooner
        return plan, needed

    def price_lists(self, stream: int, at: int | None) -> Iterator[Prices]:
        """Prices to try in turn: with popularity's discount, then without, at all hosts."""
        hosts = self._hosts_considered(stream, at)
        prices = price_hosts(self.state, self.curve, hosts)
        prices.factors = self.demand.discounts(self.state.catalog.closure(stream))
        yield prices
        if hosts is None:
            yield price_hosts(self.state, self.curve)
        else:  # elsewhere: more of the emptiest hosts, who holds what counts less
            wider = self._hosts_considered(stream, at, wider=True)
            yield price_hosts(self.state, self.curve, wider)

    def shortage(self, stream: int, at: int | None = None) -> Shortage | None:
        """What stands in the way of serving this stream now; None if no plan exists at all."""
        closure = self.state.catalog.closure(stream)
        hosts = self._hosts_considered(stream, at)
        return binding_shortage(self.state, closure, self.curve, at, hosts)

    def _refused(
        self, query: Query, stream: int, at: int | None, short: Shortage | None
    ) -> Decision:
        """With all that a plan would need: of a try that failed, only the first step is known."""
        if short is not None and not short.of_plan and query.latency_bound is None:
            short = self.shortage(stream, at) or short
        return refused(query, short, self.state.catalog)

    def _hosts_considered(self, stream: int, at: int | None, *, wider: bool = False) -> Ints | None:
        """In a large system: who holds something of use, and the emptiest hosts."""
        state, most = self.state, self.settings.hosts_considered
        if len(state.running) <= 2 * most:
            return None
        if self._roomy is None or self._submissions % 32 == 0:
            prices = price_hosts(state, self.curve)
            worth = prices.cpu * prices.cpu + prices.incoming * prices.outgoing
            self._roomy = np.argsort(worth, kind="stable")[: 3 * most]
        chosen: set[int] = set() if at is None else {at}
        for name in reversed(state.catalog.closure(stream).streams):
            held = state.holders.get(name)
            if held:
                chosen.update(list(held)[: most // 8])
                chosen.update(list(held)[-(most // 8) :])
            if state.catalog.base[name] >= 0:
                chosen.add(state.catalog.base[name])
        room = 3 * most if wider else max(8, most - len(chosen))
        chosen.update(self._roomy[:room].tolist())
        return np.array(sorted(chosen), dtype=np.intp)

    # --- making room ---------------------------------------------------------------------------

    def _repair(
        self, query: Query, stream: int, at: int | None, short: Shortage
    ) -> tuple[Plan, tuple[str, ...]] | None:
        """Plans one admitted query that is in the way again, after the newcomer."""
        state, tries = self.state, 0
        large = len(state.running) > 2 * self.settings.sized_for  # and many hosts have been tried
        most = 0 if large else self.settings.repair_tries
        closure = state.catalog.closure(stream)
        if not most or not worth_room(state, closure, self.settings.repair_cost):
            return None
        for delivery in in_the_way(state, short, self.settings.repair_looks):
            if tries >= most:
                break
            mark = state.mark()
            waiting = state.stop_delivery(*delivery)
            if free_amount(state, short) + SLACK >= short.need:
                tries += 1
                plan = self.find(stream, at, query.latency_bound)
                if isinstance(plan, Plan):
                    self.serve(plan, (query.id,))
                    again = self.find_again(delivery, waiting)
                    if isinstance(again, Plan):
                        self.serve(again, waiting)
                        self.replanned += 1
                        return plan, waiting
            state.rollback(mark)
        return None

    def rest(self) -> None:
        """One slice of the sweep, once there is need.

        Room that is made before it is needed goes to whoever comes first, however costly; made
        late, it goes to the many that need little (docs/design/0006 has the price of waiting).
        """
        settings = self.settings
        if self.refused < settings.sweep_refused and (
            utilisation(self.state) < settings.sweep_from
        ):
            return
        share = min(1.0, settings.sized_for / max(1, len(self.state.running)))
        earned = (  # all but single ones cost more and find less where queries lie far apart
            settings.sweep_slice,
            share * settings.sweep_groups,
            share * settings.sweep_seeds,
            share * settings.sweep_flows,
        )
        sweep = self._sweep
        kinds = (sweep.ones, sweep.groups, sweep.seeds, sweep.flows)
        for kind, (amount, trials) in enumerate(zip(earned, kinds, strict=True)):
            self._due[kind] += share * amount
            whole = int(self._due[kind])
            if whole:
                self._due[kind] -= whole
                self.replanned += trials(self, whole)

    def sweep(self, trials: int) -> int:
        """That many deliveries planned again, whatever the load; gives how many moved."""
        kept = self._sweep.ones(self, trials)
        self.replanned += kept
        return kept
