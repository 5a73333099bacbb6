"""Rows of a query's result from wherever they are kept, each once, in order.

A reader has the next number it wants. It asks the processor that owns the result, takes whole
segments as Parquet files, and acknowledges what its user has taken; when the result has moved it
goes where the pointer, or the manager, says. Numbers go on across owners, so nothing comes twice
and nothing is left out; a gap is an error, never passed over.
"""

import io
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.client.manager_client import ManagerClient
from millstream.client.system import ResultPage
from millstream.core.errors import AwayError, MillstreamError, StateError
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import FOREVER
from millstream.store.delivery import Result
from millstream.store.integrity.digests import LENGTH, digest_of

LOOK_AGAIN_S = 1.0
DEPLOYED_S_MAX = 60.0
VAIN_MAX = 120


class StreamReader:
    """One stream of a cluster, from a number on."""

    def __init__(
        self, manager: ManagerClient, stream: str, url: str, following: int, consumer: str
    ) -> None:
        self.manager, self.stream, self.url = manager, stream, url
        self.following, self.consumer = following, consumer
        # how far along the stream's owners it is: streams come back to former ones, who would else
        # send it round in circles
        self.epoch = 0
        self.ended = False
        self._vain = 0  # segments in a row that were told of and not given
        self.idle = False  # whether the owner had nothing more when it was last asked

    def find(self) -> str:
        """The address to ask, looked up anew."""
        return self.url

    def shown(self, stored: pa.Table) -> pa.Table:
        """Stored rows as users see them."""
        return stored

    def pages(self, wait_s: float = 0.0) -> Iterator[ResultPage]:
        """What is there now; waits for more up to `wait_s` where there is nothing."""
        self.idle = False
        try:
            page = self._page(wait_s)
        except (AwayError, StateError):
            time.sleep(min(LOOK_AGAIN_S, wait_s))
            self.url = self.find()  # restarted elsewhere, or moved
            return
        if page["moved"] is not None:
            self.epoch = int(page["moved"]["epoch"])
            self.url = page["moved"]["to"]["url"] or self.find()
            return
        self.epoch, self.idle = int(page["epoch"]), not page["segments"]
        for segment in page["segments"]:
            self._refuse_gap(self.following, segment)
            try:
                table = self._rows(segment) if segment["rows"] else None
            except (AwayError, StateError) as error:
                self._look_again(error)
                return
            self._vain = 0
            self.ended = segment["watermark"] == FOREVER
            self.following = segment["last"] + 1
            yield ResultPage(segment["first"], segment["last"], table, self.ended)

    def listed(self) -> list[tuple[int, int]]:
        """First and last number of every segment that is there now; reads none of them."""
        found: list[tuple[int, int]] = []
        following = self.following
        while True:
            page = self._page(0.0, following)
            if page["moved"] is not None:
                self.epoch = int(page["moved"]["epoch"])
                self.url = page["moved"]["to"]["url"] or self.find()
                continue
            if not page["segments"]:
                return found
            for segment in page["segments"]:
                self._refuse_gap(following, segment)
                found.append((int(segment["first"]), int(segment["last"])))
                following = found[-1][1] + 1

    def _refuse_gap(self, following: int, segment: dict[str, int]) -> None:
        if segment["first"] > following:
            raise StateError(
                f"numbers {following} to {segment['first'] - 1} of {self.stream} are gone",
                hint="another client has read this result, or it was read before",
            )

    def _look_again(self, error: AwayError | StateError) -> None:
        """Rows have moved or were merged since the page was made, or their processor went: the next
        page says where they are."""
        self._vain += 1
        if self._vain > VAIN_MAX:
            raise error
        time.sleep(min(LOOK_AGAIN_S, 0.05 * self._vain))
        if isinstance(error, AwayError):
            self.url = self.find()

    def _page(self, wait_s: float, following: int | None = None) -> dict[str, Any]:
        asked = {
            "after": following or self.following, "consumer": self.consumer, "epoch": self.epoch,
            "wait": wait_s,
        }  # fmt: skip
        url = f"{self.url}/streams/{quote(self.stream, safe='')}/segments"
        found: dict[str, Any] = dict(
            self.manager.ask("GET", url, params=asked, wait_s=wait_s).json()
        )
        return found

    def _rows(self, segment: dict[str, int]) -> pa.Table:
        url = f"{self.url}/streams/{quote(self.stream, safe='')}/segments/{segment['first']}"
        answer = self.manager.ask("GET", url, params={"last": segment["last"]}, wait_s=60.0)
        content, digest = answer.content[:-LENGTH], answer.content[-LENGTH:]  # it comes last
        if digest_of(content) != digest.decode(errors="replace"):
            raise StateError(
                f"rows of {self.stream} came damaged from {self.url}",
                hint="read it again; if it stays so, run millstream check there",
            )
        return self.shown(pq.read_table(io.BytesIO(content)))


