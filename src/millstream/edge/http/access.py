"""What a request may hold, and how a refusal is told: the same for every endpoint of ours.

Bodies are bounded as they come in, whatever their headers say. An error is JSON in four parts,
`{"error": {"code", "message", "detail", "hint"}}`; one in a query's text also has the place to
underline. Endpoints for people (posted rows, the dashboard) tell the same parts side by side, with
the message as `error`. Nothing secret is in them.
"""

import json
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from millstream.control.protocol.replies import Refusal
from millstream.core.codec import from_json
from millstream.core.errors import (
    AwayError,
    CqlError,
    MillstreamError,
    RefusedError,
    ResourceError,
    StateError,
    UsageError,
)
from millstream.edge.http.roles import Role, asker
from millstream.store.consumers import CLIENT

BODY_BYTES_MAX = 4 << 20
TOO_MANY = 429  # rows wait already
AGAIN_S = 1  # after which somebody who was turned away may try again
T = TypeVar("T")


class AnswerError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint


async def body_bytes(request: Request, size_max: int, *, too_large: int = 413) -> bytes:
    """A request's body as it came; refused as soon as it is too large."""
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > size_max:
                text = f"a request holds at most {size_max} bytes"
                raise AnswerError(too_large, "too_large", text, "send less at once")
            parts.append(part)
    except ClientDisconnect:  # nobody hears the answer
        raise AnswerError(400, "mistake", "the body ended too early") from None
    return b"".join(parts)


async def json_body(
    request: Request, size_max: int = BODY_BYTES_MAX, *, too_large: int = 413
) -> dict[str, Any]:
    """A request's body as an object."""
    body = await body_bytes(request, size_max, too_large=too_large)
    try:
        found = json.loads(body or b"{}")
        if b"\\u" in body:  # half of a pair is JSON, and no text that anybody could store
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise AnswerError(400, "mistake", "the body is not JSON") from None
    if not isinstance(found, dict):
        raise AnswerError(400, "mistake", "the body is not an object")
    return found


async def record_body(
    request: Request, kind: type[T], size_max: int = BODY_BYTES_MAX, *, hint: str = ""
) -> T:
    """A request's body as the record it stands for."""
    return from_json(kind, await json_body(request, size_max), hint=hint)


def check_consumer(request: Request, consumer: object) -> None:
    """A client reads under a name of its own, so that it takes no rows from a processor."""
    if asker(request) < Role.ADMIN and consumer != CLIENT:
        text = f"a client reads as {CLIENT}, not as {str(consumer)[:100]}"
        raise AnswerError(403, "denied", text, "processors alone read under their own names")


def code_of(error: MillstreamError) -> str:
    """The word by which programs tell errors apart."""
    if isinstance(error, RefusedError):
        return error.code
    if isinstance(error, AwayError):
        return "busy"
    return "mistake" if isinstance(error, UsageError) else "failed"


def refusal(error: MillstreamError) -> Refusal:
    """An error as a reply."""
    return Refusal(code_of(error), error.message, error.detail[:5000], error.hint[:5000])


def status_of(error: MillstreamError) -> int:
    if isinstance(error, AwayError):
        return 503
    if isinstance(error, StateError) or hasattr(error, "expected"):
        return 409
    if isinstance(error, ResourceError):
        return 507
    return 400 if isinstance(error, UsageError) else 500


def error_answer(error: AnswerError | MillstreamError, *, flat: bool = False) -> JSONResponse:
    """An error in words; `flat` puts its parts side by side."""
    more: dict[str, Any] = {}
    if isinstance(error, AnswerError):
        status, code, detail = error.status, error.code, ""
    else:
        status, code, detail = status_of(error), code_of(error), error.detail
    if hasattr(error, "expected"):  # the batch of rows that follows
        more["expected"] = error.expected
    place: dict[str, Any] = {}
    if isinstance(error, CqlError):
        place = {"line": error.line, "column": error.column, "length": error.length}
    parts = {"code": code, "detail": detail, "hint": error.hint, **place}
    headers = {"Retry-After": str(AGAIN_S)} if status == TOO_MANY else None
    if flat:
        return JSONResponse({"error": error.message, **parts, **more}, status, headers)
    return JSONResponse({"error": {"message": error.message, **parts}, **more}, status, headers)
