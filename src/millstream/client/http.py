"""The one HTTP client: how daemons and users send requests, and what the answers mean.

A server that does not answer is away (`AwayError`). An error in an answer is raised as the same
error here, with its detail and hint. Connections are kept and headers are few, so an idle manager
sends next to nothing. A proxy of the environment does not apply to addresses that a user names. A
client without a token looks each address up in the user's keyring.
"""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import pyarrow as pa

from millstream.client.keyring import introduced
from millstream.core.codec import to_bytes
from millstream.core.errors import (
    AwayError,
    CqlError,
    MillstreamError,
    RefusedError,
    ResourceError,
    UsageError,
)

ANSWER_S = 30.0
CONNECT_S = 5.0
CONNECTIONS_MAX, KEPT_MAX = 500, 200
UNAUTHORISED = 401
DIRECT: dict[str, None] = {"all://": None, "http://": None, "https://": None}
JSON = {"content-type": "application/json"}
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
# httpx counts an address that it cannot read as no error of HTTP, and one that is closed as none.
_AWAY = (httpx.HTTPError, httpx.InvalidURL, OSError, RuntimeError)
UNHEARD = (httpx.ConnectError, httpx.ConnectTimeout)  # the request has reached no server
Response = httpx.Response
Body = Any  # a record, plain values, JSON text as bytes, a table of Arrow, or as it came


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A body from another sender, to be passed on."""

    content: bytes
    kind: str  # its content type


def checked_url(text: str, option: str) -> str:
    """An address that can be asked; refused with the option that gives it.

    >>> checked_url("http://127.0.0.1:8360/", "--manager")
    'http://127.0.0.1:8360'
    """
    try:
        url = httpx.URL(text)
        good = url.scheme in ("http", "https") and bool(url.host)
    except (httpx.InvalidURL, UnicodeError):
        good = False
    if not good:
        raise UsageError(f"{text!r} is not an address", hint=f"{option} http://HOST:PORT")
    return text.rstrip("/")


def checked_urls(text: str, option: str) -> str:
    """One address or several, of servers that stand by for each other.

    >>> checked_urls("http://a:1/, http://b:1", "--manager")
    'http://a:1,http://b:1'
    """
    return ",".join(checked_url(one.strip(), option) for one in text.split(","))


def away(url: str, error: Exception) -> AwayError:
    """No server answers there."""
    parts = urlsplit(url)
    detail = f"{type(error).__name__}: {error}"[:300]
    return AwayError(f"no server answers at {parts.scheme}://{parts.netloc}", detail=detail)


def told_error(answer: httpx.Response, cql: str = "") -> MillstreamError:
    """The error that an answer tells; one in a query's text knows its place again."""
    try:
        body: Any = answer.json()
    except ValueError:
        body = {}
    told = body.get("error") if isinstance(body, dict) else None
    if not isinstance(told, dict):  # endpoints for people tell the parts side by side
        told = {**body, "message": told} if isinstance(body, dict) else {}
    message = str(told.get("message") or f"the answer was status {answer.status_code}")
    hint = str(told.get("hint") or "")
    if "line" in told and cql:
        return CqlError(
            message, source=cql, line=told["line"], column=told["column"],
            length=told.get("length", 1), hint=hint,
        )  # fmt: skip
    words = {"detail": str(told.get("detail") or ""), "hint": hint}
    if answer.status_code == 409:
        return RefusedError(str(told.get("code") or "failed"), message, **words)
    kinds = {429: AwayError, 503: AwayError, 507: ResourceError}
    usual = UsageError if answer.status_code < 500 else MillstreamError
    return kinds.get(answer.status_code, usual)(message, **words)


def json_of(answer: httpx.Response) -> Any:
    """What an answer holds; one that is no JSON is as none."""
    try:
        return answer.json()
    except ValueError as error:
        raise away(str(answer.request.url), error) from error


@cache
def _trusted(verify: str | bool) -> ssl.SSLContext:
    """Read once a process: a client with its own would take tens of milliseconds to make."""
    if isinstance(verify, str):
        return ssl.create_default_context(cafile=verify)
    return httpx.create_ssl_context(verify=verify)


def _settings(verify: str | bool, kept: int) -> dict[str, Any]:
    """What clients of both kinds have in common; `verify` may name whose certificates count."""
    limits = httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=kept)
    return {"verify": _trusted(verify), "limits": limits, "mounts": DIRECT}


def _headers(token: str | None) -> dict[str, str]:
    return {"accept": "*/*", **({"authorization": f"Bearer {token}"} if token else {})}


