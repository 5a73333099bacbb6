"""Rows over HTTP: posted in numbered batches, answered after their commit.

    POST /streams/NAME/rows                  {"producer": "p", "sequence": 7, "rows": [{...}, ...]}
    GET  /streams/NAME/producers/PRODUCER    the sequence number that follows
    POST /streams/NAME/end                   no more rows will come
    GET  /health

A repeated number is acknowledged and not appended again; after a gap the answer is 409 with the
number that is expected. Rows that do not fit the declaration are rejected one by one, with reasons.
503 says that too many rows wait: the same batch is to be sent again.
The endpoint listens on loopback; beyond it, every request carries a token.
"""

import hmac
import ipaddress
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from millstream.errors import MillstreamError, ResourceError, StateError, UsageError
from millstream.server.kept_port import bound_socket

if TYPE_CHECKING:
    from millstream.engine.push_source import PushSource

REQUEST_BYTES_MAX = 16 << 20
START_SECONDS_MAX = 30.0
Doors = Callable[[str], "PushSource | None"]
Busy = Callable[[], bool]


class _Refused(Exception):  # noqa: N818  (an answer, not a fault)
    """An answer other than 200."""

    def __init__(self, status: int, error: str, **more: Any) -> None:
        super().__init__(error)
        self.status, self.content = status, {"error": error, **more}


def rows_app(
    doors: Doors,
    *,
    token: str | None = None,
    request_bytes_max: int = REQUEST_BYTES_MAX,
    busy: Busy | None = None,
) -> FastAPI:
    """The application; `doors` gives the push source of a stream, None where there is none.

    While `busy` says so, batches are turned away (503) and are to be sent again later.
    """
    app = FastAPI(title="Millstream rows", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(_Refused)
    async def refused(_: Request, answer: _Refused) -> JSONResponse:
        return JSONResponse(answer.content, answer.status)

    @app.exception_handler(MillstreamError)
    async def failed(_: Request, error: MillstreamError) -> JSONResponse:
        return JSONResponse(_told(error), _status(error))

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/streams/{name}/rows")
    async def post_rows(name: str, request: Request) -> dict[str, Any]:
        authorise(request, token)
        door = _door(doors, name)
        if busy is not None and await run_in_threadpool(busy):
            raise _Refused(503, "too many rows wait to be processed", hint="send it again later")
        body = _batch(await _body(request, request_bytes_max))
        answer = await run_in_threadpool(
            door.push, body["producer"], body["sequence"], body["rows"]
        )
        return {
            "stream": name,
            "producer": body["producer"],
            "sequence": body["sequence"],
            "rows": answer.rows,
            "late": answer.late,
            "rejected": answer.rejected,
            "repeated": answer.repeated,
            "reasons": [{"row": row, "reason": reason} for row, reason in answer.reasons],
        }

    @app.get("/streams/{name}/producers/{producer}")
    async def producer(name: str, producer: str, request: Request) -> dict[str, Any]:
        authorise(request, token)
        return {"producer": producer, "expected": _door(doors, name).expected(producer)}

    @app.post("/streams/{name}/end")
    async def end(name: str, request: Request) -> dict[str, Any]:
        authorise(request, token)
        await run_in_threadpool(_door(doors, name).finish)
        return {"stream": name, "ended": True}

    return app


def authorise(request: Request, token: str | None) -> None:
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if token is not None and not hmac.compare_digest(given.encode(), token.encode()):
        raise _Refused(401, "a token is required", hint="Authorization: Bearer TOKEN")


def _door(doors: Doors, name: str) -> "PushSource":
    door = doors(name)
    if door is None:
        raise _Refused(404, f"there is no stream {name} that takes rows")
    return door


async def _body(request: Request, size_max: int) -> bytes:
    """A request's body; refused as soon as it is too large, whatever its header says."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > size_max:
            raise _Refused(
                413, f"a request holds at most {size_max} bytes", hint="send less a batch"
            )
        parts.append(part)
    return b"".join(parts)


def _batch(body: bytes) -> dict[str, Any]:
    try:
        batch = json.loads(body)
    except (ValueError, RecursionError):
        raise _Refused(400, "the body is not JSON") from None
    if not isinstance(batch, dict):
        raise _Refused(400, "the body is not an object")
    for key, kind in (("producer", str), ("sequence", int), ("rows", list)):
        if not isinstance(batch.get(key), kind) or isinstance(batch.get(key), bool):
            raise _Refused(
                400, f"{key} is missing or no {kind.__name__}",
                hint='{"producer": "p", "sequence": 1, "rows": [{...}]}',
            )  # fmt: skip
    return batch


def _status(error: MillstreamError) -> int:
    if hasattr(error, "expected") or isinstance(error, StateError):
        return 409
    if isinstance(error, ResourceError):
        return 507
    return 400 if isinstance(error, UsageError) else 500


def _told(error: MillstreamError) -> dict[str, Any]:
    told: dict[str, Any] = {"error": error.message}
    told |= {k: v for k, v in (("detail", error.detail), ("hint", error.hint)) if v}
    if hasattr(error, "expected"):
        told["expected"] = error.expected
    return told


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


class RowsServer:
    """Serves the application from a thread."""

    def __init__(
        self,
        doors: Doors,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        busy: Busy | None = None,
        more: Callable[[FastAPI], None] | None = None,
    ) -> None:
        """`more` may add routes of its own to the application."""
        if not is_loopback(host) and not token:
            raise UsageError(
                f"rows are accepted on {host} only with a token",
                hint="set a token, or listen on 127.0.0.1",
            )
        app = rows_app(doors, token=token, request_bytes_max=request_bytes_max, busy=busy)
        if more is not None:
            more(app)
        self._socket = bound_socket(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        settings = uvicorn.Config(
            app, log_level="warning", lifespan="off", access_log=False, log_config=None
        )
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self._serve, name="millstream-rows", daemon=True)

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}"

    def start(self) -> None:
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(START_SECONDS_MAX / 0.02)):
            if self._server.started:
                return
            waited.wait(0.02)
        raise ResourceError(f"the endpoint {self.url} did not start")

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
