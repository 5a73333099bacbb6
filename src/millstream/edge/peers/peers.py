"""Other processors over HTTP: the asking side of what the stream distributor serves.

One client for all of them, with kept connections. A processor that does not answer is away and
asked again later; a refusal has a reason. Addresses from a manager take precedence over those in
the ledger: a restarted processor may be elsewhere.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

from millstream.client.http import HttpClient, Verbatim
from millstream.core.codec import from_json
from millstream.core.errors import AwayError, MillstreamError, RefusedError, UsageError
from millstream.edge.replicas.home_api import HttpHome
from millstream.store.moves.records import Extent, Place, SealedRecord
from millstream.store.moves.transfer import Page, Peer

CONNECT_SECONDS = 3.0


class PeerDirectory:
    """Gives the processor of a place; remembers where each was last said to be."""

    def __init__(self, reach: Callable[[str, str], Peer]) -> None:
        """`reach` gives the processor at an address, by its name."""
        self._reach = reach
        self._urls: dict[str, str] = {}
        self._lock = threading.Lock()

    def learn(self, processor: str, url: str) -> None:
        if url:
            with self._lock:
                self._urls[processor] = url

    def url_of(self, place: Place) -> str:
        """Where a processor answers, as last heard."""
        with self._lock:
            url = self._urls.get(place.processor) or place.url
        if not url:
            raise AwayError(f"the address of processor {place.processor} is not known yet")
        return url.rstrip("/")

    def __call__(self, place: Place) -> Peer:
        return self._reach(self.url_of(place), place.processor)


class HttpPeers(PeerDirectory):
    """All processors over one client."""

    def __init__(self, token: str | None = None, verify: str | bool = True) -> None:
        self._client = HttpClient(token, verify, connect_s=CONNECT_SECONDS)
        super().__init__(partial(HttpPeer, self._client))

    def close(self) -> None:
        self._client.close()

    def home(self, place: Place) -> HttpHome:
        """The home of a processor, as its followers reach it."""
        return HttpHome(self._client, self.url_of(place))

    def passed_on(
        self, place: Place, method: str, path: str, body: bytes, kind: str
    ) -> tuple[int, bytes, str | None]:
        """A request to another processor as it came here: status, answer, when to ask again."""
        given = Verbatim(body, kind or "application/json")
        answer = self._client.send(method, f"{self.url_of(place)}{path}", given)
        return answer.status_code, answer.content, answer.headers.get("retry-after")


class HttpPeer:
    """One processor."""

    def __init__(self, client: HttpClient, url: str, name: str) -> None:
        self._client, self._url, self._name = client, url, name

    def page(self, stream: str, after: int, consumer: str, epoch: int, wait: float) -> Page:
        asked = {"after": after, "consumer": consumer, "epoch": epoch, "wait": wait}
        return from_json(Page, self._get(f"/streams/{_id(stream)}/segments", asked, wait))

    def fetch(self, stream: str, first: int, last: int) -> Iterator[bytes]:
        url = f"{self._url}/streams/{_id(stream)}/segments/{first}"
        with self._judged():
            yield from self._client.chunks(url, last=last)

    def relayed(
        self, stream: str, first: int, last: int, digest: str, reader: str, wait: float
    ) -> Iterator[bytes]:
        url = f"{self._url}/streams/{_id(stream)}/relayed/{first}"
        with self._judged():
            yield from self._client.chunks(
                url, last=last, digest=digest, consumer=reader, wait=wait
            )

    def acknowledge(self, stream: str, consumer: str, following: int) -> None:
        self._post(f"/streams/{_id(stream)}/ack", {"consumer": consumer, "next": following})

    def expect(self, stream: str, consumer: str) -> tuple[int, int]:
        found = self._post(f"/streams/{_id(stream)}/expect", {"consumer": consumer})
        return int(found["next"]), int(found["epoch"])

    def unexpect(self, stream: str, consumer: str) -> Place | None:
        found = self._post(f"/streams/{_id(stream)}/unexpect", {"consumer": consumer})
        further = found.get("further")
        return None if further is None else Place(**further)

    def needs(self, move: str, operators: tuple[str, ...], to: Place) -> Extent:
        asked = {"operators": list(operators), "to": to.processor, "url": to.url}
        return from_json(Extent, self._post(f"/moves/{_id(move)}/needs", asked))

    def sealed(self, move: str, wait: float) -> SealedRecord | None:
        found = self._get(f"/moves/{_id(move)}/sealed", {"wait": wait}, wait)["sealed"]
        return None if found is None else from_json(SealedRecord, found)

    def ready(self, move: str) -> None:
        self._post(f"/moves/{_id(move)}/ready", {})

    def taken(self, move: str) -> None:
        self._post(f"/moves/{_id(move)}/taken", {})

    def undo(self, move: str) -> None:
        self._post(f"/moves/{_id(move)}/undo", {})

    # -- HTTP -----------------------------------------------------------------------------------

    def _get(self, path: str, asked: Mapping[str, Any], wait: float = 0.0) -> dict[str, Any]:
        with self._judged():
            return dict(self._client.get(self._url + path, wait_s=wait, **asked))

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._judged():
            return dict(self._client.post(self._url + path, dict(body)))

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """What a processor will not do is refused; anything else may be otherwise later."""
        try:
            yield
        except RefusedError:
            raise
        except UsageError as error:
            raise RefusedError(
                "mistake", error.message, detail=error.detail, hint=error.hint
            ) from error
        except AwayError as error:
            text = f"processor {self._name} does not answer"
            raise AwayError(text, detail=error.detail or error.message) from error
        except MillstreamError as error:
            raise AwayError(error.message, detail=error.detail) from error


def _id(name: str) -> str:
    return quote(name, safe="")
