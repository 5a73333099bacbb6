"""Networks: generated, published, real; arrangements and trees on them."""

from pathlib import Path

import numpy as np
import pytest

from millstream.core.errors import UsageError
from millstream.decide.place.network.distances import shortest_paths
from millstream.decide.place.network.planner import plan
from millstream.sim.topologies.arrangements import SCENARIOS, arrange
from millstream.sim.topologies.families import (
    TOPOLOGIES,
    load_topology,
    topology_from_links,
    transit_stub,
)
from millstream.sim.topologies.files import (
    Links,
    read_alt,
    read_cloud_regions,
    read_zoo,
    shipped_data,
)
from millstream.sim.topologies.transit_stub import TransitStub, transit_stub_links
from millstream.sim.topologies.trees import TreeModel, random_tree

SMALL = TransitStub(transit_domains=4, stub_nodes=(2, 4))
SIZES = {
    "gt-itm-100": 100,
    "gt-itm-1000": 1000,
    "zoo-abilene": 11,
    "zoo-attmpls": 25,
    "zoo-bellsouth": 51,
    "zoo-cogentco": 197,
    "zoo-dfn": 58,
    "zoo-garr201201": 61,
    "zoo-geant2012": 40,
    "zoo-internode": 66,
    "zoo-uscarrier": 158,
    "zoo-uunet": 49,
    "cloud-regions": 20,
}


def test_transit_stub_has_the_seeds_parameters_and_follows_its_seed() -> None:
    topology = transit_stub(3)
    domains = {name.split(".")[0] for name in topology.nodes if name.startswith("T")}
    assert len(domains) == 14
    assert topology.diameter_ms == pytest.approx(500.0)
    assert all(topology.nodes[i].startswith("S") for i in topology.stubs)
    assert 400 <= len(topology.nodes) <= 900
    assert transit_stub_links(SMALL, 5) == transit_stub_links(SMALL, 5)
    assert transit_stub_links(SMALL, 5) != transit_stub_links(SMALL, 6)


def test_stub_traffic_leaves_a_stub_only_through_its_transit_node() -> None:
    """Paths between stub domains pass a transit node: that is what transit-stub means."""
    links = transit_stub_links(SMALL, 1)
    for one, other, length in links.edges:
        assert length >= 0
        names = links.nodes[one], links.nodes[other]
        stubs = [name.rsplit(".", 1)[0] for name in names if name.startswith("S")]
        assert len(set(stubs)) <= 1, names


