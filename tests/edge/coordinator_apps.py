"""Processors on loopback that place trees together: real HTTP, given distances, no engine."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from millstream.client.http import HttpClient
from millstream.control.coordinators.state import Timing
from millstream.control.coordinators.zones import tree_of
from millstream.control.protocol.envelope import Envelope, Message, PlaceTree, read_replies
from millstream.control.protocol.replies import Reply
from millstream.decide.place.network.tree import NetworkTree, network_tree
from millstream.decide.place.problem import Stream
from millstream.edge.http.serving import Application, Server
from millstream.edge.peers.placement_coordinator import PlacementCoordinator
from millstream.edge.processor.dispatcher import Dispatcher

NODES = tuple(f"qp{i}" for i in range(6))
TIMING = Timing(measure_s=20.0, mapping_s=60.0)  # nobody is given up on because a machine is busy


def problem(seed: int, latency_bound: float | None = None) -> NetworkTree:
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 100, (len(NODES), 2))
    sources = tuple(Stream(f"s{i}", float(rng.uniform(1, 10)), NODES[i + 1]) for i in range(4))
    return network_tree(
        NODES,
        np.linalg.norm(points[:, None] - points[None], axis=2),
        sources,
        (
            ("l", ("s0", "s1"), float(0.5 * (sources[0].rate + sources[1].rate))),
            ("f", ("s2",), float(0.7 * sources[2].rate)),
            ("r", ("f", "s3"), float(0.3 * (sources[2].rate + sources[3].rate))),
            ("t", ("l", "r"), 1.0),
        ),
        "t",
        NODES[0],
        latency_bound,
    )


class App(Server):
    """The part of a processor's endpoint that takes part in placing."""

    def __init__(self, name: str, distances: Callable[[Sequence[str]], dict[str, float]]) -> None:
        self.coordinator = PlacementCoordinator(name, distances, token="secret", timing=TIMING)
        app = Application("coordinator", token="secret")
        dispatcher = Dispatcher(name)
        self.coordinator.take_messages(dispatcher)
        dispatcher.add_route(app)
        super().__init__(app)
        self.start()

    def stop(self) -> None:
        self.coordinator.close()
        super().stop()


class Network:
    """Six processors; distances are those of a problem, so that every run gives the same."""

    def __init__(self) -> None:
        self.problem = problem(0)
        self.apps = {name: App(name, self._from(name)) for name in NODES}
        self.client = HttpClient("secret", answer_s=120.0)

    def _from(self, name: str) -> Callable[[Sequence[str]], dict[str, float]]:
        def distances(targets: Sequence[str]) -> dict[str, float]:
            row = self.problem.distance[NODES.index(name)]
            return {target: float(row[NODES.index(target)]) for target in targets}

        return distances

    def place(self, wanted: NetworkTree, name: str, **more: Any) -> Reply:
        self.problem = wanted
        peers = {node: app.url for node, app in self.apps.items()} | more.pop("peers", {})
        return self.ask(NODES[0], PlaceTree(tree_of(wanted, name), peers, **more))

    def ask(self, to: str, message: Message) -> Reply:
        """As a manager asks one of them."""
        envelope = Envelope(1, 0, to, (message,))
        answer = self.client.post(f"{self.apps[to].url}/control", envelope)
        (reply,) = read_replies(envelope, answer)
        return reply

    def close(self) -> None:
        self.client.close()
        for app in self.apps.values():
            app.stop()
