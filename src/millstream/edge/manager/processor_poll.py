"""What the processors of a cluster say of themselves, asked for every few seconds while wanted.

One thread; a processor that does not answer contributes nothing, and its earlier answer is dropped
after a few rounds. The thread asks no processor when no client has looked for a while.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from millstream.client.http import HttpClient
from millstream.control.snapshot.model import Snapshot
from millstream.core.codec import from_json
from millstream.core.errors import MillstreamError

EVERY_S = 1.0
KEPT_S = 5.0
WANTED_S = 10.0  # after the last look
AT_ONCE = 8


class ProcessorPoll:
    """Snapshots by processor; `addresses` gives the URLs of those that are up."""

    def __init__(self, client: HttpClient, addresses: Callable[[], Mapping[str, str]]) -> None:
        self._client, self._addresses = client, addresses
        self._found: dict[str, tuple[float, Snapshot]] = {}
        self._lock = threading.Lock()
        self._looked = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="millstream-poll", daemon=True)

    def start(self) -> "ProcessorPoll":
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def latest(self) -> dict[str, Snapshot]:
        """What was said lately."""
        now = time.monotonic()
        with self._lock:
            self._looked = now
            return {n: s for n, (at, s) in self._found.items() if now - at <= KEPT_S}

    def _work(self) -> None:
        with ThreadPoolExecutor(AT_ONCE, "millstream-ask") as pool:
            while not self._stop.wait(EVERY_S):
                if time.monotonic() - self._looked <= WANTED_S:
                    list(pool.map(self.ask, sorted(self._addresses().items())))

    def ask(self, one: tuple[str, str]) -> None:
        """One processor; no answer is no news."""
        name, url = one
        try:
            told: Any = self._client.ask("GET", f"{url.rstrip('/')}/snapshot").json()
            found = from_json(Snapshot, told)
        except (MillstreamError, ValueError, KeyError, TypeError):
            return
        with self._lock:
            self._found[name] = (time.monotonic(), found)
