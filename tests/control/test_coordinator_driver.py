"""The placement protocol over a transport: JSON between processors, in turn and at once."""

import json
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from millstream.control.coordinators.driver import PlacementDriver, zone_owner
from millstream.control.coordinators.state import Refuse, Report
from millstream.control.coordinators.zones import tree_of
from millstream.control.protocol.coordinator_messages import (
    Configuration,
    Map,
    Message,
    Routed,
    Settings,
)
from millstream.control.protocol.envelope import Envelope
from millstream.core.codec import from_json, to_bytes
from millstream.core.errors import UsageError
from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.outcome import Options, Placed
from millstream.decide.place.network.planner import plan
from millstream.decide.place.network.tree import NetworkTree, network_tree
from millstream.decide.place.problem import Stream


def problem(seed: int, latency_bound: float | None = None, size: int = 7) -> NetworkTree:
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 100, (size, 2))
    nodes = tuple(f"qp{i}" for i in range(size))
    sources = tuple(Stream(f"s{i}", float(rng.uniform(1, 10)), nodes[i + 1]) for i in range(4))
    return network_tree(
        nodes,
        np.linalg.norm(points[:, None] - points[None], axis=2),
        sources,
        (
            ("l", ("s0", "s1"), float(0.8 * (sources[0].rate + sources[1].rate))),
            ("r", ("s2", "s3"), float(0.3 * (sources[2].rate + sources[3].rate))),
            ("t", ("l", "r"), 1.0),
        ),
        "t",
        "qp0",
        latency_bound,
    )


class Network:
    """Processors in one process; messages are JSON text in a queue."""

    def __init__(self, wanted: NetworkTree) -> None:
        self.problem = wanted
        self.outcomes: list[Report | Refuse] = []
        self.queue: deque[tuple[str, str]] = deque()
        self.down: set[str] = set()
        self.drivers = {name: self._driver(name) for name in wanted.nodes}

    def _driver(self, name: str) -> PlacementDriver:
        return PlacementDriver(name, self.alive, Wire(self, name), self.outcomes.append)

    def alive(self) -> list[str]:
        return [node for node in self.problem.nodes if node not in self.down]

    def deliver(self) -> None:
        while self.queue:
            peer, text = self.queue.popleft()
            if peer not in self.down:
                self.drivers[peer].receive(arrived(text))

    def placement(self) -> dict[str, str]:
        return {
            operator: name
            for name in self.alive()
            for operator in self.drivers[name].running("tree")
            if operator in {"l", "r", "t"}
        }


def arrived(text: str) -> Any:
    """The one message of an envelope."""
    (message,) = from_json(Envelope, json.loads(text)).messages
    return message


class Wire:
    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name = network, name

    def send(self, peer: str, message: Message) -> None:
        envelope = Envelope(1, 0, peer, (message,), self.name, "processor")
        self.network.queue.append((peer, to_bytes(envelope).decode()))

    def probe(self, targets: Sequence[str]) -> Mapping[str, float]:
        nodes, distance = self.network.problem.nodes, self.network.problem.distance
        here = nodes.index(self.name)
        return {
            target: float(distance[here, nodes.index(target)])
            for target in targets
            if target not in self.network.down
        }

    def near(self) -> Mapping[str, float]:
        return self.probe([name for name in self.network.alive() if name != self.name])

    def now_s(self) -> float:
        return 0.0


@pytest.mark.parametrize("levels", [1, 5])
def test_processors_agree_on_a_placement(levels: int) -> None:
    for seed in range(10):
        wanted = problem(seed)
        network = Network(wanted)
        network.drivers["qp0"].submit(
            tree_of(wanted, "tree"), Settings("tree", 1, "qp0", "in_network"), levels
        )
        network.deliver()
        (report,) = network.outcomes
        assert isinstance(report, Report)
        placement = network.placement()
        cost, _ = cost_and_delay(wanted, placement)
        assert report.cost == pytest.approx(cost)
        if levels == 5:  # one zone that knows every processor: as the centralised planner
            central = plan(wanted, "in_network", Options())
            assert isinstance(central, Placed)
            assert cost == pytest.approx(central.cost)


def test_a_latency_bound_reaches_every_coordinator() -> None:
    wanted = problem(3, latency_bound=1.0)
    network = Network(wanted)
    network.drivers["qp0"].submit(
        tree_of(wanted, "tree"), Settings("tree", 1, "qp0", "in_network", latency_bound=1.0)
    )
    network.deliver()
    (refusal,) = network.outcomes
    assert isinstance(refusal, Refuse)
    assert refusal.reason == "latency"


def test_a_processor_that_fails_is_replaced_and_a_withdrawn_tree_is_gone() -> None:
    wanted = problem(4)
    network = Network(wanted)
    proxy = network.drivers["qp0"]
    proxy.submit(tree_of(wanted, "tree"), Settings("tree", 1, "qp0", "in_network"))
    network.deliver()
    sources = {source.node for source in wanted.sources}
    victim = next(node for node in wanted.nodes[1:] if node not in sources)
    network.down.add(victim)
    for name in network.alive():
        network.drivers[name].peer_down(victim)
    network.deliver()
    assert set(network.placement()) == {"l", "r", "t"}
    proxy.withdraw("tree")
    network.deliver()
    assert network.placement() == {}


def test_processors_may_talk_at_once() -> None:
    """Every processor has a thread of its own; nothing deadlocks, nothing is lost."""
    wanted = problem(5)
    network = Network(wanted)
    calm = Network(wanted)
    asked = Settings("tree", 1, "qp0", "in_network")
    calm.drivers["qp0"].submit(tree_of(wanted, "tree"), asked)
    calm.deliver()
    network.drivers["qp0"].submit(tree_of(wanted, "tree"), asked)
    finished = threading.Event()

    def work() -> None:
        while not finished.is_set():
            try:
                peer, text = network.queue.popleft()
            except IndexError:
                continue
            network.drivers[peer].receive(arrived(text))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    deadline = threading.Event()
    for _ in range(3000):
        if network.placement() == calm.placement() and network.outcomes:
            break
        deadline.wait(0.01)
    finished.set()
    for thread in threads:
        thread.join()
    assert network.placement() == calm.placement()


