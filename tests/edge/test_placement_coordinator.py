"""The placement protocol between processors over real HTTP on loopback: no Spark, no manager."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from coordinator_apps import Network, problem

from millstream.control.protocol.coordinator_messages import (
    AddSubtree,
    Settings,
    Zone,
    ZoneOperator,
)
from millstream.control.protocol.replies import Refusal, TreePlaced
from millstream.core.codec import to_json
from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.bounds import tree_bounds
from millstream.decide.place.network.outcome import Placed
from millstream.decide.place.network.planner import plan


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
        told = network.place(wanted, f"agree-{levels}-{seed}", levels=levels)
        assert isinstance(told, TreePlaced)
        cost, _ = cost_and_delay(wanted, told.placement)
        assert told.cost == pytest.approx(cost)
        central = plan(wanted, "in_network")
        assert isinstance(central, Placed)
        assert cost == pytest.approx(central.cost)
        assert told.attempts == 1
        assert {"ADD_SUBTREE", "MAP", "OPERATOR_MAPPED"} <= told.messages.keys()
        sent = sum(told.messages.values())
        assert 0 < told.envelopes <= sent
        # Constants are 1 in the bounds; a mapping says a few things more to hosts and for distances
        assert sent <= 6 * tree_bounds(wanted, levels).total


def test_a_tree_is_gone_from_all_processors_afterwards(network: Network) -> None:
    network.place(problem(1), "gone")
    deadline = time.monotonic() + 60
    while any("gone" in app.coordinator.driver.trees() for app in network.apps.values()):
        assert time.monotonic() < deadline, "somebody still knows it"
        time.sleep(0.02)


def test_a_bound_that_cannot_be_kept_is_refused(network: Network) -> None:
    told = network.place(problem(2, 1.0), "bound", latency_bound=1.0)
    assert isinstance(told, Refusal)
    assert told.code == "latency"


def test_a_processor_that_does_not_answer_is_left_out(network: Network) -> None:
    silent = {"qp5": "http://127.0.0.1:9"}  # no source lies there
    told = network.place(problem(3), "silent", peers=silent)
    assert isinstance(told, TreePlaced)
    assert set(told.placement) == {"l", "f", "r", "t"}
    assert "qp5" not in told.placement.values()
    assert told.attempts == 2


def test_the_proxy_hears_of_a_processor_that_another_cannot_reach(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(network.apps["qp0"].coordinator.driver, "peer_down", heard.append)
    sender = network.apps["qp1"].coordinator
    peers = {"qp0": network.apps["qp0"].url, "ghost": "http://127.0.0.1:9"}
    sender.learn(peers)
    zone = Zone("r", (ZoneOperator("r", 1.0, ("s",), ()),), ("s",), None, ())
    sender.send("ghost", AddSubtree(Settings("lost", 1, "qp0", "edge"), zone))
    deadline = time.monotonic() + 60
    while "ghost" not in heard:
        assert time.monotonic() < deadline, "nobody told the proxy"
        time.sleep(0.02)


def said(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"epoch": 1, "number": 0, "to": "qp1", "messages": list(messages), "sender": "qp0",
            "by": "processor", **more}  # fmt: skip


def test_requests_are_checked_and_need_the_token(network: Network) -> None:
    url = f"{network.apps['qp1'].url}/control"
    assert httpx.post(url, json=said()).status_code == 401
    http = network.client.http
    for body in (
        said({"do": "HELLO"}),
        said(more=1),
        said({"do": "take_part", "peers": {"a": 1}}),
        said(*[{"do": "read_share", "tree": "t"}] * 1001),
        said(negative_rate()),
        said({"do": "stop"}),
    ):
        answer = http.post(url, json=body)
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
        asking = {"do": "place_tree", "tree": tree, "peers": {}}
        answer = http.post(url, json=said(asking, sender="manager", by="manager"))
        assert answer.status_code == 400, tree
    big = {"do": "take_part", "peers": {"a": "x" * (5 << 20)}}
    assert http.post(url, json=said(big)).status_code == 413


def negative_rate() -> dict[str, Any]:
    settings = Settings("t", 1, "qp0", "edge")
    zone = Zone("r", (ZoneOperator("r", 1.0, ("s",), ()),), ("s",), None, ())
    data: dict[str, Any] = to_json(AddSubtree(settings, zone))
    data["zone"]["operators"][0]["rate"] = -1.0
    return data


def test_an_envelope_with_a_bad_message_changes_nothing(network: Network) -> None:
    app = network.apps["qp2"]
    zone = Zone("r", (ZoneOperator("r", 1.0, ("s",), ()),), ("s",), None, ())
    good = to_json(AddSubtree(Settings("half", 1, "qp0", "edge"), zone))
    url = f"{app.url}/control"
    body = said(good, negative_rate(), to="qp2")
    assert network.client.http.post(url, json=body).status_code == 400
    assert "half" not in app.coordinator.driver.trees()


def test_what_is_for_another_processor_is_refused(network: Network) -> None:
    answer = network.client.post(f"{network.apps['qp1'].url}/control", said(to="qp2"))
    assert answer == {"replies": []}
    asked = said({"do": "read_share", "tree": "t"}, to="qp2")
    (reply,) = network.client.post(f"{network.apps['qp1'].url}/control", asked)["replies"]
    assert reply["error"]["code"] == "not_me"
