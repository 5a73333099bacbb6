"""The manager as a process: its endpoint, its life.

    POST   /processors                    a processor says that it is there
    GET    /status  /placement  /moves  /decisions?after=N  /redistribution
    GET    /scaling                       how many processors are wanted, and which may end
    GET    /queries  /queries/NAME        POST /queries    DELETE /queries/NAME
    GET    /streams                       POST /streams    DELETE /streams/NAME
    POST   /streams/start                 rows may come
    POST   /streams/check                 whether a client may name this source
    POST   /queries/NAME/restart          a failed query goes on where it failed
    POST   /queries/NAME/pause            it rests; with "paused": false it goes on
    POST   /moves                         {"operator", "to", "subplan", "dry_run"}
    POST   /redistribution                carry out what the policy wants
    POST   /queries/NAME/placement  /replacement      by distance (manager_placement.py)
    POST   /processors/NAME/drain         {"back"}         DELETE /processors/NAME?lost=true
    POST   /processors/NAME/shutdown  /restart        one that has nothing any more
    GET    /qos                           PUT /qos         goals, as a run takes them
    POST   /settings                      other strategies from now on
    POST   /control                       as a processor of a manager above (manager_tier.py)
    GET    /health                 ok, or the worst alarm: warning, error
    GET    /live  /ready  /alarms
    GET    /api/snapshot           everything, as dashboards and `millstream top` show it
    GET    /snapshot               what a manager above sees of this one (alarms.py)

One that waits for another's end (`memory/postgres_store.py`) answers 409 to all but the last lines.
Listens on loopback; beyond it every request carries a token. Bodies are bounded and validated.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import Request
from pydantic import Field

from millstream.client.http import AsyncHttpClient, checked_url, json_of
from millstream.control.admission import scaling
from millstream.control.manager import tiers
from millstream.control.manager.events import (
    Change,
    Drain,
    Drop,
    Halt,
    Joined,
    Pause,
    Remove,
    RequestMove,
    Restart,
    Submit,
)
from millstream.control.manager.state import ManagerState
from millstream.control.protocol.commands import Join
from millstream.control.recovery.replication import configurations
from millstream.core.codec import EXACT, from_json
from millstream.core.errors import MillstreamError, UsageError
from millstream.core.lock import FolderLock
from millstream.edge.http.access import AnswerError, json_body, record_body
from millstream.edge.http.roles import for_all, reads, submits
from millstream.edge.http.serving import Application, Server
from millstream.edge.manager import answers
from millstream.edge.manager.alarms import ClusterAlarms
from millstream.edge.manager.driver import Desk, ManagerDriver
from millstream.edge.manager.memory.postgres_store import LEASE_S, PostgresStore, holder_of
from millstream.edge.manager.memory.sqlite_store import ManagerStore
from millstream.edge.manager.placement import add_placement_routes
from millstream.edge.manager.quality import add_quality_routes
from millstream.edge.manager.settings import ManagerSettings, changed
from millstream.edge.manager.streams import add_stream_routes
from millstream.edge.manager.system_feed import SystemFeed
from millstream.edge.manager.tier import add_tier_routes
from millstream.edge.processor.registration import Registration
from millstream.edge.views.readiness import add_readiness
from millstream.store.moves.transfer import RefusedError

WAIT_S_MAX = 300.0
OF_ITSELF = ("/status", "/health", "/live", "/ready", "/alarms")  # what one that waits tells
GATHER_S = 5.0  # between questions who the members are
Name = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class _Query:
    __pydantic_config__ = EXACT
    name: Name
    cql: Annotated[str, Field(min_length=1, max_length=1 << 18)]
    from_beginning: bool = False
    deliver_to: Annotated[str, Field(max_length=200)] = ""
    latency_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    queue: bool = False
    dry_run: bool = False
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    replicas: Annotated[int, Field(ge=1, le=3)] = 1
    paused: bool = False
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 60.0


@dataclass(frozen=True, slots=True)
class _Restart:
    __pydantic_config__ = EXACT
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0.0


@dataclass(frozen=True, slots=True)
class _Pause:
    __pydantic_config__ = EXACT
    paused: bool = True
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0.0


@dataclass(frozen=True, slots=True)
class _Move:
    __pydantic_config__ = EXACT
    operator: Name
    to: Name
    subplan: bool = False
    dry_run: bool = False
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0.0


@dataclass(frozen=True, slots=True)
class _Drain:
    __pydantic_config__ = EXACT
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
        shared = (
            PostgresStore(settings.store, holder_of(home)) if settings.store is not None else None
        )
        self._store = shared or ManagerStore(home / "manager.db")
        self.driver = ManagerDriver(
            self._store,
            settings.deciding,
            name=settings.name,
            token=settings.token,
            verify=settings.verify,
            say=say,
            lease=shared,
            lease_s=LEASE_S,
        )
        self._say = say
        self._alarms = ClusterAlarms(lambda: self.driver.state, settings.token, settings.verify)
        self._feeder = SystemFeed(
            lambda: self.driver.state, settings.token, settings.verify, self._alarms.snapshot
        )
        self.app = self._app()
        self._server = Server.at(settings, self.app)
        self.url, self.port = settings.advertise or self._server.url, self._server.port
        self.own_url = self._server.url
        if shared is not None:
            shared.url = self.url
            self.app.closed = self._demand_leading

    def _demand_leading(self, path: str) -> None:
        """A manager that waits knows nothing of the cluster, and says so instead."""
        if path not in OF_ITSELF:
            self.driver.demand_leading()

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serves until SIGINT or SIGTERM."""
        asyncio.run(self._run(ready))
        self.close()

    def close(self) -> None:
        self._server.stop()
        self._store.close()
        self._lock.__exit__()

    async def _run(self, ready: Callable[[], None]) -> None:
        server = self._server
        driving = asyncio.create_task(self.driver.run())
        serving = asyncio.create_task(server.serve())
        feeding = asyncio.create_task(self._feeder.run())
        gathering = asyncio.create_task(self._gather())
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
        server.finish()
        driving.cancel()
        feeding.cancel()
        gathering.cancel()
        if registration is not None:
            await asyncio.to_thread(registration.stop)
        await asyncio.gather(driving, serving, feeding, gathering, return_exceptions=True)
        for task in done:
            if not task.cancelled() and task.exception() is not None:
                raise task.exception() or RuntimeError

    def stop(self) -> None:
        self._server.finish()

    async def _gather(self) -> None:
        """Members of a cluster that had no manager are its processors from now on; they tell of
        each other."""
        if self.settings.join is None:
            return
        token, verify = self.settings.token, self.settings.verify
        async with AsyncHttpClient(token, verify, answer_s=GATHER_S) as client:
            while True:
                known = self.driver.state.processors
                for url in (self.settings.join, *(p.url for p in known.values())):
                    with suppress(MillstreamError, KeyError, TypeError, AttributeError):
                        answer = await client.ask("GET", f"{url.rstrip('/')}/members")
                        self._meet(json_of(answer))
                        break
                await asyncio.sleep(GATHER_S)

    def _meet(self, told: Any) -> None:
        for one in told:
            card = {k: v for k, v in one.items() if k != "state"}
            if one["state"] == "up" and one["id"] not in self.driver.state.processors:
                self.driver.feed(Joined(from_json(Join, card)))

    # -- endpoint -------------------------------------------------------------------------------

    def _app(self) -> Application:
        app = Application(
            "Millstream manager", host=self.settings.host, token=self.settings.token,
            known_as=self.settings.advertise,
        )  # fmt: skip
        self._add_reads(app)
        self._add_processors(app)
        add_cluster_routes(app, self)
        add_stream_routes(app, self, self.settings)
        add_query_routes(app, self)
        add_move_routes(app, self)
        token, verify = self.settings.token, self.settings.verify
        add_quality_routes(app, self.driver, self._alarms.snapshot)
        add_placement_routes(app, self.driver, token, verify)
        add_tier_routes(app, self.driver, self._feeder.log, token, verify)
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
            verify=self.settings.verify,
        )

    async def read(self) -> ManagerState:
        return self.driver.state

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[ManagerDriver]:
        """The driver, unless another manager leads."""
        if self.driver.state.superseded:
            raise AnswerError(409, "superseded", self.driver.state.superseded)
        yield self.driver

    def _add_reads(self, app: Application) -> None:
        driver = self.driver

        @app.get("/status")
        @reads
        async def status() -> dict[str, Any]:
            return answers.status(driver.state, driver.traffic, driver.started_s)

        @app.get("/redistribution")
        @reads
        async def redistribution() -> dict[str, Any]:
            return answers.redistribution(driver.state)

        self._alarms.add_route(app)

        @app.get("/health")
        @for_all
        async def health() -> dict[str, Any]:
            return {"status": self._alarms.word(), "pid": os.getpid(), "time": time.time()}

        add_readiness(app, lambda: answers.readiness(driver.state, driver.fed_s))

        @app.get("/decisions")
        @reads
        async def decisions(after: int = 0, wait: float = 0.0) -> Any:

            def newer(state: ManagerState) -> list[Any] | None:
                return [d for d in state.decisions if d.number > after] or None

            return await driver.until(newer, min(max(0.0, wait), 60.0)) or []

    def _add_processors(self, app: Application) -> None:
        @app.post("/processors")
        async def join(request: Request) -> dict[str, Any]:
            joined = await record_body(request, Join)
            checked_url(joined.url, "--advertise")
            async with self.changing() as driver:
                driver.feed(Joined(joined))
            return {"manager": self.driver.state.epoch}

        @app.post("/settings")
        async def change(request: Request) -> dict[str, Any]:
            body = await json_body(request)
            async with self.changing() as driver:
                driver.feed(Change(changed(driver.state.settings, body)))
            return answers.settings(self.driver.state)

        @app.post("/redistribution")
        async def redistribute() -> dict[str, Any]:
            async with self.changing() as driver:
                planned = answers.redistribution(driver.state)
                for wish in planned["moves"]:
                    driver.feed(RequestMove((wish["operator"],), wish["to"], wish["reason"]))
                return planned


