"""A path that passes by the web framework, for what is asked fifty times a second.

Of a control request's CPU time a tenth went into layers that have nothing to do for it: routing,
exit stacks, exception handlers. Errors are answered as everywhere else.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from millstream.errors import MillstreamError
from millstream.server.access import AnswerError, error_answer

Scope = dict[str, Any]


class ShortWay:
    """An ASGI application before another: answers POSTs to one path itself."""

    def __init__(
        self, app: Callable[..., Awaitable[None]], path: str,
        answer: Callable[[Request], Awaitable[Response]],
    ) -> None:  # fmt: skip
        self._app, self._path, self._answer = app, path, answer

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        mine = scope["type"] == "http" and scope["path"] == self._path
        if not mine or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            response = await self._answer(Request(scope, receive))
        except (AnswerError, MillstreamError) as error:
            response = error_answer(error)
        await response(scope, receive, send)
