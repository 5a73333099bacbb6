"""The dashboard over HTTP: increments, questions, who may ask, health, metrics."""

import asyncio
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from millstream.control.snapshot.model import Snapshot
from millstream.core.codec import from_json
from millstream.core.errors import UsageError
from millstream.edge.dashboard.app import STATIC, dashboard_app
from millstream.edge.dashboard.feed import WAITING_MAX, Feed
from millstream.edge.dashboard.serving import DashboardServer
from millstream.edge.http.roles import Role, role_token
from millstream_bench.pages.synthetic_system import FAILED, SLOW, SyntheticSystem
from snapshot_pages import apply_changes

ASKS = {"X-Millstream": "1"}


class TestClient:
    """Asks an application in this process; keeps cookies."""

    __test__ = False

    def __init__(self, app: FastAPI, base_url: str = "http://127.0.0.1") -> None:
        self._app, self._base, self._cookies = app, base_url, httpx.Cookies()

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(
                transport=transport, base_url=self._base, cookies=self._cookies,
                follow_redirects=True,
            ) as client:  # fmt: skip
                answer = await client.request(method, path, **more)
                self._cookies = client.cookies
                return answer

        return asyncio.run(asked())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.ask("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.ask("POST", path, **more)

    def delete(self, path: str, **more: Any) -> httpx.Response:
        return self.ask("DELETE", path, **more)


class Small(SyntheticSystem):
    """A system of ten queries that can be made to fail or to stand still."""

    def __init__(self) -> None:
        super().__init__(queries=10, operators=24, processors=2, streams=3)
        self.broken: Exception | None = None
        self.fixed: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        if self.broken is not None:
            raise self.broken
        return self.fixed or super().snapshot()


@pytest.fixture
def system() -> Small:
    return Small()


@pytest.fixture
def feed(system: Small) -> Feed:
    made = Feed(system)
    made.tick()
    return made


@pytest.fixture
def client(system: Small, feed: Feed) -> TestClient:
    return TestClient(dashboard_app(system, feed))


# -- increments -----------------------------------------------------------------------------------


def heard(feed: Feed, ticks: int, *, between: int = 1) -> list[tuple[str, dict]]:
    """Events that a page hears over some ticks, with so many between two looks at the queue."""

    async def page() -> list[tuple[str, dict]]:
        events = []
        stream = feed.listen()
        events.append(await anext(stream))
        for _ in range(ticks):
            for _ in range(between):
                feed.tick()
            await asyncio.sleep(0)  # what the feed's thread put arrives
            events.append(await anext(stream))
        await stream.aclose()
        return [parsed(e) for e in events]

    return asyncio.run(page())


def parsed(event: str) -> tuple[str, dict]:
    name, data = event.strip().split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_a_page_hears_everything_and_then_what_changed(feed: Feed) -> None:
    events = heard(feed, 3)
    assert [name for name, _ in events] == ["whole", "change", "change", "change"]
    page = events[0][1]
    for _, told in events[1:]:
        page = apply_changes(page, told)
    now = feed.whole()
    assert {o["id"]: o for o in page["operators"]} == {o["id"]: o for o in now["operators"]}
    assert page["overview"] == now["overview"]
    texts = [json.dumps(told) for _, told in events]
    assert "GROUP BY" in texts[0]
    assert "GROUP BY" not in texts[1]  # what stays the same is not sent again
    assert len(texts[1]) < len(texts[0]) / 2


def test_a_page_that_cannot_keep_up_gets_everything_again(feed: Feed) -> None:
    events = heard(feed, 1, between=WAITING_MAX + 5)
    assert [name for name, _ in events] == ["whole", "whole"]


def test_a_page_is_told_when_no_figures_come(system: Small, feed: Feed) -> None:
    system.broken = OSError("the ledger is gone")
    ((_, _), (name, told)) = heard(feed, 1)
    assert name == "change"
    assert "the ledger is gone" in told["trouble"]


def test_places_are_told_once_for_a_shape(feed: Feed) -> None:
    (_, first), (_, told) = heard(feed, 1)
    assert set(first["layout"]) >= {o["id"] for o in first["operators"]}
    assert "layout" not in told


# -- questions ------------------------------------------------------------------------------------


def test_snapshot_and_history(client: TestClient) -> None:
    taken = from_json(Snapshot, client.get("/api/snapshot").json())
    assert len(taken.queries) == 10
    assert len(client.get("/api/history").json()[0]) == 5


def test_a_mistake_comes_with_what_to_underline(client: TestClient) -> None:
    asked = {"cql": "SELECT host,\n  wrong FROM stream_1"}
    answer = client.post("/api/explain", json=asked, headers=ASKS)
    assert answer.status_code == 400
    told = answer.json()
    assert (told["line"], told["column"], told["length"]) == (2, 3, 5)
    assert told["hint"] == "columns: host, bytes, status"


def test_explain_preview_register_results_drop(client: TestClient) -> None:
    asked = {"cql": "SELECT host FROM stream_1"}
    assert client.post("/api/explain", json=asked, headers=ASKS).json()["admission"]["admitted"]
    assert len(client.post("/api/preview", json=asked, headers=ASKS).json()["rows"]) == 5
    made = client.post("/api/queries", json=asked | {"name": "mine"}, headers=ASKS).json()
    assert (made["kind"], made["subject"]) == ("admission", "mine")
    names = [q["name"] for q in client.get("/api/snapshot").json()["queries"]]
    assert "mine" in names  # at once, not at the next tick
    got = client.get("/api/queries/mine/results?after=1").json()
    assert got["last"] == got["lost"] + len(got["rows"]) + 1
    assert client.delete("/api/queries/mine", headers=ASKS).status_code == 200
    assert client.delete("/api/queries/mine", headers=ASKS).status_code == 400


def test_a_failed_query_is_restarted(client: TestClient) -> None:
    def query() -> dict[str, Any]:
        found = client.get("/api/snapshot").json()["queries"]
        return next(q for q in found if q["name"] == FAILED)

    assert (query()["state"], query()["restartable"]) == ("failed", True)
    path = f"/api/queries/{FAILED.replace(' ', '%20')}/restart"
    assert client.post(path, json={}, headers=ASKS).json() == {"restarted": FAILED}
    assert query()["state"] == "running"
    assert client.post(path, json={}, headers=ASKS).status_code == 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"cql": ""}', b'{"cql": 3}', b"[" * 9999])
