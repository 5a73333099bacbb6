"""The dashboard's HTTP application.

    GET    /                         the page; all else it needs lies under /static
    GET    /api/events               server-sent events: a whole snapshot, then increments
    GET    /api/snapshot             the latest snapshot
    GET    /api/history              [time, rows in/s, rows out/s, backlog, lag], oldest first
    GET    /api/history/KIND/NAME    the last hour of a query, operator, stream or processor
    GET    /api/queries/NAME/results?after=N     also of STREAM.late and STREAM.rejected
    POST   /api/links                another link that lets a browser in, with the asker's role
    POST   /api/complete             {"before": "..."}: what may follow this text
    POST   /api/explain              {"cql": "..."}
    POST   /api/preview              {"cql": "...", "rows": 20}
    POST   /api/queries              {"name": "...", "cql": "..."}
    POST   /api/queries/NAME/restart a failed query goes on where it failed
    DELETE /api/queries/NAME
    POST   /api/pauses               {"action": "pause" or "resume", "name": "..."}: of a query
    POST   /api/actions              {"action": ..., "name": ..., "to": ...}: any other of ACTIONS
    GET    /api/settings             of a manager; POST changes those that are given
    GET    /health                   200 while snapshots are fresh, 503 with the reason otherwise
    GET    /live  /ready             for whoever watches processes
    GET    /metrics                  for Prometheus

A policy header keeps the browser from loading anything from elsewhere. Requests that change
something must carry a header that a foreign page cannot send; one that names a host which is not
this one is refused, so that no foreign name can be pointed at a local port. A link that opens once
lets a browser in.
"""

import base64
import hashlib
import json
import re
import time
from collections.abc import Collection, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.responses import StreamingResponse

from millstream.control.snapshot.alarms import worst
from millstream.control.snapshot.model import ACTIONS, PAUSES, SnapshotSource, known_names
from millstream.core.codec import to_json
from millstream.core.errors import UsageError
from millstream.edge.dashboard.feed import Feed
from millstream.edge.dashboard.metrics import CONTENT_TYPE, exposition
from millstream.edge.http.access import json_body
from millstream.edge.http.browsers import Browsers
from millstream.edge.http.roles import Role, asker, for_all, reads, submits
from millstream.edge.http.serving import Application, Header
from millstream.edge.views.readiness import add_readiness, told
from millstream.language.cql.parsing.completion import Known, candidates

STATIC = Path(__file__).parent / "static"
BODY_BYTES_MAX = 256 << 10
CANDIDATES_MAX = 12
STALE_INTERVALS = 5.0
STALE_SECONDS_MIN = 5.0


