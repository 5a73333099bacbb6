"""A ledger that a broker's source fills, for tests that cut the source off at any point."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.engine.ports import SourceSetting
from millstream.engine.sources.broker_source import BrokerSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.store import faults
from millstream.store.arrivals.appending import Appender
from millstream.store.streams import Streams
from plain_plane import arrived

COLUMNS = (Field("ts", "bigint"), Field("c0", "bigint"))
STREAM = "s:a"


class CrashError(BaseException):
    """The end of a process."""


class Home:
    """Opened again after each crash."""

    def __init__(
        self,
        folder: Path,
        kind: type[BrokerSource],
        source: Mapping[str, Any],
        columns: Sequence[Field] = COLUMNS,
    ) -> None:
        self._kind, self.folder = kind, folder
        self.definition = StreamDefinition("a", tuple(columns), "ts", source=dict(source))
        self.notices: list[str] = []
        self.open()

    def open(self) -> None:
        self.streams = Streams(self.folder)
        self.appender = Appender(self.definition, "", self.streams.ledger, self.streams.files)
        with self.streams.ledger.transaction():
            self.appender.install()

    def source(self) -> BrokerSource:
        setting = SourceSetting(self.folder, 7, lambda _: None, lambda: False, self.notices.append)
        return self._kind(self.definition, self.appender, self._parse, setting)

    @staticmethod
    def _parse(rows: list[dict[str, Any]], origin: str) -> Any:
        plain = [(r["ts"], r["c0"]) if isinstance(r["ts"], int) else (0, -1) for r in rows]
        nothing = [0] * len(rows)
        return arrived(plain, origin, c1=nothing, c2=nothing)

    def values(self) -> "Counter[int]":
        kept: Counter[int] = Counter()
        for segment in self.streams.ledger.segments(STREAM):
            if segment.rows:
                kept.update(self.streams.files.read(segment)["c0"].to_pylist())
        return kept

    def position(self) -> Mapping[str, Any]:
        return self.streams.ledger.ingest_position(STREAM)

    def run_until(self, seen: Callable[[], Any]) -> BrokerSource:
        """A source from start to stop."""
        source = self.source()
        source.start()
        awaited(source, seen)
        source.stop()
        return source


def awaited(source: BrokerSource, seen: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not seen() and time.monotonic() < deadline and source.failure is None:
        time.sleep(0.01)


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"ts": 1_000_000, "c0": n, "more": 1} for n in numbers]


def cut_off_twenty_times(home: Home, send: Callable[[Sequence[int]], None]) -> int:
    """Sends ten numbers, and ends the source before or after a commit; gives how many were sent."""
    sent = 0
    for turn in range(20):
        send(range(sent, sent + 10))
        sent += 10
        point = ("ingest.written", "ingest.committed")[turn % 2]
        left = [turn % 3]

        def hook(reached: str, point: str = point, left: list[int] = left) -> None:
            left[0] -= reached == point
            if left[0] < 0:
                raise CrashError(reached)

        source = home.source()
        faults.set_hook(hook)
        try:
            source.start()
            awaited(source, lambda sent=sent: home.values().total() >= sent)
        finally:
            faults.set_hook(None)
            source.stop()
        assert max(home.values().values(), default=1) == 1
        home.streams.close()
        home.open()
    return sent
