"""Planning in tiers: a top manager assigns each query to a site, the site plans inside.

The seed leaves this for later (SQPR, sections V.A.3 and VII). The top knows of each site only sums:
what it offers and uses, and which streams it has. It ranks sites by the estimated price of the
query there; the best site's planner then places it on its own hosts, reading streams of other
sites from whoever holds them. Work for a query depends on the size of a site, not of the system.
"""

from collections.abc import Iterator

import numpy as np

from millstream.decide.place.reuse.catalog import Catalog, Closure, Ints
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner, SqprSettings
from millstream.decide.place.reuse.prices import Prices, price_hosts
from millstream.decide.place.reuse.state import PlanState

SITES_TRIED = 3  # before a query is refused
EMPTIEST = 2  # sites considered though they hold nothing of use
SENDERS = 4  # holders of a stream outside a site that may send it in


class TieredPlanner(SqprPlanner):
    """The default planner, one site at a time. Hosts without a site form one."""

    def __init__(
        self, catalog: Catalog, settings: SqprSettings | None = None, state: PlanState | None = None
    ) -> None:
        super().__init__(catalog, settings, state)
        names = sorted({host.site for host in catalog.hosts})
        number = {name: place for place, name in enumerate(names)}
        self.site_of: list[int] = [number[host.site] for host in catalog.hosts]
        self.members: list[Ints] = [
            np.array([h for h, site in enumerate(self.site_of) if site == place], dtype=np.intp)
            for place in range(len(names))
        ]

    def price_lists(self, stream: int, at: int | None) -> Iterator[Prices]:
        """One list a site, the best site first; outsiders only send."""
        closure = self.state.catalog.closure(stream)
        factors = self.demand.discounts(closure)
        sites = self.ranked_sites(closure) if at is None else [self.site_of[at]]
        for site in sites[:SITES_TRIED]:
            prices = self._inside(closure, site)
            prices.factors = factors
            yield prices

    def _inside(self, closure: Closure, site: int) -> Prices:
        state = self.state
        members = set(self.members[site].tolist())
        senders: set[int] = set()
        for name in closure.streams:
            held = state.holders.get(name, ())
            if held and not members.intersection(held):
                room = state.catalog.out_offered - state.out_used
                senders.update(sorted(held, key=lambda host: (-room[host], host))[:SENDERS])
        hosts = np.array(sorted(members | senders), dtype=np.intp)
        prices = price_hosts(state, self.curve, hosts)
        if senders:
            outside = np.isin(hosts, list(senders))
            prices.cpu_free[outside] = -1.0
            prices.in_free[outside] = -1.0
        return prices

    def ranked_sites(self, closure: Closure) -> list[int]:
        """Sites by what the query would cost there, from sums alone."""
        state, catalog = self.state, self.state.catalog
        present = [
            {self.site_of[host] for host in state.holders.get(name, ())} for name in closure.streams
        ]
        load = [
            (
                _share(state.cpu_used, catalog.cpu_offered, members),
                _share(state.in_used, catalog.in_offered, members),
            )
            for members in self.members
        ]
        emptiest = sorted(range(len(load)), key=lambda site: (load[site], site))[:EMPTIEST]
        candidates = sorted(set().union(*present, emptiest))
        price = {site: self._estimate(closure, present, site, load[site]) for site in candidates}
        return sorted(candidates, key=lambda site: (price[site], site))

    def _estimate(
        self, closure: Closure, present: list[set[int]], site: int, load: tuple[float, float]
    ) -> float:
        """Least price of the stream if the whole site were one host."""
        catalog, curve = self.state.catalog, self.curve
        members = self.members[site]
        cpu_price = curve.cpu * curve.steepness ** load[0] / _mean(catalog.cpu_offered[members])
        in_price = curve.network * curve.steepness ** load[1] / _mean(catalog.in_offered[members])
        prices: list[float] = []
        for row, name in enumerate(closure.streams):
            if site in present[row]:
                prices.append(0.0)
                continue
            fetch = in_price * catalog.rate[name] if present[row] else np.inf
            first = closure.first_operator[row]
            for number in range(first, first + len(catalog.producers[name])):
                below = sum(
                    prices[closure.row[read]] for read in catalog.inputs[closure.operators[number]]
                )
                fetch = min(fetch, below + cpu_price * float(closure.costs[number]))
            prices.append(fetch)
        return prices[-1]


def _share(
    used: "np.typing.NDArray[np.float64]", offered: "np.typing.NDArray[np.float64]", members: Ints
) -> float:
    total = float(offered[members].sum())
    return float(used[members].sum()) / total if 0 < total < np.inf else 0.0


def _mean(offered: "np.typing.NDArray[np.float64]") -> float:
    value = float(offered.mean())
    return value if 0 < value < np.inf else 1.0