def test_a_body_that_is_no_question(client: TestClient, body: bytes) -> None:
    answer = client.post("/api/explain", content=body, headers=ASKS)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_a_body_that_is_too_large(client: TestClient) -> None:
    body = json.dumps({"cql": "x" * 300_000})
    assert client.post("/api/explain", content=body, headers=ASKS).status_code == 400


# -- who may ask ----------------------------------------------------------------------------------


def test_a_foreign_page_cannot_change_anything(client: TestClient) -> None:
    body = {"name": "evil", "cql": "SELECT host FROM stream_1"}
    assert client.post("/api/queries", json=body).status_code == 403
    assert client.delete(f"/api/queries/{SLOW}").status_code == 403


def test_a_foreign_name_for_a_local_port_is_refused(system: Small, feed: Feed) -> None:
    rebound = TestClient(dashboard_app(system, feed), base_url="http://evil.example")
    assert rebound.get("/api/snapshot").status_code == 421


def test_beyond_loopback_everything_needs_a_token(system: Small, feed: Feed) -> None:
    app = dashboard_app(system, feed, host="10.0.0.1", token="secret")
    client = TestClient(app, base_url="http://10.0.0.1")
    assert client.get("/api/snapshot").status_code == 401
    assert client.get("/static/app.js").status_code == 401
    assert client.get("/health").status_code == 200
    told = {"Authorization": "Bearer secret"}
    assert client.get("/api/snapshot", headers=told).status_code == 200
    assert client.get("/?token=secret").status_code == 401
    with pytest.raises(UsageError, match="only with a token"):
        DashboardServer(system, host="0.0.0.0")
    with pytest.raises(UsageError, match="only with TLS"):
        DashboardServer(system, host="0.0.0.0", token="secret")


