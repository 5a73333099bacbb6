"""The one way to serve: an application that guards all its routes, and a server that runs it.

Every route of every server of ours is a route of an `Application`. Each request passes `admit`
before anything else, and every error leaves through `error_answer`. A `Server` listens from the
moment it is made and answers from a thread, or in the caller's event loop.
"""

import hmac
import ipaddress
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.core.errors import MillstreamError, ResourceError, UsageError
from millstream.edge.http.access import AnswerError, error_answer
from millstream.edge.http.kept_port import LOOPBACK, bound_socket

START_SECONDS_MAX = 30.0
OPEN_PATH = "/health"  # needs no token
CHANGE_HEADER = "x-millstream"
JSON_BODY = "application/json"
ARROW_BODY = "application/vnd.apache.arrow.stream"
# no type: no body, or a program's that says nothing of it; no page can send any of these unasked
BODIES = (JSON_BODY, ARROW_BODY, "")
COOKIE = "millstream_token"
Header = tuple[bytes, bytes]
Quick = Callable[[Request], Awaitable[Response]]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address_of(text: str) -> tuple[str, int]:
    """Host and port of `PORT` or `HOST:PORT`.

    >>> address_of("8080"), address_of("0.0.0.0:80"), address_of("[::1]:0")
    (('127.0.0.1', 8080), ('0.0.0.0', 80), ('::1', 0))
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(
            f"{text!r} is no address to listen on", hint="a port, or host:port; port 0 takes any"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; no port: the usual one, or any where that is taken."""

    host: str = "127.0.0.1"
    port: int | None = None


def address(text: str | None) -> Address:
    """`8400`, `0.0.0.0:8400`, `[::1]:8400` or nothing.

    >>> address("8400"), address("[::1]:80"), address(None).port
    (Address(host='127.0.0.1', port=8400), Address(host='::1', port=80), None)
    """
    if text is None:
        return Address()
    return Address(*address_of(text))


def demand_token(
    what: str, host: str, token: str | None, hint: str = "set a token, or listen on 127.0.0.1"
) -> None:
    """Beyond this machine nobody serves without a token."""
    if not is_loopback(host) and not token:
        raise UsageError(f"{what} on {host} only with a token", hint=hint)


@dataclass(frozen=True, slots=True)
class Listening:
    """How a daemon is reached, and by whom."""

    host: str = LOOPBACK
    port: int = 0
    token: str | None = None
    certificate: str | None = None  # PEM files; both or neither
    key: str | None = None
    authority: str | None = None  # whose certificates are believed
    WHO: ClassVar[str] = "a daemon"

    def __post_init__(self) -> None:
        hint = "--token-file FILE, or --host 127.0.0.1"
        demand_token(f"{self.WHO} listens", self.host, self.token, hint)
        if (self.certificate is None) != (self.key is None):
            raise UsageError("TLS needs a certificate and its key", hint="--certificate and --key")

    @property
    def verify(self) -> str | bool:
        return self.authority or True


