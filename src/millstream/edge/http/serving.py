"""The one way to serve: an application that guards all its routes, and a server that runs it.

Every route of every server of ours is a route of an `Application`. Each request passes `admit`
before anything else, and every error leaves through `error_answer`. A `Server` listens from the
moment it is made and answers from a thread, or in the caller's event loop.
"""

import asyncio
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.client.http import checked_url
from millstream.client.keyring import listed
from millstream.core.errors import MillstreamError, ResourceError, UsageError
from millstream.edge.http.access import AnswerError, error_answer
from millstream.edge.http.browsers import ENTRY_PATH
from millstream.edge.http.connections import ConnectionLimits, protocol_of
from millstream.edge.http.reserved_port import LOOPBACK, bound_socket
from millstream.edge.http.roles import ROLE, Keys, Role, role_of

START_SECONDS_MAX = 30.0
CHANGE_HEADER = "x-millstream"
WAITING_AT_DOOR = 4096
JSON_BODY = "application/json"
ARROW_BODY = "application/vnd.apache.arrow.stream"
# no type: no body, or a program's that says nothing of it; no page can send any of these unasked
BODIES = (JSON_BODY, ARROW_BODY, "")
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
            f"{text!r} is not an address to listen on",
            hint="a port, or host:port; port 0 takes any",
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


def demand_closed(
    what: str,
    host: str,
    token: str | None,
    certificate: str | None,
    *,
    plain: bool = False,
    hint: str = "set MILLSTREAM_TOKEN, or listen on 127.0.0.1",
) -> None:
    """Outside this machine a server needs a token, and a channel where others cannot read it."""
    if is_loopback(host):
        return
    if not token:
        raise UsageError(f"{what} on {host} only with a token", hint=hint)
    if not certificate and not plain:
        raise UsageError(
            f"{what} on {host} only with TLS",
            detail="a token that travels in the open is anybody's",
            hint="--certificate FILE and --key FILE; --plain-http where the network itself is safe",
        )


@dataclass(frozen=True, slots=True)
class Tls:
    """How what is said stays between two: PEM files, both or neither."""

    certificate: str | None = None
    key: str | None = None
    plain: bool = False  # a user says that it needs no TLS outside this machine

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise UsageError("TLS needs a certificate and its key", hint="--certificate and --key")

    def context(self) -> ssl.SSLContext | None:
        """How lines are secured; None where they are not."""
        if self.certificate is None:
            return None
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            made.load_cert_chain(self.certificate, self.key, lambda: "")  # no prompt
        except (OSError, ValueError) as error:
            raise UsageError(
                "the certificate and its key are of no use", detail=f"{self.certificate}: {error}",
                hint="PEM files that belong together, the key without a password",
            ) from None  # fmt: skip
        return made


@dataclass(frozen=True, slots=True)
class Listening:
    """How a daemon is reached, and by whom."""

    host: str = LOOPBACK
    port: int = 0
    token: str | None = None
    tls: Tls = Tls()
    authority: str | None = None  # its certificates are accepted
    advertise: str | None = None  # URL at which others reach it, where that is not its own
    WHO: ClassVar[str] = "a daemon"

    def __post_init__(self) -> None:
        hint = "--token-file FILE, or --host 127.0.0.1"
        tls = self.tls
        demand_closed(
            f"{self.WHO} listens", self.host, self.token, tls.certificate, plain=tls.plain,
            hint=hint,
        )  # fmt: skip
        if self.advertise is not None:
            checked_url(self.advertise, "--advertise")

    @property
    def verify(self) -> str | bool:
        return self.authority or True


