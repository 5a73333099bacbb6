"""A home as its followers reach it: commits in order, the whole ledger, segments' files.

GET /replica/commits?after&rows_sum&follower&number&wait    what follows; says what it has
GET /replica/ledger                                         all of it, at one moment
GET /replica/files/NAME                                     a segment's file
GET /replica/copies/PROCESSOR/files/NAME                    one of the copy that is kept here
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from millstream.client.http import HttpClient
from millstream.core.codec import from_json, to_json
from millstream.edge.http.serving import Application
from millstream.edge.processor.stream_distributor import SegmentResponse
from millstream.store.integrity.digests import digest_of_file
from millstream.store.moves.transfer import FollowedByDigest, RefusedError
from millstream.store.replicas.commit_log import CommitLog
from millstream.store.replicas.records import Commits

WAIT_SECONDS_MAX = 30.0
FILE_NAME = re.compile(r"[0-9A-Za-z_-]+\.[a-z]+")


def add_home_routes(
    app: Application,
    log: CommitLog,
    path_of: Callable[[str], str],
    copied: Callable[[str, str], Path],
) -> None:
    """`path_of` says where a file of this home lies, `copied` where one of another's copy does."""

    @app.get("/replica/commits")
    async def commits(
        after: int, rows_sum: int, follower: str, number: int, wait: float = 0.0
    ) -> dict[str, Any]:
        patience = min(max(wait, 0.0), WAIT_SECONDS_MAX)
        page = await run_in_threadpool(log.page, after, rows_sum, follower, number, patience)
        told: dict[str, Any] = to_json(page)
        return told

    @app.get("/replica/ledger")
    async def ledger() -> StreamingResponse:
        return SegmentResponse(await run_in_threadpool(_snapshot, log))

    @app.get("/replica/files/{name}")
    async def file(name: str) -> StreamingResponse:
        return await _file(name, lambda: Path(path_of(name)))

    @app.get("/replica/copies/{owner}/files/{name}")
    async def copy(owner: str, name: str) -> StreamingResponse:
        return await _file(name, lambda: copied(owner, name))


async def _file(name: str, path: Callable[[], Path]) -> StreamingResponse:
    if not FILE_NAME.fullmatch(name):
        raise RefusedError("unknown", f"there is no file {name[:100]}")
    try:
        return SegmentResponse(await run_in_threadpool(_opened, path()))
    except FileNotFoundError:
        raise RefusedError("unknown", f"file {name} is there no more") from None


def _snapshot(log: CommitLog) -> FollowedByDigest:
    with TemporaryDirectory(dir=log.ledger.path.parent) as folder:
        path = Path(folder) / "ledger.db"
        log.snapshot(path)
        return _opened(path)  # read on after its name is gone


def _opened(path: Path) -> FollowedByDigest:
    return FollowedByDigest(path.open("rb"), digest_of_file(path))


class HttpHome:
    """`store.replicas.records.HomeSource` over HTTP."""

    def __init__(self, client: HttpClient, url: str) -> None:
        self._client, self._url = client, f"{url}/replica"

    def commits(
        self, after: int, rows_sum: int, follower: str, number: int, wait: float
    ) -> Commits:
        asked = {
            "after": after, "rows_sum": rows_sum, "follower": follower, "number": number,
            "wait": wait,
        }  # fmt: skip
        return from_json(Commits, self._client.get(f"{self._url}/commits", wait_s=wait, **asked))

    def ledger(self) -> Iterator[bytes]:
        return self._client.chunks(f"{self._url}/ledger")

    def file(self, name: str) -> Iterator[bytes]:
        return self._client.chunks(f"{self._url}/files/{name}")

    def copied(self, owner: str, name: str) -> Iterator[bytes]:
        return self._client.chunks(f"{self._url}/copies/{quote(owner, safe='')}/files/{name}")
