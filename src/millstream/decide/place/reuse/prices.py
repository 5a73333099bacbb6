"""What a unit of each resource of each host is worth now, from how full the host is.

A price grows exponentially with use (mu to the power of utilisation), so that a plan that avoids
nearly full hosts is cheap: the online counterpart of SQPR's objectives O_2 to O_4. Weights shape
it: balance makes the curve steeper, packing makes idle hosts dear to start. Pure functions of
use, capacity, weights and grain.
"""

from dataclasses import dataclass, field
from math import isfinite, log

import numpy as np

from millstream.decide.place.problem import Weights
from millstream.decide.place.reuse.catalog import LEEWAY, Closure, Floats, Ints
from millstream.decide.place.reuse.demand import Grain
from millstream.decide.place.reuse.state import CPU, PlanState

NOTHING = 1e-9  # price of what is unlimited: never use it without need
GRAIN_WEIGHT = 2.0  # on capacity that an operator spoils beyond what it uses
SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class PriceCurve:
    """How prices rise; the defaults were chosen by measurement (docs/design/0006)."""

    steepness: float = 100.0
    network: float = 1.0
    cpu: float = 1.0
    start: float = 0.0  # price of starting an idle host
    distance: float = 0.0  # price of a unit of rate over a unit of distance


def price_curve(weights: Weights) -> PriceCurve:
    """The curve for a user's weights (lambda of SQPR).

    Balance steepens the curve, so that the fullest host is avoided sooner; packing flattens it
    and makes an idle host dear, so that it is started last.
    """
    balance = weights.balance
    return PriceCurve(
        steepness=100.0 * max(1.0, balance) if balance >= 0 else 10.0,
        network=max(weights.network, 1e-3),
        cpu=max(weights.cpu, 0.1 * max(balance, 0.0), 1e-3),
        start=max(0.0, -balance),
        distance=max(weights.network, 1e-3),
    )


@dataclass(slots=True)
class Prices:
    """Prices for one unit and what is free, at the hosts considered."""

    hosts: Ints | None  # positions of the hosts considered; None: all of them
    cpu: Floats
    incoming: Floats
    outgoing: Floats
    cpu_free: Floats
    in_free: Floats
    out_free: Floats
    memory_free: Floats
    start: Floats | None = None
    link_raise: dict[tuple[int, int], float] = field(default_factory=dict)
    factors: Floats | None = None  # on the operators of the closure at hand

    places: dict[int, int] = field(default_factory=dict)  # host -> column, unless all are there

    def column(self, host: int) -> int:
        """The host's column, or -1 if it is not considered."""
        return host if self.hosts is None else self.places.get(host, -1)


def _price(used: Floats, offered: Floats, weight: float, steepness: float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        price = weight * np.power(steepness, used / offered) / offered
    return np.where(np.isfinite(price) & (price > NOTHING), price, NOTHING)


def price_hosts(state: PlanState, curve: PriceCurve, hosts: Ints | None = None) -> Prices:
    """Prices at these hosts, in ascending order, or at all."""
    catalog = state.catalog
    cpu_used, cpu_offered = state.cpu_used, catalog.cpu_offered
    in_used, in_offered = state.in_used, catalog.in_offered
    out_used, out_offered = state.out_used, catalog.out_offered
    memory_used, memory_offered = state.memory_used, catalog.memory_offered
    places: dict[int, int] = {}
    if hosts is not None:
        cpu_used, cpu_offered = cpu_used[hosts], cpu_offered[hosts]
        in_used, in_offered = in_used[hosts], in_offered[hosts]
        out_used, out_offered = out_used[hosts], out_offered[hosts]
        memory_used, memory_offered = memory_used[hosts], memory_offered[hosts]
        places = {host: column for column, host in enumerate(hosts.tolist())}
    prices = Prices(
        hosts=hosts,
        cpu=_price(cpu_used, cpu_offered, curve.cpu, curve.steepness),
        incoming=_price(in_used, in_offered, curve.network, curve.steepness),
        outgoing=_price(out_used, out_offered, curve.network, curve.steepness),
        cpu_free=cpu_offered * LEEWAY - cpu_used,
        in_free=in_offered * LEEWAY - in_used,
        out_free=out_offered * LEEWAY - out_used,
        memory_free=memory_offered * LEEWAY - memory_used,
        places=places,
    )
    if curve.start:
        considered = range(len(state.running)) if hosts is None else hosts.tolist()
        idle = np.array([state.running[place] == 0 for place in considered])
        prices.start = np.where(idle, curve.start, 0.0)
    return prices


def run_prices(closure: Closure, prices: Prices, grain: Grain) -> Floats:
    """Price of each operator of the closure at each host; infinite where it does not fit."""
    costs = closure.costs[:, None]
    if grain:
        kept = grain.useful_all(prices.cpu_free)
        lost = kept - grain.useful_all(prices.cpu_free - costs)
        spoilt = GRAIN_WEIGHT * (lost - costs)  # less than nothing where it fills a gap
        run: Floats = np.maximum(0.1 * costs, costs + spoilt) * prices.cpu
    else:
        run = costs * prices.cpu
    if prices.factors is not None:
        run *= prices.factors
    if prices.start is not None:
        run += prices.start
    run[costs > prices.cpu_free] = np.inf
    if closure.memory is not None:
        run[closure.memory[:, None] > prices.memory_free] = np.inf
    return run


def change_of_potential(state: PlanState, mark: int, curve: PriceCurve, grain: Grain) -> float:
    """How much the integral of all prices rose since the mark; a sweep wants it to fall.

    Convex in each host's use: it falls when use falls, and when use is spread.
    """
    scale = log(curve.steepness)
    total = 0.0
    for (resource, host), earlier in state.changes(mark).items():
        before = earlier
        now, offered = (amounts[host] for amounts in state.use(resource))
        weight = curve.cpu if resource == CPU else curve.network
        if not isfinite(offered) or offered <= 0:
            total += NOTHING * (now - before)
            continue
        if resource == CPU and grain:
            before, now = _grained(before, offered, grain), _grained(now, offered, grain)
        total += (
            weight
            * (curve.steepness ** (now / offered) - curve.steepness ** (before / offered))
            / scale
        )
    return total


def _grained(used: float, offered: float, grain: Grain) -> float:
    free = offered - used
    return used + GRAIN_WEIGHT * (free - grain.useful(free + SLACK))
