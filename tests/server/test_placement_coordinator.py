"""The placement protocol between processors over real HTTP on loopback: no Spark, no manager."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import httpx
import numpy as np
import pytest
import uvicorn
from fastapi import FastAPI

from millstream.control.coordinator_messages import AddSubtree, Settings, Zone, ZoneOperator, encode
from millstream.control.coordinator_state import Timing
from millstream.control.coordinator_zones import Tree, TreeOperator, TreeSource
from millstream.place.network_bounds import tree_bounds
from millstream.place.network_check import cost_and_delay
from millstream.place.network_outcome import Placed
from millstream.place.network_planner import plan
from millstream.place.network_problem import Operator, PlacementProblem, Source
from millstream.server.access import add_error_answers
from millstream.server.kept_port import bound_socket
from millstream.server.placement_coordinator import PlacementCoordinator
from millstream.server.placement_messages import Envelope, tree_json

NODES = tuple(f"qp{i}" for i in range(6))
TIMING = Timing(measure_s=20.0, mapping_s=60.0)  # nobody is given up on because a machine is busy


def problem(seed: int, latency_bound: float | None = None) -> PlacementProblem:
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 100, (len(NODES), 2))
    sources = tuple(Source(f"s{i}", NODES[i + 1], float(rng.uniform(1, 10))) for i in range(4))
    return PlacementProblem(
        NODES,
        np.linalg.norm(points[:, None] - points[None], axis=2),
        sources,
        (
            Operator("l", ("s0", "s1"), float(0.5 * (sources[0].rate + sources[1].rate))),
            Operator("f", ("s2",), float(0.7 * sources[2].rate)),
            Operator("r", ("f", "s3"), float(0.3 * (sources[2].rate + sources[3].rate))),
            Operator("t", ("l", "r"), 1.0),
        ),
        "t",
        NODES[0],
        latency_bound,
    )


def tree_of(wanted: PlacementProblem, name: str = "tree") -> Tree:
    return Tree(
        name,
        tuple(TreeSource(s.id, s.node, s.rate) for s in wanted.sources),
        tuple(TreeOperator(o.id, o.inputs, o.rate) for o in wanted.operators),
        wanted.root,
    )


class App:
    """The part of a processor's endpoint that takes part in placing."""

    def __init__(self, name: str, distances: Callable[[Sequence[str]], dict[str, float]]) -> None:
        self.coordinator = PlacementCoordinator(name, distances, token="secret", timing=TIMING)
        app = FastAPI()
        add_error_answers(app)
        self.coordinator.add_routes(app)
        self._socket = bound_socket("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(app, log_level="warning", lifespan="off", access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def close(self) -> None:
        self.coordinator.close()
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


class Network:
    """Six processors; distances are those of a problem, so that every run gives the same."""

    def __init__(self) -> None:
        self.problem = problem(0)
        self.apps = {name: App(name, self._from(name)) for name in NODES}
        self.client = httpx.Client(headers={"Authorization": "Bearer secret"}, timeout=120.0)

    def _from(self, name: str) -> Callable[[Sequence[str]], dict[str, float]]:
        def distances(targets: Sequence[str]) -> dict[str, float]:
            row = self.problem.distance[NODES.index(name)]
            return {target: float(row[NODES.index(target)]) for target in targets}

        return distances

    def place(self, wanted: PlacementProblem, name: str, **more: object) -> httpx.Response:
        self.problem = wanted
        peers = {node: app.url for node, app in self.apps.items()}
        body = {"tree": tree_json(tree_of(wanted, name)), "peers": peers, **more}
        return self.client.post(f"{self.apps[NODES[0]].url}/placement/trees", json=body)

    def close(self) -> None:
        self.client.close()
        for app in self.apps.values():
            app.close()


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.close()


@pytest.mark.parametrize("levels", [1, 2])
def test_processors_agree_on_the_placement_that_one_would_choose(
    network: Network, levels: int
) -> None:
    for seed in range(3):
        wanted = problem(seed)
        told = network.place(wanted, f"agree-{levels}-{seed}", levels=levels).json()
        cost, _ = cost_and_delay(wanted, told["placement"])
        assert told["cost"] == pytest.approx(cost)
        central = plan(wanted, "in_network")
        assert isinstance(central, Placed)
        assert cost == pytest.approx(central.cost)
        assert told["attempts"] == 1
        assert {"ADD_SUBTREE", "MAP", "OPERATOR_MAPPED"} <= told["messages"].keys()
        sent = sum(told["messages"].values())
        assert 0 < told["envelopes"] <= sent
        # Constants are 1 in the bounds; a mapping says a few things more to hosts and for distances
        assert sent <= 6 * tree_bounds(wanted, levels).total


def test_a_tree_is_gone_from_all_processors_afterwards(network: Network) -> None:
    network.place(problem(1), "gone")
    deadline = time.monotonic() + 60
    while any("gone" in app.coordinator.driver.trees() for app in network.apps.values()):
        assert time.monotonic() < deadline, "somebody still knows it"
        time.sleep(0.02)


def test_a_bound_that_cannot_be_kept_is_refused(network: Network) -> None:
    told = network.place(problem(2, 1.0), "bound", latency_bound=1.0).json()
    assert told["refused"]["reason"] == "latency"


def test_a_processor_that_does_not_answer_is_left_out(network: Network) -> None:
    wanted = problem(3)
    network.problem = wanted
    peers = {node: app.url for node, app in network.apps.items()}
    peers["qp5"] = "http://127.0.0.1:9"  # no source lies there
    body = {"tree": tree_json(tree_of(wanted, "silent")), "peers": peers}
    told = network.client.post(f"{peers['qp0']}/placement/trees", json=body).json()
    assert set(told["placement"]) == {"l", "f", "r", "t"}
    assert "qp5" not in told["placement"].values()
    assert told["attempts"] == 2


def test_requests_are_checked_and_need_the_token(network: Network) -> None:
    url = network.apps["qp1"].url
    assert httpx.post(f"{url}/placement/messages", json={"peers": {}}).status_code == 401
    assert httpx.get(f"{url}/placement/trees/x").status_code == 401
    for body in (
        {"peers": {}, "messages": [{"kind": "HELLO"}]},
        {"peers": {}, "more": 1},
        {"peers": {"a": 1}},
        {"peers": {}, "messages": [{}] * 1001},
        {"peers": {}, "messages": [negative_rate()]},
    ):
        answer = network.client.post(f"{url}/placement/messages", json=body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]["message"].startswith("malformed")
    loop = {
        "id": "t",
        "root": "r",
        "sources": [{"id": "s", "location": "qp1", "rate": 1.0}],
        "operators": [
            {"id": "r", "inputs": ["s"], "rate": 1.0},
            {"id": "a", "inputs": ["b"], "rate": 1.0},
            {"id": "b", "inputs": ["a"], "rate": 1.0},
        ],
    }
    for tree in (loop, {**loop, "operators": []}, {"id": "t"}):
        answer = network.client.post(f"{url}/placement/trees", json={"tree": tree, "peers": {}})
        assert answer.status_code == 400, tree
    big = "x" * (5 << 20)
    answer = network.client.post(f"{url}/placement/messages", json={"peers": {"a": big}})
    assert answer.status_code == 413


def negative_rate() -> dict[str, object]:
    settings = Settings("t", 1, "qp0", "edge")
    zone = Zone("r", (ZoneOperator("r", 1.0, ("s",), ()),), ("s",), None, ())
    data = encode(AddSubtree(settings, zone))
    data["zone"]["operators"][0]["rate"] = -1.0
    return data


def test_an_envelope_with_a_bad_message_changes_nothing(network: Network) -> None:
    app = network.apps["qp2"]
    good = encode(
        AddSubtree(
            Settings("half", 1, "qp0", "edge"),
            Zone("r", (ZoneOperator("r", 1.0, ("s",), ()),), ("s",), None, ()),
        )
    )
    body = Envelope(peers={}, messages=[good, negative_rate()]).model_dump()
    assert network.client.post(f"{app.url}/placement/messages", json=body).status_code == 400
    assert "half" not in app.coordinator.driver.trees()
