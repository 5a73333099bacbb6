"""A processor's own snapshot over HTTP: `GET /snapshot`, for displays of the cluster.

Made at the first request; costs nothing before.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from millstream.control.snapshot.alarms import judged, worst
from millstream.control.snapshot.model import Snapshot
from millstream.core.codec import to_json
from millstream.edge.http.roles import reads
from millstream.edge.http.serving import Application
from millstream.edge.views.engine_view import EngineView

if TYPE_CHECKING:
    from millstream.engine.engine import Engine
    from millstream.engine.loop import Loop

KEPT_S = 2.0


class ProcessorView:
    """What one processor says of itself."""

    def __init__(
        self, name: str, engine: "Engine", loop: "Callable[[], Loop | None]",
        troubles: Callable[[], Iterable[str]] = tuple,
    ) -> None:  # fmt: skip
        self._name, self._engine, self._loop, self._troubles = name, engine, loop, troubles
        self._view: EngineView | None = None
        self._word, self._judged_s = "ok", -KEPT_S
        self._lock = threading.Lock()

    def snapshot(self) -> Snapshot:
        with self._lock:
            if self._view is None:
                self._view = EngineView(self._engine, title=self._name, processor=self._name)
            loop = self._loop()
            if loop is not None:  # another one after trouble with the machine
                self._view.attach(loop)
            seen = self._view.snapshot()
            told = tuple(self._troubles())
            mine = tuple(replace(p, troubles=told) for p in seen.processors)
            return judged(replace(seen, processors=mine)) if told else seen

    def word(self) -> str:
        """The worst of its alarms, by a look a few seconds ago: `/health` answers at once, because
        distances are measured by it."""
        now = time.monotonic()
        if now - self._judged_s >= KEPT_S:
            self._judged_s = now
            threading.Thread(target=self._judge, name="millstream-word", daemon=True).start()
        return self._word

    def _judge(self) -> None:
        with suppress(Exception):  # the engine ends meanwhile: the last word stays
            self._word = worst(self.snapshot().overview.alarms)

    def add_route(self, app: Application) -> None:
        @app.get("/snapshot")
        @reads
        async def snapshot() -> JSONResponse:
            return JSONResponse(to_json(await run_in_threadpool(self.snapshot)))
