"""Running queries placed anew through the manager: by planners, by real coordinators, by gain."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from coordinator_apps import NODES, Network, problem

from millstream.app.cli import run
from millstream.control.manager.events import Event
from millstream.control.manager.manager import step
from millstream.control.manager.state import (
    Figures,
    Live,
    ManagerState,
    OperatorRecord,
    Processor,
    Query,
    Statistics,
    StreamRecord,
)
from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.outcome import Placed
from millstream.decide.place.network.planner import plan
from millstream.edge.http.serving import Application, Server
from millstream.edge.manager.placement import add_placement_routes

ROW_BYTES = 100


class Driver:
    """A manager's state without its process."""

    def __init__(self, state: ManagerState) -> None:
        self.state = state

    def feed(self, event: Event) -> None:
        self.state, _ = step(self.state, event, self.state.now_s + 1)

    async def until(self, look: Callable[[ManagerState], Any], _: float) -> Any:
        return look(self.state)


def state_of(network: Network) -> ManagerState:
    """The problem as a manager knows it: everything at the proxy, all measured."""
    wanted = network.problem
    rates = wanted.rates()
    figures = {
        name: Figures(
            1.0,
            {f"distance_ms.{other}": float(ms) for other, ms in zip(NODES, row, strict=True)},
        )
        for name, row in zip(NODES, wanted.distance, strict=True)
    }
    streams = {
        f"s:{s.id}": Figures(
            1.0, {"bytes": 1e6, "held_rows": 1e6 / ROW_BYTES}, {"rows": s.rate}, {"rows": s.rate}
        )
        for s in wanted.sources
    }
    operators = {
        f"o:{o.id}": Figures(
            1.0,
            {"rows_in": 5000, "rows_out": 5000, "steps": 100, "seconds": 1.0},
            {"rows_out": rates[o.id]},
            {"rows_out": rates[o.id]},
        )
        for o in wanted.operators
    }
    named = {s.id: f"s:{s.id}" for s in wanted.sources} | {
        o.id: f"o:{o.id}" for o in wanted.operators
    }
    records = {
        f"o:{o.id}": OperatorRecord(
            f"o:{o.id}", "map", o.id, tuple(named[i] for i in o.inputs), ROW_BYTES, {}, NODES[0], 1
        )
        for o in wanted.operators
    }
    query = Query(
        "q", "SELECT", phase="running", result=f"o:{wanted.root}", deliver_to=NODES[0],
        operators=tuple(records), sources=tuple(streams),
    )  # fmt: skip
    return ManagerState(
        processors={n: Processor(n, network.apps[n].url, 1, {"cpu": 100.0}) for n in NODES},
        live={n: Live(state="up", heard_s=1.0) for n in NODES},
        streams={s.id: StreamRecord(s.id, {}, s.node, True) for s in wanted.sources},
        operators=records,
        queries={"q": query},
        statistics=Statistics(figures, operators, streams),
        now_s=1.0,
    )


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.close()


@pytest.fixture
def driver(network: Network) -> Driver:
    network.problem = problem(1)
    return Driver(state_of(network))


@pytest.fixture
def client(driver: Driver) -> Iterator[httpx.Client]:
    app = Application("manager", token="secret")
    add_placement_routes(app, driver, "secret", True)  # type: ignore[arg-type]
    served = Server(app)
    served.start()
    headers = {"Authorization": "Bearer secret"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=120.0) as found:
        yield found
    served.stop()


def cost_of(network: Network, placement: dict[str, str]) -> float:
    plain = {name.removeprefix("o:"): node for name, node in placement.items()}
    return ROW_BYTES * cost_and_delay(network.problem, plain)[0]


