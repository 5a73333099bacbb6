"""Other processors over HTTP: the asking side of what the stream distributor serves.

One client for all of them, with kept connections. Who does not answer is away and asked again
later; who refuses says why. Addresses that a manager has told win over those that the ledger has:
a processor that was started again may be elsewhere.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from millstream.client.addresses import UNREACHABLE
from millstream.control.records import from_json
from millstream.engine.move_records import Extent, Place, SealedRecord
from millstream.store.transfer import Page, PeerAwayError, RefusedError

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 30.0


class PeerDirectory:
    """Gives the processor of a place; remembers where each was last said to be."""

    def __init__(self, token: str | None = None, verify: str | bool = True) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
        timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        self._client = httpx.Client(headers=headers, limits=limits, timeout=timeout, verify=verify)
        self._urls: dict[str, str] = {}
        self._lock = threading.Lock()

    def learn(self, processor: str, url: str) -> None:
        if url:
            with self._lock:
                self._urls[processor] = url

    def __call__(self, place: Place) -> "HttpPeer":
        with self._lock:
            url = self._urls.get(place.processor) or place.url
        if not url:
            raise PeerAwayError(f"where processor {place.processor} is, nobody has said yet")
        return HttpPeer(self._client, url.rstrip("/"), place.processor)

    def close(self) -> None:
        self._client.close()


class HttpPeer:
    """One processor."""

    def __init__(self, client: httpx.Client, url: str, name: str) -> None:
        self._client, self._url, self._name = client, url, name

    def page(self, stream: str, after: int, consumer: str, epoch: int, wait: float) -> Page:
        asked = {"after": after, "consumer": consumer, "epoch": epoch, "wait": wait}
        return from_json(Page, self._get(f"/streams/{_id(stream)}/segments", asked, wait))

    def fetch(self, stream: str, first: int, last: int) -> Iterator[bytes]:
        url = f"{self._url}/streams/{_id(stream)}/segments/{first}"
        try:
            with self._client.stream("GET", url, params={"last": last}) as answer:
                if answer.status_code != 200:
                    answer.read()
                    self._raise(answer)
                yield from answer.iter_raw()
        except UNREACHABLE as error:
            raise self._away(error) from error

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
        timeout = httpx.Timeout(ANSWER_SECONDS + wait, connect=CONNECT_SECONDS)
        try:
            answer = self._client.get(self._url + path, params=dict(asked), timeout=timeout)
        except UNREACHABLE as error:
            raise self._away(error) from error
        return self._read(answer)

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer = self._client.post(self._url + path, json=dict(body))
        except UNREACHABLE as error:
            raise self._away(error) from error
        return self._read(answer)

    def _read(self, answer: httpx.Response) -> dict[str, Any]:
        if answer.status_code != 200:
            self._raise(answer)
        try:
            return dict(answer.json())
        except ValueError as error:
            raise self._away(error) from error

    def _raise(self, answer: httpx.Response) -> None:
        try:
            told = answer.json()["error"]
        except (ValueError, KeyError, TypeError):
            told = {"code": "failed", "message": f"{self._name} answers {answer.status_code}"}
        if answer.status_code >= 500:
            raise PeerAwayError(str(told.get("message")), detail=str(told.get("detail", "")))
        raise RefusedError(
            str(told.get("code")),
            str(told.get("message")),
            detail=str(told.get("detail", "")),
            hint=str(told.get("hint", "")),
        )

    def _away(self, error: Exception) -> PeerAwayError:
        return PeerAwayError(
            f"processor {self._name} does not answer", detail=f"{type(error).__name__}: {error}"
        )


def _id(name: str) -> str:
    return quote(name, safe="")