# -- what managers and members answer alike -------------------------------------------------------


def add_cluster_routes(app: Application, desk: Desk) -> None:
    """What runs where, and processors that are to go."""

    def reading(path: str, look: Callable[[ManagerState], Any]) -> None:
        @reads
        async def answer() -> Any:
            return look(await desk.read())

        app.get(path)(answer)

    reading("/placement", answers.distribution)
    reading("/scaling", scaling.answer)
    reading("/moves", lambda s: [answers.move(m) for m in s.moves.values()])
    reading("/queries", lambda s: [answers.query(s, name) for name in s.queries])
    reading("/streams", lambda s: {name: answers.stream(s, name) for name in s.streams})

    @app.post("/processors/{name}/drain")
    async def drain(request: Request, name: str) -> dict[str, Any]:
        asked = await record_body(request, _Drain)
        async with desk.changing() as driver:
            before = driver.state.counter
            driver.feed(Drain(name, asked.back))

            def away(state: ManagerState) -> bool | None:
                busy = [m for m in state.moves.values() if not m.over and m.source == name]
                return True if not busy else None

            await driver.until(away, asked.wait_s)
            left = answers.entering(driver.state, name)
            return {
                "moves": answers.moves_since(driver.state, before),
                "processor": answers.processor(driver.state, name),
                "entering": left,
            }

    @app.post("/processors/{name}/shutdown")
    async def shutdown(name: str) -> dict[str, Any]:
        async with desk.changing() as driver:
            driver.feed(Halt(name))
        return {"processor": name, "told": "shutdown"}

    @app.post("/processors/{name}/restart")
    async def restart(name: str) -> dict[str, Any]:
        async with desk.changing() as driver:
            driver.feed(Halt(name, restart=True))
        return {"processor": name, "told": "restart"}

    @app.post("/processors/{name}/again")
    async def again(name: str) -> dict[str, Any]:
        async with desk.changing() as driver:
            epoch = answers.processor(driver.state, name)["epoch"]
            driver.feed(Halt(name, again=True))
        return {"processor": name, "told": "again", "epoch": epoch}

    @app.delete("/processors/{name}")
    async def remove(name: str, lost: bool = False) -> dict[str, Any]:
        async with desk.changing() as driver:
            driver.feed(Remove(name, lost))
            gone = driver.state.lost.get(name) if name not in driver.state.processors else None
            known = driver.state.replications.get(name)
        if lost and gone is None and known is not None:
            return {"copies": sorted({f for _, some in configurations(known) for f in some})}
        if not lost or gone is None:
            return {}
        return {"since": gone.since_s, "queries": gone.queries, "streams": gone.streams}


