"""The dashboard of a run: there from the start, while it goes on, and after its end if wanted.

Before the engine exists its pages say that it is starting; after the run they show the final
figures and say so.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millstream.client.keyring import TOKEN, user_token
from millstream.control.snapshot.model import (
    DecisionSnapshot,
    Explanation,
    Overview,
    Results,
    Snapshot,
    SnapshotSource,
)
from millstream.core.errors import StateError
from millstream.edge.dashboard.serving import DashboardServer
from millstream.edge.http.serving import Address, Tls, is_loopback
from millstream.edge.run.api import LiveRun
from millstream.edge.views.engine_view import EngineView


class PendingSource:
    """Stands for a system that is not there yet."""

    def __init__(self, title: str) -> None:
        self._title, self._started = title, time.time()
        self.source: SnapshotSource | None = None

    def snapshot(self) -> Snapshot:
        if self.source is not None:
            return self.source.snapshot()
        return Snapshot(
            time.time(), Overview(self._title, "starting", self._started), interval_s=0.5
        )

    def _ready(self) -> SnapshotSource:
        if self.source is None:
            raise StateError("Spark is starting", hint="ask again in a few seconds")
        return self.source

    def explain(self, cql: str) -> Explanation:
        return self._ready().explain(cql)

    def preview(self, cql: str, rows_max: int = 20) -> Results:
        return self._ready().preview(cql, rows_max)

    def register(self, name: str, cql: str) -> DecisionSnapshot:
        return self._ready().register(name, cql)

    def drop(self, name: str) -> None:
        self._ready().drop(name)

    def act(self, action: str, name: str, to: str = "") -> str:
        return self._ready().act(action, name, to)

    def restart(self, name: str) -> None:
        self._ready().restart(name)

    def results(self, query: str, after: int = 0) -> Results:
        return self._ready().results(query, after)


class RunDashboard:
    """Serves one run; use as a context."""

    def __init__(
        self, title: str, at: Address, say: Callable[[str], None], tls: Tls | None = None
    ) -> None:
        self._title, self._say = title, say
        self._pending = PendingSource(title)
        token = user_token() if is_loopback(at.host) else os.environ.get(TOKEN)
        self._server = DashboardServer(
            self._pending, host=at.host, port=at.port, token=token, tls=tls
        )

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def link(self) -> str:
        """An address that lets one browser in."""
        return self._server.link

    def __enter__(self) -> "RunDashboard":
        self._server.start()
        self._say(f"dashboard: {self.link}")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @contextmanager
    def watch(self, live: LiveRun) -> Iterator[None]:
        """Shows a run for as long as its loop goes on, and its final figures afterwards."""
        view = EngineView(live.engine, title=self._title, loop=live.loop, edits=live.edits)
        self._pending.source = view
        state = "stopped"
        try:
            yield
            state = "finished"
        finally:
            view.close(state)
            self._server.feed.tick()

    def stay(self) -> None:
        """Until somebody presses Ctrl-C."""
        self._say(f"the dashboard stays at {self.link} until you press Ctrl-C")
        enough = threading.Event()
        before = {
            s: signal.signal(s, lambda *_: enough.set()) for s in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            while not enough.wait(0.2):
                pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
