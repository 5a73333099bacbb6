"""The endpoint of `millstream run`: rows in, figures out, goals changed while it runs.

    POST /streams/NAME/rows, POST /streams/NAME/end, GET /streams/NAME/producers/P    (rows_api)
    GET  /health        ok, or the worst alarm: warning, error
    GET  /live          while the process answers
    GET  /ready         whether it does its work, 503 with the reasons
    GET  /status        streams, operators and queries with their figures, and scheduling
    GET  /qos           goals of quality beside what is measured, the algorithm in charge
    POST /queries/NAME/restart    a failed query goes on where it failed
    POST /queries/NAME/pause      it rests; .../resume: it goes on where it stood
    PUT  /qos           {"goals": "delay <= 2s", "query": "errors", "weight": 2}

It lives as long as the run. A posted stream ends on request; then the run ends as it does for
files.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from millstream.client.keyring import user_token
from millstream.edge.http.access import json_body
from millstream.edge.http.roles import reads, submits
from millstream.edge.http.rows_api import RowsServer
from millstream.edge.http.serving import Application, Tls, is_loopback
from millstream.edge.views.processor_view import ProcessorView
from millstream.edge.views.query_edits import QueryEdits
from millstream.edge.views.readiness import Readiness, add_readiness
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.sources.push_source import PushSource

WISH_BYTES_MAX = 1 << 16


class LiveRun(Protocol):
    """A run between its first and its last step."""

    url: str  # of its endpoint, where it has one

    @property
    def engine(self) -> Engine: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def edits(self) -> QueryEdits: ...

    def status(self) -> dict[str, Any]: ...

    def scheduling(self) -> dict[str, Any]: ...

    def change_goals(self, wish: Mapping[str, Any]) -> dict[str, Any]: ...

    def restart(self, name: str) -> dict[str, Any]: ...

    def pause(self, name: str, wanted: bool) -> dict[str, Any]: ...


@contextmanager
def run_endpoint(
    live: LiveRun,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    tls: Tls | None = None,
) -> Iterator[RowsServer]:
    """Serves a run for as long as the block lasts.

    Without a token of its own it takes the user's, and asks none of the user's own programs.
    """

    def door(name: str) -> PushSource | None:
        found = live.engine.sources.get(name)
        return found if isinstance(found, PushSource) else None

    view = ProcessorView("run", live.engine, lambda: live.loop)
    server = RowsServer(
        door,
        host=host,
        port=port,
        token=token or (user_token() if is_loopback(host) else None),
        tls=tls,
        own_programs=not token,
        busy=live.engine.congested,
        word=view.word,
        more=lambda app: add_routes(app, live),
    )
    server.start()
    live.url = server.url
    try:
        yield server
    finally:
        live.url = ""
        server.stop()


def add_routes(app: Application, live: LiveRun) -> None:
    """The routes of a run beside those for rows."""
    add_readiness(app, Readiness(live.engine, lambda: live.loop).look)

    @app.get("/status")
    @reads
    async def status() -> dict[str, Any]:
        return await run_in_threadpool(live.status)

    @app.get("/qos")
    @reads
    async def quality() -> dict[str, Any]:
        return await run_in_threadpool(live.scheduling)

    @app.put("/qos")
    @submits
    async def change(request: Request) -> dict[str, Any]:
        wish = await json_body(request, WISH_BYTES_MAX)
        return await run_in_threadpool(live.change_goals, wish)

    @app.post("/queries/{name}/restart")
    @submits
    async def restart(name: str) -> dict[str, Any]:
        return await run_in_threadpool(live.restart, name)

    @app.post("/queries/{name}/pause")
    @submits
    async def pause(name: str) -> dict[str, Any]:
        return await run_in_threadpool(live.pause, name, True)

    @app.post("/queries/{name}/resume")
    @submits
    async def resume(name: str) -> dict[str, Any]:
        return await run_in_threadpool(live.pause, name, False)