def test_a_link_lets_one_browser_in(system: Small, feed: Feed) -> None:
    app = dashboard_app(system, feed, token="secret")
    asking = {"Authorization": f"Bearer {role_token('secret', Role.READ)}", "X-Millstream": "1"}
    browser, other = (TestClient(app, base_url="http://127.0.0.1:8350") for _ in range(2))
    path = browser.post("/api/links", json={}, headers=asking).json()["path"]
    assert browser.get("/").status_code == 401
    clicked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}  # in a notebook
    first = browser.get(path, headers=clicked)
    assert 'content="0;url=/"' in first.text
    cookie = first.headers["set-cookie"]
    assert cookie.startswith("millstream_8350=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "secret" not in cookie
    assert browser.get("/api/snapshot").status_code == 200
    body, ours = {"name": "q", "cql": "SELECT host FROM stream_1"}, {"X-Millstream": "1"}
    assert browser.post("/api/queries", json=body, headers=ours).status_code == 403  # may read
    assert other.get(path).status_code == 401  # a link opens once
    assert browser.get(path).status_code == 200  # who is in stays in
    again = TestClient(dashboard_app(system, feed, token="secret"), "http://127.0.0.1:8350")
    value = cookie.partition("=")[2].partition(";")[0]
    for sent, status in ((value, 200), (value.replace("1.", "2.", 1), 401), (value[:-1], 401),
                         ("1.99999999999.x", 401), ("1." + "9" * 5000 + ".x", 401), ("", 401),
                         ("é", 401)):  # fmt: skip
        kept = {"Cookie": f"millstream_8350={sent}".encode()}
        assert again.get("/api/snapshot", headers=kept).status_code == status, sent


def test_the_browser_loads_nothing_from_elsewhere(client: TestClient) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    for file in STATIC.glob("*.*"):
        outside = re.findall(r"(?:src|href|import|url)[\s=('\"]+https?://", file.read_text())
        assert not outside, file
    for path in re.findall(r"(?:src|href)=\"(/static[^\"]+)\"", answer.text):
        assert client.get(path).status_code == 200, path


def test_every_library_has_its_licence_beside_it() -> None:
    vendor = STATIC / "vendor"
    table = (vendor / "README.md").read_text()
    for file in vendor.iterdir():
        if file.suffix in (".js", ".css"):
            assert file.name in table
    for named in re.findall(r"LICENSE\.\w+", table):
        assert (vendor / named).read_text().strip()


# -- health and metrics ---------------------------------------------------------------------------


def test_health_is_bad_when_figures_are_old(client: TestClient, system: Small, feed: Feed) -> None:
    good = client.get("/health")
    assert good.status_code == 200
    assert good.json()["errors"] == [f"query {FAILED} failed: division by zero"]
    taken = system.snapshot()
    system.fixed = replace(taken, taken=time.time() - 60)
    feed.tick()
    assert client.get("/health").status_code == 503
    system.fixed = replace(
        system.fixed, overview=replace(taken.overview, state="finished", alarms=())
    )
    feed.tick()
    assert client.get("/health").status_code == 200  # final figures do not age
    system.fixed = replace(taken, overview=replace(taken.overview, state="failed"))
    feed.tick()
    assert client.get("/health").status_code == 503


def test_metrics_are_what_prometheus_reads(client: TestClient, feed: Feed) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = {f.name: f for f in text_string_to_metric_families(answer.text)}
    rows = {s.labels["query"]: s.value for s in families["millstream_query_rows"].samples}
    assert feed.snapshot is not None
    assert rows == {q.name: q.rows for q in feed.snapshot.queries}
    running = {s.labels["query"]: s.value for s in families["millstream_query_running"].samples}
    assert running[FAILED] == 0
    assert running[SLOW] == 1
    assert families["millstream_backlog_rows"].samples[0].value > 0


def test_the_example_of_grafana_asks_for_metrics_that_exist(client: TestClient) -> None:
    path = Path(__file__).parents[2] / "examples" / "grafana" / "millstream.json"
    board = json.loads(path.read_text())
    asked = re.findall(r"millstream_[a-z_]+", json.dumps(board["panels"]))
    assert len(set(asked)) > 10
    text = client.get("/metrics").text
    for name in asked:
        assert re.search(rf"^# TYPE {name} ", text, re.MULTILINE), name


def test_the_alert_rules_ask_for_metrics_that_exist(client: TestClient) -> None:
    path = Path(__file__).parents[2] / "examples" / "prometheus" / "alerts.yml"
    text, metrics = path.read_text(), client.get("/metrics").text
    rules = text.split("- alert: ")[1:]
    assert len({rule.partition("\n")[0] for rule in rules}) == len(rules) >= 10
    for rule in rules:
        for part in ("expr: ", "labels: { severity: ", "annotations:\n", "summary: "):
            assert part in rule, (part, rule)
        (expression,) = re.findall(r"expr: (.*)", rule)
        asked = re.findall(r"millstream_[a-z_]+", expression)
        assert asked, rule
        for name in asked:
            found = re.search(rf"^# TYPE {name} (\w+)", metrics, re.MULTILINE)
            assert found, name
            assert ("rate(" in expression) == (found[1] == "counter"), "only counters have a rate"
        for label in re.findall(r"\$labels\.(\w+)", rule):
            samples = re.findall(rf"^{asked[0]}{{(.*)}} ", metrics, re.MULTILINE)
            assert label == "instance" or any(f'{label}="' in s for s in samples), (label, rule)


def test_a_server_from_start_to_stop(system: Small) -> None:
    with DashboardServer(system, port=0, interval_s=0.05, token="secret") as server:
        told = httpx.get(f"{server.url}health", timeout=5).json()
        assert told["status"] == "error"
        assert "alarms" not in told, "they name queries and rows"
        token = {"Authorization": f"Bearer {role_token('secret', Role.READ)}"}
        told = httpx.get(f"{server.url}health", headers=token, timeout=5).json()
        assert told["errors"]
        (failed,) = [a for a in told["alarms"] if a["kind"] == "failed"]
        assert failed["todo"]
        assert failed["queries"] == [failed["subject"]]
        with pytest.raises(UsageError, match="cannot listen"):
            DashboardServer(system, port=server.port)
    assert not server.feed._thread.is_alive()


class Led(Small):
    """A system with a manager's settings."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Any] = {"policy": "relief"}

    def settings(self) -> dict[str, Any]:
        return self.known

    def change(self, settings: dict[str, Any]) -> dict[str, Any]:
        self.known = {**self.known, **settings}
        return self.known


def test_settings_of_a_manager_are_changed_from_the_page() -> None:
    system = Led()
    client = TestClient(dashboard_app(system, Feed(system)))
    assert client.get("/api/settings").json() == {"policy": "relief"}
    told = client.post("/api/settings", json={"eligible_processors": ["p1"]}, headers=ASKS)
    assert told.json() == {"policy": "relief", "eligible_processors": ["p1"]}
    alone = Small()
    client = TestClient(dashboard_app(alone, Feed(alone)))
    assert client.get("/api/settings").json() == {}
    wrong = client.post("/api/settings", json={"policy": "balance"}, headers=ASKS)
    assert wrong.status_code == 400