class Application(FastAPI):
    """Routes behind our guard.

    No web page but our own may ask: a request that names a host which is not this one is refused,
    so that no foreign name can be pointed at a local port, and so is one that a browser sends for a
    page of another origin, or with a body that a page may send without asking first. `known_as` is
    the URL at which others reach it, where that is not its own.

    With a token, a client needs the route's role (`roles.py`). `page_headers` are those
    of an application whose pages a browser shows: then a request that asks for work must also carry
    a header that a foreign page cannot send, and `guests` may let browsers in (`browsers.py`).
    """

    guests: Callable[[Request], Role] | None = None
    known: Callable[[Request], Role] | None = None  # clients that need no token (`own_programs.py`)
    closed: Callable[[str], None] | None = None  # raises for paths that are not answered now

    def __init__(
        self,
        title: str,
        *,
        token: str | None = None,
        host: str = LOOPBACK,
        known_as: str | None = None,
        flat_errors: bool = False,
        page_headers: Sequence[Header] = (),
    ) -> None:
        super().__init__(title=title, docs_url=None, redoc_url=None, openapi_url=None)
        self.keys = Keys(token) if token else None
        self._host, self._flat = host, flat_errors
        self._known_as = urlsplit(known_as or "").hostname
        self._page_headers = page_headers
        self.quick: dict[str, Quick] = {}
        for kind in (AnswerError, MillstreamError):
            self.add_exception_handler(kind, self._failed)
        self.add_exception_handler(HTTPException, self._no_route)
        self.add_exception_handler(RequestValidationError, self._malformed)

    def quick_post(self, path: str, answer: Quick) -> None:
        """A path that passes by the web framework, for what is asked fifty times a second.

        Of a control request's CPU time a tenth went into layers that have nothing to do for it:
        routing, exit stacks, exception handlers.
        """
        self.quick[path] = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        answer: ASGIApp = super().__call__
        request = Request(scope, receive)
        try:
            self.admit(request)
            if self.closed is not None:
                self.closed(scope["path"])
            quick = self.quick.get(scope["path"]) if scope["method"] == "POST" else None
            if quick is not None:
                answer = await quick(request)
        except (AnswerError, MillstreamError) as error:
            answer = error_answer(error, flat=self._flat)
        await answer(scope, receive, self._with_headers(send) if self._page_headers else send)

    def admit(self, request: Request) -> None:
        """Refuses clients without the role."""
        try:
            asked = urlsplit(f"//{request.headers.get('host', '')}")
            named, _ = asked.hostname or "", asked.port
            origin = urlsplit(request.headers.get("origin", "")).netloc
        except ValueError:
            text = "the request names no host, or no origin, that could be"
            raise AnswerError(400, "denied", text) from None
        own = is_loopback(named) or named == self._known_as
        if named and is_loopback(self._host) and not own:
            raise AnswerError(421, "denied", f"this is not {named}")
        self._refuse_foreign_pages(request, origin)
        if self.keys is not None:
            self._authorise(request, self.keys)
        asks_for_work = self._page_headers and request.method not in ("GET", "HEAD")
        if asks_for_work and request.headers.get(CHANGE_HEADER) is None:
            text = "a request that asks for work carries the header X-Millstream"
            raise AnswerError(403, "denied", text)

    def _refuse_foreign_pages(self, request: Request, origin: str) -> None:
        """What a browser sends for a foreign page, at `origin`."""
        headers = request.headers
        site = headers.get("sec-fetch-site", "none")
        own = "origin" not in headers or (origin and origin == headers.get("host"))
        followed = headers.get("sec-fetch-dest") == "document" and request.method == "GET"
        if self._page_headers and followed and request.scope["path"] == ENTRY_PATH:
            site = "none"  # a link to our page, in a notebook say: that page reads nothing of it
        if not own or site not in ("none", "same-origin"):
            raise AnswerError(403, "denied", "a web page of another origin may not ask")
        # a page can send a body without a type, and no other client needs to
        body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        kind = headers.get("content-type", "of no kind" if body else JSON_BODY)
        kind = kind.partition(";")[0].strip().lower()
        asks = request.method not in ("GET", "HEAD") and headers.get(CHANGE_HEADER) is None
        if asks and kind not in BODIES:  # our header shows as well that no foreign page sends it
            hint = f"send the header Content-Type: {JSON_BODY}"
            raise AnswerError(415, "mistake", f"a body is JSON, not {kind[:100]}", hint)

    def needed_role(self, scope: Scope) -> Role:
        """What the route of a request asks for; where there is none, any token may hear so."""
        if scope["method"] == "POST" and scope["path"] in self.quick:
            return role_of(self.quick[scope["path"]])
        for route in self.routes:
            match, child = route.matches(scope)
            if match is not Match.FULL:
                continue
            if not isinstance(route, Mount):
                return role_of(getattr(route, "endpoint", None))
            if isinstance(route.app, Application):
                return route.app.needed_role({**scope, **child})
            return role_of(route.app)
        return Role.READ

    def _authorise(self, request: Request, keys: Keys) -> None:
        needed = self.needed_role(request.scope)
        has = keys.role_of(request.headers.get("authorization", "").removeprefix("Bearer "))
        if has is Role.OPEN and self.guests is not None:
            has = self.guests(request)
        if has is Role.OPEN and needed > Role.OPEN and self.known is not None:
            has = self.known(request)
        request.scope[ROLE] = has
        if needed is Role.OPEN:
            return
        if has is Role.OPEN:
            hint = "set MILLSTREAM_TOKEN to what its owner's `millstream token` prints"
            if self.guests is not None:
                hint = "its owner's `millstream token --link URL` prints a link that opens it"
            raise AnswerError(401, "denied", "a token is required", hint)
        if has < needed:
            words = f"this token may {has.name.lower()}, and that is for {needed.name.lower()}"
            hint = f"its owner's `millstream token --role {needed.name.lower()}` prints another"
            if self.guests is not None:
                words = words.replace("token", "browser")
                hint = "its owner's `millstream token --link URL` prints a link that may do more"
            raise AnswerError(403, "denied", words, hint)

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


