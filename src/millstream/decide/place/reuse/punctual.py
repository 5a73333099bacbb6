"""The cheapest plan that is in time: the dynamic programme with a third coordinate, lateness.

C[s, h, t] is the least price of having stream s at host h no later than t, in a fixed number of
slots up to the bound; distances are rounded up, so a plan found keeps the bound. Used only for
queries with a latency bound whose cheapest plan would be late. Decides a plan; changes nothing.
"""

from math import inf

import numpy as np
import numpy.typing as npt

from millstream.decide.place.reuse.catalog import LEEWAY, Closure, Floats, Ints
from millstream.decide.place.reuse.cheapest import (
    HOPS,
    TRIES,
    Plan,
    link_prices,
    raise_price,
    try_steps,
)
from millstream.decide.place.reuse.demand import Grain
from millstream.decide.place.reuse.prices import PriceCurve, Prices, run_prices
from millstream.decide.place.reuse.state import PlanState, Run, Ship, Shortage

SLOTS = 32
HELD = -1  # choice: it is there already; other choices are an operator's number or a sender


class _Timetable:
    """Prices and choices for every (row, column, slot)."""

    def __init__(
        self,
        state: PlanState,
        closure: Closure,
        prices: Prices,
        curve: PriceCurve,
        grain: Grain,
        bound: float,
        *,
        hopeful: bool = False,
    ) -> None:
        self.state, self.closure, self.prices = state, closure, prices
        self.rounded = np.floor if hopeful else np.ceil  # sooner than it is, or later
        count, hosts = len(closure.streams), len(prices.cpu)
        self.hosts: Ints = np.arange(hosts) if prices.hosts is None else prices.hosts
        self.unit = bound / SLOTS if bound > 0 else 1.0
        self.last = SLOTS if bound > 0 else 0
        distance = state.links.distance
        grid = np.ix_(self.hosts, self.hosts)
        apart = np.zeros((hosts, hosts)) if distance is None else distance[grid]
        self.delay: Ints = self._slots(apart)
        crossing, room = link_prices(state, prices, curve)
        self.crossing = np.zeros((hosts, hosts)) if crossing is None else crossing
        self.room = np.full((hosts, hosts), inf) if room is None else room
        self.run = run_prices(closure, prices, grain)
        shape = (count, hosts, self.last + 1)
        self.reach: Floats = np.full(shape, inf)
        self.choice: Ints = np.zeros(shape, dtype=np.intp)
        self._made: dict[int, int] = {}  # row -> the column that computes it, where it has an owner
        for row in range(count):
            if not (state.catalog.owned and state.holders.get(closure.streams[row])):
                self._compute(row)
            self._ship(row, self._hold(row))

    def _slots(self, late: float | Floats) -> Ints:
        """Slots that this takes."""
        found: Ints = self.rounded(np.divide(late, self.unit) - 1e-9).astype(np.intp)
        return np.maximum(found, 0)

    def _hold(self, row: int) -> list[int]:
        """What is held comes when it comes: it cannot be had there a second time, sooner."""
        held: list[int] = []
        stream = self.closure.streams[row]
        for host in self.state.holders.get(stream, ()):
            column = self.prices.column(host)
            if column < 0:
                continue
            held.append(column)
            self.reach[row, column] = inf
            late = self.state.lateness(stream, host)
            slot = int(self._slots(late))
            if slot <= self.last:
                self.reach[row, column, slot:] = 0.0
                self.choice[row, column, slot:] = HELD
        return held

    def _compute(self, row: int) -> None:
        catalog, closure = self.state.catalog, self.closure
        first = closure.first_operator[row]
        for number in range(first, first + len(catalog.producers[closure.streams[row]])):
            total = np.repeat(self.run[number][:, None], self.last + 1, axis=1)
            for name in catalog.inputs[closure.operators[number]]:
                total += self.reach[closure.row[name]]
            better = total < self.reach[row]
            self.reach[row][better] = total[better]
            self.choice[row][better] = number

    def _ship(self, row: int, held: list[int]) -> None:
        rate, prices = float(self.closure.rates[row]), self.prices
        leave = np.where(rate > prices.out_free, inf, rate * prices.outgoing)
        arrive = np.where(rate > prices.in_free, inf, rate * prices.incoming)
        for _ in range(1 if self.state.catalog.owned else HOPS):
            able = self._senders(row, np.isfinite(self.reach[row, :, -1] + leave))
            step = rate * self.crossing[able] + arrive + leave[able, None]
            step[self.room[able] < rate] = inf
            if not len(able) or not self._hop(row, held, able, step):
                break

    def _hop(self, row: int, held: list[int], able: Ints, step: Floats) -> bool:
        """The row's stream sent once by those that are able to, where that is cheaper than what is
        known; `step` is the price by sender and target. Says whether it ever is.

        What comes later is never dearer. So a pair is of use only if the least that the sender asks
        is less than what is known for the first slot in which it can be there.
        """
        last, hosts = self.last, len(self.hosts)
        had, delay = self.reach[row, able], self.delay[able]
        slot = np.isfinite(had).argmax(axis=1)[:, None] + delay
        known = self.reach[row][np.arange(hosts), np.minimum(slot, last)]
        cheaper = (slot <= last) & (had[:, -1:] + step < known - 1e-15)
        cheaper[:, held] = False
        target, sender = cheaper.T.nonzero()
        if not len(target):
            return False
        ahead = np.full((len(able), 2 * last + 1), inf)  # nothing comes before the first slot
        ahead[:, last:] = had
        start = sender * (2 * last + 1) + last - delay[sender, target]
        offer = ahead.take(start[:, None] + np.arange(last + 1))
        offer += step[sender, target][:, None]
        group = np.flatnonzero(np.diff(target, prepend=-1))
        best = np.minimum.reduceat(offer, group, axis=0)
        count = np.diff(group, append=len(target))
        whose = np.where(offer == best.repeat(count, axis=0), able[sender][:, None], hosts)
        first = np.minimum.reduceat(whose, group, axis=0)
        columns = target[group]
        better = best < self.reach[row, columns] - 1e-15
        self.reach[row, columns] = np.where(better, best, self.reach[row, columns])
        marker = len(self.closure.operators)  # senders are numbered after the operators
        self.choice[row, columns] = np.where(better, marker + first, self.choice[row, columns])
        return bool(better.any())

    def _senders(self, row: int, able: npt.NDArray[np.bool_]) -> Ints:
        """Columns that may send a row's stream: its owner alone, where nobody else may."""
        stream = self.closure.streams[row]
        senders: Ints = able.nonzero()[0]
        if self.state.catalog.by_owner_alone(stream) and self.state.holders.get(stream):
            owner = self.prices.column(self.state.owner(stream))
            senders = senders[senders == owner]
        return senders

    def steps(self, row: int, column: int, slot: int) -> list[Run | Ship]:
        """Steps behind an entry, in causal order; plans may be deep."""
        found: list[Run | Ship] = []
        have: set[tuple[int, int]] = set()
        self._made.clear()  # of a plan that was read before
        # what is still to be read, the next one last: a step, or an entry
        waiting: list[tuple[int, int, int, Run | Ship | None]] = [(row, column, slot, None)]
        while waiting:
            row, column, slot, step = waiting.pop()
            if step is not None:
                found.append(step)
                have.add((row, column))
            elif (row, column) not in have and self.choice[row, column, slot] != HELD:
                waiting.extend(self._behind(row, column, slot))
        return found

    def _behind(
        self, row: int, column: int, slot: int
    ) -> list[tuple[int, int, int, Run | Ship | None]]:
        """The last step to an entry, and before it (later in the list) what that needs."""
        choice, closure = int(self.choice[row, column, slot]), self.closure
        marker, made = len(closure.operators), self._made.get(row)
        here = int(self.hosts[column])
        if choice >= marker or made is not None:
            sender = choice - marker if made is None else made
            ship = Ship(closure.streams[row], int(self.hosts[sender]), here)
            before = max(0, slot - int(self.delay[sender, column]))
            return [(row, column, slot, ship), (row, sender, before, None)]
        operator = closure.operators[choice]
        if self.state.catalog.owned:
            self._made[row] = column
        inputs = [closure.row[name] for name in self.state.catalog.inputs[operator]]
        run: list[tuple[int, int, int, Run | Ship | None]] = [
            (row, column, slot, Run(operator, here))
        ]
        return [*run, *((below, column, slot, None) for below in reversed(inputs))]


