"""A manager's endpoint as a processor: control messages from above, and where streams are.

    POST /control                          an envelope, as a processor takes it
    GET  /streams/ID/segments              a pointer to the processor that has the stream
    POST /streams/ID/expect | ack | unexpect    handed on to that processor

A consumer that pulls a stream from a manager follows the pointer and pulls from the processor
itself; rows never pass through a manager. A manager has no home, so its pages have epoch 0. A
consumer that follows such a pointer sends no farewell, because the owner to which it continues
keeps its rows.
"""

from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from millstream.client.http import AsyncHttpClient, json_of
from millstream.control.manager import tiers
from millstream.control.protocol.envelope import MESSAGE_BYTES_MAX, PATH, Envelope, written
from millstream.edge.http.access import AnswerError, check_consumer, json_body, record_body
from millstream.edge.http.roles import reads, submits
from millstream.edge.http.serving import Application
from millstream.edge.manager.driver import ManagerDriver
from millstream.edge.manager.system_log import SystemLog
from millstream.language.cql.system_streams import PREFIX

WORDS = ("expect", "ack", "unexpect")
HANDED_ON_S = 20.0


def add_tier_routes(
    app: Application, driver: ManagerDriver, log: SystemLog, token: str | None, verify: str | bool
) -> None:
    async def hand_on(method: str, url: str, body: dict[str, Any] | None = None) -> JSONResponse:
        """What the processor answers, word for word."""
        async with AsyncHttpClient(token, verify, answer_s=HANDED_ON_S) as client:
            answer = await client.send(method, url, body)
            return JSONResponse(json_of(answer), answer.status_code)

    def where(stream: str) -> tuple[str, str, int]:
        found = tiers.whereabouts(driver.state, stream)
        if found is None:
            raise AnswerError(409, "not_owner", f"stream {stream} is not made below this manager")
        return found

    @app.post(PATH)
    async def control(request: Request) -> Response:
        envelope = await record_body(request, Envelope, MESSAGE_BYTES_MAX)
        replies = await driver.from_above(envelope)
        return Response(written(replies), media_type="application/json")

    @app.get("/streams/{stream:path}/segments")
    @reads
    async def segments(stream: str, after: int) -> dict[str, Any]:
        name, url, epoch = where(stream)
        return {
            "stream": stream, "epoch": epoch, "home_epoch": 0, "segments": [], "behind_rows": 0,
            "moved": {
                "stream": stream, "next": after, "epoch": epoch,
                "to": {"processor": name, "url": url},
            },
            "retained_from": -(1 << 63), "last_rows": {},
        }  # fmt: skip

    @app.get("/system")
    @reads
    async def system(wanted: str = "", epoch: int = 0, after: int = 0) -> dict[str, Any]:
        return log.answer(frozenset(wanted.split(",")), driver.state.epoch, epoch, after)

    @app.get("/streams/{name}/producers/{producer}")
    @reads
    async def producers(name: str, producer: str) -> JSONResponse:
        return await to_door("GET", name, f"producers/{quote(producer, safe='')}")

    @app.post("/streams/{name}/rows")
    @submits
    async def rows(request: Request, name: str) -> JSONResponse:
        return await to_door("POST", name, "rows", await json_body(request, MESSAGE_BYTES_MAX))

    async def to_door(
        method: str, name: str, rest: str, body: dict[str, Any] | None = None
    ) -> JSONResponse:
        """To the processor where a stream about the system enters."""
        if not name.startswith(PREFIX):
            raise AnswerError(
                404, "unknown", f"a manager takes no rows of stream {name}",
                "post them to the processor where the stream enters",
            )  # fmt: skip
        _, url, _ = where(f"s:{name}")
        return await hand_on(method, f"{url.rstrip('/')}/streams/{name}/{rest}", body)

    @app.post("/streams/{stream:path}/{word}")
    @submits
    async def forward(request: Request, stream: str, word: str) -> JSONResponse:
        if word not in WORDS:
            raise AnswerError(404, "unknown", f"there is no {word} of a stream")
        body = await json_body(request)
        check_consumer(request, body.get("consumer"))
        _, url, _ = where(stream)
        return await hand_on("POST", f"{url}/streams/{stream}/{word}", body)
