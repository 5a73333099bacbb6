"""The default planner: admission, placement and reuse at once, in a fraction of a millisecond.

SQPR's problem (III.8), solved for one query at a time as in its algorithm 1, by a dynamic
programme over prices instead of a solver. When no plan fits, a few admitted queries that stand in
the way are planned again (`repair`); between submissions `sweep` does the same for all in turn.
An admitted query is never dropped, a refused one changes nothing. Deterministic.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millstream.place.catalog import Catalog, Ints
from millstream.place.cheapest import Plan, cheapest_plan
from millstream.place.demand import Demand
from millstream.place.explain import binding_shortage
from millstream.place.online import Decision, Totals, admitted, attach, refused, same_stream
from millstream.place.prices import SLACK, change_of_potential, price_curve, price_hosts
from millstream.place.problem import Query
from millstream.place.state import PlanState, Run, Shortage
from millstream.place.victims import free_amount, in_the_way

GAIN = 1e-9  # a sweep keeps what lowers the potential by more


@dataclass(frozen=True, slots=True)
class SqprSettings:
    """How much work the planner may do; all counts, so results do not depend on speed."""

    sweep_slice: int = 12  # deliveries planned again after each submission
    sweep_from: float = 0.5  # utilisation of the scarcest resource that starts sweeps
    repair_tries: int = 6  # queries moved out of the way, one at a time, before refusing
    repair_looks: int = 24  # candidates looked at for that
    hosts_considered: int = 96  # of a large system, for one query


class SqprPlanner:
    """Dynamic programme with prices over a journalled state."""

    def __init__(
        self, catalog: Catalog, settings: SqprSettings | None = None, state: PlanState | None = None
    ) -> None:
        self.settings = settings or SqprSettings()
        self.state = state or PlanState(catalog)
        self.demand = Demand(catalog)
        self.curve = price_curve(catalog.weights)
        self.replanned = 0  # deliveries that sweeps and repairs have moved
        self._turn: list[tuple[int, int]] = []
        self._roomy: Ints | None = None
        self._submissions = 0

    # --- admission -----------------------------------------------------------------------------

    def submit(self, batch: Sequence[Query]) -> tuple[Decision, ...]:
        self.state.pinned.update(query.id for query in batch if query.deliver_to is not None)
        for query in batch:  # a batch tells more about demand before the first decision
            stream = self.state.catalog.stream_at[query.stream]
            self.demand.see(stream, self.state.catalog.closure(stream))
        if len(batch) == 1:
            return (self._decide(batch[0]),)
        answers = {query.id: self._decide(query) for query in self._cheapest_first(batch)}
        return tuple(answers[query.id] for query in batch)

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
        self.demand.look()
        state, catalog = self.state, self.state.catalog
        served = same_stream(state, query)
        if served is not None:
            decision = attach(state, query, served)
            state.commit()
            return decision
        before = Totals(state)
        stream = catalog.stream_at[query.stream]
        at = None if query.deliver_to is None else catalog.host_at[query.deliver_to]
        found = self.find(stream, at)
        moved: tuple[str, ...] = ()
        if isinstance(found, Plan):
            self._serve(found, (query.id,))
        else:
            short = found or self.shortage(stream, at)
            made_room = None if short is None else self._repair(query.id, stream, at, short)
            if made_room is None:
                return refused(query, short, catalog)
            found, moved = made_room
        state.commit()
        return admitted(state, query, found.host, found.steps, before, moved)

    def _serve(self, plan: Plan, queries: Sequence[str]) -> None:
        """Carries out a plan that was found to fit."""
        short = self.state.apply(plan.steps)
        for query in queries:
            short = short or self.state.deliver(query, plan.stream, plan.host)
        assert short is None, "the plan was tried before"
        for step in plan.steps:
            if isinstance(step, Run):
                self.demand.ran(self.state.catalog.cpu[step.operator])

    def find(self, stream: int, at: int | None = None) -> Plan | Shortage | None:
        """The cheapest plan that fits, preferring one that leaves popular streams behind."""
        state, demand = self.state, self.demand
        closure = state.catalog.closure(stream)
        grain = demand.grain
        found: Plan | Shortage | None = None
        hosts = self._hosts_considered(stream, at)
        tries = ((hosts, True), (hosts, False)) if hosts is None else ((hosts, True), (None, False))
        for considered, discounted in tries:
            prices = price_hosts(state, self.curve, considered)
            if discounted:
                prices.factors = demand.discounts(closure)
            result = cheapest_plan(state, closure, prices, self.curve, grain, at)
            if isinstance(result, Plan):
                return result
            found = result or found
            if result is None and hosts is None:
                break  # a discount does not change what fits
        return found

    def shortage(self, stream: int, at: int | None = None) -> Shortage | None:
        """What stands in the way of serving this stream now; None if no plan exists at all."""
        return binding_shortage(self.state, self.state.catalog.closure(stream), self.curve, at)

    def _hosts_considered(self, stream: int, at: int | None) -> Ints | None:
        """In a large system: who holds something of use, and the emptiest hosts."""
        state, most = self.state, self.settings.hosts_considered
        if len(state.running) <= 4 * most // 3:
            return None
        if self._roomy is None or self._submissions % 32 == 0:
            prices = price_hosts(state, self.curve)
            worth = prices.cpu * prices.cpu + prices.incoming * prices.outgoing
            self._roomy = np.argsort(worth, kind="stable")[: most // 2]
        chosen: set[int] = set() if at is None else {at}
        for name in reversed(state.catalog.closure(stream).streams):
            held = state.holders.get(name)
            if held:
                chosen.update(list(held)[: most // 8])
                chosen.update(list(held)[-(most // 8) :])
            if state.catalog.base[name] >= 0:
                chosen.add(state.catalog.base[name])
        room = max(8, most - len(chosen))
        chosen.update(self._roomy[:room].tolist())
        return np.array(sorted(chosen), dtype=np.intp)

    # --- making room ---------------------------------------------------------------------------

    def _repair(
        self, query: str, stream: int, at: int | None, short: Shortage
    ) -> tuple[Plan, tuple[str, ...]] | None:
        """Plans one admitted query that is in the way again, after the newcomer."""
        state, tries = self.state, 0
        for delivery in in_the_way(state, short, self.settings.repair_looks):
            if tries >= self.settings.repair_tries:
                break
            mark = state.mark()
            waiting = state.stop_delivery(*delivery)
            if free_amount(state, short) + SLACK >= short.need:
                tries += 1
                plan = self.find(stream, at)
                if isinstance(plan, Plan):
                    self._serve(plan, (query,))
                    again = self.find(delivery[0], state.fixed_place(*delivery, waiting))
                    if isinstance(again, Plan):
                        self._serve(again, waiting)
                        self.replanned += 1
                        return plan, waiting
            state.rollback(mark)
        return None

    def rest(self) -> None:
        """One slice of the sweep over all that is delivered."""
        if self.settings.sweep_slice and utilisation(self.state) >= self.settings.sweep_from:
            self.sweep(self.settings.sweep_slice)

    def sweep(self, deliveries: int) -> int:
        """Plans some deliveries again, in turn; keeps what lowers the potential."""
        state, kept = self.state, 0
        for _ in range(deliveries):
            if not self._turn:
                self._turn = list(reversed(state.clients))
            if not self._turn:
                break
            delivery = self._turn.pop()
            if delivery not in state.clients:
                continue
            mark = state.mark()
            waiting = state.stop_delivery(*delivery)
            plan = self.find(delivery[0], state.fixed_place(*delivery, waiting))
            if isinstance(plan, Plan):
                self._serve(plan, waiting)
                if change_of_potential(state, mark, self.curve, self.demand.grain) < -GAIN:
                    kept += 1
                    state.commit()
                    continue
            state.rollback(mark)
        self.replanned += kept
        return kept


def utilisation(state: PlanState) -> float:
    """Of the resource that is scarcest over all hosts."""
    catalog = state.catalog
    shares = [0.0]
    for used, offered in (
        (state.cpu_used, catalog.cpu_offered),
        (state.in_used, catalog.in_offered),
        (state.out_used, catalog.out_offered),
    ):
        total = float(offered.sum())
        if 0 < total < np.inf:
            shares.append(float(used.sum()) / total)
    return max(shares)
