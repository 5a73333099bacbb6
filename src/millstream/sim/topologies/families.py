"""Networks to place queries on: named nodes, the delay between any two, where streams may enter.

`TOPOLOGIES` names them all: one is generated (the transit-stub model, a new network for each
seed), the others are real or published and ship with the package. Delays are one-way, in
milliseconds, along shortest paths.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millstream.core.errors import UsageError
from millstream.core.registry import Registry
from millstream.decide.place.network.distances import shortest_paths
from millstream.sim.topologies.files import (
    ZOO_NAMES,
    Links,
    read_alt,
    read_cloud_regions,
    read_zoo,
    shipped_data,
)
from millstream.sim.topologies.transit_stub import TransitStub, transit_stub_links

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """A network. Sources and proxies attach at `stubs` (positions in `nodes`)."""

    name: str
    nodes: tuple[str, ...]
    distance_ms: Matrix
    stubs: tuple[int, ...]
    diameter_ms: float = field(init=False)  # longest between stub nodes (seed 003, section 6.1)

    def __post_init__(self) -> None:
        diameter = float(self.distance_ms[np.ix_(self.stubs, self.stubs)].max())
        object.__setattr__(self, "diameter_ms", diameter)


def topology_from_links(name: str, links: Links, diameter_ms: float | None = None) -> Topology:
    """Shortest paths over links; lengths scaled to a diameter if one is given."""
    lengths = np.full((len(links.nodes), len(links.nodes)), np.inf)
    for one, other, length in links.edges:
        lengths[one, other] = min(lengths[one, other], length)
        lengths[other, one] = min(lengths[other, one], length)
    distance = shortest_paths(lengths)
    if np.isinf(distance).any():
        raise UsageError(f"topology {name!r} falls into parts that no link connects")
    topology = Topology(name, links.nodes, distance, links.stubs)
    if diameter_ms is None:
        return topology
    return Topology(name, links.nodes, distance * (diameter_ms / topology.diameter_ms), links.stubs)


def topology_from_matrix(name: str, nodes: Iterable[str], distance_ms: Matrix) -> Topology:
    """Distances as measured, every node a place where streams may enter."""
    names = tuple(nodes)
    return Topology(name, names, distance_ms, tuple(range(len(names))))


@cache
def transit_stub(seed: int, model: TransitStub | None = None) -> Topology:
    """The seed's network model with its parameters, or others."""
    chosen = model or TransitStub()
    links = transit_stub_links(chosen, seed)
    return topology_from_links(f"transit-stub-{seed}", links, chosen.diameter_ms)


Loader = Callable[[int], Topology]
TOPOLOGIES: Registry[Loader] = Registry("topology")
TOPOLOGIES.add("transit-stub", transit_stub)


def _published_transit_stub(size: int, file: str) -> Loader:
    # Lengths in these files are coordinates on a plane; the seed's diameter makes them delays.
    def load(seed: int) -> Topology:  # noqa: ARG001  (published: the same for every seed)
        text = shipped_data("net-transit-stub", file)
        return topology_from_links(f"gt-itm-{size}", read_alt(text), TransitStub().diameter_ms)

    return load


def _zoo(name: str) -> Loader:
    def load(seed: int) -> Topology:  # noqa: ARG001
        links = read_zoo(shipped_data("net-topology-zoo", f"{name}.gml"))
        return topology_from_links(f"zoo-{name.lower()}", links)

    return load


def _cloud_regions(seed: int) -> Topology:  # noqa: ARG001
    text = shipped_data("net-cloud-regions", "aptos_aws_gcp_latency_table.csv")
    nodes, one_way_ms = read_cloud_regions(text)
    return topology_from_matrix("cloud-regions", nodes, one_way_ms)


TOPOLOGIES.add("gt-itm-100", _published_transit_stub(100, "topo-0.alt"))
TOPOLOGIES.add("gt-itm-1000", _published_transit_stub(1000, "topo-0-big.alt"))
for _name in ZOO_NAMES:
    TOPOLOGIES.add(f"zoo-{_name.lower()}", _zoo(_name))
TOPOLOGIES.add("cloud-regions", _cloud_regions)


def load_topology(name: str, seed: int = 0) -> Topology:
    """A topology by its name, or from a file: GT-ITM `.alt`, Topology Zoo `.gml`, regions `.csv`.

    >>> len(load_topology("zoo-abilene").nodes)
    11
    """
    path = Path(name)
    if path.suffix not in READERS:
        return TOPOLOGIES.get(name)(seed)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read topology {name}", detail=str(error)) from None
    return READERS[path.suffix](path.stem, text)


def _from_csv(name: str, text: str) -> Topology:
    nodes, one_way_ms = read_cloud_regions(text)
    return topology_from_matrix(name, nodes, one_way_ms)


READERS: dict[str, Callable[[str, str], Topology]] = {
    ".alt": lambda name, text: topology_from_links(name, read_alt(text)),
    ".gml": lambda name, text: topology_from_links(name, read_zoo(text)),
    ".csv": _from_csv,
}