def dashboard_app(
    source: SnapshotSource,
    feed: Feed,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    browsers: Browsers | None = None,
) -> Application:
    """The application over a source; `feed` asks it."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    app = Application(
        "Millstream", token=token, host=host, flat_errors=True, page_headers=_headers(page)
    )

    browsers = browsers or Browsers(token or "")
    app.guests = browsers.role_of

    @app.get("/", response_class=HTMLResponse)
    @reads
    async def index(request: Request) -> Response:
        return browsers.entered(request) or HTMLResponse(page)

    @app.post("/api/links")
    @reads
    async def link(request: Request) -> dict[str, str]:
        return {"path": browsers.link(asker(request)) if token else "/"}

    @app.get("/api/events")
    @reads
    async def events() -> StreamingResponse:
        return StreamingResponse(feed.listen(), media_type="text/event-stream")

    @app.get("/api/snapshot")
    @reads
    async def snapshot() -> JSONResponse:
        return JSONResponse(feed.whole())

    @app.get("/api/history")
    @reads
    async def history() -> JSONResponse:
        return JSONResponse(list(feed.history))

    @app.get("/api/history/{kind}/{name:path}")
    @reads
    async def history_of(kind: str, name: str) -> JSONResponse:
        return JSONResponse(feed.histories.of(kind, name))

    @app.get("/health")
    @for_all
    async def health(request: Request) -> JSONResponse:
        return _health(feed, in_words=asker(request) >= Role.READ)

    def ready() -> dict[str, Any]:
        told_here = _health(feed, in_words=False)
        body = json.loads(bytes(told_here.body))
        return told([body["status"]] if told_here.status_code != HTTPStatus.OK else [], **body)

    add_readiness(app, ready)

    @app.get("/metrics")
    @reads
    async def metrics() -> Response:
        text = exposition(feed.snapshot) if feed.snapshot is not None else b""
        return Response(text, media_type=CONTENT_TYPE)

    _questions(app, source, feed)
    _actions(app, source, feed)
    _settings(app, source)
    app.mount("/static", reads(StaticFiles(directory=STATIC)), name="static")
    return app


@runtime_checkable
class Adjustable(Protocol):
    """A system whose settings may change while it runs: a manager."""

    def settings(self) -> Mapping[str, Any]: ...

    def change(self, settings: Mapping[str, Any]) -> Mapping[str, Any]: ...


def _settings(app: Application, source: SnapshotSource) -> None:
    @app.get("/api/settings")
    @reads
    async def settings() -> JSONResponse:
        return JSONResponse(dict(source.settings()) if isinstance(source, Adjustable) else {})

    @app.post("/api/settings")
    async def change(request: Request) -> JSONResponse:
        body = await json_body(request, BODY_BYTES_MAX, too_large=400)
        if not isinstance(source, Adjustable):
            raise UsageError("nothing here has settings", hint="those of a manager may change")
        return JSONResponse(dict(await run_in_threadpool(source.change, body)))


def _questions(app: Application, source: SnapshotSource, feed: Feed) -> None:
    @app.get("/api/queries/{name}/results")
    @reads
    async def results(name: str, after: int = 0) -> JSONResponse:
        return JSONResponse(to_json(await run_in_threadpool(source.results, name, after)))

    @app.post("/api/complete")
    @reads
    async def complete(request: Request) -> JSONResponse:
        before = (await json_body(request, BODY_BYTES_MAX, too_large=400)).get("before")
        if not isinstance(before, str):
            raise UsageError("before is missing")
        known = known_names(feed.snapshot) if feed.snapshot is not None else Known()
        word, found = candidates(before, known)
        return JSONResponse({"word": word, "candidates": found[:CANDIDATES_MAX]})

    @app.post("/api/explain")
    @submits
    async def explain(request: Request) -> JSONResponse:
        body = await json_body(request, BODY_BYTES_MAX, too_large=400)
        return JSONResponse(to_json(await run_in_threadpool(source.explain, _text(body, "cql"))))

    @app.post("/api/preview")
    @submits
    async def preview(request: Request) -> JSONResponse:
        body = await json_body(request, BODY_BYTES_MAX, too_large=400)
        rows = body.get("rows", 20)
        if not isinstance(rows, int):
            raise UsageError("rows is a number")
        most = min(200, max(1, rows))
        found = await run_in_threadpool(source.preview, _text(body, "cql"), most)
        return JSONResponse(to_json(found))

    @app.post("/api/queries")
    @submits
    async def register(request: Request) -> JSONResponse:
        body = await json_body(request, BODY_BYTES_MAX, too_large=400)
        name, cql = _text(body, "name"), _text(body, "cql")
        decision = await run_in_threadpool(source.register, name, cql)
        await run_in_threadpool(feed.tick)
        return JSONResponse(to_json(decision))

    @app.post("/api/queries/{name}/restart")
    @submits
    async def restart(name: str) -> JSONResponse:
        await run_in_threadpool(source.restart, name)
        await run_in_threadpool(feed.tick)
        return JSONResponse({"restarted": name})

    @app.delete("/api/queries/{name}")
    @submits
    async def drop(name: str) -> JSONResponse:
        await run_in_threadpool(source.drop, name)
        await run_in_threadpool(feed.tick)
        return JSONResponse({"dropped": name})


def _actions(app: Application, source: SnapshotSource, feed: Feed) -> None:
    async def act(request: Request, allowed: Collection[str]) -> JSONResponse:
        body = await json_body(request, BODY_BYTES_MAX, too_large=400)
        action, name = _text(body, "action"), _text(body, "name")
        if action not in allowed:
            raise UsageError(f"{action} is not an action", hint=f"one of {', '.join(allowed)}")
        done = await run_in_threadpool(source.act, action, name, str(body.get("to") or ""))
        await run_in_threadpool(feed.tick)
        return JSONResponse({"done": done})

    @app.post("/api/pauses")
    @submits
    async def pause(request: Request) -> JSONResponse:
        return await act(request, PAUSES)

    @app.post("/api/actions")
    async def any_other(request: Request) -> JSONResponse:
        return await act(request, [a for a in ACTIONS if a not in PAUSES])


def _headers(page: str) -> list[Header]:
    """What browsers may do with the pages."""
    return [
        (b"content-security-policy", _policy(page).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    ]


def _policy(page: str) -> str:
    """Everything from this server alone; the page's one inline script by its digest."""
    inline = re.findall(r"<script type=\"importmap\">(.*?)</script>", page, re.DOTALL)
    digests = [
        f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in inline
    ]
    return (
        f"default-src 'self'; script-src 'self' {' '.join(digests)}; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'none'"
    )


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{key} is missing")
    return value


def _health(feed: Feed, *, in_words: bool) -> JSONResponse:
    """How it stands; alarms name queries and rows, which is for those who may read them."""
    taken = feed.snapshot
    if taken is None:
        return JSONResponse({"status": "starting"}, 503)
    age = time.time() - taken.taken
    limit = max(STALE_SECONDS_MIN, STALE_INTERVALS * taken.interval_s)
    finished = taken.overview.state in ("finished", "stopped")
    if age > limit and not finished:
        return JSONResponse({"status": "stale", "age_s": round(age, 1)}, 503)
    alarms = taken.overview.alarms
    state = "failed" if taken.overview.state == "failed" else worst(alarms)
    answer: dict[str, Any] = {
        "status": state,
        "state": taken.overview.state,
        "age_s": round(age, 1),
    }
    if in_words:
        answer["errors"] = [a.sentence for a in alarms if a.severity == "error"]
        answer["alarms"] = [to_json(a) for a in alarms]
    return JSONResponse(answer, 503 if state == "failed" else 200)
