"""The prefix-routing overlay: one owner a key, few hops, short early hops, failures."""

import numpy as np
import pytest

from millstream.control.coordinators.overlay import Overlay, digits, next_hop
from millstream.sim.topologies.families import transit_stub


@pytest.fixture(scope="module")
def overlay() -> Overlay:
    topology = transit_stub(2)
    return Overlay(topology.nodes, topology.distance_ms)


def test_every_route_to_a_key_ends_at_its_owner(overlay: Overlay) -> None:
    rng = np.random.default_rng(0)
    for number in range(40):
        key = f"zone-{number}"
        owner = overlay.owner(key)
        for peer in rng.choice(len(overlay.peers), 10):
            assert overlay.route(overlay.peers[peer], key)[-1] == owner


def test_a_peer_owns_its_own_name_and_routes_take_few_hops(overlay: Overlay) -> None:
    rng = np.random.default_rng(1)
    hops = []
    for _ in range(200):
        one, other = (overlay.peers[i] for i in rng.integers(len(overlay.peers), size=2))
        route = overlay.route(one, other)
        assert route[0] == one
        assert route[-1] == other
        assert len(set(route)) == len(route)
        hops.append(len(route) - 1)
    assert max(hops) <= 5  # log16 of about 600 peers is 2.3
    assert np.mean(hops) <= 3


def test_each_hop_shares_a_longer_prefix(overlay: Overlay) -> None:
    target = overlay.peers[77]
    wanted = digits(target)
    route = overlay.route(overlay.peers[3], target)
    shared = []
    for peer in route:
        own = digits(peer)
        shared.append(next((i for i in range(40) if own[i] != wanted[i]), 40))
    assert shared == sorted(shared)
    assert shared[-1] == 40


def test_tables_prefer_near_peers(overlay: Overlay) -> None:
    """Locality-aware tables give routes of less delay than tables without locality."""
    blind = Overlay(overlay.peers, np.zeros_like(overlay.distance))
    rng = np.random.default_rng(2)
    aware_ms = blind_ms = 0.0
    for _ in range(150):
        one, other = (overlay.peers[i] for i in rng.integers(len(overlay.peers), size=2))
        aware_ms += overlay.delay(overlay.route(one, other))
        blind_ms += overlay.delay(blind.route(one, other))
    assert aware_ms < 0.8 * blind_ms


def test_keys_of_a_failed_peer_fall_to_another(overlay: Overlay) -> None:
    owner = overlay.owner("zone-7")
    rest = overlay.without([owner])
    heir = rest.owner("zone-7")
    assert heir != owner
    for peer in overlay.peers[::50]:
        if peer != owner:
            route = rest.route(peer, "zone-7")
            assert route[-1] == heir
            assert owner not in route
    kept = [key for key in map(str, range(60)) if overlay.owner(key) != owner]
    assert all(rest.owner(key) == overlay.owner(key) for key in kept)


def test_one_peer_alone_owns_everything() -> None:
    alone = Overlay(("a",), np.zeros((1, 1)))
    assert alone.route("a", "anything") == ("a",)


def test_a_processor_that_knows_its_own_distances_passes_on_as_the_tables_of_all_do() -> None:
    rng = np.random.default_rng(4)
    peers = tuple(f"p{n}" for n in range(12))
    points = rng.uniform(0, 100, (len(peers), 2))
    far = np.linalg.norm(points[:, None] - points[None], axis=2)
    for base in (2, 4, 16):
        known = Overlay(peers, far, base=base)
        for origin in peers:
            for key in (*peers, "zone-1", "zone-2"):
                route, level = [origin], 0
                while True:
                    row = far[peers.index(route[-1])]
                    near = {peer: float(row[n]) for n, peer in enumerate(peers)}
                    hop = next_hop(route[-1], key, level, near, base)
                    if hop is None:
                        break
                    route.append(hop[0])
                    level = hop[1]
                assert tuple(route) == known.route(origin, key)