def test_processors_place_a_running_query_and_the_manager_moves_it(
    network: Network, driver: Driver, client: httpx.Client
) -> None:
    asked = {"distributed": True, "dry_run": True}
    told = client.post("/queries/q/placement", json=asked).json()
    central = plan(network.problem, "in_network")
    assert isinstance(central, Placed)
    assert cost_of(network, told["placement"]) == pytest.approx(ROW_BYTES * central.cost)
    assert told["then"]["cost"] == pytest.approx(told["measured_cost"])
    assert told["now"]["cost"] > told["then"]["cost"]
    assert told["messages"]["all"] == sum(told["messages"].values()) / 2
    assert told["bounds"]["zones"] == 4
    assert not driver.state.moves
    told = client.post("/queries/q/placement", json={"distributed": True}).json()
    wanted = {o: p for o, p in told["placement"].items() if p != NODES[0]}
    moving = {o: m.target for m in driver.state.moves.values() for o in m.operators}
    assert moving == wanted
    assert all("the processors" in m.reason for m in driver.state.moves.values())


def test_any_planner_may_place_it(network: Network, driver: Driver, client: httpx.Client) -> None:
    told = client.post("/queries/q/placement", json={"planner": "baseline"}).json()
    assert told["moves"] == []
    crossing = {c["stream"]: c["bytes_per_s"] for c in told["then"]["crosses"]}
    rates = {f"s:{s.id}": round(ROW_BYTES * s.rate, 1) for s in network.problem.sources}
    assert crossing == pytest.approx(rates)
    best = client.post("/queries/q/placement", json={"dry_run": True}).json()
    optimum = plan(network.problem)
    assert isinstance(optimum, Placed)
    assert best["then"]["cost"] == pytest.approx(ROW_BYTES * optimum.cost)
    assert not driver.state.moves


def test_commands_show_what_crosses_and_what_it_took(
    driver: Driver,
    client: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MILLSTREAM_TOKEN", "secret")
    monkeypatch.setenv("MILLSTREAM_MANAGER", str(client.base_url))
    url = ("--manager", str(client.base_url))
    assert run(["place", "q", "--distributed", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "operators would go elsewhere" in shown
    assert "messages in" in shown
    assert "section 5 counts" in shown
    assert run(["place", "q", *url, "--planner", "edge", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["planner"] == "edge"
    assert run(["replace", "--dry-run", "--gain", "1"]) == 0
    assert "query q is placed anew" in capsys.readouterr().out
    assert run(["place", "q", "--distributed", "--planner", "descent"]) == 2
    assert run(["place", "q", *url, "--latency", "5"]) == 2
    assert run(["place", "nobody", *url]) == 2
    assert not driver.state.moves


def test_mistakes_are_told(driver: Driver, client: httpx.Client) -> None:
    def refused(path: str, body: dict[str, Any]) -> tuple[int, str]:
        answer = client.post(path, json=body)
        return answer.status_code, answer.json()["error"]["message"]

    assert refused("/queries/nobody/placement", {}) == (400, "there is no query nobody")
    assert refused("/queries/q/placement", {"planner": "x"})[0] == 400
    assert refused("/queries/q/placement", {"levels": 0})[0] == 400
    assert refused("/replacement", {"gain": 2})[0] == 400
    late = replace(driver.state.queries["q"], latency_s=0.001)
    driver.state = replace(driver.state, queries={"q": late})
    status, message = refused("/queries/q/placement", {})
    assert status == 409
    assert "no placement that keeps 1 ms" in message
    status, message = refused("/queries/q/placement", {"distributed": True})
    assert (status, message) == (409, "the processors found no placement")
    assert client.post("/replacement", headers={"Authorization": "Bearer x"}).status_code == 401


def test_all_queries_are_placed_anew_where_it_pays(driver: Driver, client: httpx.Client) -> None:
    told = client.post("/replacement", json={"dry_run": True}).json()
    (one,) = told["queries"]
    assert one["sentence"].startswith("query q is placed anew")
    assert one["cost_then"] < one["cost_now"]
    assert not driver.state.moves
    told = client.post("/replacement", json={"gain": 1.0}).json()
    assert "too small to trust" in told["queries"][0]["sentence"]
    assert not driver.state.moves
    client.post("/replacement", json={})
    assert {o for m in driver.state.moves.values() for o in m.operators} == set(one["moves"])