def punctual_plan(
    state: PlanState,
    closure: Closure,
    prices: Prices,
    curve: PriceCurve,
    grain: Grain,
    bound: float,
    at: int | None = None,
) -> Plan | Shortage | None:
    """A plan that fits and delivers within the bound, or what stopped it; None: no way."""
    target, rate = len(closure.streams) - 1, float(closure.rates[-1])
    column = None if at is None else prices.column(at)
    if column == -1:
        return None
    short: Shortage | None = None
    for _ in range(TRIES):
        table = _Timetable(state, closure, prices, curve, grain, bound)
        final = table.reach[target, :, -1] + rate * prices.outgoing
        final[prices.out_free < rate] = inf
        best = int(final.argmin()) if column is None else column
        if final[best] == inf:
            return short
        steps = tuple(table.steps(target, best, table.last))
        host = int(table.hosts[best])
        short = try_steps(state, steps, rate, host)
        if short is None:
            return Plan(closure.streams[target], host, steps, float(final[best]))
        raise_price(prices, short)
    return short


def soonest_plan(
    state: PlanState,
    closure: Closure,
    prices: Prices,
    curve: PriceCurve,
    grain: Grain,
    bound: float,
    at: int | None = None,
    *,
    hopeful: bool,
) -> tuple[Plan, float] | None:
    """A plan that fits and delivers as soon as any that was found, and when that is.

    Where it is hopeful, distances are rounded down: rounded up, a way over many short links has no
    place within a bound that it keeps. What is found is judged by when it would really deliver.
    """
    column = None if at is None else prices.column(at)
    if column == -1 or bound <= 0:
        return None
    table = _Timetable(state, closure, prices, curve, grain, bound, hopeful=hopeful)
    target, rate = len(closure.streams) - 1, float(closure.rates[-1])
    found: tuple[Plan, float] | None = None
    final = table.reach[target] + rate * prices.outgoing[:, None]
    final[prices.out_free < rate] = inf
    if column is not None:
        final[np.arange(len(final)) != column] = inf
    for slot in np.isfinite(final).any(axis=0).nonzero()[0].tolist()[:TRIES]:
        best = int(final[:, slot].argmin())
        steps, host = tuple(table.steps(target, best, slot)), int(table.hosts[best])
        if try_steps(state, steps, rate, host) is not None:
            continue
        plan = Plan(closure.streams[target], host, steps, float(final[best, slot]))
        needed = when_carried_out(state, plan)
        if found is None or needed < found[1]:
            found = plan, needed
    return found


