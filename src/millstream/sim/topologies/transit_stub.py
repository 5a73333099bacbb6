"""A generator of transit-stub networks after Zegura, Calvert and Bhattacharjee (Infocom 1996).

Transit domains lie on a plane and are joined at random; each holds a few transit nodes; each of
these serves a few stub domains, small random graphs near it. An edge is as long as the distance
on the plane. The seed (003, section 6.1) gives the number of transit domains and the longest
delay; the other sizes are ours, chosen to give about 600 nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millstream.sim.topologies.files import Links

Point = tuple[float, float]
Edge = tuple[int, int, float]


@dataclass(frozen=True, slots=True)
class TransitStub:
    """Sizes are (least, greatest) and drawn evenly; spreads are parts of the plane's width."""

    transit_domains: int = 14  # seed 003, section 6.1
    diameter_ms: float = 500.0  # seed 003, section 6.1: between stub nodes
    transit_nodes: tuple[int, int] = (2, 4)
    stubs_per_transit_node: tuple[int, int] = (2, 4)
    stub_nodes: tuple[int, int] = (3, 6)
    domain_edge_probability: float = 0.25
    transit_edge_probability: float = 0.6  # as in the published GT-ITM graphs
    stub_edge_probability: float = 0.42  # likewise
    domain_spread: float = 0.12
    stub_spread: float = 0.03


def transit_stub_links(model: TransitStub, seed: int) -> Links:
    """One network; the same seed gives the same."""
    rng = np.random.default_rng([seed, 0x7453])
    names: list[str] = []
    points: list[Point] = []
    edges: list[Edge] = []

    def add(name: str, around: Point, spread: float) -> int:
        names.append(name)
        shift = rng.uniform(-spread, spread, 2)
        points.append((around[0] + float(shift[0]), around[1] + float(shift[1])))
        return len(names) - 1

    def join(one: int, other: int) -> None:
        length = float(np.hypot(*np.subtract(points[one], points[other])))
        edges.append((one, other, length))

    domains: list[list[int]] = []
    for domain in range(model.transit_domains):
        centre = (float(rng.uniform()), float(rng.uniform()))
        count = _drawn(rng, model.transit_nodes)
        transit = [add(f"T:{domain}.{i}", centre, model.domain_spread) for i in range(count)]
        domains.append(transit)
        for one, other in _connected_pairs(rng, transit, model.transit_edge_probability):
            join(one, other)
        for number, node in enumerate(transit):
            for stub in range(_drawn(rng, model.stubs_per_transit_node)):
                label = f"S:{domain}.{number}/{stub}"
                size = _drawn(rng, model.stub_nodes)
                near = points[node]
                inside = [add(f"{label}.{i}", near, model.stub_spread) for i in range(size)]
                for one, other in _connected_pairs(rng, inside, model.stub_edge_probability):
                    join(one, other)
                join(node, inside[int(rng.integers(size))])
    for one, other in _connected_pairs(
        rng, range(model.transit_domains), model.domain_edge_probability
    ):
        join(int(rng.choice(domains[one])), int(rng.choice(domains[other])))
    stubs = tuple(i for i, name in enumerate(names) if name.startswith("S"))
    return Links(tuple(names), tuple(edges), stubs)


def _drawn(rng: np.random.Generator, sizes: tuple[int, int]) -> int:
    return int(rng.integers(sizes[0], sizes[1] + 1))


def _connected_pairs(
    rng: np.random.Generator, members: Sequence[int], probability: float
) -> list[tuple[int, int]]:
    """A random graph that is connected: each pair by chance, and each member to an earlier one."""
    pairs = set()
    order = [members[int(i)] for i in rng.permutation(len(members))]
    for number in range(1, len(order)):
        pairs.add((order[int(rng.integers(number))], order[number]))
    for i, one in enumerate(members):
        for other in members[i + 1 :]:
            chance = rng.uniform() < probability
            if chance and (one, other) not in pairs and (other, one) not in pairs:
                pairs.add((one, other))
    return sorted(pairs)