class Application(FastAPI):
    """Routes behind our guard.

    No web page but our own may ask: a request that names a host which is not this one is refused,
    so that no foreign name can be pointed at a local port, and so is one that a browser sends for a
    page of another origin, or with a body that a page may send without asking first.

    `page_headers` are those of an application whose pages a browser shows: then a request that
    asks for work must also carry a header that a foreign page cannot send, and the token may come
    as a cookie.
    """

    def __init__(
        self,
        title: str,
        *,
        token: str | None = None,
        host: str = LOOPBACK,
        flat_errors: bool = False,
        page_headers: Sequence[Header] = (),
    ) -> None:
        super().__init__(title=title, docs_url=None, redoc_url=None, openapi_url=None)
        self._token, self._host, self._flat = token, host, flat_errors
        self._page_headers = page_headers
        self._quick: dict[str, Quick] = {}
        for kind in (AnswerError, MillstreamError):
            self.add_exception_handler(kind, self._failed)
        self.add_exception_handler(HTTPException, self._no_route)
        self.add_exception_handler(RequestValidationError, self._malformed)

    def quick_post(self, path: str, answer: Quick) -> None:
        """A path that passes by the web framework, for what is asked fifty times a second.

        Of a control request's CPU time a tenth went into layers that have nothing to do for it:
        routing, exit stacks, exception handlers.
        """
        self._quick[path] = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        answer: ASGIApp = super().__call__
        request = Request(scope, receive)
        try:
            self.admit(request)
            quick = self._quick.get(scope["path"]) if scope["method"] == "POST" else None
            if quick is not None:
                answer = await quick(request)
        except (AnswerError, MillstreamError) as error:
            answer = error_answer(error, flat=self._flat)
        await answer(scope, receive, self._with_headers(send) if self._page_headers else send)

    def admit(self, request: Request) -> None:
        """Refuses who may not ask."""
        named = (request.url.hostname or "").strip("[]")
        if named and is_loopback(self._host) and not is_loopback(named):
            raise AnswerError(421, "denied", f"this is not {named}")
        self._refuse_foreign_pages(request)
        if self._token is not None and request.scope["path"] != OPEN_PATH:
            self._authorise(request, self._token)
        asks_for_work = self._page_headers and request.method not in ("GET", "HEAD")
        if asks_for_work and request.headers.get(CHANGE_HEADER) is None:
            text = "a request that asks for work carries the header X-Millstream"
            raise AnswerError(403, "denied", text)

    def _refuse_foreign_pages(self, request: Request) -> None:
        """What a browser sends for a page of somebody else's."""
        headers = request.headers
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        own = origin is None or urlsplit(origin).netloc == headers.get("host")
        if not own or site not in ("none", "same-origin"):
            raise AnswerError(403, "denied", "a web page of another origin may not ask")
        kind = headers.get("content-type", JSON_BODY).partition(";")[0].strip().lower()
        asks = request.method not in ("GET", "HEAD") and headers.get(CHANGE_HEADER) is None
        if asks and kind not in BODIES:  # our header shows as well that no foreign page sends it
            hint = f"send the header Content-Type: {JSON_BODY}"
            raise AnswerError(415, "mistake", f"a body is JSON, not {kind[:100]}", hint)

    def _authorise(self, request: Request, token: str) -> None:
        given = [request.headers.get("authorization", "").removeprefix("Bearer ")]
        hint = "Authorization: Bearer TOKEN"
        if self._page_headers:
            given += [request.cookies.get(COOKIE, ""), request.query_params.get("token", "")]
            hint = f"open /?token=TOKEN once, or send it as {hint}"
        if not any(hmac.compare_digest(one.encode(), token.encode()) for one in given):
            raise AnswerError(401, "denied", "a token is required", hint)

    def _with_headers(self, send: Send) -> Send:
        names = {name for name, _ in self._page_headers}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [header for header in message["headers"] if header[0] not in names]
                message = {**message, "headers": [*own, *self._page_headers]}
            await send(message)

        return answer

    async def _failed(self, _: Request, error: Any) -> JSONResponse:
        return error_answer(error, flat=self._flat)

    async def _no_route(self, request: Request, error: Any) -> JSONResponse:
        message = f"{request.method} {request.url.path}: {error.detail}".lower()
        return error_answer(AnswerError(error.status_code, "unknown", message), flat=self._flat)

    async def _malformed(self, _: Request, error: Any) -> JSONResponse:
        first = error.errors()[0]
        message = f"{first['loc'][-1]}: {first['msg']}"[:500]
        return error_answer(AnswerError(422, "mistake", message), flat=self._flat)


class Server:
    """Serves an application at an address that it keeps."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        name: str = "millstream-http",
        certificate: str | None = None,
        key: str | None = None,
        patience_s: int | None = 1,
    ) -> None:
        """`patience_s` bounds how long the end waits for answers under way; None does not."""
        self._socket = bound_socket(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._scheme = "https" if certificate else "http"
        settings = uvicorn.Config(
            app, log_level="warning", log_config=None, access_log=False, lifespan="off", ws="none",
            server_header=False, date_header=False, proxy_headers=False,
            ssl_certfile=certificate, ssl_keyfile=key, timeout_graceful_shutdown=patience_s,
        )  # fmt: skip
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name=name, daemon=True
        )

    @classmethod
    def at(cls, settings: Listening, app: ASGIApp) -> "Server":
        return cls(
            app, host=settings.host, port=settings.port, certificate=settings.certificate,
            key=settings.key,
        )  # fmt: skip

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self._scheme}://{shown}:{self.port}"

    @property
    def started(self) -> bool:
        return self._server.started

    def start(self) -> None:
        """Answers from a thread, as soon as this returns."""
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise ResourceError(f"the endpoint {self.url} did not start")
            time.sleep(0.02)

    async def serve(self) -> None:
        """Answers in the caller's event loop, until `finish`."""
        await self._server.serve(sockets=[self._socket])

    def finish(self) -> None:
        """Asks it to end; returns at once."""
        self._server.should_exit = True

    def stop(self) -> None:
        """Ends the thread, where there is one, and lets the port go."""
        self.finish()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
