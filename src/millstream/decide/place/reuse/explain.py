"""Why a query was refused: which resource, where, and how much of it would have done.

Lifts one resource's limit at a time and plans again on the unchanged state; the first that opens a
way is the binding one, and the plan found shows the host and the amount. That plan may lack more
than its first step that fails: the answer tells everything that it lacks. Changes nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import numpy as np

from millstream.decide.place.reuse.catalog import Closure, Ints, fits
from millstream.decide.place.reuse.cheapest import Extraction, tabulate
from millstream.decide.place.reuse.demand import Grain
from millstream.decide.place.reuse.prices import PriceCurve, Prices, price_hosts
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
from millstream.decide.place.reuse.utilisation import share_used


def binding_shortage(
    state: PlanState,
    closure: Closure,
    curve: PriceCurve,
    at: int | None = None,
    hosts: Ints | None = None,
) -> Shortage | None:
    """The shortage of the plan that one more unit of a resource would open; None if none would."""
    prices = price_hosts(state, curve, hosts)
    alone = [CPU, OUT, IN]
    if state.links.offered is not None:
        alone.append(LINK)
    if closure.memory is not None:
        alone.append(MEMORY)
    # the scarcest first: it is the likeliest
    alone.sort(key=lambda resource: -share_used(state, resource))
    for resources in (*((resource,) for resource in alone), tuple(alone)):
        lifted = _lifted(prices, resources)
        found = _cheapest(state, closure, lifted, curve, at, LINK in resources)
        short = None if found is None else _first_shortage(state, *found)
        if found is not None and short is not None:
            return replace(short, of_plan=tuple(sorted(_shortages(state, *found), key=_part)))
    return None


def _part(short: Shortage) -> float:
    """How much of what is needed is there."""
    return max(0.0, short.room) / short.need


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


def _cheapest(
    state: PlanState,
    closure: Closure,
    prices: Prices,
    curve: PriceCurve,
    at: int | None,
    lift_links: bool,
) -> tuple[tuple[Run | Ship, ...], float, int] | None:
    """The steps of the cheapest plan at these prices, its rate and its host."""
    links = state.links
    used = links.used
    if lift_links and used is not None and links.offered is not None:
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
    return tuple(reading.steps), rate, host


def _first_shortage(
    state: PlanState, steps: tuple[Run | Ship, ...], rate: float, host: int
) -> Shortage | None:
    mark = state.mark()
    short = state.apply(steps)
    room = float(state.catalog.out_offered[host] - state.out_used[host])
    if short is None and rate > room:
        short = Shortage(OUT, host, rate, room)
    state.rollback(mark)
    return short


def _shortages(
    state: PlanState, steps: tuple[Run | Ship, ...], rate: float, host: int
) -> Iterator[Shortage]:
    """Where a plan, carried out whatever there is room for, exceeds what there is."""
    resources = (CPU, IN, OUT, MEMORY)
    before = {resource: state.use(resource)[0].copy() for resource in resources}
    links = state.links
    sent = None if links.used is None else links.used.copy()
    mark = state.mark()
    state.strict = False
    state.apply(steps)
    state.strict = True
    for resource in resources:
        used, offered = state.use(resource)
        more = used - before[resource]
        if resource == OUT:  # the delivery
            more[host] += rate
        for place in more.nonzero()[0].tolist():
            if not fits(float(before[resource][place]), float(more[place]), float(offered[place])):
                room = float(offered[place] - before[resource][place])
                yield Shortage(resource, place, float(more[place]), room)
    if sent is not None and links.used is not None and links.offered is not None:
        more = links.used - sent
        for source, target in zip(*more.nonzero(), strict=True):
            key = int(source), int(target)
            if not fits(float(sent[key]), float(more[key]), float(links.offered[key])):
                room = float(links.offered[key] - sent[key])
                yield Shortage(LINK, key[1], float(more[key]), room, sender=key[0])
    state.rollback(mark)
