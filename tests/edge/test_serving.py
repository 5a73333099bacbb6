"""One way to serve: every request passes one guard, every error has one shape."""

import ast
import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from millstream.core.errors import CqlError, MillstreamError, ResourceError, UsageError
from millstream.edge.http.access import json_body
from millstream.edge.http.roles import for_all
from millstream.edge.http.serving import Application, Server, demand_closed
from millstream.store.moves.transfer import RefusedError

SOURCE = Path(__file__).parents[2] / "src" / "millstream"
TOKEN = {"Authorization": "Bearer secret"}
MISTAKE = CqlError("unknown column", source="SELECT x", line=1, column=8, length=1, hint="try y")


def application(error: Exception | None = None, **settings: Any) -> Application:
    app = Application("test", **settings)

    @app.get("/health")
    @for_all
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/number/{number}")
    async def number(number: int) -> int:
        if error is not None:
            raise error
        return number

    async def quick(request: Request) -> Response:
        if error is not None:
            raise error
        return JSONResponse(await json_body(request, 100))

    app.quick_post("/quick", quick)
    return app


def asked(app: Application, method: str, path: str, **more: Any) -> httpx.Response:
    if "content" in more:
        more["headers"] = {"Content-Type": "application/json", **more.get("headers", {})}

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
        ) as client:
            return await client.request(method, path, **more)

    return asyncio.run(ask())


def test_no_module_serves_in_a_way_of_its_own() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        names = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
        if path.name != "serving.py":
            assert not {"FastAPI", "uvicorn"} & names, path


def test_every_route_needs_the_token_but_health() -> None:
    app = application(token="secret")
    for method, path in (("GET", "/number/1"), ("POST", "/quick"), ("GET", "/nowhere")):
        denied = asked(app, method, path)
        assert (denied.status_code, denied.json()["error"]["code"]) == (401, "denied"), path
        assert asked(app, method, path, headers=TOKEN).status_code != 401
    assert asked(app, "GET", "/health").status_code == 200
    assert asked(app, "GET", "/number/1", headers={"Authorization": "Bearer other"}).is_error


def test_beyond_this_machine_a_server_has_a_token_and_tls() -> None:
    with pytest.raises(UsageError, match="only with a token"):
        demand_closed("a test listens", "0.0.0.0", None, "x.pem")
    with pytest.raises(UsageError, match="only with TLS"):
        demand_closed("a test listens", "0.0.0.0", "secret", None)
    demand_closed("a test listens", "0.0.0.0", "secret", "x.pem")
    demand_closed("a test listens", "0.0.0.0", "secret", None, plain=True)
    demand_closed("a test listens", "::1", None, None)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UsageError("no", detail="d", hint="h"), 400, "mistake"),
        (RefusedError("not_owner", "no", detail="d", hint="h"), 409, "not_owner"),
        (ResourceError("no", detail="d", hint="h"), 507, "failed"),
        (MillstreamError("no", detail="d", hint="h"), 500, "failed"),
    ],
)
@pytest.mark.parametrize("path", [("GET", "/number/1"), ("POST", "/quick")])
def test_errors_have_one_shape(
    error: Exception, status: int, code: str, path: tuple[str, str]
) -> None:
    parts = {"code": code, "detail": "d", "hint": "h"}
    answer = asked(application(error), *path)
    assert answer.status_code == status
    assert answer.json() == {"error": {"message": "no", **parts}}
    flat = asked(application(error, flat_errors=True), *path)
    assert flat.json() == {"error": "no", **parts}


def test_a_mistake_in_a_text_comes_with_its_place() -> None:
    told = asked(application(MISTAKE), "GET", "/number/1").json()["error"]
    assert (told["line"], told["column"], told["length"]) == (1, 8, 1)


def test_what_the_framework_refuses_has_the_same_shape() -> None:
    app = application()
    for path, status in (("/nowhere", 404), ("/number/x", 422)):
        answer = asked(app, "GET", path)
        assert answer.status_code == status
        assert answer.json()["error"]["message"]
    assert asked(app, "DELETE", "/health").json()["error"]["code"] == "unknown"


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b'"\\ud800"', 400), (b'{"a": "%s"}' % (b"x" * 100), 413)],
)
def test_bodies_are_bounded_objects(body: bytes, status: int) -> None:
    answer = asked(application(), "POST", "/quick", content=body)
    assert (answer.status_code, bool(answer.json()["error"]["message"])) == (status, True)


@pytest.mark.parametrize("path", [("GET", "/number/1"), ("POST", "/quick"), ("GET", "/nowhere")])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),  # a name that was pointed at this machine
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),  # a page in a sandbox, or a file
        ({"Origin": "http://127.0.0.1:1"}, 403),  # another server of this machine
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_no_foreign_page_asks(headers: dict[str, str], status: int, path: tuple[str, str]) -> None:
    refused = asked(application(), *path, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, "denied")
    assert asked(application(token="secret"), *path, headers=headers).status_code == status


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_bodies_that_any_page_may_send_are_refused(kind: str) -> None:
    refused = asked(application(), "POST", "/quick", content=b"{}", headers={"Content-Type": kind})
    assert (refused.status_code, refused.json()["error"]["code"]) == (415, "mistake")
    ours = {"Content-Type": kind, "X-Millstream": "1"}
    assert asked(application(), "POST", "/quick", content=b"{}", headers=ours).status_code == 200


def test_who_listens_beyond_this_machine_has_names_of_its_own() -> None:
    app = application(host="0.0.0.0", token="secret")
    far = {"Host": "processor-3.example", **TOKEN}
    assert asked(app, "POST", "/quick", content=b"{}", headers=far).status_code == 200


def test_a_server_behind_a_proxy_answers_to_its_name() -> None:
    app = application(known_as="https://mill.example/")
    assert asked(app, "GET", "http://mill.example/number/1").status_code == 200
    assert asked(app, "GET", "http://evil.example/number/1").status_code == 421


def test_our_own_page_and_programs_may_ask() -> None:
    own = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
    for headers in (own, {"Content-Type": "application/json; charset=utf-8"}, {}):
        answer = asked(application(), "POST", "/quick", content=b"{}", headers=headers)
        assert answer.status_code == 200


def test_pages_are_guarded_against_foreign_ones() -> None:
    app = application(page_headers=[(b"x-frame", b"none")])
    refused = asked(app, "POST", "/quick")
    assert (refused.status_code, refused.headers["x-frame"]) == (403, "none")
    assert asked(app, "POST", "/quick", headers={"X-Millstream": "1"}).status_code == 200
    assert asked(app, "GET", "http://evil.example/health").status_code == 421


def test_a_server_answers_until_it_is_stopped() -> None:
    server = Server(application())
    server.start()
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    with pytest.raises(UsageError, match="cannot listen"):
        Server(application(), port=server.port)
    server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")