def add_query_routes(app: Application, desk: Desk) -> None:
    @app.get("/queries/{name}")
    @reads
    async def query(name: str) -> dict[str, Any]:
        return answers.query(await desk.read(), name)

    @app.post("/queries")
    @submits
    async def submit(request: Request) -> dict[str, Any]:
        asked = await record_body(request, _Query)
        async with desk.changing() as driver:
            return await _submitted(driver, asked)

    @app.post("/queries/{name}/restart")
    @submits
    async def restart(name: str, request: Request) -> dict[str, Any]:
        asked = await record_body(request, _Restart)
        async with desk.changing() as driver:
            driver.feed(Restart(name))
            restarts = driver.state.queries[name].restarts

            def told(state: ManagerState) -> bool | None:
                return True if answers.restarted(state, name, restarts) else None

            await driver.until(told, asked.wait_s)
            return answers.query(driver.state, name)

    @app.post("/queries/{name}/pause")
    @submits
    async def pause(name: str, request: Request) -> dict[str, Any]:
        asked = await record_body(request, _Pause)
        async with desk.changing() as driver:
            driver.feed(Pause(name, asked.paused))
            pauses = driver.state.queries[name].pauses

            def told(state: ManagerState) -> bool | None:
                return True if answers.paused(state, name, pauses) else None

            await driver.until(told, asked.wait_s)
            return answers.query(driver.state, name)

    @app.delete("/queries/{name}")
    @submits
    async def drop(name: str, wait: float = 0.0) -> dict[str, Any]:
        async with desk.changing() as driver:
            driver.feed(Drop(name))

            def gone(state: ManagerState) -> bool | None:
                return True if name not in state.queries else None

            await driver.until(gone, min(max(0.0, wait), WAIT_S_MAX))
            return {"gone": name not in driver.state.queries}


