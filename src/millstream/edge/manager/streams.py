"""A manager's endpoint for streams: declared, started, forgotten; by a client as far as it may.

The owner of the cluster may name any source. A client with the role `submit` may name what the
processor where the stream enters allows: the manager asks it before it declares the stream, and
returns its refusal.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Request
from pydantic import Field

from millstream.client.http import AsyncHttpClient
from millstream.control.manager.decisions import least_entered
from millstream.control.manager.events import DeclareStream, ForgetStream, StartStreams
from millstream.control.manager.state import ManagerState
from millstream.core.codec import EXACT
from millstream.core.errors import UsageError
from millstream.edge.http.access import json_body, record_body
from millstream.edge.http.roles import Role, asker, submits
from millstream.edge.http.serving import Application, Listening
from millstream.edge.manager import answers
from millstream.edge.manager.driver import Desk
from millstream.language.cql.system_streams import PREFIX

Name = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class _Stream:
    __pydantic_config__ = EXACT
    table: Annotated[dict[str, Any], Field(max_length=100)]
    processor: Annotated[str, Field(max_length=200)] = ""
    start: bool = False


@dataclass(frozen=True, slots=True)
class _Names:
    __pydantic_config__ = EXACT
    names: Annotated[tuple[Name, ...], Field(max_length=5000)] = ()


def add_stream_routes(app: Application, desk: Desk, settings: Listening) -> None:
    async def allowed_at(state: ManagerState, table: dict[str, Any], place: str) -> str:
        """Where a client's stream enters, once the processor there has agreed."""
        known = state.streams.get(str(table.get("name")))
        if known is not None:  # it is compared with what was declared before
            return known.processor
        place = place or least_entered(state)
        if place not in state.processors:
            raise UsageError(f"there is no processor {place}")
        url = state.processors[place].url.rstrip("/")
        async with AsyncHttpClient(settings.token, settings.verify) as client:
            await client.ask("POST", f"{url}/streams/check", table)
        return place

    @app.post("/streams")
    @submits
    async def declare(request: Request) -> dict[str, Any]:
        asked = await record_body(request, _Stream)
        if str(asked.table.get("name")).startswith(PREFIX):
            raise UsageError(
                f"names that begin with {PREFIX} are those of the system itself",
                hint="choose another name for the stream",
            )
        place = asked.processor
        async with desk.changing() as driver:
            if asker(request) < Role.ADMIN:
                place = await allowed_at(driver.state, asked.table, place)
            driver.feed(DeclareStream(asked.table, place, asked.start))
            return answers.stream(driver.state, str(asked.table["name"]))

    @app.post("/streams/check")
    async def check(request: Request) -> dict[str, Any]:
        """For a manager above."""
        await allowed_at(await desk.read(), await json_body(request), "")
        return {}

    @app.post("/streams/start")
    @submits
    async def start(request: Request) -> dict[str, Any]:
        asked = await record_body(request, _Names)
        async with desk.changing() as driver:
            driver.feed(StartStreams(asked.names))
        return {}

    @app.delete("/streams/{name}")
    @submits
    async def forget(name: str) -> dict[str, Any]:
        async with desk.changing() as driver:
            driver.feed(ForgetStream(name))
        return {}
