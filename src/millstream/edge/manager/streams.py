"""A manager's endpoint for streams: declared, started, forgotten; by a client as far as it may.

Who owns the cluster may name any source. Who may only submit names what the processor where the
stream enters allows: it is asked before the stream is declared, and its refusal is the answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Request
from pydantic import Field

from millstream.client.http import AsyncHttpClient
from millstream.control.manager.decisions import least_entered
from millstream.control.manager.events import DeclareStream, Event, ForgetStream, StartStreams
from millstream.core.codec import EXACT
from millstream.core.errors import UsageError
from millstream.edge.http.access import json_body, record_body
from millstream.edge.http.roles import Role, asker, submits
from millstream.edge.http.serving import Application, Listening
from millstream.edge.manager import answers
from millstream.edge.manager.driver import ManagerDriver
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


def add_stream_routes(
    app: Application, driver: ManagerDriver, feed: Callable[[Event], None], settings: Listening
) -> None:
    async def allowed_at(table: dict[str, Any], place: str) -> str:
        """Where a client's stream enters, once the processor there has agreed."""
        known = driver.state.streams.get(str(table.get("name")))
        if known is not None:  # it is compared with what was declared before
            return known.processor
        place = place or least_entered(driver.state)
        if place not in driver.state.processors:
            raise UsageError(f"there is no processor {place}")
        url = driver.state.processors[place].url.rstrip("/")
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
        if asker(request) < Role.ADMIN:
            place = await allowed_at(asked.table, place)
        feed(DeclareStream(asked.table, place, asked.start))
        return answers.stream(driver.state, str(asked.table["name"]))

    @app.post("/streams/check")
    async def check(request: Request) -> dict[str, Any]:
        """For a manager above."""
        await allowed_at(await json_body(request), "")
        return {}

    @app.post("/streams/start")
    @submits
    async def start(request: Request) -> dict[str, Any]:
        asked = await record_body(request, _Names)
        feed(StartStreams(asked.names))
        return {}

    @app.delete("/streams/{name}")
    @submits
    async def forget(name: str) -> dict[str, Any]:
        feed(ForgetStream(name))
        return {}
