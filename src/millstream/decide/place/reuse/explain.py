"""Why a query was refused: which single resource, where, and how much of it would have done.

Lifts one resource's limit at a time and plans again on the unchanged state; the first that opens a
way is the binding one, and the plan found shows the host and the amount. Changes nothing.
"""

from dataclasses import replace
from math import inf

import numpy as np

from millstream.decide.place.reuse.catalog import Closure, Ints
from millstream.decide.place.reuse.cheapest import Extraction, tabulate
from millstream.decide.place.reuse.demand import Grain
from millstream.decide.place.reuse.prices import PriceCurve, Prices, price_hosts
from millstream.decide.place.reuse.state import CPU, IN, LINK, MEMORY, OUT, PlanState, Run, Shortage
from millstream.decide.place.reuse.utilisation import share_used


def binding_shortage(
    state: PlanState,
    closure: Closure,
    curve: PriceCurve,
    at: int | None = None,
    hosts: Ints | None = None,
) -> Shortage | None:
    """The shortage that one more unit of a resource would end; None if nothing would."""
    prices = price_hosts(state, curve, hosts)
    alone = [CPU, OUT, IN]
    if state.links.offered is not None:
        alone.append(LINK)
    if closure.memory is not None:
        alone.append(MEMORY)
    # the scarcest first: it is the likeliest
    alone.sort(key=lambda resource: -share_used(state, resource))
    for resources in (*((resource,) for resource in alone), tuple(alone)):
        short = _first_shortage(state, closure, _lifted(prices, resources), curve, at, resources)
        if short is not None:
            return short
    return None


def _lifted(prices: Prices, resources: tuple[str, ...]) -> Prices:
    """The same prices with some limits lifted; overuse is dear, so little of it is planned."""
    endless = np.full_like(prices.cpu, inf)
    return replace(
        prices,
        cpu_free=endless if CPU in resources else prices.cpu_free,
        in_free=endless if IN in resources else prices.in_free,
        out_free=endless if OUT in resources else prices.out_free,
        memory_free=endless if MEMORY in resources else prices.memory_free,
    )


def _first_shortage(
    state: PlanState,
    closure: Closure,
    prices: Prices,
    curve: PriceCurve,
    at: int | None,
    resources: tuple[str, ...],
) -> Shortage | None:
    links = state.links
    used = links.used
    if LINK in resources and used is not None and links.offered is not None:
        links.used = np.where(links.offered >= 0, -inf, used)  # endless room where a link is
    try:
        table = tabulate(state, closure, prices, curve, Grain(()))
    finally:
        links.used = used
    target = len(closure.streams) - 1
    rate = float(closure.rates[target])
    final = table.reach[target] + rate * prices.outgoing
    final[prices.out_free < rate] = inf
    column = int(final.argmin()) if at is None else prices.column(at)
    if column < 0 or final[column] == inf:
        return None
    host = column if prices.hosts is None else int(prices.hosts[column])
    reading = Extraction(state, table)
    reading.reach(target, column)
    mark = state.mark()
    short: Shortage | None = None
    for step in reading.steps:
        short = (
            state.run(step.operator, step.host)
            if isinstance(step, Run)
            else state.ship(step.stream, step.source, step.target)
        )
        if short is not None:
            break
    room = float(state.catalog.out_offered[host] - state.out_used[host])
    if short is None and rate > room:
        short = Shortage(OUT, host, rate, room)
    state.rollback(mark)
    return short
