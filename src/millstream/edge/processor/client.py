"""Commands to one processor over HTTP, with an answer for each; for benchmarks and scripts.

A manager has its own way to talk to many at once; this one waits for the answer.
"""

import itertools
import threading
from typing import Any

from millstream.client.http import HttpClient, json_of
from millstream.control.protocol.commands import QUESTIONS, Command
from millstream.control.protocol.envelope import PATH, Envelope, read_replies
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import Refusal, Reply
from millstream.core.errors import AwayError, MillstreamError, RefusedError

ANSWER_SECONDS = 120.0
_numbers = itertools.count(1)
_lock = threading.Lock()


class ProcessorClient:
    """One processor, as its manager talks to it; numbers of messages grow over all clients."""

    def __init__(self, name: str, url: str, token: str | None = None, epoch: int = 1) -> None:
        self.name, self.url, self.epoch = name, url, epoch
        self.client = HttpClient(token, base_url=url, answer_s=ANSWER_SECONDS)

    def ask(self, *commands: Command, number: int | None = None) -> list[Reply]:
        """A reply for each command, refusals included."""
        if number is None:
            questions = all(isinstance(c, QUESTIONS) for c in commands)
            with _lock:
                number = 0 if questions else next(_numbers)
        envelope = Envelope(self.epoch, number, self.name, tuple(commands))
        return list(read_replies(envelope, self._asked("POST", PATH, envelope)))

    def do(self, *commands: Command) -> list[Any]:
        """The same; a refusal is raised."""
        replies = self.ask(*commands)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, Refusal):
                raise RefusedError(
                    reply.code,
                    f"{self.name} refuses {command.do}: {reply.message}",
                    detail=reply.detail,
                    hint=reply.hint,
                )
        return replies

    def peer(self, epoch: int = 0) -> Peer:
        return Peer(self.name, self.url, epoch)

    def get(self, path: str, **asked: Any) -> dict[str, Any]:
        """An answer of one of its other endpoints."""
        return self._asked("GET", path, params=asked)

    def _asked(self, method: str, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        try:
            return dict(json_of(self.client.ask(method, path, body, **more)))
        except MillstreamError as error:
            text = f"processor {self.name} does not answer"
            raise AwayError(text, detail=f"{error.message}: {error.detail}") from error

    def close(self) -> None:
        self.client.close()
