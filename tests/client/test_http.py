"""One HTTP client: faults of the way and errors that are told become our errors, in one place."""

import ast
import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from millstream.client.http import AsyncHttpClient, HttpClient, checked_url
from millstream.core.errors import (
    AwayError,
    CqlError,
    MillstreamError,
    RefusedError,
    ResourceError,
    UsageError,
)

SOURCE = Path(__file__).parents[2] / "src" / "millstream"
URL = "http://p1:1/x"
Answers = Callable[[httpx.Request], httpx.Response]


@dataclass(frozen=True, slots=True)
class Message:
    number: int
    names: tuple[str, ...] = ()


def client_of(answers: Answers, **settings: Any) -> HttpClient:
    client = HttpClient(**settings)
    client.http = httpx.Client(
        transport=httpx.MockTransport(answers), headers=client.http.headers, base_url=URL
    )
    return client


def both(answers: Answers) -> list[Callable[[], Any]]:
    """The same question by both clients."""

    async def ask() -> httpx.Response:
        async with AsyncHttpClient(transport=httpx.MockTransport(answers)) as client:
            return await client.ask("POST", URL, {})

    return [lambda: client_of(answers).ask("POST", URL, {}), lambda: asyncio.run(ask())]


def test_no_module_asks_in_a_way_of_its_own() -> None:
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        if path.relative_to(SOURCE) != Path("client/http.py"):
            assert not {"httpx", "urllib.request", "http.client"} & names, path


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, UsageError), (401, UsageError), (404, UsageError), (409, RefusedError),
     (500, MillstreamError), (503, AwayError), (507, ResourceError)],
)  # fmt: skip
def test_errors_come_back_as_what_they_are(status: int, kind: type[MillstreamError]) -> None:
    parts = {"code": "sealed", "detail": "because", "hint": "try"}
    for body in ({"error": {"message": "no", **parts}}, {"error": "no", **parts}):
        for ask in both(lambda _, body=body: httpx.Response(status, json=body)):
            with pytest.raises(kind) as caught:
                ask()
            assert str(caught.value) == "no\nbecause\nhint: try"
            assert getattr(caught.value, "code", "sealed") == "sealed"


@pytest.mark.parametrize("content", [b"", b"[]", b'"no"', b"<html>", b'{"error": null}'])
def test_an_error_that_says_nothing_is_told_by_its_status(content: bytes) -> None:
    for ask in both(lambda _: httpx.Response(418, content=content)):
        with pytest.raises(UsageError, match="status 418"):
            ask()


def lost(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("lost on its way", request=request)


def test_who_does_not_answer_is_away() -> None:
    for ask in both(lost):
        with pytest.raises(AwayError, match="no server answers at http://p1:1\nReadTimeout: lost"):
            ask()
    client = HttpClient()
    with pytest.raises(AwayError):
        client.get("http://host:80a/")  # no address at all
    client.close()
    with pytest.raises(AwayError):
        client.get(URL)  # closed meanwhile
    with pytest.raises(AwayError):
        client_of(lambda _: httpx.Response(200, content=b"nonsense")).get(URL)
    with pytest.raises(AwayError):
        list(client_of(lost).chunks(URL))


def test_a_mistake_in_a_text_is_underlined_again() -> None:
    told = {"error": "unknown column", "line": 1, "column": 8, "length": 2, "hint": "try y"}
    client = client_of(lambda _: httpx.Response(400, json=told))
    with pytest.raises(CqlError) as caught:
        client.ask("POST", URL, {}, cql="SELECT xy")
    assert (caught.value.line, caught.value.column, caught.value.length) == (1, 8, 2)
    with pytest.raises(UsageError) as plain:
        client.ask("POST", URL, {})
    assert not isinstance(plain.value, CqlError)


def test_records_texts_and_plain_values_travel_as_json() -> None:
    seen: list[httpx.Request] = []

    def note(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={})

    client = client_of(note, token="secret", headers={"x-more": "1"})
    for body in (Message(3, ("a",)), b'{"number":3,"names":["a"]}', {"number": 3, "names": ["a"]}):
        client.post(URL, body)
    assert [json.loads(r.content) for r in seen] == [{"number": 3, "names": ["a"]}] * 3
    assert {r.headers["content-type"] for r in seen} == {"application/json"}
    assert {(r.headers["authorization"], r.headers["x-more"]) for r in seen} == {
        ("Bearer secret", "1")
    }


def test_a_long_answer_comes_in_pieces_and_its_error_whole() -> None:
    good = client_of(lambda _: httpx.Response(200, content=iter((b"a", b"bc"))))
    assert b"".join(good.chunks(URL)) == b"abc"
    gone = {"error": {"code": "gone", "message": "no segment"}}
    with pytest.raises(RefusedError, match="no segment") as caught:
        list(client_of(lambda _: httpx.Response(409, json=gone)).chunks(URL))
    assert caught.value.code == "gone"


def test_addresses_are_checked() -> None:
    assert checked_url("http://127.0.0.1:8360/", "--manager") == "http://127.0.0.1:8360"
    for text in ("host:80", "ftp://h", "http://", "http://host:80a", ""):
        with pytest.raises(UsageError, match="is not an address"):
            checked_url(text, "--manager")
