"""The cheapest plan for one stream at given prices, by dynamic programming.

C[s, h] is the least price of having stream s at host h: nothing if it is there, the best operator
run at h on inputs had at h, or the cheapest holder or producer elsewhere plus shipping (relays
come by themselves: whoever holds a stream may send it on). All of S(q), all hosts, one numpy pass
a level. Steps that fit one by one but not together raise a price, and the programme runs again.
Decides a plan from state and prices; changes nothing.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from millstream.place.catalog import Closure, Floats
from millstream.place.prices import Prices
from millstream.place.state import CPU, IN, LINK, OUT, PlanState, Run, Ship, Shortage

RAISE = 4.0  # factor on a price after a joint shortage
TRIES = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in causal order that put a stream at a host."""

    stream: int
    host: int
    steps: tuple[Run | Ship, ...]
    price: float


@dataclass(slots=True)
class Table:
    """Result of the programme: prices of holding (had) and of having (reach)."""

    closure: Closure
    had: Floats  # held or computed at the host itself
    reach: Floats  # or shipped to it
    senders: list[int]  # cheapest sender of each row, -1 if none
    run: Floats  # price of running each operator at each host
    arrive: Floats  # price of each row's rate entering each host


def tabulate(state: PlanState, closure: Closure, prices: Prices) -> Table:
    """C[s, h] for all streams of the closure and all hosts, bottom-up."""
    count, hosts = len(closure.streams), len(prices.cpu)
    rates = closure.rates[:, None]
    leave = rates * prices.outgoing
    leave[rates > prices.out_free] = inf
    arrive = rates * prices.incoming
    arrive[rates > prices.in_free] = inf
    costs = closure.costs[:, None]
    run = costs * prices.cpu
    if prices.start is not None:
        run = run + prices.start
    run[costs > prices.cpu_free] = inf
    if closure.memory is not None:
        run[closure.memory[:, None] > prices.memory_free] = inf
    had = np.full((count, hosts), inf)
    reach = np.zeros((count + 1, hosts))  # the last row is the input that is not there
    senders = [-1] * count
    table = Table(closure, had, reach, senders, run, arrive)
    _fill(state, table, leave, 0, closure.roots)
    for level in closure.levels:
        total = run[level.op_first : level.op_last].copy()
        for rows in level.inputs:
            total += reach[rows]
        had[level.first : level.last] = np.minimum.reduceat(total, level.starts, axis=0)
        _fill(state, table, leave, level.first, level.last)
    return table


def _fill(state: PlanState, table: Table, leave: Floats, first: int, last: int) -> None:
    had, streams = table.had, table.closure.streams
    for row in range(first, last):
        held = state.holders.get(streams[row])
        if held:
            had[row, list(held)] = 0.0
    if first == last:
        return
    sending = had[first:last] + leave[first:last]
    senders = sending.argmin(axis=1)
    cheapest = sending[np.arange(last - first), senders]
    table.reach[first:last] = np.minimum(
        had[first:last], cheapest[:, None] + table.arrive[first:last]
    )
    table.senders[first:last] = senders.tolist()


def extract(state: PlanState, table: Table, row: int, host: int) -> tuple[Run | Ship, ...]:
    """The steps behind reach[row, host]."""
    steps: list[Run | Ship] = []
    have: set[tuple[int, int]] = set()
    _reach(state, table, row, host, steps, have)
    return tuple(steps)


def _reach(
    state: PlanState,
    table: Table,
    row: int,
    host: int,
    steps: list[Run | Ship],
    have: set[tuple[int, int]],
) -> None:
    stream = table.closure.streams[row]
    if (stream, host) in have or state.has(stream, host):
        return
    if table.had[row, host] <= table.reach[row, host]:
        _compute(state, table, row, host, steps, have)
        return
    sender = table.senders[row]
    if not ((stream, sender) in have or state.has(stream, sender)):
        _compute(state, table, row, sender, steps, have)
    steps.append(Ship(stream, sender, host))
    have.add((stream, host))


def _compute(
    state: PlanState,
    table: Table,
    row: int,
    host: int,
    steps: list[Run | Ship],
    have: set[tuple[int, int]],
) -> None:
    closure, inputs_of = table.closure, state.catalog.inputs
    best, best_price, best_inputs = -1, inf, ()
    level = next(level for level in closure.levels if level.first <= row < level.last)
    place = level.op_first + int(level.starts[row - level.first])
    stream = closure.streams[row]
    for number in range(place, place + len(state.catalog.producers[stream])):
        operator = closure.operators[number]
        rows = [closure.row[name] for name in inputs_of[operator]]
        price = table.run[number, host] + sum(table.reach[below, host] for below in rows)
        if price < best_price:
            best, best_price, best_inputs = operator, price, tuple(rows)
    for below in best_inputs:
        _reach(state, table, below, host, steps, have)
    steps.append(Run(best, host))
    have.add((stream, host))


def cheapest_plan(
    state: PlanState, closure: Closure, prices: Prices, *, deliver: bool, at: int | None = None
) -> Plan | Shortage | None:
    """A plan that fits, or the shortage that stopped the last try, or None: no way at all.

    With `deliver` the stream must also be sent out once from the host where it ends; `at` fixes
    that host. Raises entries of `prices` when steps do not fit together.
    """
    target = len(closure.streams) - 1
    rate = float(closure.rates[target])
    short: Shortage | None = None
    for _ in range(TRIES):
        table = tabulate(state, closure, prices)
        final = table.reach[target].copy()
        if deliver:
            final += rate * prices.outgoing
            final[prices.out_free < rate] = inf
        host = int(final.argmin()) if at is None else at
        if final[host] == inf:
            return short
        steps = extract(state, table, target, host)
        short = try_steps(state, steps, rate if deliver else 0.0, host)
        if short is None:
            return Plan(closure.streams[target], host, steps, float(final[host]))
        _raise_price(prices, short)
    return short


def try_steps(
    state: PlanState, steps: tuple[Run | Ship, ...], out_rate: float, host: int
) -> Shortage | None:
    """Whether steps and a delivery fit together; leaves the state as it was."""
    mark = state.mark()
    short = state.apply(steps)
    if short is None and out_rate > state.catalog.out_offered[host] - state.out_used[host] + 1e-9:
        room = float(state.catalog.out_offered[host] - state.out_used[host])
        short = Shortage(OUT, host, out_rate, room)
    state.rollback(mark)
    return short


def _raise_price(prices: Prices, short: Shortage) -> None:
    if short.resource == CPU:
        prices.cpu[short.host] *= RAISE
    elif short.resource == IN:
        prices.incoming[short.host] *= RAISE
    elif short.resource == OUT:
        prices.outgoing[short.host] *= RAISE
    elif short.resource == LINK:
        key = (short.sender, short.host)
        prices.link[key] = prices.link.get(key, 1.0) * RAISE
    else:
        prices.memory_free[short.host] = min(prices.memory_free[short.host], short.room)
