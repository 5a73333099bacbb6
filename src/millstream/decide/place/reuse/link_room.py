"""Bandwidth and distance between pairs of hosts, as arrays.

Follows a catalog's links; keeps nothing where hosts' own bandwidth makes a link's limit moot, so
that systems without binding links pay nothing. Knows no streams and decides nothing.
"""

from math import inf

import numpy as np

from millstream.decide.place.reuse.catalog import Catalog, Floats, fits


class LinkRoom:
    """Bandwidth between pairs of hosts and its use; nothing is kept where it cannot bind."""

    def __init__(self, catalog: Catalog) -> None:
        count = len(catalog.host_ids)
        self.offered: Floats | None = None
        self.used: Floats | None = None
        self.distance: Floats | None = None
        links = catalog.links
        if links.listed is not None:
            self.offered = np.full((count, count), -1.0)  # -1: no link
            for link in links.listed:
                key = catalog.host_at[link.source], catalog.host_at[link.target]
                self.offered[key] = link.bandwidth
            if any(link.distance for link in links.listed):
                self.distance = np.zeros((count, count))
                for link in links.listed:
                    key = catalog.host_at[link.source], catalog.host_at[link.target]
                    self.distance[key] = link.distance
        elif not _implied(catalog):
            self.offered = np.full((count, count), links.bandwidth)
        if links.distance is not None and links.distance.any():
            known = len(links.distance)
            self.distance = np.zeros((count, count))
            self.distance[:known, :known] = links.distance
            if self.offered is None:  # a way over the network is priced by its link
                self.offered = np.full((count, count), links.bandwidth)
                np.fill_diagonal(self.offered, -1.0)
        if self.offered is not None:
            self.used = np.zeros((count, count))

    def fits(self, source: int, target: int, rate: float) -> bool:
        if self.offered is None or self.used is None:
            return True
        offered = self.offered[source, target]
        return offered >= 0 and fits(self.used[source, target], rate, offered)

    def free(self, source: int, target: int) -> float:
        if self.offered is None or self.used is None:
            return inf
        return float(max(0.0, self.offered[source, target] - self.used[source, target]))


def _implied(catalog: Catalog) -> bool:
    """Whether hosts' own bandwidth keeps every link within its own."""
    bandwidth = catalog.links.bandwidth
    return bandwidth == inf or bool(
        (catalog.in_offered <= bandwidth).all() or (catalog.out_offered <= bandwidth).all()
    )
