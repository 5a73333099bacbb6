"""The stream distributor: serves segments to other processors and rows to subscribers.

It waits for word from the ledger that something was published, never polls (D-CAPE, section 4.3):
who asks for more than there is gets the answer when there is more, or after the time it gave.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from millstream.control.records import to_json
from millstream.engine.consumers import subscriber
from millstream.engine.move_records import Place
from millstream.plan.windows import FOREVER
from millstream.server.access import AnswerError, authorise, json_body, number, text
from millstream.store.delivery import json_lines, user_table
from millstream.store.transfer import CHUNK, RefusedError

if TYPE_CHECKING:
    from millstream.engine.processor import Processor

WAIT_SECONDS_MAX = 60.0
ROWS_MAX = 50_000  # of one answer to a subscriber
T = TypeVar("T")


class StreamDistributor:
    """The data plane's endpoints of one processor."""

    def __init__(self, processor: "Processor", token: str | None) -> None:
        self.processor, self.token = processor, token
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[str, asyncio.Event] = {}
        self._closing = False
        processor.engine.ledger.on_publish.append(self.published)
        processor.old_owner.on_sealed.append(self._sealed)

    # -- notices --------------------------------------------------------------------------------

    def published(self, streams: frozenset[str]) -> None:
        """Called after each commit, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # the endpoint is closing
                self._loop.call_soon_threadsafe(self._ring, streams)

    def close(self) -> None:
        """Answers everybody who still waits."""
        self._closing = True
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # the endpoint is closing
                self._loop.call_soon_threadsafe(self._ring_all)

    def _sealed(self, move: str) -> None:
        known = self.processor.ownership.move(move)
        names = known.operators if known is not None else ()
        self.published(frozenset({f"move {move}", *names}))

    def _ring(self, streams: frozenset[str]) -> None:
        for stream in streams:
            event = self._waiting.pop(stream, None)
            if event is not None:
                event.set()

    def _ring_all(self) -> None:
        """In the endpoint's own thread: nobody else may look through those who wait."""
        self._ring(frozenset(self._waiting))

    async def _until(
        self, name: str, wait: float, look: Callable[[], T], enough: Callable[[T], bool]
    ) -> T:
        """Looks until there is enough to tell, at most as long as was asked for."""
        self._loop = asyncio.get_running_loop()
        deadline = time.monotonic() + min(max(0.0, wait), WAIT_SECONDS_MAX)
        while True:
            event = self._waiting.setdefault(name, asyncio.Event())
            found = await run_in_threadpool(look)
            left = deadline - time.monotonic()
            if enough(found) or left <= 0 or self._closing:
                return found
            try:
                await asyncio.wait_for(event.wait(), left)
            except TimeoutError:
                return found

    # -- endpoints ------------------------------------------------------------------------------

    def add_routes(self, app: FastAPI) -> None:
        self._add_streams(app)
        self._add_moves(app)
        self._add_results(app)

    def _add_streams(self, app: FastAPI) -> None:
        distributor = self.processor.distributor

        @app.get("/streams/{stream:path}/segments")
        async def segments(
            request: Request,
            stream: str,
            after: int,
            consumer: str,
            epoch: int = 0,
            wait: float = 0.0,
        ) -> dict[str, Any]:
            authorise(request, self.token)
            page = await self._until(
                stream,
                wait,
                lambda: distributor.page(stream, after, consumer, epoch),
                lambda found: bool(found.segments) or found.moved is not None,
            )
            return to_json(page)

        @app.get("/streams/{stream:path}/segments/{first}")
        async def segment(
            request: Request, stream: str, first: int, last: int
        ) -> StreamingResponse:
            authorise(request, self.token)
            file = await run_in_threadpool(distributor.open, stream, first, last)
            return StreamingResponse(_chunks(file), media_type="application/vnd.apache.parquet")

        @app.post("/streams/{stream:path}/ack")
        async def ack(request: Request, stream: str) -> dict[str, Any]:
            authorise(request, self.token)
            body = await json_body(request)
            await run_in_threadpool(
                distributor.acknowledge, stream, text(body, "consumer"), number(body, "next")
            )
            return {}

        @app.post("/streams/{stream:path}/expect")
        async def expect(request: Request, stream: str) -> dict[str, Any]:
            authorise(request, self.token)
            consumer = text(await json_body(request), "consumer")
            following, epoch = await run_in_threadpool(distributor.expect, stream, consumer)
            return {"next": following, "epoch": epoch}

        @app.post("/streams/{stream:path}/unexpect")
        async def unexpect(request: Request, stream: str) -> dict[str, Any]:
            authorise(request, self.token)
            consumer = text(await json_body(request), "consumer")
            further = await run_in_threadpool(distributor.unexpect, stream, consumer)
            return {"further": None if further is None else asdict(further)}

    def _add_moves(self, app: FastAPI) -> None:
        old = self.processor.old_owner

        @app.post("/moves/{move}/needs")
        async def needs(request: Request, move: str) -> dict[str, Any]:
            authorise(request, self.token)
            body = await json_body(request)
            operators = body.get("operators")
            if not isinstance(operators, list) or not all(isinstance(o, str) for o in operators):
                raise AnswerError(400, "mistake", "operators is a list of ids")
            to = Place(text(body, "to"), str(body.get("url") or ""))
            return to_json(await run_in_threadpool(old.needs, move, operators, to))

        @app.get("/moves/{move}/sealed")
        async def sealed(request: Request, move: str, wait: float = 0.0) -> dict[str, Any]:
            authorise(request, self.token)
            found = await self._until(
                f"move {move}", wait, lambda: old.sealed(move), lambda record: record is not None
            )
            return {"sealed": None if found is None else to_json(found)}

        @app.post("/moves/{move}/{word}")
        async def say(request: Request, move: str, word: str) -> dict[str, Any]:
            authorise(request, self.token)
            said = {"ready": old.ready, "taken": old.taken, "undo": old.undo}.get(word)
            if said is None:
                raise AnswerError(404, "unknown", f"there is no {word} of a move")
            await run_in_threadpool(said, move)
            return {}

    def _add_results(self, app: FastAPI) -> None:
        @app.get("/queries/{query}/rows")
        async def rows(
            request: Request, query: str, after: int = 0, wait: float = 0.0, limit: int = ROWS_MAX
        ) -> dict[str, Any]:
            authorise(request, self.token)
            stream = await run_in_threadpool(self._result_stream, query)
            return await self._until(
                stream,
                wait,
                lambda: self._rows(query, stream, after, min(max(limit, 1), ROWS_MAX)),
                lambda found: bool(found["rows"]) or found["moved"] is not None or found["ended"],
            )

        @app.post("/queries/{query}/ack")
        async def read(request: Request, query: str) -> dict[str, Any]:
            """A subscriber has all below a number: it need not be kept any longer."""
            authorise(request, self.token)
            following = number(await json_body(request), "next")
            await run_in_threadpool(self._read, query, following)
            return {}

        @app.get("/queries/{query}/table")
        async def table(request: Request, query: str) -> dict[str, Any]:
            authorise(request, self.token)
            known = self.processor.engine.queries.get(query)
            if known is None or not known.plan.relation:
                raise AnswerError(404, "unknown", f"there is no relation {query} here")
            found = await run_in_threadpool(self.processor.engine.table, query)
            return {"query": query, "rows": list(_values(found))}

    def _result_stream(self, query: str) -> str:
        known = self.processor.engine.queries.get(query)
        if known is None:
            raise RefusedError("unknown", f"query {query} has no rows here")
        return known.stream

    def _rows(self, query: str, stream: str, after: int, limit: int) -> dict[str, Any]:
        """What follows a number of a result, as users see it.

        Rows that nobody has read move with the operator: whoever owns the stream has them.
        """
        engine = self.processor.engine
        known = engine.queries[query]
        names = [f.name for f in known.plan.columns]
        moved = self._moved(stream)
        found: list[Any] = []
        following = max(after, 1)
        with engine.runner.removals.reading():
            for s in engine.ledger.segments(stream, following) if moved is None else ():
                if len(found) >= limit:
                    break
                if s.rows and s.first >= following:  # merged ones were read before
                    shown = user_table(engine.store.read(s), names, changes=known.plan.relation)
                    found += _values(shown)
                following = s.last + 1
        head = engine.ledger.stream(stream)
        ended = head is not None and head["watermark"] == FOREVER and following >= head["next"]
        return {
            "query": query,
            "columns": [[f.name, f.type] for f in known.plan.columns],
            "relation": known.plan.relation,
            "rows": found,
            "next": following,
            "read": engine.ledger.cursor(subscriber(query), stream)[0],
            "ended": bool(ended and moved is None),
            "moved": moved,
        }

    def _moved(self, stream: str) -> dict[str, Any] | None:
        """Who has a result's rows by now; None where they are here."""
        ownership = self.processor.ownership
        handed = ownership.handed(stream)
        if ownership.owned(stream) is not None or not handed:
            return None
        latest = max(handed, key=lambda h: h.epoch)
        return {**asdict(latest.to), "next": latest.next}

    def _read(self, query: str, following: int) -> None:
        engine = self.processor.engine
        stream = self._result_stream(query)
        with engine.ledger.transaction() as ledger:
            place = ledger.consumers(stream).get(subscriber(query))
            if place is None:
                raise RefusedError("unknown", f"nothing is kept for subscribers of {query} here")
            if following > place[0]:
                ledger.set_cursor(subscriber(query), stream, following, place[1])
        engine.maintenance.retain([stream])


def _values(table: pa.Table) -> Iterator[Any]:
    return (json.loads(line) for line in json_lines(table))


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK):
            yield chunk
