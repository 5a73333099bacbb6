"""Processors that run plans behind real HTTP: all of them but Spark is the real thing.

For measuring and testing a manager without Spark. Rows of a source are all there when it starts.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi import Request

from millstream.control.protocol.commands import StartStream
from millstream.control.protocol.envelope import Message
from millstream.control.protocol.replies import Compiled, Reply
from millstream.core.codec import to_json
from millstream.edge.http.serving import Application
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.edge.processor.connection_manager import Parts
from millstream.engine.settings import EngineSettings
from millstream.language.cql.system_streams import PREFIX
from millstream.sim.managed.observed import ObservedConnections, Publications
from millstream.sim.managed.plain_plane import arrived
from millstream.sim.managed.plan_plane import PlanPlane
from millstream.store.moves.ownership import Owned
from millstream.store.segments import Segment


class World:
    """Processors with the same plans, and their homes."""

    def __init__(self, plans: Mapping[str, Compiled], rows: int = 0) -> None:
        self.plane, self.rows = PlanPlane(plans), rows
        self.processors: dict[str, HttpProcessor] = {}
        self.homes = TemporaryDirectory()

    @property
    def faults(self) -> list[str]:
        """Copies that cannot go on."""
        return [t for p in self.processors.values() for t in p.receiver.troubles.values()]

    def close(self) -> None:
        for processor in self.processors.values():
            processor.stop()
        self.homes.cleanup()


class HttpProcessor(ProcessorServer):
    """One of them, with what others may want to know of it."""

    connections: ObservedConnections

    def __init__(self, name: str, world: World) -> None:
        self._world = world
        self.asked = 0  # about itself
        self.entered: dict[str, list[dict[str, Any]]] = {}  # rows about the system, by stream
        home = Path(world.homes.name) / name
        settings = EngineSettings(slots=1)
        super().__init__(name, home, world.plane, ProcessorSettings(), settings)
        self.processor.new_owner.warm_rounds = 0
        Publications(self.processor, self._made)
        self.start()
        world.processors[name] = self

    def _connected(self, parts: Parts) -> ObservedConnections:
        return Feeding(parts, self._world)

    def app(self) -> Application:
        app = super().app()

        @app.middleware("http")
        async def count(request: Request, answer: Any) -> Any:
            self.asked += request.url.path == "/system"
            return await answer(request)

        return app

    def _made(self, owned: Owned, segments: Sequence[Segment]) -> None:
        name = owned.stream.removeprefix("s:")
        if not name.startswith(PREFIX):
            return
        engine = self.processor.engine
        names = [column.name for column in engine.catalog.stream(name).columns]
        for segment in segments:
            rows = engine.store.read(segment).to_pylist()
            self.entered.setdefault(name, []).extend(
                {n: row[f"c{i}"] for i, n in enumerate(names)} for row in rows
            )

    def step(self, operator: str) -> None:
        """Something to be told about the system."""
        view = self.system
        with view._lock:
            row = {
                "at": int(time.time() * 1e6),
                "operator": operator,
                "processor": self.processor.id,
            }
            view._last += 1
            view._steps.append((view._last, row))

    def hosted(self) -> set[str]:
        known = self.processor.ownership.hosted().values()
        return {operator for operators in known for operator in operators}

    def join(self) -> dict[str, Any]:
        return {**to_json(self._join()), "properties": {}}


class Feeding(ObservedConnections):
    """Lets rows in when a source starts."""

    def __init__(self, parts: Parts, world: World) -> None:
        super().__init__(parts, world.plane, [])
        self._rows, self._fed, self._feeding = world.rows, set[str](), threading.Lock()

    def perform(self, command: Message) -> Reply:
        reply = super().perform(command)
        if isinstance(command, StartStream) and not command.stream.startswith(PREFIX):
            with self._feeding:
                if command.stream not in self._fed and self._rows:
                    self._fed.add(command.stream)
                    rows = [(n, f"{command.stream}{n}") for n in range(1, self._rows + 1)]
                    appender = self.processor.engine.appenders[command.stream]
                    appender.append(arrived(rows, command.stream), {})
        return reply
