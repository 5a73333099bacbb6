"""The cheapest plan for one stream at given prices, by dynamic programming.

C[s, h] is the least price of having stream s at host h: nothing if it is there, the best operator
run at h on inputs had at h, or the cheapest holder or producer elsewhere plus shipping (whoever
holds a stream may relay it). All of S(q), all hosts considered, one numpy pass a level. Steps that
fit one by one but not together raise a price, and the programme runs again. Where streams have
owners (`Catalog.owned`) nothing is computed a second time, and only base streams are relayed.
Decides a plan from state and prices; changes nothing.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from millstream.decide.place.reuse.catalog import LEEWAY, Closure, Floats, fits
from millstream.decide.place.reuse.demand import Grain
from millstream.decide.place.reuse.prices import PriceCurve, Prices, run_prices
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

RAISE = 4.0  # factor on a price after a joint shortage
TRIES = 8
HOPS = 8  # relays in a row that one plan may start anew


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in causal order that put a stream at a host."""

    stream: int
    host: int
    steps: tuple[Run | Ship, ...]
    price: float


@dataclass(slots=True)
class Table:
    """Result of the programme; columns are the hosts considered."""

    closure: Closure
    prices: Prices
    had: Floats  # price of holding or computing each stream at each host
    reach: Floats  # or of having it shipped there
    senders: Floats  # column of the cheapest sender for each (row, column), as a float
    run: Floats  # price of running each operator at each host
    leave: Floats  # price of each row's rate leaving each host
    arrive: Floats  # price of each row's rate entering each host
    crossing: Floats | None  # price of a unit of rate between hosts, where links matter
    room: Floats | None  # free bandwidth between hosts


def tabulate(
    state: PlanState, closure: Closure, prices: Prices, curve: PriceCurve, grain: Grain
) -> Table:
    """C[s, h] for all streams of the closure and all hosts, bottom-up."""
    count, hosts = len(closure.streams), len(prices.cpu)
    rates = closure.rates[:, None]
    leave = rates * prices.outgoing
    leave[rates > prices.out_free] = inf
    arrive = rates * prices.incoming
    arrive[rates > prices.in_free] = inf
    run = run_prices(closure, prices, grain)
    crossing, room = link_prices(state, prices, curve)
    table = Table(
        closure=closure,
        prices=prices,
        had=np.full((count, hosts), inf),
        reach=np.zeros((count + 1, hosts)),  # the last row stands for an input that is not there
        senders=np.zeros((count, 1 if crossing is None else hosts)),
        run=run,
        leave=leave,
        arrive=arrive,
        crossing=crossing,
        room=room,
    )
    _fill(state, table, 0, closure.roots)
    for level in closure.levels:
        total = run[level.op_first : level.op_last].copy()
        for rows in level.inputs:
            total += table.reach[rows]
        table.had[level.first : level.last] = np.minimum.reduceat(total, level.starts, axis=0)
        _fill(state, table, level.first, level.last)
    return table


def _fill(state: PlanState, table: Table, first: int, last: int) -> None:
    """Rows first..last: what is held costs nothing, the rest may be shipped."""
    if first == last:
        return
    had, prices, streams = table.had, table.prices, table.closure.streams
    owned = state.catalog.owned
    owners: dict[int, int] = {}  # row -> the only column that may send it
    for row in range(first, last):
        held = state.holders.get(streams[row])
        if not held:
            continue
        if owned:
            had[row] = inf
            if state.catalog.by_owner_alone(streams[row]):
                owners[row] = prices.column(state.owner(streams[row]))
        if prices.hosts is None:
            had[row, list(held)] = 0.0
        else:
            places = prices.places
            had[row, [places[host] for host in held if host in places]] = 0.0
    if table.crossing is not None:
        for row in range(first, last):
            _fill_over_links(table, row, owners.get(row), 1 if owned else HOPS)
        return
    mine = had[first:last]
    sending = mine + table.leave[first:last]
    for row, owner in owners.items():
        sending[row - first] = _from_owner(sending[row - first], owner)
    senders = sending.argmin(axis=1)
    cheapest = sending[np.arange(last - first), senders]
    table.reach[first:last] = np.minimum(mine, cheapest[:, None] + table.arrive[first:last])
    table.senders[first:last, 0] = senders


