"""Snapshots to pages: taken once an interval, sent as increments to every listener.

One thread asks the source, however many pages are open. A page gets everything first and then only
what changed; one that cannot keep up gets everything again instead of a growing backlog. When the
source fails to answer, listeners hear of it at once: no page shows old figures as new ones.
"""

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from millstream.control.snapshot.changes import changes
from millstream.control.snapshot.model import Snapshot, SnapshotSource
from millstream.core.codec import to_json
from millstream.edge.dashboard.histories import Histories
from millstream.edge.dashboard.layout import place, shape_of

HISTORY_KEPT = 1200  # points of the overview's figures
WAITING_MAX = 20  # increments that a page may be behind
QUIET_SECONDS = 5.0  # after which a page hears that the connection is alive


class Feed:
    """Asks a source now and then; any number of pages listen."""

    def __init__(self, source: SnapshotSource, interval_s: float | None = None) -> None:
        self._source, self._interval_s = source, interval_s
        self._lock = threading.Lock()
        self._listeners: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Queue[str]]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="millstream-feed", daemon=True)
        self._now: dict[str, Any] = {}
        self._shape = 0
        self._layout: dict[str, Any] = {}
        self._over = False
        self.snapshot: Snapshot | None = None
        self.history: deque[tuple[float, ...]] = deque(maxlen=HISTORY_KEPT)
        self.histories = Histories()
        self.seconds = 0.0  # spent on the last tick

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        self.tick()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def end(self) -> None:
        """Lets every page go."""
        self.stop()
        self._over = True
        with self._lock:
            listeners = list(self._listeners.values())
        for loop, queue in listeners:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_put, queue, "")

    def _work(self) -> None:
        while not self._stop.wait(self._pause()):
            self.tick()

    def _pause(self) -> float:
        wanted = self._interval_s
        if wanted is None:
            wanted = self.snapshot.interval_s if self.snapshot is not None else 1.0
        return max(0.05, wanted - self.seconds)

    def tick(self) -> None:
        """Takes a snapshot and tells the increment."""
        clock = time.perf_counter()
        try:
            snapshot = self._source.snapshot()
        except Exception as error:
            self._tell({"trouble": f"{type(error).__name__}: {error}"[:300]})
            self.seconds = time.perf_counter() - clock
            return
        new = self._json(snapshot)
        with self._lock:
            told = changes(self._now, new) if self._now else new
            self._now, self.snapshot = new, snapshot
            overview = snapshot.overview
            self.history.append(
                (snapshot.taken, overview.rows_in_per_s, overview.rows_out_per_s,
                 float(overview.backlog_rows), overview.watermark_lag_s or 0.0)
            )  # fmt: skip
        self.histories.note(snapshot)
        self._tell(told | {"taken": snapshot.taken, "sent": time.time()})
        self.seconds = time.perf_counter() - clock

    def _json(self, snapshot: Snapshot) -> dict[str, Any]:
        shape = shape_of(snapshot)
        if shape.key != self._shape:
            self._shape, self._layout = shape.key, to_json(place(shape))
        made: dict[str, Any] = to_json(snapshot)
        made["layout"] = self._layout
        return made

    # -- listening ------------------------------------------------------------------------------

    def whole(self) -> dict[str, Any]:
        """The latest snapshot as JSON."""
        with self._lock:
            return self._now

    def _tell(self, told: dict[str, Any]) -> None:
        with self._lock:
            if not self._listeners:
                return
            text = json.dumps(told, separators=(",", ":"))
            listeners = list(self._listeners.values())
        for loop, queue in listeners:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_put, queue, text)

    async def listen(self) -> AsyncIterator[str]:
        """Events for one page, as server-sent events: `whole` first, then `change`."""
        queue: asyncio.Queue[str] = asyncio.Queue(WAITING_MAX + 1)
        with self._lock:
            self._listeners[id(queue)] = (asyncio.get_running_loop(), queue)
            first = json.dumps(self._now | {"sent": time.time()}, separators=(",", ":"))
        try:
            yield _event("whole", first)
            while not self._over:
                try:
                    text = await asyncio.wait_for(queue.get(), QUIET_SECONDS)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if self._over:
                    return
                if queue.qsize() >= WAITING_MAX:
                    while not queue.empty():
                        queue.get_nowait()
                    again = self.whole() | {"sent": time.time()}
                    yield _event("whole", json.dumps(again, separators=(",", ":")))
                    continue
                yield _event("change", text)
        finally:
            with self._lock:
                self._listeners.pop(id(queue), None)


def _put(queue: "asyncio.Queue[str]", text: str) -> None:
    """A full queue keeps its fullness: the listener then asks for everything."""
    if not queue.full():
        queue.put_nowait(text)


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"
