"""The manager as a process: its endpoint, its life.

    POST   /processors                    a processor says that it is there
    GET    /status  /placement  /moves  /decisions?after=N  /redistribution
    GET    /queries  /queries/NAME        POST /queries    DELETE /queries/NAME
    GET    /streams                       POST /streams    DELETE /streams/NAME
    POST   /streams/start                 rows may come
    POST   /moves                         {"operator", "to", "subplan", "dry_run"}
    POST   /redistribution                carry out what the policy wants
    POST   /queries/NAME/placement  /replacement      by distance (manager_placement.py)
    POST   /processors/NAME/drain         {"back"}         DELETE /processors/NAME
    GET    /qos                           PUT /qos         goals, as a run takes them
    POST   /settings                      other strategies from now on
    POST   /control                       as a processor of a manager above (manager_tier.py)
    GET    /health

Listens on loopback; beyond it every request carries a token. Bodies are bounded and validated.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field

from millstream.client.addresses import checked_url
from millstream.control import tiers
from millstream.control.commands import Join
from millstream.control.manager_events import (
    Change,
    DeclareStream,
    Drain,
    Drop,
    Event,
    ForgetStream,
    Joined,
    Remove,
    RequestMove,
    StartStreams,
    Submit,
)
from millstream.control.manager_state import ManagerState
from millstream.control.records import from_json
from millstream.cql.system_streams import PREFIX
from millstream.errors import UsageError
from millstream.runs.lock import FolderLock
from millstream.server import manager_answers as answers
from millstream.server.access import AnswerError, add_error_answers, authorise, json_body, validated
from millstream.server.kept_port import bound_socket
from millstream.server.manager_driver import ManagerDriver
from millstream.server.manager_placement import add_placement_routes
from millstream.server.manager_quality import add_quality_routes
from millstream.server.manager_settings import ManagerSettings, changed
from millstream.server.manager_store import ManagerStore
from millstream.server.manager_tier import add_tier_routes
from millstream.server.registration import Registration
from millstream.server.system_feed import SystemFeed
from millstream.store.transfer import RefusedError

WAIT_S_MAX = 300.0
Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Stream(_Body):
    table: Annotated[dict[str, Any], Field(max_length=100)]
    processor: Annotated[str, Field(max_length=200)] = ""
    start: bool = False


class _Names(_Body):
    names: Annotated[list[Name], Field(max_length=5000)] = []


class _Query(_Body):
    name: Name
    cql: Annotated[str, Field(min_length=1, max_length=1 << 18)]
    from_beginning: bool = False
    deliver_to: Annotated[str, Field(max_length=200)] = ""
    latency_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    queue: bool = False
    dry_run: bool = False
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 60.0


class _Move(_Body):
    operator: Name
    to: Name
    subplan: bool = False
    dry_run: bool = False
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0.0


class _Drain(_Body):
    back: bool = False
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0.0


class ManagerServer:
    """Store, driver and endpoint of one manager."""

    def __init__(
        self, home: Path, settings: ManagerSettings, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.settings = settings
        self._lock = FolderLock(home)
        self._lock.__enter__()
        self._store = ManagerStore(home / "manager.db")
        self.driver = ManagerDriver(
            self._store,
            settings.deciding,
            name=settings.name,
            token=settings.token,
            verify=settings.authority or True,
            say=say,
        )
        self._say = say
        self._feeder = SystemFeed(
            lambda: self.driver.state, settings.token, settings.authority or True
        )
        self._socket = bound_socket(settings.host, settings.port)
        self.port = int(self._socket.getsockname()[1])
        self.app = self._app()
        self._server: uvicorn.Server | None = None

    @property
    def url(self) -> str:
        return replace(self.settings, port=self.port).url

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serves until SIGINT or SIGTERM."""
        asyncio.run(self._run(ready))
        self.close()

    def close(self) -> None:
        self._socket.close()
        self._store.close()
        self._lock.__exit__()

    async def _run(self, ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            self.app,
            log_level="warning",
            lifespan="off",
            access_log=False,
            server_header=False,
            date_header=False,
            ssl_certfile=self.settings.certificate,
            ssl_keyfile=self.settings.key,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        self._server = server
        driving = asyncio.create_task(self.driver.run())
        serving = asyncio.create_task(server.serve(sockets=[self._socket]))
        feeding = asyncio.create_task(self._feeder.run())
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        ready()
        registration = self._registration()
        if registration is not None:
            registration.start()
        done, _ = await asyncio.wait((driving, serving), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        driving.cancel()
        feeding.cancel()
        if registration is not None:
            await asyncio.to_thread(registration.stop)
        await asyncio.gather(driving, serving, feeding, return_exceptions=True)
        for task in done:
            if not task.cancelled() and task.exception() is not None:
                raise task.exception() or RuntimeError

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True

    # -- endpoint -------------------------------------------------------------------------------

    def _app(self) -> FastAPI:
        app = FastAPI(title="Millstream manager", docs_url=None, redoc_url=None, openapi_url=None)
        add_error_answers(app)
        self._add_reads(app)
        self._add_processors(app)
        self._add_streams(app)
        self._add_queries(app)
        self._add_moves(app)
        add_quality_routes(app, self.driver, self.settings.token)
        verify = self.settings.authority or True
        add_placement_routes(app, self.driver, self.settings.token, verify)
        add_tier_routes(app, self.driver, self._feeder.log, self.settings.token, verify)
        return app

    def _registration(self) -> Registration | None:
        """Makes this manager known to the one above, as a processor would."""
        if self.settings.above is None:
            return None
        return Registration(
            self.settings.above,
            lambda: tiers.joining(self.driver.state, self.settings.name, self.url),
            self.driver.heard_above,
            self._say,
            token=self.settings.token,
            verify=self.settings.authority or True,
        )

    async def _asked(self, request: Request, kind: type[BaseModel]) -> Any:
        authorise(request, self.settings.token)
        return validated(kind, await json_body(request))

    def _feed(self, event: Event) -> None:
        if self.driver.state.superseded:
            raise AnswerError(409, "stale", self.driver.state.superseded)
        self.driver.feed(event)

    def _add_reads(self, app: FastAPI) -> None:
        driver = self.driver

        def reading(path: str, look: Callable[[ManagerState], Any]) -> None:
            async def answer(request: Request) -> Any:
                authorise(request, self.settings.token)
                return look(driver.state)

            app.get(path)(answer)

        reading("/status", lambda s: answers.status(s, driver.traffic, driver.started_s))
        reading("/placement", answers.distribution)
        reading("/moves", lambda s: [answers.move(m) for m in s.moves.values()])
        reading("/queries", lambda s: [answers.query(s, name) for name in s.queries])
        reading("/streams", lambda s: {name: answers.stream(s, name) for name in s.streams})
        reading("/redistribution", answers.redistribution)

        @app.get("/health")
        async def health() -> dict[str, Any]:
            return {"status": "ok", "pid": os.getpid(), "time": time.time()}

        @app.get("/decisions")
        async def decisions(request: Request, after: int = 0, wait: float = 0.0) -> Any:
            authorise(request, self.settings.token)

            def newer(state: ManagerState) -> list[Any] | None:
                return [d for d in state.decisions if d.number > after] or None

            return await driver.until(newer, min(max(0.0, wait), 60.0)) or []

    def _add_processors(self, app: FastAPI) -> None:
        @app.post("/processors")
        async def join(request: Request) -> dict[str, Any]:
            authorise(request, self.settings.token)
            joined = from_json(Join, await json_body(request))
            checked_url(joined.url, "--advertise")
            try:
                self._feed(Joined(joined))
            except UsageError as error:
                raise AnswerError(409, "stale", error.message, error.hint) from None
            return {"manager": self.driver.state.epoch}

        @app.post("/processors/{name}/drain")
        async def drain(request: Request, name: str) -> dict[str, Any]:
            asked = await self._asked(request, _Drain)
            before = self.driver.state.counter
            self._feed(Drain(name, asked.back))

            def away(state: ManagerState) -> bool | None:
                busy = [m for m in state.moves.values() if not m.over and m.source == name]
                return True if not busy else None

            await self.driver.until(away, asked.wait_s)
            left = answers.entering(self.driver.state, name)
            told = {"processor": self._processor(name), "entering": left}
            return {**self._moves_since(before), **told}

        @app.delete("/processors/{name}")
        async def remove(request: Request, name: str) -> dict[str, Any]:
            authorise(request, self.settings.token)
            self._feed(Remove(name))
            return {}

        @app.post("/settings")
        async def change(request: Request) -> dict[str, Any]:
            authorise(request, self.settings.token)
            body = await json_body(request)
            self._feed(Change(changed(self.driver.state.settings, body)))
            return answers.settings(self.driver.state)

    def _processor(self, name: str) -> Any:
        return answers.processor(self.driver.state, name)

    def _moves_since(self, counter: int) -> dict[str, Any]:
        state = self.driver.state
        fresh = [m for m in state.moves.values() if int(m.id.split("-")[-1]) > counter]
        return {"moves": [answers.move(m) for m in fresh]}

    def _add_streams(self, app: FastAPI) -> None:
        @app.post("/streams")
        async def declare(request: Request) -> dict[str, Any]:
            asked = await self._asked(request, _Stream)
            if str(asked.table.get("name")).startswith(PREFIX):
                raise UsageError(
                    f"names that begin with {PREFIX} are those of the system itself",
                    hint="choose another name for the stream",
                )
            self._feed(DeclareStream(asked.table, asked.processor, asked.start))
            return answers.stream(self.driver.state, str(asked.table["name"]))

        @app.post("/streams/start")
        async def start(request: Request) -> dict[str, Any]:
            asked = await self._asked(request, _Names)
            self._feed(StartStreams(tuple(asked.names)))
            return {}

        @app.delete("/streams/{name}")
        async def forget(request: Request, name: str) -> dict[str, Any]:
            authorise(request, self.settings.token)
            self._feed(ForgetStream(name))
            return {}

    def _add_queries(self, app: FastAPI) -> None:
        @app.get("/queries/{name}")
        async def query(request: Request, name: str) -> dict[str, Any]:
            authorise(request, self.settings.token)
            return answers.query(self.driver.state, name)

        @app.post("/queries")
        async def submit(request: Request) -> dict[str, Any]:
            asked = await self._asked(request, _Query)
            self._feed(
                Submit(asked.name, asked.cql, asked.from_beginning, asked.deliver_to,
                       asked.latency_s, asked.queue, asked.dry_run)
            )  # fmt: skip

            def decided(state: ManagerState) -> bool | None:
                known = state.queries.get(asked.name)
                over = known is None or known.phase in ("running", "failed", "queued")
                return True if over else None

            await self.driver.until(decided, asked.wait_s)
            considered = self.driver.state.considered.get(asked.name)
            if asked.dry_run and considered is not None:
                return {"name": asked.name, "dry_run": True, **considered}
            refusal = self.driver.state.refusals.get(asked.name)
            if refusal is not None and asked.name not in self.driver.state.queries:
                words = {"detail": refusal.detail, "hint": refusal.hint}
                if refusal.code in ("mistake", "failed"):
                    raise UsageError(refusal.message, **words)
                raise RefusedError(refusal.code, refusal.message, **words)
            return answers.query(self.driver.state, asked.name)

        @app.delete("/queries/{name}")
        async def drop(request: Request, name: str, wait: float = 0.0) -> dict[str, Any]:
            authorise(request, self.settings.token)
            self._feed(Drop(name))

            def gone(state: ManagerState) -> bool | None:
                return True if name not in state.queries else None

            await self.driver.until(gone, min(max(0.0, wait), WAIT_S_MAX))
            return {"gone": name not in self.driver.state.queries}

    def _add_moves(self, app: FastAPI) -> None:
        @app.post("/moves")
        async def move(request: Request) -> dict[str, Any]:
            asked = await self._asked(request, _Move)
            state = self.driver.state
            operators = answers.chosen_operators(state, asked.operator, subplan=asked.subplan)
            planned = answers.planned_move(state, operators, asked.to)
            if asked.dry_run or not planned["operators"]:
                return {**planned, "moves": []}
            before = state.counter
            self._feed(RequestMove(operators, asked.to, "somebody asked for it"))
            mine = [m["id"] for m in self._moves_since(before)["moves"]]

            def over(state: ManagerState) -> bool | None:
                return True if all(state.moves[m].settled for m in mine) else None

            await self.driver.until(over, asked.wait_s)
            known = self.driver.state.moves
            return {**planned, "moves": [answers.move(known[m]) for m in mine]}

        @app.post("/redistribution")
        async def redistribute(request: Request) -> dict[str, Any]:
            authorise(request, self.settings.token)
            planned = answers.redistribution(self.driver.state)
            for wish in planned["moves"]:
                self._feed(RequestMove((wish["operator"],), wish["to"], wish["reason"]))
            return planned
