"""Rows over HTTP: posted in numbered batches, answered after their commit.

    POST /streams/NAME/rows                  {"producer": "p", "sequence": 7, "rows": [{...}, ...]}
    POST /streams/NAME/rows?producer=p&sequence=7      the rows as an Arrow stream, with its type
    GET  /streams/NAME/producers/PRODUCER    the sequence number that follows
    POST /streams/NAME/end                   no more rows will come
    GET  /health

A repeated number is acknowledged and not appended again; after a gap the answer is 409 with the
number that is expected. Rows that do not fit the declaration are rejected one by one, with reasons.
429 says that too many rows wait, or that the stream is moving to another processor just now: the
same batch is to be sent again after `Retry-After` seconds. Where rows enter at another processor by
now, what is asked here is passed on to it, and its answer is the answer.
A run's endpoint listens on loopback and knows programs of its own user; others, and everybody
beyond this machine, carry a token.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Strict

from millstream.core.errors import MovedError
from millstream.edge.http.access import TOO_MANY, AnswerError, body_bytes, record_body
from millstream.edge.http.arrow_body import ARROW_HINT, arrow_table
from millstream.edge.http.own_programs import own_program
from millstream.edge.http.reserved_port import LOOPBACK
from millstream.edge.http.roles import for_all, reads, submits
from millstream.edge.http.serving import (
    ARROW_BODY,
    Application,
    Server,
    Tls,
    demand_closed,
    is_loopback,
)

if TYPE_CHECKING:
    from millstream.engine.sources.push_source import PushSource

REQUEST_BYTES_MAX = 16 << 20
Doors = Callable[[str], "PushSource | Elsewhere | None"]
Busy = Callable[[], bool]
HINT = '{"producer": "p", "sequence": 1, "rows": [{...}]}'
DIGITS_MAX = 20  # of a sequence number


@dataclass(frozen=True, slots=True)
class Batch:
    """What a producer posts; the rows themselves are judged one by one."""

    producer: Annotated[str, Strict()]
    sequence: Annotated[int, Strict()]
    rows: Annotated[list[Any], Strict()]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where rows enter by now: `ask` passes a request (method, path, body, its type) on."""

    ask: Callable[[str, str, bytes, str], tuple[int, bytes, str | None]]

    async def answer(self, request: Request, size_max: int) -> Response:
        body = await body_bytes(request, size_max)
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        kind = request.headers.get("content-type", "")
        status, content, again = await run_in_threadpool(self.ask, request.method, path, body, kind)
        headers = {"Retry-After": again} if again else None
        return Response(content, status, headers, "application/json")


@dataclass(frozen=True, slots=True)
class ArrowBatch:
    """The same with rows that are Arrow's already."""

    producer: str
    sequence: int
    rows: pa.Table


def rows_app(
    doors: Doors,
    *,
    host: str = LOOPBACK,
    known_as: str | None = None,
    token: str | None = None,
    request_bytes_max: int = REQUEST_BYTES_MAX,
    busy: Busy | None = None,
    word: Callable[[], str] = lambda: "ok",
) -> Application:
    """The application; `doors` gives the push source of a stream, None where there is none.

    While `busy` says so, batches are turned away (429) and are to be sent again later. `/health`
    gives the `word`.
    """
    app = Application(
        "Millstream rows", host=host, known_as=known_as, token=token, flat_errors=True
    )

    @app.get("/health")
    @for_all
    async def health() -> dict[str, str]:
        return {"status": word()}

    @app.post("/streams/{name}/rows")
    @submits
    async def post_rows(name: str, request: Request) -> Any:
        door = _door(doors, name)
        if isinstance(door, Elsewhere):
            return await door.answer(request, request_bytes_max)
        if busy is not None and await run_in_threadpool(busy):
            text = "too many rows wait to be processed"
            raise AnswerError(TOO_MANY, "busy", text, "send it again later")
        batch = await _batch(request, request_bytes_max)
        try:
            answer = await run_in_threadpool(door.push, batch.producer, batch.sequence, batch.rows)
        except MovedError as moved:
            raise on_its_way(moved.message) from None
        return {
            "stream": name,
            "producer": batch.producer,
            "sequence": batch.sequence,
            "rows": answer.rows,
            "late": answer.late,
            "rejected": answer.rejected,
            "repeated": answer.repeated,
            "reasons": [{"row": row, "reason": reason} for row, reason in answer.reasons],
        }

    @app.get("/streams/{name}/producers/{producer}")
    @reads
    async def producer(name: str, producer: str, request: Request) -> Any:
        door = _door(doors, name)
        if isinstance(door, Elsewhere):
            return await door.answer(request, request_bytes_max)
        return {"producer": producer, "expected": door.expected(producer)}

    @app.post("/streams/{name}/end")
    @submits
    async def end(name: str, request: Request) -> Any:
        door = _door(doors, name)
        if isinstance(door, Elsewhere):
            return await door.answer(request, request_bytes_max)
        try:
            await run_in_threadpool(door.finish)
        except MovedError as moved:
            raise on_its_way(moved.message) from None
        return {"stream": name, "ended": True}

    return app


async def _batch(request: Request, size_max: int) -> Batch | ArrowBatch:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != ARROW_BODY:
        return await record_body(request, Batch, size_max, hint=HINT)
    given = request.query_params
    number = given.get("sequence", "")
    if not (number.isascii() and number.isdigit() and len(number) < DIGITS_MAX):
        raise AnswerError(400, "mistake", "a batch needs its sequence number", ARROW_HINT)
    body = await body_bytes(request, size_max)
    rows = await run_in_threadpool(arrow_table, body, size_max)
    return ArrowBatch(given.get("producer", ""), int(number), rows)


def on_its_way(text: str) -> AnswerError:
    """The stream is at nobody's just now: the same again, a little later."""
    return AnswerError(TOO_MANY, "moving", text, "send it again later, under the same number")


def _door(doors: Doors, name: str) -> "PushSource | Elsewhere":
    door = doors(name)
    if door is None:
        raise AnswerError(404, "unknown", f"there is no stream {name} that takes rows")
    return door


class RowsServer(Server):
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
        word: Callable[[], str] = lambda: "ok",
        more: Callable[[Application], None] | None = None,
        tls: Tls | None = None,
        own_programs: bool = False,
    ) -> None:
        """`more` may add routes of its own; the user's `own_programs` may need no token here."""
        tls = tls or Tls()
        demand_closed("rows are accepted", host, token, tls.certificate, plain=tls.plain)
        app = rows_app(
            doors, host=host, token=token, request_bytes_max=request_bytes_max, busy=busy, word=word
        )
        if more is not None:
            more(app)
        if own_programs and is_loopback(host):
            app.known = own_program
        # a batch whose rows are being written is answered, however long that takes
        super().__init__(
            app, host=host, port=port, name="millstream-rows", tls=tls, patience_s=None
        )