def _from_owner(sending: Floats, owner: int) -> Floats:
    """Only the owner of a stream sends it; nobody where its host is not considered."""
    alone = np.full_like(sending, inf)
    if owner >= 0:
        alone[owner] = sending[owner]
    return alone


def _fill_over_links(table: Table, row: int, owner: int | None, hops: int) -> None:
    """Links that bind or have a length: hop by hop, as relays need."""
    assert table.crossing is not None
    assert table.room is not None
    rate = table.closure.rates[row]
    step = rate * table.crossing
    step[table.room < rate] = inf
    best = table.had[row].copy()
    for _ in range(hops):
        sending = best + table.leave[row]
        offers = (sending if owner is None else _from_owner(sending, owner))[:, None] + step
        senders = offers.argmin(axis=0)
        shipped = offers[senders, np.arange(len(best))] + table.arrive[row]
        better = shipped < best
        if not better.any():
            break
        best[better] = shipped[better]
        table.senders[row, better] = senders[better]
    table.reach[row] = best


def link_prices(
    state: PlanState, prices: Prices, curve: PriceCurve
) -> tuple[Floats | None, Floats | None]:
    """Price of a unit of rate and free bandwidth between the hosts considered."""
    links, hosts = state.links, prices.hosts
    if links.offered is None or links.used is None:
        return None, None
    offered, used = links.offered, links.used
    distance = links.distance
    if hosts is not None:
        grid = np.ix_(hosts, hosts)
        offered, used = offered[grid], used[grid]
        distance = None if distance is None else distance[grid]
    room = offered * LEEWAY - used
    with np.errstate(divide="ignore", invalid="ignore"):
        price = np.power(curve.steepness, used / offered) / offered
    crossing: Floats = np.where(np.isfinite(price), curve.network * price, 0.0)
    if distance is not None:
        crossing += distance * distance_price(state, curve)
    for (source, target), factor in prices.link_raise.items():
        place = prices.column(source), prices.column(target)
        if min(place) >= 0:
            crossing[place] = (crossing[place] + 1e-6) * factor
    return crossing, room


def distance_price(state: PlanState, curve: PriceCurve) -> float:
    """Price of a unit of rate over a unit of distance: an average way costs like a free host."""
    distance = state.links.distance
    assert distance is not None
    offered = state.catalog.in_offered
    finite = offered[np.isfinite(offered) & (offered > 0)]
    unit = float(finite.mean()) if len(finite) else max(state.catalog.rate, default=0.0) or 1.0
    average = float(distance[distance > 0].mean()) if (distance > 0).any() else 1.0
    return curve.distance / (average * unit)


