"""The alarms of a cluster, told by its manager: `GET /alarms`, and the word in `GET /health`.

    GET /alarms

asks every processor that is up what it says of itself, so that goals count, and judges the whole.
`/health` is asked often and answers at once, at most every two seconds anew: by what the manager
knows itself and what the processors said when it was last asked; they are asked again meanwhile.
`GET /api/snapshot` gives the whole picture (`millstream top --url MANAGER`). `GET /snapshot` is for
a manager above and answers as `/health` does: what is wrong below is seen above.
"""

import asyncio
import time
from collections.abc import Callable

from fastapi.responses import JSONResponse

from millstream.client.http import AsyncHttpClient
from millstream.control.manager.state import ManagerState
from millstream.control.snapshot.alarms import AlarmBook, worst
from millstream.control.snapshot.model import Snapshot
from millstream.control.snapshot.of_cluster import laid_over
from millstream.control.snapshot.of_manager import snapshot_of
from millstream.control.snapshot.of_tier import as_processor
from millstream.core.codec import from_json, to_json
from millstream.core.errors import MillstreamError
from millstream.edge.http.roles import reads
from millstream.edge.http.serving import Application
from millstream.edge.manager.system_feed import addresses

ANSWER_S = 3.0
KEPT_S = 2.0
REMEMBERED_S = 15.0


class ClusterAlarms:
    """What deserves attention in the cluster of one manager."""

    def __init__(
        self, state: Callable[[], ManagerState], token: str | None, verify: str | bool
    ) -> None:
        self._state, self._token, self._verify = state, token, verify
        self._book = AlarmBook()
        self._word, self._judged_s = "ok", -KEPT_S
        self._parts: dict[str, tuple[float, Snapshot]] = {}  # when a processor last answered, what
        self._asking: asyncio.Task[Snapshot] | None = None

    def word(self) -> str:
        """`ok`, `warning` or `error`."""
        now = time.monotonic()
        if now - self._judged_s >= KEPT_S:
            self._word, self._judged_s = worst(self._at_once().overview.alarms), now
        return self._word

    def _at_once(self) -> Snapshot:
        """By what processors said lately; they are asked again meanwhile."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self.snapshot())
        state = self._state()
        return laid_over(snapshot_of(state), self._known(state))

    async def snapshot(self) -> Snapshot:
        """What the manager knows, with what its processors say now."""
        state = self._state()
        async with AsyncHttpClient(self._token, self._verify, answer_s=ANSWER_S) as client:
            asked = [_told(client, name, url) for name, url in addresses(state).items()]
            answers = await asyncio.gather(*asked)
        now = time.monotonic()
        self._parts |= {name: (now, part) for name, part in answers if part is not None}
        return self._book.dated(laid_over(snapshot_of(state), self._known(state)))

    def _known(self, state: ManagerState) -> dict[str, Snapshot]:
        """What processors said lately: who misses one question has not changed by that."""
        oldest = time.monotonic() - REMEMBERED_S
        up = addresses(state)
        self._parts = {p: (at, s) for p, (at, s) in self._parts.items() if p in up and at >= oldest}
        return {name: part for name, (_, part) in self._parts.items()}

    def add_route(self, app: Application) -> None:
        @app.get("/alarms")
        @reads
        async def alarms() -> JSONResponse:
            seen = await self.snapshot()
            return JSONResponse([to_json(alarm) for alarm in seen.overview.alarms])

        @app.get("/api/snapshot")
        @reads
        async def whole() -> JSONResponse:
            return JSONResponse(to_json(await self.snapshot()))

        @app.get("/snapshot")
        @reads
        async def part() -> JSONResponse:
            return JSONResponse(to_json(as_processor(self._at_once())))


async def _told(client: AsyncHttpClient, name: str, url: str) -> tuple[str, Snapshot | None]:
    """What one processor says of itself; no answer is no news."""
    try:
        answer = await client.ask("GET", f"{url.rstrip('/')}/snapshot")
        return name, from_json(Snapshot, answer.json())
    except (MillstreamError, ValueError, KeyError, TypeError):
        return name, None
