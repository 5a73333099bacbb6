"""Answers of a processor whose home is kept at several: none leaves before it is safe.

Whatever an answer tells, it may depend on the last commit; so it waits until as many others as are
wanted have that. One that waits in vain becomes 503: the same may be asked again later. Followers
themselves, figures and signs of life do not wait.
"""

import asyncio
from contextlib import suppress
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from millstream.edge.http.access import AnswerError, error_answer
from millstream.edge.http.serving import Application
from millstream.store.replicas.commit_log import PATIENCE_S, CommitLog

AT_ONCE = "millstream.at_once"  # of a request: its answer tells only what may be told early
EARLY = ("/replica/", "/health", "/live", "/ready", "/snapshot", "/system")
UNAVAILABLE = 503
AGAIN = (b"retry-after", b"1")


class GatedApplication(Application):
    def __init__(self, log: CommitLog, title: str, **settings: Any) -> None:
        super().__init__(title, **settings)
        self._log = log
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        log.on_safe.append(self._safe)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        early = scope["type"] != "http" or scope["path"].startswith(EARLY)
        if early:
            await super().__call__(scope, receive, send)
            return
        refused = False

        async def answer(message: Message) -> None:
            nonlocal refused
            # looked at now: followers may be wanted since the request came
            starts = message["type"] == "http.response.start" and not scope.get(AT_ONCE)
            if starts and not await self._wait():
                refused = True
                await self._refuse(scope, receive, send)
            if not refused:
                await send(message)

        await super().__call__(scope, receive, answer)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        text = "too few followers have what was committed here, so this processor sends nothing"
        error = AnswerError(UNAVAILABLE, "replicas", text, "send the same again later")
        response = error_answer(error, flat=self._flat)
        response.raw_headers.append(AGAIN)
        await response(scope, receive, send)

    async def _wait(self) -> bool:
        """Until all that is committed now is safe; whether it is."""
        number = self._log.ledger.changes
        if self._log.safe >= number:
            return True
        self._loop = asyncio.get_running_loop()
        told = self._loop.create_future()
        self._waiting.append((number, told))
        self._ring()  # it may have become safe meanwhile
        try:
            await asyncio.wait_for(told, PATIENCE_S)
        except TimeoutError:
            self._log.waited_in_vain(number)
            return False
        finally:
            self._waiting = [w for w in self._waiting if w[1] is not told]
        return True

    def _safe(self) -> None:
        """Called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # the endpoint is closing
                self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        safe = self._log.safe
        for number, told in self._waiting:
            if number <= safe and not told.done():
                told.set_result(None)
