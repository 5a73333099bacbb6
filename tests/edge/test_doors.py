"""Every route of every server stands behind one guard: the list is the framework's own."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.routing import Mount

from millstream.edge.dashboard.app import dashboard_app
from millstream.edge.dashboard.feed import Feed
from millstream.edge.http.roles import Role, role_of, role_token
from millstream.edge.http.rows_api import rows_app
from millstream.edge.http.serving import Application, Server
from millstream.edge.manager.app import ManagerServer
from millstream.edge.manager.settings import ManagerSettings
from millstream.edge.peers.balancing import BalanceSettings
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.edge.run.api import add_routes
from millstream_bench.pages.synthetic_system import SyntheticSystem
from plain_plane import PlainPlane

Doors = dict[str, tuple[Application, Server | ProcessorServer]]
SECRET = "a secret of the test"
# Kinds of bodies that a page may send without asking first.
SIMPLE = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
OPEN = {"/health", "/live", "/ready"}
# What less than everything may do; a route that is not here is for admins.
READ = {
    "GET /", "GET /alarms", "GET /api/events", "GET /api/history",
    "GET /api/history/{kind}/{name:path}",
    "GET /api/queries/{name}/results", "GET /api/settings",
    "GET /api/snapshot", "GET /balance", "GET /coordinators", "GET /decisions", "GET /metrics",
    "GET /members", "GET /moves", "GET /placement", "GET /qos", "GET /queries",
    "GET /queries/{name}", "GET /queries/{query}/rows",
    "GET /queries/{query}/table", "GET /redistribution", "GET /snapshot", "GET /static/app.js",
    "GET /scaling", "GET /status", "GET /streams",
    "GET /streams/{name}/producers/{producer}",
    "GET /streams/{stream:path}/segments", "GET /streams/{stream:path}/segments/{first}",
    "GET /system", "POST /api/complete", "POST /api/links",
}  # fmt: skip
SUBMIT = {
    "DELETE /api/queries/{name}", "DELETE /queries/{name}", "DELETE /streams/{name}",
    "POST /api/explain", "POST /api/pauses", "POST /api/preview", "POST /api/queries",
    "POST /queries",
    "POST /api/queries/{name}/restart", "POST /queries/{name}/restart",
    "POST /queries/{name}/pause", "POST /queries/{name}/resume",
    "POST /queries/{query}/ack", "POST /streams", "POST /streams/start",
    "POST /streams/{name}/end", "POST /streams/{name}/rows", "POST /streams/{stream:path}/ack",
    "POST /streams/{stream:path}/expect", "POST /streams/{stream:path}/unexpect",
    "POST /streams/{stream:path}/{word}", "PUT /qos",
}  # fmt: skip


def routes(app: Application) -> Iterator[tuple[str, str, Role]]:
    """Method, path and declared role of everything that an application answers."""
    for path, answer in app.quick.items():
        yield "POST", path, role_of(answer)
    for route in app.routes:
        if not isinstance(route, Mount):
            declared: Any = route
            for method in sorted(declared.methods - {"HEAD"}):
                yield method, declared.path, role_of(declared.endpoint)
        elif isinstance(route.app, Application):
            yield from routes(route.app)
        else:
            yield "GET", f"{route.path}/app.js", role_of(route.app)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder: Path = tmp_path_factory.mktemp("doors")
    manager = ManagerServer(folder / "m", ManagerSettings(port=0, token=SECRET))
    processor = ProcessorServer("p", folder / "p", PlainPlane(), ProcessorSettings(token=SECRET))
    pages = SyntheticSystem(2, 2)
    run = rows_app(lambda _: None, token=SECRET)
    engine = SimpleNamespace(ledger=SimpleNamespace(on_publish=[]))
    live: Any = SimpleNamespace(engine=engine)
    add_routes(run, live)
    apps = {
        "manager": manager.app,
        "processor": processor.app(),
        "dashboard": dashboard_app(pages, Feed(pages), token=SECRET),
        "run": run,
    }
    served = {name: (app, Server(app)) for name, app in apps.items()}
    for _, server in served.values():
        server.start()
    member = ProcessorServer(
        "m", folder / "n", PlainPlane(), ProcessorSettings(token=SECRET, balance=BalanceSettings())
    )
    member.start()  # its routes ask itself
    yield {**served, "member": (member.app(), member)}
    for _, server in served.values():
        server.stop()
    member.stop()
    processor.stop()
    manager.close()


@pytest.mark.parametrize("name", ["manager", "processor", "member", "dashboard", "run"])
def test_every_route_is_guarded(doors: Doors, name: str) -> None:
    app, server = doors[name]
    found = list(routes(app))
    assert len(found) >= 9
    with httpx.Client(base_url=server.url, timeout=30) as client:
        for method, path, declared in found:
            _check(client, method, path, declared)


def _check(client: httpx.Client, method: str, path: str, declared: Role) -> None:
    what = f"{method} {path}"
    wanted = Role.READ if what in READ else Role.SUBMIT if what in SUBMIT else Role.ADMIN
    assert declared == (Role.OPEN if path in OPEN else wanted), what
    at = re.sub(r"\{[^}]+\}", "1", path)

    def status(role: Role = Role.ADMIN, **headers: str) -> int:
        token = {} if role is Role.OPEN else {"Authorization": f"Bearer {role_token(SECRET, role)}"}
        body = b"{}" if method in ("POST", "PUT") else None
        kind = {"Content-Type": "application/json"} if body else {}
        told = {**kind, **token, **headers}
        return client.request(method, at, content=body, headers=told).status_code

    assert status(Host="evil.example") == 421, what
    assert status(Origin="https://evil.example") == 403, what
    assert status(**{"Sec-Fetch-Site": "cross-site"}) == 403, what
    if method != "GET":
        for simple in SIMPLE:
            assert status(**{"Content-Type": simple}) == 415, what
        nothing = client.build_request(method, at, content=b"{}")
        nothing.headers.pop("content-type", None)
        assert client.send(nothing).status_code == 415, what
    for role in Role:
        if role < declared:
            assert status(role) == (401 if role is Role.OPEN else 403), (what, role)
    if declared is not Role.OPEN:
        assert status(Role.OPEN, Authorization="Bearer guess") == 401, what


def test_a_role_opens_what_it_is_for(doors: Doors) -> None:
    url = doors["manager"][1].url

    def status(role: Role, method: str, path: str) -> int:
        headers = {"Authorization": f"Bearer {role_token(SECRET, role)}"}
        return httpx.request(method, url + path, headers=headers, timeout=30).status_code

    assert status(Role.READ, "GET", "/status") == 200
    assert status(Role.SUBMIT, "GET", "/status") == 200
    assert status(Role.READ, "DELETE", "/queries/q") == 403
    assert status(Role.SUBMIT, "DELETE", "/queries/q") not in (401, 403)
    assert status(Role.SUBMIT, "DELETE", "/processors/p") == 403
    assert status(Role.ADMIN, "DELETE", "/processors/p") not in (401, 403)
    assert status(Role.READ, "GET", "/nowhere") == 404


@pytest.mark.parametrize("name", ["manager", "processor"])
def test_a_client_takes_no_rows_from_a_processor(doors: Doors, name: str) -> None:
    headers = {"Authorization": f"Bearer {role_token(SECRET, Role.SUBMIT)}"}
    for word in ("ack", "expect", "unexpect"):
        url = f"{doors[name][1].url}/streams/s/{word}"
        for consumer, denied in (("p2", True), ("run", False)):
            body = {"consumer": consumer, "next": 5}
            status = httpx.post(url, json=body, headers=headers, timeout=30).status_code
            assert (status == 403) is denied, (word, consumer)
