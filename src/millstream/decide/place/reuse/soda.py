"""SODA's planner as SQPR describes and uses it (section V.B).

Two stages an epoch. macroQ admits queries in their order while the sum of resources over all
hosts suffices. miniW places the operators of each admitted query along its fixed template, glued
to what runs already: each stream is computed once, inputs come from the local host or straight
from the host that computes them, never through a relay. Local swaps then lower the objective.
A query whose template cannot be placed is not admitted: its demand is fixed and cannot shrink.
"""

from collections.abc import Sequence

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
from millstream.decide.place.reuse.catalog import LEEWAY, Catalog, fits
from millstream.decide.place.reuse.objective import Scales
from millstream.decide.place.reuse.state import CPU, IN, OUT, PlanState, Run, Ship, Shortage


class SodaPlanner:
    """macroQ, then miniW, over one batch of queries as an epoch."""

    def __init__(self, catalog: Catalog, swaps: int = 8) -> None:
        self.state = PlanState(catalog)
        self.scales = Scales.of(catalog)
        self.swaps = swaps  # deliveries tried elsewhere after an epoch
        self._turn: list[tuple[int, int]] = []

    def submit(self, batch: Sequence[Query]) -> tuple[Decision, ...]:
        self.state.remember_wishes(batch)
        return tuple(self._decide(query) for query in batch)

    def _decide(self, query: Query) -> Decision:
        state, catalog = self.state, self.state.catalog
        served = served_already(state, query)
        if served is not None:
            return served
        before = Totals(state)
        stream = catalog.stream_at[query.stream]
        only = None if query.deliver_to is None else catalog.host_at[query.deliver_to]
        template = glued_template(state, stream)
        if template is None:
            return refused(query, None, catalog)
        short = self._macro_q(template, stream)
        if short is None:
            mark = state.mark()
            placed = self._mini_w(template, stream, query.id, only)
            if isinstance(placed, tuple):
                host, steps = placed
                bound = query.latency_bound
                if bound is None or state.lateness(stream, host) <= bound:
                    state.commit()
                    return admitted(state, query, host, steps, before)
                state.rollback(mark)
                return too_late(query, bound)
            state.rollback(mark)
            short = placed
        return refused(query, short, catalog)

    def _macro_q(self, template: tuple[int, ...], stream: int) -> Shortage | None:
        """Admission by the sum of resources, without a thought of where."""
        state, catalog = self.state, self.state.catalog
        cost = sum(catalog.cpu[operator] for operator in template)
        room = float((catalog.cpu_offered - state.cpu_used).sum())
        if not fits(float(state.cpu_used.sum()), cost, float(catalog.cpu_offered.sum())):
            return Shortage(CPU, int((catalog.cpu_offered - state.cpu_used).argmax()), cost, room)
        rate = catalog.rate[stream]
        room = float((catalog.out_offered - state.out_used).sum())
        if not fits(float(state.out_used.sum()), rate, float(catalog.out_offered.sum())):
            return Shortage(OUT, int((catalog.out_offered - state.out_used).argmax()), rate, room)
        return None

    def _mini_w(
        self, template: tuple[int, ...], stream: int, query: str, only: int | None
    ) -> tuple[int, tuple[Run | Ship, ...]] | Shortage:
        """Operator by operator, where the objective grows least."""
        state, catalog = self.state, self.state.catalog
        steps: list[Run | Ship] = []
        host = origin_of(state, stream)
        for operator in template:
            found = self._best_host(operator)
            if isinstance(found, Shortage):
                return found
            host, more = found
            steps.extend(more)
        if host is None:
            return Shortage(OUT, 0, catalog.rate[stream], 0.0)
        if only is not None and only != host:
            if not state.has(stream, only):  # it may be there already, as some operator's input
                short = state.ship(stream, host, only)
                if short is not None:
                    return short
                steps.append(Ship(stream, host, only))
            host = only
        short = state.deliver(query, stream, host)
        return short if short is not None else (host, tuple(steps))

    def _best_host(self, operator: int) -> tuple[int, tuple[Run | Ship, ...]] | Shortage:
        state, catalog, scales = self.state, self.state.catalog, self.scales
        cost = catalog.cpu[operator]
        arriving = np.zeros(len(state.running))
        for name in catalog.inputs[operator]:
            missing = np.full(len(arriving), catalog.rate[name])
            missing[list(state.holders[name])] = 0.0
            arriving += missing
        fullest = np.maximum(state.cpu_used + cost, state.cpu_used.max(initial=0.0))
        values = scales.network * arriving + scales.balance * fullest
        # among hosts that leave the fullest as it is, the emptiest: miniW balances
        values = values + 1e-3 * abs(scales.balance) * state.cpu_used
        values[state.cpu_used + cost > catalog.cpu_offered * LEEWAY] = np.inf
        values[state.in_used + arriving > catalog.in_offered * LEEWAY] = np.inf
        short: Shortage | None = None
        for host in np.argsort(values, kind="stable").tolist():
            if values[host] == np.inf:
                break
            mark = state.mark()
            steps: list[Run | Ship] = [
                Ship(name, source, host)
                for name in catalog.inputs[operator]
                if not state.has(name, host) and (source := origin_of(state, name)) is not None
            ]
            steps.append(Run(operator, host))
            failed = state.apply(tuple(steps))
            if failed is None:
                return host, tuple(steps)
            short = short or failed
            state.rollback(mark)
        room = catalog.cpu_offered - state.cpu_used
        roomiest = int(room.argmax())
        if short is None and fits(state.cpu_used[roomiest], cost, catalog.cpu_offered[roomiest]):
            free = catalog.in_offered - state.in_used
            host = int((arriving - free).argmin())
            short = Shortage(IN, host, float(arriving[host]), float(free[host]))
        return short or Shortage(CPU, roomiest, cost, float(room[roomiest]))

    def rest(self) -> None:
        """Local swaps: a few deliveries are placed anew where that lowers the objective."""
        state = self.state
        for _ in range(self.swaps):
            if not self._turn:
                self._turn = list(reversed(state.clients))
            if not self._turn:
                return
            delivery = self._turn.pop()
            if delivery not in state.clients or state.bound_of(state.clients[delivery]) is not None:
                continue
            mark, value = state.mark(), self._spread()
            waiting = state.stop_delivery(*delivery)
            template = glued_template(state, delivery[0])
            assert template is not None, "it ran before"
            only = state.fixed_place(*delivery, waiting)
            placed = self._mini_w(template, delivery[0], waiting[0], only)
            if isinstance(placed, tuple):
                for query in waiting[1:]:
                    state.deliver(query, delivery[0], placed[0])
                if self._spread() < value - 1e-12:
                    state.commit()
                    continue
            state.rollback(mark)

    def _spread(self) -> float:
        state, scales = self.state, self.scales
        return float(
            scales.balance * state.cpu_used.max(initial=0.0)
            + scales.network * state.in_used.sum()
            + 1e-3 * abs(scales.balance) * np.square(state.cpu_used).sum()
        )


def origin_of(state: PlanState, stream: int) -> int | None:
    """The host that computes a stream, or where a base stream enters."""
    if state.catalog.base[stream] >= 0:
        return state.catalog.base[stream]
    for host in state.holders.get(stream, ()):
        if state.source.get((stream, host), -1) >= 0:
            return host
    return None


def glued_template(state: PlanState, stream: int) -> tuple[int, ...] | None:
    """Operators of the user's plan that do not run yet, in order; None if there is no plan.

    The template is the first operator listed for each stream.
    """
    operators: dict[int, None] = {}
    done: set[int] = set()
    stack = [(stream, False)]
    while stack:
        name, leaving = stack.pop()
        if origin_of(state, name) is not None or name in done:
            continue
        if not state.catalog.producers[name]:
            return None
        operator = state.catalog.producers[name][0]
        if leaving:
            done.add(name)
            operators[operator] = None
        else:
            stack.append((name, True))
            stack.extend((below, False) for below in reversed(state.catalog.inputs[operator]))
    return tuple(operators)
