"""The hand-crafted planner that SQPR is compared with (section V.A).

Lists all abstract plans of a query, tries to implement each whole on every host, fetches complete
sub-queries that exist anywhere rather than computing them again, and takes the candidate with the
best weighted objective (III.3). It never re-plans and never spreads a plan over hosts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from millstream.decide.place.online import (
    Decision,
    Totals,
    admitted,
    refused,
    served_already,
    too_late,
)
from millstream.decide.place.problem import Query
from millstream.decide.place.reuse.catalog import LEEWAY, SLACK, Catalog, Floats
from millstream.decide.place.reuse.objective import Scales
from millstream.decide.place.reuse.state import (
    CPU,
    IN,
    LINK,
    MEMORY,
    OUT,
    PlanState,
    Run,
    Ship,
    Shortage,
)

Linked: TypeAlias = "tuple[int, Linked] | tuple[()]"  # the last one first; shares its rest
MOST_PLANS = 2000  # abstract plans looked at for one query; a five-way join has 105


@dataclass(frozen=True, slots=True)
class AbstractPlan:
    """Operators to run at one host and streams to fetch for them."""

    operators: tuple[int, ...]
    fetched: tuple[int, ...]


class HeuristicPlanner:
    """One host a query, all plans, all hosts, best objective."""

    def __init__(self, catalog: Catalog) -> None:
        self.state = PlanState(catalog)
        self.scales = Scales.of(catalog)

    def submit(self, batch: Sequence[Query]) -> tuple[Decision, ...]:
        return tuple(self._decide(query) for query in batch)

    def rest(self) -> None:
        """Never revisits a decision."""

    def _decide(self, query: Query) -> Decision:
        state, catalog = self.state, self.state.catalog
        served = served_already(state, query)
        if served is not None:
            return served
        stream = catalog.stream_at[query.stream]
        only = None if query.deliver_to is None else catalog.host_at[query.deliver_to]
        before = Totals(state)
        short: Shortage | None = None
        missed = False
        for value, host, plan in self._candidates(stream, only):
            if value == np.inf:
                short = short or self._shortage(plan, stream, only)
                break
            steps = self._steps(plan, host)
            if isinstance(steps, Shortage):
                short = short or steps
                continue
            mark = state.mark()
            found = state.apply(steps) or state.deliver(query.id, stream, host)
            bound = query.latency_bound
            late = found is None and bound is not None and state.lateness(stream, host) > bound
            if found is None and not late:
                state.commit()
                return admitted(state, query, host, steps, before)
            state.rollback(mark)
            short, missed = short or found, missed or late
        if missed and query.latency_bound is not None:
            return too_late(query, query.latency_bound)
        return refused(query, short, catalog)

    def _candidates(
        self, stream: int, only: int | None
    ) -> Iterator[tuple[float, int, AbstractPlan]]:
        """Every plan at every host, the best objective first."""
        plans = tuple(abstract_plans(self.state, stream))
        if not plans:
            return
        values = np.array([self._values(plan, stream) for plan in plans])
        if only is not None:
            kept = values[:, only].copy()
            values[:] = np.inf
            values[:, only] = kept
        order = np.argsort(values, axis=None, kind="stable")
        hosts = values.shape[1]
        for place in order.tolist():
            number, host = divmod(place, hosts)
            yield float(values[number, host]), host, plans[number]

    def _values(self, plan: AbstractPlan, stream: int) -> Floats:
        """What the plan adds to the objective at each host; infinite where it does not fit."""
        state, catalog, scales = self.state, self.state.catalog, self.scales
        cost = sum(catalog.cpu[operator] for operator in plan.operators)
        fullest = np.maximum(state.cpu_used + cost, state.cpu_used.max(initial=0.0))
        needs = dict(self._needs(plan, stream))
        values: Floats = scales.network * needs[IN] + scales.cpu * cost + scales.balance * fullest
        for resource, need in needs.items():
            used, offered = state.use(resource)
            values[used + need > offered * LEEWAY] = np.inf
        return values

    def _needs(self, plan: AbstractPlan, stream: int) -> Iterator[tuple[str, Floats]]:
        """What the plan takes of each resource, by host."""
        state, catalog = self.state, self.state.catalog
        everywhere = np.ones(len(state.running))
        yield CPU, everywhere * sum(catalog.cpu[operator] for operator in plan.operators)
        yield MEMORY, everywhere * sum(catalog.memory[operator] for operator in plan.operators)
        arriving = np.zeros(len(everywhere))
        for name in plan.fetched:
            missing = everywhere.copy()
            missing[list(state.holders[name])] = 0.0
            arriving += missing * catalog.rate[name]
        yield IN, arriving
        yield OUT, everywhere * catalog.rate[stream]

    def _steps(self, plan: AbstractPlan, host: int) -> tuple[Run | Ship, ...] | Shortage:
        """Fetches from the holder with most room to send, then operators in order."""
        state, catalog = self.state, self.state.catalog
        steps: list[Run | Ship] = []
        free = catalog.out_offered - state.out_used
        for name in plan.fetched:
            if state.has(name, host):
                continue
            rate = catalog.rate[name]
            senders = [
                sender for sender in state.holders[name] if state.links.fits(sender, host, rate)
            ]
            if not senders:
                return Shortage(LINK, host, rate, 0.0, sender=next(iter(state.holders[name])))
            sender = max(senders, key=lambda place: (free[place], -place))
            if rate > free[sender] + SLACK * catalog.out_offered[sender]:
                return Shortage(OUT, sender, rate, float(free[sender]))
            free[sender] -= rate
            steps.append(Ship(name, sender, host))
        return (*steps, *(Run(operator, host) for operator in plan.operators))

    def _shortage(self, plan: AbstractPlan, stream: int, only: int | None) -> Shortage | None:
        """The first resource of which no host that has the others has enough, where most is."""
        possible = np.ones(len(self.state.running), dtype=bool)
        if only is not None:
            possible[:] = False
            possible[only] = True
        for resource, need in self._needs(plan, stream):
            used, offered = self.state.use(resource)
            fitting = possible & (used + need <= offered * LEEWAY)
            if not fitting.any():
                left = np.where(possible, offered - used - need, -np.inf)
                host = int(left.argmax())
                room = float(offered[host] - used[host])
                return Shortage(resource, host, float(need[host]), room)
            possible = fitting
        return None


def abstract_plans(state: PlanState, stream: int) -> Iterator[AbstractPlan]:
    """Every way to compute a stream, cut off where a sub-query exists somewhere."""
    seen: set[tuple[frozenset[int], frozenset[int]]] = set()
    for number, (operators, fetched) in enumerate(_ways(state, stream)):
        if number >= MOST_PLANS:
            return
        key = (frozenset(operators), frozenset(fetched))
        if key not in seen:
            seen.add(key)
            yield AbstractPlan(tuple(dict.fromkeys(operators)), tuple(dict.fromkeys(fetched)))


def _ways(state: PlanState, stream: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(operators in order, streams fetched) for each tree of operators; trees may be deep."""
    catalog = state.catalog
    # what is still open, operators so far (a reader before what it reads), streams fetched
    partial: list[tuple[Linked, Linked, Linked]] = [((stream, ()), (), ())]
    while partial:
        waiting, operators, fetched = partial.pop()
        while waiting and state.holders.get(waiting[0]):
            fetched, waiting = (waiting[0], fetched), waiting[1]
        if not waiting:
            yield tuple(_unlinked(operators)), tuple(reversed(list(_unlinked(fetched))))
            continue
        name, rest = waiting
        for operator in reversed(catalog.producers[name]):
            below = rest
            for read in reversed(catalog.inputs[operator]):
                below = (read, below)
            partial.append((below, (operator, operators), fetched))


def _unlinked(values: Linked) -> Iterator[int]:
    while values:
        yield values[0]
        values = values[1]