class ResultReader(StreamReader):
    """A query's result."""

    def __init__(self, manager: ManagerClient, query: str, following: int | None = None) -> None:
        told = manager.query(query)
        columns = tuple(Field(str(n), str(t)) for n, t in told["columns"])
        self.query = query
        self.result = Result(query, str(told["result"]), columns, bool(told["relation"]))
        super().__init__(manager, str(told["result"]), str(told["url"]), following or 1, query)
        if told.get("below"):
            self._descend()
        if following is None:
            self.following = self._kept_from()

    def find(self) -> str:
        try:
            told = self.manager.query(self.query)
        except AwayError:
            return self.url
        if told["result"] and told["result"] != self.stream:
            # begun again, because a processor was lost: numbers begin again too
            self.stream, self.following, self.epoch = str(told["result"]), 1, 0
            self.result = replace(self.result, stream=self.stream)
        return str(told["url"])

    def _descend(self) -> None:
        """Down to the processor that has the rows: a manager in between only says where it is,
        and that only once it has deployed what it was told to."""
        deadline = time.monotonic() + DEPLOYED_S_MAX
        while True:
            try:
                moved = self._page(0.0)["moved"]
            except StateError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
                continue
            if moved is None:
                return
            self.url = str(moved["to"]["url"])

    def shown(self, stored: pa.Table) -> pa.Table:
        return self.result.shown(stored)

    def _kept_from(self) -> int:
        """The first number that nobody has acknowledged."""
        url = f"{self.url}/queries/{quote(self.query, safe='')}/rows"
        told = self.manager.ask("GET", url, params={"after": 1 << 60, "limit": 1}).json()
        return int(told["read"])

    def acknowledge(self) -> None:
        """Everything below the next number is taken: it need not be kept."""
        url = f"{self.url}/queries/{quote(self.query, safe='')}/ack"
        try:
            self.manager.ask("POST", url, {"next": self.following})
        except (AwayError, StateError):
            return  # said with the next ones


class RejectReader(StreamReader):
    """Rows of a stream that came too late, or were malformed; kept where the stream enters."""

    def __init__(
        self, manager: ManagerClient, base: str, result: Result, consumer: str,
        following: int | None = None,
    ) -> None:  # fmt: skip
        self._base, self.result = base, result
        url = str(manager.entrance(base)["url"])
        super().__init__(manager, result.stream, url, following or 1, consumer)
        held = manager.ask("POST", self._at("expect"), {"consumer": consumer}).json()
        self.following = following or int(held["next"])

    def _at(self, verb: str) -> str:
        return f"{self.url}/streams/{self.stream}/{verb}"

    def find(self) -> str:
        with suppress(AwayError, StateError):
            return str(self.manager.entrance(self._base)["url"])
        return self.url

    def shown(self, stored: pa.Table) -> pa.Table:
        return self.result.shown(stored)

    def acknowledge(self) -> None:
        body = {"consumer": self.consumer, "next": self.following}
        with suppress(MillstreamError):  # said with the next ones
            self.manager.ask("POST", self._at("ack"), body)
