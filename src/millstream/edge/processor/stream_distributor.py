"""The stream distributor: serves segments to other processors and rows to subscribers.

It waits for word from the ledger that something was published, never polls (D-CAPE, section 4.3):
who asks for more than there is gets the answer when there is more, or after the time it gave.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from millstream.control.protocol.records import Count, Name, Names
from millstream.core.codec import to_json
from millstream.edge.http.access import AnswerError, check_consumer, record_body
from millstream.edge.http.roles import reads, submits
from millstream.edge.http.serving import Application
from millstream.language.plan.windows import FOREVER
from millstream.store.consumers import subscriber
from millstream.store.delivery import user_table
from millstream.store.file_formats import json_lines
from millstream.store.moves.records import Place
from millstream.store.moves.transfer import CHUNK, FollowedByDigest, RefusedError

if TYPE_CHECKING:
    from millstream.engine.processor import Processor

WAIT_SECONDS_MAX = 60.0
ROWS_MAX = 50_000  # of one answer to a subscriber
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reader:
    consumer: Name


@dataclass(frozen=True, slots=True)
class Following:
    """All below a number is taken."""

    next: Count


@dataclass(frozen=True, slots=True)
class Taken:
    """... by another processor."""

    consumer: Name
    next: Count


@dataclass(frozen=True, slots=True)
class Needs:
    """What a new owner of operators asks their old one for."""

    operators: Names
    to: Name
    url: str | None = None


class StreamDistributor:
    """The data plane's endpoints of one processor."""

    def __init__(self, processor: "Processor") -> None:
        self.processor = processor
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

    def add_routes(self, app: Application) -> None:
        self._add_streams(app)
        self._add_moves(app)
        self._add_results(app)

    def _add_streams(self, app: Application) -> None:
        distributor = self.processor.distributor

        @app.get("/streams/{stream:path}/segments")
        @reads
        async def segments(
            stream: str, after: int, consumer: str, epoch: int = 0, wait: float = 0.0
        ) -> dict[str, Any]:
            page = await self._until(
                stream,
                wait,
                lambda: distributor.page(stream, after, consumer, epoch),
                lambda found: bool(found.segments) or found.moved is not None,
            )
            shown: dict[str, Any] = to_json(page)
            return shown

        @app.get("/streams/{stream:path}/segments/{first}")
        @reads
        async def segment(stream: str, first: int, last: int) -> StreamingResponse:
            file = await run_in_threadpool(distributor.open, stream, first, last)
            return SegmentResponse(file)

        @app.get("/streams/{stream:path}/relayed/{first}")
        async def relayed(
            stream: str, first: int, last: int, digest: str, consumer: str, wait: float = 0.0
        ) -> StreamingResponse:
            await self._until(
                stream,
                wait,
                lambda: distributor.has(stream, first, last, digest, consumer),
                lambda found: found,
            )
            file = await run_in_threadpool(
                distributor.relayed, stream, first, last, digest, consumer
            )
            return SegmentResponse(file)

        @app.post("/streams/{stream:path}/ack")
        @submits
        async def ack(request: Request, stream: str) -> dict[str, Any]:
            taken = await record_body(request, Taken)
            check_consumer(request, taken.consumer)
            await run_in_threadpool(distributor.acknowledge, stream, taken.consumer, taken.next)
            return {}

        @app.post("/streams/{stream:path}/expect")
        @submits
        async def expect(request: Request, stream: str) -> dict[str, Any]:
            consumer = (await record_body(request, Reader)).consumer
            check_consumer(request, consumer)
            following, epoch = await run_in_threadpool(distributor.expect, stream, consumer)
            return {"next": following, "epoch": epoch}

        @app.post("/streams/{stream:path}/unexpect")
        @submits
        async def unexpect(request: Request, stream: str) -> dict[str, Any]:
            consumer = (await record_body(request, Reader)).consumer
            check_consumer(request, consumer)
            further = await run_in_threadpool(distributor.unexpect, stream, consumer)
            return {"further": None if further is None else asdict(further)}

    def _add_moves(self, app: Application) -> None:
        old = self.processor.old_owner

        @app.post("/moves/{move}/needs")
        async def needs(request: Request, move: str) -> dict[str, Any]:
            asked = await record_body(request, Needs)
            to = Place(asked.to, asked.url or "")
            found = await run_in_threadpool(old.needs, move, list(asked.operators), to)
            needed: dict[str, Any] = to_json(found)
            return needed

        @app.get("/moves/{move}/sealed")
        async def sealed(move: str, wait: float = 0.0) -> dict[str, Any]:
            found = await self._until(
                f"move {move}", wait, lambda: old.sealed(move), lambda record: record is not None
            )
            return {"sealed": None if found is None else to_json(found)}

        @app.post("/moves/{move}/{word}")
        async def say(move: str, word: str) -> dict[str, Any]:
            said = {"ready": old.ready, "taken": old.taken, "undo": old.undo}.get(word)
            if said is None:
                raise AnswerError(404, "unknown", f"there is no {word} of a move")
            await run_in_threadpool(said, move)
            return {}

    def _add_results(self, app: Application) -> None:
        @app.get("/queries/{query}/rows")
        @reads
        async def rows(
            query: str, after: int = 0, wait: float = 0.0, limit: int = ROWS_MAX
        ) -> dict[str, Any]:
            stream = await run_in_threadpool(self._result_stream, query)
            return await self._until(
                stream,
                wait,
                lambda: self._rows(query, stream, after, min(max(limit, 1), ROWS_MAX)),
                lambda found: bool(found["rows"]) or found["moved"] is not None or found["ended"],
            )

        @app.post("/queries/{query}/ack")
        @submits
        async def read(request: Request, query: str) -> dict[str, Any]:
            """A subscriber has all below a number: it need not be kept any longer."""
            following = (await record_body(request, Following)).next
            await run_in_threadpool(self._read, query, following)
            return {}

        @app.get("/queries/{query}/table")
        @reads
        async def table(query: str) -> dict[str, Any]:
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
        with engine.streams.removals.reading():
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


class SegmentResponse(StreamingResponse):
    """A segment's file in pieces. It is closed however the answer ends: a reader that goes away
    before the first piece never starts the iterator."""

    def __init__(self, file: FollowedByDigest) -> None:
        pieces = iter(lambda: file.read(CHUNK), b"")
        super().__init__(pieces, media_type="application/vnd.apache.parquet")
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()