def _arrow_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _request(
    http: httpx.Client | httpx.AsyncClient,
    method: str,
    url: str,
    body: Body,
    params: Mapping[str, Any] | None,
    timeout: httpx.Timeout,
) -> httpx.Request:
    more: dict[str, Any] = {}
    if isinstance(body, Verbatim):
        more = {"content": body.content, "headers": {"Content-Type": body.kind}}
        body = None
    elif is_dataclass(body):
        body = to_bytes(body)
    if isinstance(body, pa.Table):
        more = {"content": _arrow_stream(body), "headers": ARROW}
    elif isinstance(body, bytes):
        more = {"content": body, "headers": JSON}
    elif body is not None:
        more = {"json": body}
    try:
        request = http.build_request(method, url, params=params, timeout=timeout, **more)
    except httpx.InvalidURL as error:
        raise away(url, error) from error
    if "authorization" not in request.headers:
        found, token = introduced(str(request.url))
        if token is not None:
            request.url = httpx.URL(found)
            request.headers["authorization"] = f"Bearer {token}"
    return request


def _came_early(request: httpx.Request, answer: httpx.Response) -> bool:
    """Whether a daemon that had not yet noted its token was asked without one."""
    if answer.status_code != UNAUTHORISED or "authorization" in request.headers:
        return False
    return introduced(str(request.url))[1] is not None


class HttpClient:
    """Requests to one address or several; close it, or use `with`."""

    def __init__(
        self, token: str | None = None, verify: str | bool = True, *, base_url: str = "",
        answer_s: float = ANSWER_S, connect_s: float = CONNECT_S,
        headers: Mapping[str, str] | None = None, kept: int = KEPT_MAX,
    ) -> None:  # fmt: skip
        """`kept` is how many connections stay open between requests."""
        self._answer_s, self._connect_s = answer_s, connect_s
        self.http = httpx.Client(base_url=base_url, timeout=answer_s, **_settings(verify, kept))
        self.http.headers.clear()
        self.http.headers.update({**_headers(token), **(headers or {})})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()

    def send(
        self, method: str, url: str, body: Body = None, *, wait_s: float = 0.0,
        params: Mapping[str, Any] | None = None, answer_s: float | None = None,
    ) -> httpx.Response:  # fmt: skip
        """An answer of any status; `wait_s` is what the other side may take its time for."""
        timeout = httpx.Timeout((answer_s or self._answer_s) + wait_s, connect=self._connect_s)
        request = _request(self.http, method, url, body, params, timeout)
        try:
            answer = self.http.send(request)
            if _came_early(request, answer):
                return self.http.send(_request(self.http, method, url, body, params, timeout))
            return answer
        except _AWAY as error:
            raise away(str(request.url), error) from error

    def ask(
        self, method: str, url: str, body: Body = None, *, wait_s: float = 0.0,
        params: Mapping[str, Any] | None = None, answer_s: float | None = None, cql: str = "",
    ) -> httpx.Response:  # fmt: skip
        """A good answer; an error is raised."""
        answer = self.send(method, url, body, wait_s=wait_s, params=params, answer_s=answer_s)
        if answer.is_error:
            raise told_error(answer, cql)
        return answer

    def get(self, url: str, *, wait_s: float = 0.0, **params: Any) -> Any:
        return json_of(self.ask("GET", url, params=params or None, wait_s=wait_s))

    def post(
        self, url: str, body: Body, *, wait_s: float = 0.0, answer_s: float | None = None
    ) -> Any:
        return json_of(self.ask("POST", url, body, wait_s=wait_s, answer_s=answer_s))

    def chunks(self, url: str, **params: Any) -> Iterator[bytes]:
        """A long answer, piece by piece."""
        timeout = httpx.Timeout(self._answer_s, connect=self._connect_s)
        request = _request(self.http, "GET", url, None, params, timeout)
        try:
            with closing(self.http.send(request, stream=True)) as answer:
                if answer.is_error:
                    answer.read()
                    raise told_error(answer)
                yield from answer.iter_raw()
        except _AWAY as error:
            raise away(url, error) from error


class AsyncHttpClient:
    """The same in an event loop; use with `async with`, or close it."""

    def __init__(
        self, token: str | None = None, verify: str | bool = True, *, answer_s: float = ANSWER_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        self._answer_s = answer_s
        settings = _settings(verify, KEPT_MAX)
        self.http = httpx.AsyncClient(transport=transport, timeout=answer_s, **settings)
        self.http.headers.clear()
        self.http.headers.update(_headers(token))

    async def __aenter__(self) -> "AsyncHttpClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.http.aclose()

    async def send(
        self, method: str, url: str, body: Body = None, *,
        params: Mapping[str, Any] | None = None, answer_s: float | None = None,
    ) -> httpx.Response:  # fmt: skip
        """An answer of any status."""
        patience_s = answer_s or self._answer_s
        timeout = httpx.Timeout(patience_s, connect=min(CONNECT_S, patience_s))
        request = _request(self.http, method, url, body, params, timeout)
        try:
            answer = await self.http.send(request)
            if _came_early(request, answer):
                return await self.http.send(_request(self.http, method, url, body, params, timeout))
            return answer
        except _AWAY as error:
            raise away(str(request.url), error) from error

    async def ask(
        self, method: str, url: str, body: Body = None, *, params: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """A good answer; an error is raised."""
        answer = await self.send(method, url, body, params=params)
        if answer.is_error:
            raise told_error(answer)
        return answer
