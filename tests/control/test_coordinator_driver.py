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
from millstream.control.protocol.coordinator_messages import Message, Settings
from millstream.control.protocol.envelope import Envelope
from millstream.core.codec import from_json, to_bytes
from millstream.core.errors import UsageError
from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.outcome import Options, Placed
from millstream.decide.place.network.planner import plan
from millstream.decide.place.network.tree import NetworkTree, network_tree
from millstream.decide.place.problem import Stream


def problem(seed: int, latency_bound: float | None = None) -> NetworkTree:
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 100, (7, 2))
    nodes = tuple(f"qp{i}" for i in range(7))
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