class Extraction:
    """Reads the steps behind an entry of the table, in causal order; plans may be deep."""

    def __init__(self, state: PlanState, table: Table) -> None:
        self.state = state
        self.table = table
        self.steps: list[Run | Ship] = []
        self._have: set[tuple[int, int]] = set()  # (row, column) that the steps provide
        self._made: dict[int, int] = {}  # row -> the column that computes it, where it has an owner
        # what is still to be read, the next one last: a step, or a (row, column) to be had
        self._waiting: list[tuple[int, int, Run | Ship | None]] = []

    def _host(self, column: int) -> int:
        hosts = self.table.prices.hosts
        return column if hosts is None else int(hosts[column])

    def _held(self, row: int, column: int) -> bool:
        stream = self.table.closure.streams[row]
        return (row, column) in self._have or self.state.has(stream, self._host(column))

    def reach(self, row: int, column: int) -> None:
        """Steps that put the row's stream at the column's host."""
        waiting = self._waiting
        waiting.append((row, column, None))
        while waiting:
            row, column, step = waiting.pop()
            if step is not None:
                self.steps.append(step)
                self._have.add((row, column))
            elif not self._held(row, column):
                self._have_at(row, column)

    def _have_at(self, row: int, column: int) -> None:
        table = self.table
        made = self._made.get(row)
        if made is None and table.had[row, column] <= table.reach[row, column]:
            self._compute(row, column)
            return
        over_links = table.crossing is not None
        sender = int(table.senders[row, column if over_links else 0]) if made is None else made
        stream = table.closure.streams[row]
        ship = Ship(stream, self._host(sender), self._host(column))
        self._waiting.append((row, column, ship))
        if over_links:
            self._waiting.append((row, sender, None))
        elif not self._held(row, sender):
            self._compute(row, sender)

    def _compute(self, row: int, column: int) -> None:
        table, closure = self.table, self.table.closure
        catalog = self.state.catalog
        first = closure.first_operator[row]
        best, best_price, best_rows = -1, inf, list[int]()
        for number in range(first, first + len(catalog.producers[closure.streams[row]])):
            operator = closure.operators[number]
            rows = [closure.row[name] for name in catalog.inputs[operator]]
            price = table.run[number, column] + sum(table.reach[below, column] for below in rows)
            if price < best_price:
                best, best_price, best_rows = operator, price, rows
        if catalog.owned:
            self._made[row] = column
        self._waiting.append((row, column, Run(best, self._host(column))))
        self._waiting.extend((below, column, None) for below in reversed(best_rows))


def cheapest_plan(
    state: PlanState,
    closure: Closure,
    prices: Prices,
    curve: PriceCurve,
    grain: Grain,
    at: int | None = None,
) -> Plan | Shortage | None:
    """A plan that delivers the stream and fits, or what stopped it; None: no way at all.

    `at` fixes the host that delivers. Raises entries of `prices` when steps do not fit together.
    """
    target = len(closure.streams) - 1
    rate = float(closure.rates[target])
    short: Shortage | None = None
    column = None if at is None else prices.column(at)
    if column == -1:
        return None
    for _ in range(TRIES):
        table = tabulate(state, closure, prices, curve, grain)
        final = table.reach[target] + rate * prices.outgoing
        final[prices.out_free < rate] = inf
        best = int(final.argmin()) if column is None else column
        if final[best] == inf:
            return short
        reading = Extraction(state, table)
        reading.reach(target, best)
        steps = tuple(reading.steps)
        host = best if prices.hosts is None else int(prices.hosts[best])
        short = try_steps(state, steps, rate, host)
        if short is None:
            return Plan(closure.streams[target], host, steps, float(final[best]))
        raise_price(prices, short)
    return short


def try_steps(
    state: PlanState, steps: tuple[Run | Ship, ...], rate: float, host: int
) -> Shortage | None:
    """Whether steps and a delivery fit together; leaves the state as it was."""
    mark = state.mark()
    short = state.apply(steps)
    if short is None:
        offered, used = state.catalog.out_offered[host], state.out_used[host]
        if not fits(used, rate, offered):
            short = Shortage(OUT, host, rate, float(offered - used))
    state.rollback(mark)
    return short


def raise_price(prices: Prices, short: Shortage) -> None:
    column = prices.column(short.host)
    if short.resource == CPU:
        prices.cpu[column] *= RAISE
    elif short.resource == IN:
        prices.incoming[column] *= RAISE
    elif short.resource == OUT:
        prices.outgoing[column] *= RAISE
    elif short.resource == LINK:
        key = (short.sender, short.host)
        prices.link_raise[key] = prices.link_raise.get(key, 1.0) * RAISE
    elif short.resource == MEMORY:
        prices.memory_free[column] = min(prices.memory_free[column], short.room)