def test_zones_have_one_owner_and_keep_it_when_another_fails() -> None:
    peers = [f"qp{i}" for i in range(9)]
    owners = {f"zone{i}": zone_owner(f"zone{i}", peers) for i in range(200)}
    assert len(set(owners.values())) == 9
    assert all(zone_owner(zone, peers[::-1]) == owner for zone, owner in owners.items())
    rest = peers[1:]
    assert all(zone_owner(z, rest) == owner for z, owner in owners.items() if owner != "qp0")


def test_malformed_messages_are_the_senders_mistake() -> None:
    with pytest.raises(UsageError, match="malformed"):
        arrived('{"epoch": 1, "number": 0, "to": "qp1", "messages": [{"do": "HELLO"}]}')


def routed(wanted: NetworkTree, **more: Any) -> Settings:
    return Settings("tree", 1, "qp0", "in_network", finding="routes", **more)


def coordinators(network: Network) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in network.alive():
        for zone in network.drivers[name].zones("tree"):
            assert zone not in found, f"{zone} has two coordinators"
            found[zone] = name
    return found


def test_by_routes_zones_are_found_and_those_on_the_way_are_candidates() -> None:
    """Nobody names a candidate: who is met between proxy and sources is one."""
    inside, above = 0, []
    for seed in range(60):
        wanted = problem(seed, size=16)
        network = Network(wanted)
        network.drivers["qp0"].submit(tree_of(wanted, "tree"), routed(wanted))
        network.deliver()
        (report,) = network.outcomes
        assert isinstance(report, Report)
        cost, _ = cost_and_delay(wanted, network.placement())
        assert report.cost == pytest.approx(cost)
        assert coordinators(network).keys() == {"l", "r", "t"}
        assert coordinators(network)["t"] == "qp0"
        best = plan(wanted, "optimal_tree")
        assert isinstance(best, Placed)
        above.append(cost / best.cost)
        ends = {"qp0", *(source.node for source in wanted.sources)}
        inside += any(place not in ends for place in network.placement().values())
    assert inside  # some lie at a processor that was only met
    assert np.mean(above) < 1.05


def test_the_zone_of_a_coordinator_that_dies_falls_to_another() -> None:
    """The tree stands: the next mapping finds another coordinator, and nobody has two parts."""
    for seed in range(10):
        wanted = problem(seed)
        network = Network(wanted)
        network.drivers["qp0"].submit(tree_of(wanted, "tree"), routed(wanted))
        network.deliver()
        before = coordinators(network)
        free = {"qp5", "qp6"}  # no source lies there
        dying = {zone for zone, name in before.items() if name in free}
        network.down |= free
        for peer in sorted(free):
            network.drivers["qp0"].peer_down(peer)
        network.deliver()
        after = coordinators(network)
        assert after.keys() == before.keys()
        assert all(after[zone] not in free for zone in dying)
        assert network.placement().keys() == {"l", "r", "t"}
        kept = {zone: name for zone, name in before.items() if name not in free}
        assert kept.items() <= after.items()


def test_a_standing_tree_follows_rates_in_its_next_epoch() -> None:
    wanted = problem(3)
    network = Network(wanted)
    network.drivers["qp0"].submit(tree_of(wanted, "tree"), routed(wanted))
    network.deliver()
    changed = wanted.with_rate("s0", 500.0).with_rate("l", 1.0)
    network.drivers["qp0"].submit(tree_of(changed, "tree"), routed(changed))
    network.deliver()
    first, second = network.outcomes
    assert second.epoch == first.epoch + 1
    assert network.placement()["l"] == "qp1"  # at the source that brings so much
    assert network.placement().keys() == {"l", "r", "t"}


def test_a_shared_root_is_placed_for_all_its_readers() -> None:
    """Brute force over the root's places, with what each reader costs."""
    for seed in range(10):
        wanted = problem(seed).with_rate("t", 20.0)
        network = Network(wanted)
        ends = ("qp4", "qp5", "qp6")
        asked = Settings("tree", 1, "qp0", "in_network", ends=ends, candidates=wanted.nodes)
        network.drivers["qp0"].submit(tree_of(wanted, "tree"), asked)
        network.deliver()
        (report,) = network.outcomes
        assert isinstance(report, Report)
        found = network.placement()
        costs = {node: _cost(wanted, {**found, "t": node}, ends) for node in wanted.nodes}
        assert report.cost == pytest.approx(costs[found["t"]])
        assert costs[found["t"]] == pytest.approx(min(costs.values()))


def _cost(wanted: NetworkTree, placement: dict[str, str], ends: Sequence[str]) -> float:
    root = placement["t"]
    below, _ = cost_and_delay(wanted.towards(root), placement)
    here = wanted.distance[wanted.nodes.index(root)]
    return below + wanted.rates()["t"] * sum(float(here[wanted.nodes.index(e)]) for e in ends)


def test_a_routed_message_for_somebody_unknown_does_nothing() -> None:
    wanted = problem(1)
    network = Network(wanted)
    message = Map(routed(wanted), "s9", 1.0, Configuration("nobody", 0.0), ("t",))
    network.drivers["qp0"].receive(Routed(message, "nobody", 0, ("qp3",)))
    network.deliver()
    assert not network.outcomes
    assert not any(network.drivers[name].zones("tree") for name in network.alive())