def when_carried_out(state: PlanState, plan: Plan) -> float:
    """When a plan, carried out, would deliver; leaves no trace."""
    mark = state.mark()
    state.apply(plan.steps)
    late = state.lateness(plan.stream, plan.host)
    state.rollback(mark)
    return late


def reachable(state: PlanState, closure: Closure, bound: float, at: int | None = None) -> bool:
    """Whether any plan could be in time if there were room everywhere."""
    catalog, links = state.catalog, state.links
    distance = links.distance
    if distance is None:
        return True
    apart = distance if links.offered is None else np.where(links.offered < 0, inf, distance)
    soonest = np.full((len(closure.streams), len(distance)), inf)
    for row, stream in enumerate(closure.streams):
        first = closure.first_operator[row]
        for number in range(first, first + len(catalog.producers[stream])):
            read = [closure.row[name] for name in catalog.inputs[closure.operators[number]]]
            soonest[row] = np.minimum(soonest[row], soonest[read].max(axis=0, initial=0.0))
        for host in state.holders.get(stream, ()):
            soonest[row, host] = min(soonest[row, host], state.lateness(stream, host))
        for _ in range(HOPS):
            sent = (soonest[row][:, None] + apart).min(axis=0)
            if not (sent < soonest[row]).any():
                break
            np.minimum(soonest[row], sent, out=soonest[row])
    there = soonest[-1].min() if at is None else soonest[-1, at]
    return bool(there <= bound * LEEWAY)