@pytest.mark.parametrize("name", TOPOLOGIES.names())
def test_every_topology_is_connected_and_has_distances_of_a_network(name: str) -> None:
    topology = TOPOLOGIES.get(name)(1)
    distance = topology.distance_ms
    assert len(topology.nodes) == SIZES.get(name, len(topology.nodes))
    assert len(set(topology.nodes)) == len(topology.nodes)
    assert distance.shape == (len(topology.nodes),) * 2
    assert np.isfinite(distance).all()
    assert (distance >= 0).all()
    assert not np.diagonal(distance).any()
    if name != "cloud-regions":  # measured: asymmetric, without the triangle inequality
        assert np.allclose(distance, distance.T)
        some = np.arange(0, len(topology.nodes), max(1, len(topology.nodes) // 60))
        part = distance[np.ix_(some, some)]
        assert np.allclose(shortest_paths(part), part)


def test_cloud_regions_are_asymmetric_as_measured() -> None:
    names, ms = read_cloud_regions(
        "sending_region,receiving_region,bitrate_bps,avgrtt\na,b,1,20.0\nb,a,1,24.0\nb,c,1,6.0\n"
    )
    assert names == ("a", "b", "c")
    assert ms.tolist() == [[0.0, 10.0, 13.0], [12.0, 0.0, 3.0], [15.0, 3.0, 0.0]]
    with pytest.raises(UsageError, match="malformed"):
        read_cloud_regions("a,b\n1,2\n")


def test_alt_files() -> None:
    text = (
        "GRAPH (#nodes #edges id):\n3 2 transtub\n\nVERTICES (index name u v):\n"
        "0 T:0.0 1 1\n1 S:0.0/0.0 2 2\n2 S:0.0/0.1 3 3\n\nEDGES (from to length):\n"
        "0 1 5 3\n1 2 7 3\n"
    )
    links = read_alt(text)
    assert links.nodes == ("T:0.0", "S:0.0/0.0", "S:0.0/0.1")
    assert links.stubs == (1, 2)
    assert topology_from_links("x", links).distance_ms[0, 2] == 12.0
    assert topology_from_links("x", links, 14.0).distance_ms[0, 2] == 24.0
    with pytest.raises(UsageError, match="line 8"):
        read_alt(text.replace("0 1 5 3", "0 one 5 3").replace("\n\n", "\n"))
    with pytest.raises(UsageError, match="does not have"):
        read_alt(text.replace("1 2 7 3", "1 9 7 3"))


def test_zoo_nodes_without_coordinates_lie_amid_their_neighbours() -> None:
    text = """graph [
  node [ id 0 label "a" Latitude 0.0 Longitude 0.0 ]
  node [ id 1 label "b" ]
  node [ id 2 label "c" Latitude 0.0 Longitude 10.0 ]
  node [ id 3 label "lonely" Latitude 1.0 Longitude 1.0 ]
  edge [ source 0 target 1 ]
  edge [ source 1 target 2 ]
  edge [ source 1 target 2 ]
]"""
    links = read_zoo(text)
    assert links.nodes == ("a#0", "b#1", "c#2")
    halves = [length for _, _, length in links.edges]
    assert halves[0] == pytest.approx(halves[1])
    assert sum(halves) == pytest.approx(10 / 360 * 2 * np.pi * 6371 / 200, rel=1e-3)


def test_topologies_are_read_from_files(tmp_path: Path) -> None:
    for folder, file, name in (
        ("net-transit-stub", "topo-0.alt", "gt-itm-100"),
        ("net-topology-zoo", "Abilene.gml", "zoo-abilene"),
        ("net-cloud-regions", "aptos_aws_gcp_latency_table.csv", "cloud-regions"),
    ):
        path = tmp_path / file
        path.write_text(shipped_data(folder, file))
        read, known = load_topology(str(path)), load_topology(name)
        assert read.nodes == known.nodes
        scaled = read.distance_ms * (known.diameter_ms / read.diameter_ms)
        assert np.allclose(scaled, known.distance_ms)
    with pytest.raises(UsageError, match="cannot read"):
        load_topology(str(tmp_path / "absent.alt"))


def test_a_disconnected_topology_is_refused() -> None:
    with pytest.raises(UsageError, match="falls into parts"):
        topology_from_links("x", Links(("a", "b", "c"), ((0, 1, 1.0),), (0, 1, 2)))


@pytest.mark.parametrize("name", ["uniform", "cluster"])
def test_arrangements_come_out_as_described(name: str) -> None:
    topology = transit_stub(2)
    scenario = SCENARIOS.get(name)
    rng = np.random.default_rng(4)
    for _ in range(5):
        found = arrange(topology, scenario, 16, rng)
        assert len(set(found.sources)) == 16
        assert found.proxy_distance_ms == pytest.approx(500 * scenario.proxy_distance, rel=0.15)
        assert found.server_distance_ms == pytest.approx(500 * scenario.server_distance, rel=0.15)


def test_a_star_has_its_proxy_in_the_middle() -> None:
    """ASD is at most twice APD by the triangle inequality; real stars come near it."""
    topology = transit_stub(2)
    rng = np.random.default_rng(4)
    ratios = []
    for _ in range(5):
        found = arrange(topology, SCENARIOS.get("star"), 8, rng)
        ratios.append(found.server_distance_ms / found.proxy_distance_ms)
        assert max(topology.distance_ms[s, found.proxy] for s in found.sources) <= 0.24 * 500
    assert 1.3 <= np.mean(ratios) <= 2.0


@pytest.mark.parametrize("fanout", [2, 3])
def test_trees_follow_their_model(fanout: int) -> None:
    topology = transit_stub(2)
    rng = np.random.default_rng(0)
    depth = 3
    arrangement = arrange(topology, SCENARIOS.get("cluster"), fanout**depth, rng)
    model = TreeModel(fanout=fanout, selectivity_max=0.5)
    problem = random_tree(topology, arrangement, model, depth, rng)
    rates = problem.rates()
    assert len(problem.sources) == fanout**depth
    for operator in problem.operators:
        assert len(operator.inputs) == fanout
        assert rates[operator.id] <= 0.5 * sum(rates[name] for name in operator.inputs)
    plan(problem, "edge_plus")
