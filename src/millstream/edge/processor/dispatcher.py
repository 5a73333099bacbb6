"""Takes a processor's envelopes, from any sender, and hands each message to its handler.

A manager's are carried out by the connection manager, in the manager's order; messages of other
processors go to balancing and to the coordinator of placements, by the kind of message.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from millstream.control.protocol.commands import KeepReplicas, Progress, Report
from millstream.control.protocol.envelope import MESSAGE_BYTES_MAX, PATH, Envelope, written
from millstream.control.protocol.replies import Done, Refusal, Reply
from millstream.core.errors import MillstreamError
from millstream.edge.http.access import record_body, refusal
from millstream.edge.http.serving import Application
from millstream.edge.replicas.gated_application import AT_ONCE

Handler = Callable[[str, Any], Reply | None]  # of the sender's name and a message; None: done


class Dispatcher:
    """The control endpoint of one processor."""

    def __init__(
        self,
        name: str,
        lead: Callable[[Envelope], list[Reply]] | None = None,
        before: Callable[[Envelope], Awaitable[None]] | None = None,
    ) -> None:
        """`lead` carries out what a manager says; `before` may let an answer wait."""
        self.name, self._lead, self._before = name, lead, before
        self._handlers: dict[type, Handler] = {}

    def on(self, kinds: Iterable[type], handler: Handler) -> None:
        """Lets a handler carry out messages of some kinds, one by one."""
        self._handlers.update(dict.fromkeys(kinds, handler))

    def receive(self, envelope: Envelope) -> list[Reply]:
        """A reply for each message."""
        if envelope.by == "manager" and self._lead is not None:
            return self._lead(envelope)
        if envelope.to != self.name:
            refused = Refusal("not_me", f"this is processor {self.name}")
            return [refused for _ in envelope.messages]
        return [self._tried(envelope.sender, message) for message in envelope.messages]

    def _tried(self, sender: str, message: Any) -> Reply:
        handler = self._handlers.get(type(message))
        if handler is None:
            return Refusal("unknown", f"this processor takes no {message.do}")
        try:
            return handler(sender, message) or Done()
        except MillstreamError as error:
            return refusal(error)

    def add_route(self, app: Application) -> None:
        app.quick_post(PATH, self._answer)

    async def _answer(self, request: Request) -> Response:
        envelope = await record_body(request, Envelope, MESSAGE_BYTES_MAX)
        if self._before is not None:
            await self._before(envelope)
        if all(isinstance(m, Report | KeepReplicas) for m in envelope.messages):
            request.scope[AT_ONCE] = True
        if envelope.number == 0 and all(isinstance(m, Progress) for m in envelope.messages):
            replies = self.receive(envelope)  # a look at the ledger; waits for nobody
        else:
            replies = await run_in_threadpool(self.receive, envelope)
        return Response(written(replies), media_type="application/json")