async def _submitted(driver: ManagerDriver, asked: _Query) -> dict[str, Any]:
    """What became of a query, once that is decided."""
    driver.feed(
        Submit(asked.name, asked.cql, asked.from_beginning, asked.deliver_to,
               asked.latency_s, asked.queue, asked.dry_run, asked.weight, asked.replicas,
               asked.paused)
    )  # fmt: skip

    def decided(state: ManagerState) -> bool | None:
        known = state.queries.get(asked.name)
        over = known is None or known.phase in ("running", "failed", "queued")
        over = over and not (known is not None and known.awaits_room)
        return True if over else None

    await driver.until(decided, asked.wait_s)
    considered = driver.state.considered.get(asked.name)
    if asked.dry_run and considered is not None:
        return {"name": asked.name, "dry_run": True, **considered}
    refusal = driver.state.refusals.get(asked.name)
    if refusal is not None and asked.name not in driver.state.queries:
        words = {"detail": refusal.detail, "hint": refusal.hint}
        if refusal.code in ("mistake", "failed"):
            raise UsageError(refusal.message, **words)
        raise RefusedError(refusal.code, refusal.message, **words)
    return answers.query(driver.state, asked.name)


def add_move_routes(app: Application, desk: Desk) -> None:
    @app.post("/moves")
    async def move(request: Request) -> dict[str, Any]:
        asked = await record_body(request, _Move)
        async with desk.changing() as driver:
            state = driver.state
            operators = answers.chosen_operators(state, asked.operator, subplan=asked.subplan)
            planned = answers.planned_move(state, operators, asked.to)
            if asked.dry_run or not planned["operators"]:
                return {**planned, "moves": []}
            before = state.counter
            driver.feed(RequestMove(operators, asked.to, "a user requested it"))
            mine = [m["id"] for m in answers.moves_since(driver.state, before)]
            await driver.until(lambda s: answers.settled(s, mine), asked.wait_s)
            known = driver.state.moves
            return {**planned, "moves": [answers.move(known[m]) for m in mine]}
