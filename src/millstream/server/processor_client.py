"""Commands to one processor over HTTP, with an answer for each; for benchmarks and scripts.

A manager has its own way to talk to many at once; this one waits for the answer.
"""

import itertools
import threading
from typing import Any

import httpx

from millstream.client.addresses import UNREACHABLE
from millstream.control.commands import QUESTIONS, Command, Envelope, encode
from millstream.control.records import Peer
from millstream.control.replies import Refusal, Reply, decode_reply
from millstream.store.transfer import PeerAwayError, RefusedError

ANSWER_SECONDS = 120.0
_numbers = itertools.count(1)
_lock = threading.Lock()


class ProcessorClient:
    """One processor, as its manager talks to it; numbers of messages grow over all clients."""

    def __init__(self, name: str, url: str, token: str | None = None, epoch: int = 1) -> None:
        self.name, self.url, self.epoch = name, url, epoch
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.client = httpx.Client(base_url=url, timeout=ANSWER_SECONDS, headers=headers)

    def ask(self, *commands: Command, number: int | None = None) -> list[Reply]:
        """A reply for each command, refusals included."""
        if number is None:
            questions = all(isinstance(c, QUESTIONS) for c in commands)
            with _lock:
                number = 0 if questions else next(_numbers)
        envelope = Envelope(self.epoch, number, self.name, tuple(commands))
        try:
            answer = self.client.post("/control", json=encode(envelope))
            answer.raise_for_status()
        except UNREACHABLE as error:
            raise PeerAwayError(
                f"processor {self.name} does not answer", detail=str(error)
            ) from error
        found = answer.json()["replies"]
        return [decode_reply(c, r) for c, r in zip(commands, found, strict=True)]

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
        try:
            answer = self.client.get(path, params=asked)
            answer.raise_for_status()
        except UNREACHABLE as error:
            raise PeerAwayError(
                f"processor {self.name} does not answer", detail=str(error)
            ) from error
        return dict(answer.json())

    def close(self) -> None:
        self.client.close()
