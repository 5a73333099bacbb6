"""Events to a file or over HTTP, in order, from a thread of their own: nobody waits for a receiver.

A receiver that is away is tried again for a while; what does not get through is counted and said,
never kept for ever.
"""

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millstream.client.http import HttpClient
from millstream.core.errors import AwayError, MillstreamError, UsageError

WAITING_MAX = 10_000  # events that a receiver may leave lying
TRIES = 4
FIRST_PAUSE_S = 0.25
CLOSE_S = 5.0
ANSWER_S = 5.0
URL, KEY, ENDPOINT = "OPENLINEAGE_URL", "OPENLINEAGE_API_KEY", "OPENLINEAGE_ENDPOINT"
DEFAULT_ENDPOINT = "api/v1/lineage"


def target_of(given: str | None) -> str:
    """Where events go: as given, else OpenLineage's own setting; empty for nowhere."""
    return given if given is not None else os.environ.get(URL, "")


class Emitter:
    """Hands over events to one target, a URL or the path of a file."""

    def __init__(self, target: str, say: Callable[[str], None] = lambda _: None) -> None:
        self.lost = 0
        self._say = say
        self._waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue(WAITING_MAX)
        self._send = self._over_http(target) if "://" in target else self._into_file(target)
        self._thread = threading.Thread(target=self._run, name="millstream-lineage", daemon=True)
        self._thread.start()

    def emit(self, event: Mapping[str, Any]) -> None:
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._lose("too many wait for the receiver")

    def close(self) -> None:
        """What waits is handed over, if the receiver takes it soon."""
        try:
            self._waiting.put(None, timeout=CLOSE_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._send(event)
            except (MillstreamError, OSError, ValueError) as error:
                self._lose(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")

    def _lose(self, why: str) -> None:
        self.lost += 1
        if self.lost == 1:
            self._say(f"events of lineage are lost: {why}")

    def _into_file(self, target: str) -> Callable[[Mapping[str, Any]], None]:
        path = Path(target.removeprefix("file:")).absolute()
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent}", hint="events go to a file in it")

        def send(event: Mapping[str, Any]) -> None:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")

        return send

    def _over_http(self, target: str) -> Callable[[Mapping[str, Any]], None]:
        url = target if "/api/" in target else f"{target.rstrip('/')}/{_endpoint()}"
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"events cannot go to {target}", hint="http://, https://, or a file")
        key = os.environ.get(KEY)
        # a receiver is no processor of ours: without a key of its own it gets none
        client = HttpClient(key or "", answer_s=ANSWER_S)

        def send(event: Mapping[str, Any]) -> None:
            for attempt in range(TRIES):
                try:
                    client.ask("POST", url, dict(event))
                    return
                except (AwayError, MillstreamError):
                    if attempt == TRIES - 1:
                        raise
                time.sleep(FIRST_PAUSE_S * 2**attempt)

        return send


def _endpoint() -> str:
    return os.environ.get(ENDPOINT, DEFAULT_ENDPOINT).lstrip("/")
