"""What a unit of each resource of each host is worth now, from how full the host is.

A price grows exponentially with use (mu to the power of utilisation), so that a plan that avoids
nearly full hosts is cheap: the online counterpart of SQPR's objectives O_2 to O_4. Weights shape
it: balance makes the curve steeper, packing makes idle hosts dear to start. Pure functions of
use, capacity and weights.
"""

from dataclasses import dataclass, field

import numpy as np

from millstream.place.catalog import Floats
from millstream.place.problem import Weights
from millstream.place.state import PlanState

NOTHING = 1e-9  # price of what is unlimited: never use it without need


@dataclass(frozen=True, slots=True)
class PriceCurve:
    """How prices rise; the defaults were chosen by measurement (docs/design/0006)."""

    steepness: float = 30.0
    network: float = 3.0
    cpu: float = 1.0
    start: float = 0.0  # price of starting an idle host


def price_curve(weights: Weights) -> PriceCurve:
    """The curve for a user's weights (lambda of SQPR)."""
    steepness = 30.0 * max(1.0, weights.balance) if weights.balance >= 0 else 30.0
    return PriceCurve(
        steepness=steepness,
        network=3.0 * weights.network,
        cpu=max(weights.cpu, 0.1 * max(weights.balance, 0.0), 1e-3),
        start=max(0.0, -weights.balance),
    )


@dataclass(slots=True)
class Prices:
    """Per unit of CPU, incoming and outgoing rate at each host, and what is free there."""

    cpu: Floats
    incoming: Floats
    outgoing: Floats
    cpu_free: Floats
    in_free: Floats
    out_free: Floats
    memory_free: Floats
    start: Floats | None = None
    link: dict[tuple[int, int], float] = field(default_factory=dict)  # raised after a shortage


def _price(used: Floats, offered: Floats, weight: float, steepness: float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        price = weight * np.power(steepness, used / offered) / offered
    return np.where(np.isfinite(price) & (price > NOTHING), price, NOTHING)


def price_all(state: PlanState, curve: PriceCurve) -> Prices:
    catalog = state.catalog
    slack = 1e-9
    prices = Prices(
        cpu=_price(state.cpu_used, catalog.cpu_offered, curve.cpu, curve.steepness),
        incoming=_price(state.in_used, catalog.in_offered, curve.network, curve.steepness),
        outgoing=_price(state.out_used, catalog.out_offered, curve.network, curve.steepness),
        cpu_free=catalog.cpu_offered - state.cpu_used + slack,
        in_free=catalog.in_offered - state.in_used + slack,
        out_free=catalog.out_offered - state.out_used + slack,
        memory_free=catalog.memory_offered - state.memory_used + slack,
    )
    if curve.start:
        idle = np.array([count == 0 for count in state.running])
        prices.start = np.where(idle, curve.start, 0.0)
    return prices


def potential(state: PlanState, curve: PriceCurve) -> float:
    """The integral of all prices: what a sweep lowers.

    Convex in each host's use, so it falls when use falls and when use is spread.
    """
    catalog = state.catalog
    total = 0.0
    scale = np.log(curve.steepness)
    for used, offered, weight in (
        (state.cpu_used, catalog.cpu_offered, curve.cpu),
        (state.in_used, catalog.in_offered, curve.network),
        (state.out_used, catalog.out_offered, curve.network),
    ):
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.power(curve.steepness, used / offered)
        total += weight * float(value[np.isfinite(value)].sum()) / scale
    if curve.start:
        total += curve.start * sum(1 for count in state.running if count)
    return total
