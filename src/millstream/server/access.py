"""Who may ask, how much, and how refusals are told: the same for every endpoint of a processor.

Endpoints listen on loopback; beyond it every request carries a token. Bodies are bounded as they
come in, whatever their headers say. Errors are JSON in four parts; nothing secret is in them.
"""

import hmac
import json
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError

from millstream.errors import MillstreamError, ResourceError, StateError, UsageError
from millstream.store.transfer import PeerAwayError, RefusedError

BODY_BYTES_MAX = 4 << 20
Body = TypeVar("Body", bound=BaseModel)


class AnswerError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.content = status, {"code": code, "message": message, "hint": hint}


def authorise(request: Request, token: str | None) -> None:
    """Refuses a request without the token, where there is one."""
    if token is None:
        return
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not hmac.compare_digest(given.encode(), token.encode()):
        raise AnswerError(401, "denied", "a token is required", "Authorization: Bearer TOKEN")


async def json_body(request: Request, size_max: int = BODY_BYTES_MAX) -> dict[str, Any]:
    """A request's body as an object; refused as soon as it is too large."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > size_max:
            raise AnswerError(413, "too_large", f"a request holds at most {size_max} bytes")
        parts.append(part)
    body = b"".join(parts)
    try:
        found = json.loads(body or b"{}")
        if b"\\u" in body:  # half of a pair is JSON, and no text that anybody could store
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise AnswerError(400, "mistake", "the body is not JSON") from None
    if not isinstance(found, dict):
        raise AnswerError(400, "mistake", "the body is not an object")
    return found


def validated(kind: type[Body], body: dict[str, Any]) -> Body:
    """A body as its model has it; the first thing that is wrong with it is told."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AnswerError(400, "mistake", f"{where}: {first['msg']}"[:500]) from None


def text(body: dict[str, Any], key: str) -> str:
    """A text of a body."""
    found = body.get(key)
    if not isinstance(found, str) or not 0 < len(found) <= 1000:
        raise AnswerError(400, "mistake", f"{key} is missing or no text")
    return found


def number(body: dict[str, Any], key: str) -> int:
    """A whole number of a body."""
    found = body.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 62:
        raise AnswerError(400, "mistake", f"{key} is missing or no whole number")
    return found


def told(error: MillstreamError) -> dict[str, Any]:
    """An error as others read it."""
    return {
        "code": code_of(error),
        "message": error.message,
        "detail": error.detail,
        "hint": error.hint,
    }


def code_of(error: MillstreamError) -> str:
    """The word by which programs tell errors apart."""
    if isinstance(error, RefusedError):
        return error.code
    if isinstance(error, PeerAwayError):
        return "busy"
    return "mistake" if isinstance(error, UsageError) else "failed"


def status_of(error: MillstreamError) -> int:
    if isinstance(error, PeerAwayError):
        return 503
    if isinstance(error, StateError):
        return 409
    if isinstance(error, ResourceError):
        return 507
    return 400 if isinstance(error, UsageError) else 500


def error_answer(error: AnswerError | MillstreamError) -> JSONResponse:
    """An error in words."""
    if isinstance(error, AnswerError):
        return JSONResponse({"error": error.content}, error.status)
    return JSONResponse({"error": told(error)}, status_of(error))


def add_error_answers(app: FastAPI) -> None:
    """Lets an application answer errors in words."""

    @app.exception_handler(AnswerError)
    async def refused(_: Request, answer: AnswerError) -> JSONResponse:
        return error_answer(answer)

    @app.exception_handler(MillstreamError)
    async def failed(_: Request, error: MillstreamError) -> JSONResponse:
        return error_answer(error)
