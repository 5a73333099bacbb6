"""Readers of published networks: GT-ITM `.alt`, Topology Zoo GML, a matrix of cloud regions.

From text to nodes, links and delays; nothing is looked up elsewhere. The files that ship with the
package lie in `data/`, each with its licence.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.core.errors import UsageError
from millstream.core.extras import told_where_missing
from millstream.decide.place.network.distances import completed

ZOO_NAMES = (
    "Abilene",
    "AttMpls",
    "Bellsouth",
    "Cogentco",
    "Dfn",
    "Garr201201",
    "Geant2012",
    "Internode",
    "UsCarrier",
    "Uunet",
)
EARTH_RADIUS_KM = 6371.0
FIBRE_KM_PER_MS = 200.0  # light in glass: two thirds of its speed in vacuum
SHORTEST_LINK_MS = 0.05  # two sites of one city: not nothing


@dataclass(frozen=True, slots=True)
class Links:
    """A graph as read: edges are (position, position, length)."""

    nodes: tuple[str, ...]
    edges: tuple[tuple[int, int, float], ...]
    stubs: tuple[int, ...]


def shipped_data(folder: str, file: str) -> str:
    return files("millstream.sim").joinpath("data", folder, file).read_text(encoding="utf-8")


def read_alt(text: str) -> Links:
    """A GT-ITM graph: a VERTICES and an EDGES section; names begin with T (transit) or S (stub)."""
    section = ""
    names: dict[int, str] = {}
    edges: list[tuple[int, int, float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if words[0] in ("GRAPH", "VERTICES", "EDGES"):
            section = words[0]
            continue
        try:
            if section == "VERTICES":
                names[int(words[0])] = words[1]
            elif section == "EDGES":
                edges.append((int(words[0]), int(words[1]), float(words[2])))
        except (ValueError, IndexError):
            raise UsageError(f"line {number} of the graph is malformed", detail=line) from None
    if not names or sorted(names) != list(range(len(names))):
        raise UsageError("the graph's vertices are not numbered from 0 without gaps")
    if any(max(one, other) >= len(names) for one, other, _ in edges):
        raise UsageError("an edge of the graph names a vertex that it does not have")
    ordered = tuple(names[i] for i in range(len(names)))
    stubs = tuple(i for i, name in enumerate(ordered) if not name.startswith("T"))
    return Links(ordered, tuple(edges), stubs or tuple(range(len(ordered))))


def read_zoo(text: str) -> Links:
    """A Topology Zoo network: link delays from coordinates at the speed of light in fibre.

    Nodes without coordinates (unknown sites, external networks) are put amid their neighbours.
    Only the largest connected part is kept; parallel links count as the shortest.
    """
    head = text.replace("graph [", "graph [\n  multigraph 1", 1)  # some files repeat an edge
    with told_where_missing():
        import networkx as nx  # noqa: PLC0415  (only topologies in GML pay for it)

    graph = nx.Graph(nx.parse_gml(head.splitlines(), label="id"))
    part = max(nx.connected_components(graph), key=lambda nodes: (len(nodes), -min(nodes)))
    graph = graph.subgraph(part)
    places = _coordinates(graph)
    ids = sorted(graph)
    at = {node: i for i, node in enumerate(ids)}
    names = tuple(f"{graph.nodes[node].get('label', '')}#{node}" for node in ids)
    edges = tuple(
        (at[one], at[other], max(SHORTEST_LINK_MS, _fibre_ms(places[one], places[other])))
        for one, other in sorted((min(e), max(e)) for e in graph.edges if e[0] != e[1])
    )
    return Links(names, edges, tuple(range(len(ids))))


def _coordinates(graph: Any) -> Mapping[int, tuple[float, float]]:
    places = {
        node: (float(data["Latitude"]), float(data["Longitude"]))
        for node, data in graph.nodes(data=True)
        if "Latitude" in data and "Longitude" in data
    }
    if not places:
        raise UsageError("the network has no coordinates to take delays from")
    while len(places) < len(graph):  # each round places the neighbours of what is placed
        found = {}
        for node in graph:
            near = [places[other] for other in graph[node] if other in places]
            if node not in places and near:
                found[node] = (
                    sum(place[0] for place in near) / len(near),
                    sum(place[1] for place in near) / len(near),
                )
        places |= found
    return places


def _fibre_ms(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Great-circle distance over the speed of light in fibre.

    >>> round(_fibre_ms((52.52, 13.40), (48.86, 2.35)), 2)  # Berlin to Paris, 878 km
    4.39
    """
    (lat1, lon1), (lat2, lon2) = (tuple(map(math.radians, place)) for place in (one, other))
    chord = (
        math.sin((lat2 - lat1) / 2) ** 2
        + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(chord)) / FIBRE_KM_PER_MS


def read_cloud_regions(text: str) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
    """Measured round trips between regions; half of each is the one-way delay in its direction."""
    rows = list(csv.DictReader(text.splitlines()))
    try:
        trips = {
            (row["sending_region"], row["receiving_region"]): float(row["avgrtt"]) for row in rows
        }
    except (KeyError, ValueError) as error:
        raise UsageError("the table of regions is malformed", detail=str(error)) from None
    names = tuple(sorted({name for pair in trips for name in pair}))
    matrix = np.full((len(names), len(names)), np.nan)
    np.fill_diagonal(matrix, 0.0)
    for (origin, target), round_trip_ms in trips.items():
        if origin != target:
            matrix[names.index(origin), names.index(target)] = round_trip_ms / 2
    return names, completed(matrix)
