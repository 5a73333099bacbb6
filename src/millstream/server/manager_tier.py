"""A manager's endpoint as a processor: control messages from above, and where streams are.

    POST /control                          an envelope, as a processor takes it
    GET  /streams/ID/segments              a pointer to the processor that has the stream
    POST /streams/ID/expect | ack | unexpect    handed on to that processor

Whoever pulls a stream from a manager follows the pointer and pulls from the processor itself; rows
never pass through a manager.
"""

from typing import Any

import httpx
from fastapi import FastAPI, Request

from millstream.control import tiers
from millstream.control.commands import MESSAGE_BYTES_MAX, decode, encode_reply
from millstream.server.access import AnswerError, authorise, json_body
from millstream.server.manager_driver import ManagerDriver

WORDS = ("expect", "ack", "unexpect")


def add_tier_routes(app: FastAPI, driver: ManagerDriver, token: str | None) -> None:
    def where(stream: str) -> tuple[str, str, int]:
        found = tiers.whereabouts(driver.state, stream)
        if found is None:
            raise AnswerError(409, "not_owner", f"stream {stream} is not made below this manager")
        return found

    @app.post("/control")
    async def control(request: Request) -> dict[str, Any]:
        authorise(request, token)
        envelope = decode(await json_body(request, MESSAGE_BYTES_MAX))
        return {"replies": [encode_reply(r) for r in await driver.from_above(envelope)]}

    @app.get("/streams/{stream:path}/segments")
    async def segments(request: Request, stream: str, after: int) -> dict[str, Any]:
        authorise(request, token)
        name, url, epoch = where(stream)
        return {
            "stream": stream, "epoch": epoch, "home_epoch": 0, "segments": [], "behind_rows": 0,
            "moved": {
                "stream": stream, "next": after, "epoch": epoch,
                "to": {"processor": name, "url": url},
            },
            "retained_from": -(1 << 63), "last_rows": {},
        }  # fmt: skip

    @app.post("/streams/{stream:path}/{word}")
    async def forward(request: Request, stream: str, word: str) -> Any:
        authorise(request, token)
        if word not in WORDS:
            raise AnswerError(404, "unknown", f"there is no {word} of a stream")
        _, url, _ = where(stream)
        body = await json_body(request)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with httpx.AsyncClient(headers=headers, timeout=20.0) as client:
                answer = await client.post(f"{url}/streams/{stream}/{word}", json=body)
        except httpx.HTTPError as error:
            raise AnswerError(503, "busy", f"{type(error).__name__}") from None
        if answer.status_code != 200:
            raise AnswerError(answer.status_code, "failed", answer.text[:300])
        return answer.json()