class QueueingServer(uvicorn.Server):
    """Takes some connections at once, and lets many more wait at the door: one that the kernel
    turns away comes again after a second or three."""

    loop: asyncio.AbstractEventLoop  # in which it answers, once it does

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        for door in sockets or ():
            door.listen(WAITING_AT_DOOR)  # asyncio takes as many at once as it had listen for


class Server:
    """Serves an application at an address that it keeps."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        name: str = "millstream-http",
        tls: Tls | None = None,
        known_as: str | None = None,
        patience_s: int | None = 1,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """`patience_s` bounds how long the end waits for answers under way; None does not.

        The user's keyring lists the address, and the one it is `known_as`, with the token.
        """
        tls, limits = tls or Tls(), limits or ConnectionLimits()
        protocol = protocol_of(limits, tls.context())
        self._socket = bound_socket(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._scheme = "https" if tls.certificate else "http"
        self._token = app.keys.secret if isinstance(app, Application) and app.keys else None
        self._known_as, self._listed = known_as, ExitStack()
        settings = uvicorn.Config(
            app, log_level="error", log_config=None, access_log=False, lifespan="off", ws="none",
            http=protocol, h11_max_incomplete_event_size=limits.head_bytes_max,
            backlog=limits.taken_at_once(),
            server_header=False, date_header=False, proxy_headers=False,
            timeout_graceful_shutdown=patience_s,
        )  # fmt: skip
        self._server = QueueingServer(settings)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name=name, daemon=True
        )

    @classmethod
    def at(cls, settings: Listening, app: ASGIApp, known_as: str | None = None) -> "Server":
        return cls(app, host=settings.host, port=settings.port, tls=settings.tls, known_as=known_as)

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self._scheme}://{shown}:{self.port}"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in which it answers."""
        return self._server.loop

    @property
    def started(self) -> bool:
        return self._server.started

    def start(self) -> None:
        """Answers from a thread, as soon as this returns."""
        self._list()
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise ResourceError(f"the endpoint {self.url} did not start")
            time.sleep(0.02)

    async def serve(self) -> None:
        """Answers in the caller's event loop, until `finish`."""
        self._list()
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
        self._listed.close()

    def _list(self) -> None:
        """Lets commands of this user find the token."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
        here = everywhere.get(self.host)
        url = self.url if here is None else f"{self._scheme}://{here}:{self.port}"
        urls = (url, self._known_as) if self._known_as else (url,)
        self._listed.enter_context(listed(urls, self._token))
