"""A topic as a stream: every message once through kills, offsets in the ledger, trouble told."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_broker import Broker
from millstream.control.definitions.source_rules import SourceRules
from millstream.control.definitions.stream_table import StreamReader, table_of
from millstream.core.errors import UsageError
from millstream.engine.ports import SourceSetting
from millstream.engine.sources.kafka_source import KafkaSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.store import faults
from millstream.store.arrivals.appending import Appender
from millstream.store.streams import Streams
from plain_plane import arrived

COLUMNS = (Field("ts", "bigint"), Field("c0", "bigint"), Field("offset", "bigint"))


class CrashError(BaseException):
    """The end of a process."""


class Home:
    """A ledger that a source fills; opened again after each crash."""

    def __init__(self, folder: Path, broker: Broker, topic: str, **more: Any) -> None:
        options = {"bootstrap.servers": broker.address}
        source = {"source": "kafka", "topic": topic, "options": options, **more}
        self.definition = StreamDefinition("a", COLUMNS, "ts", source=source)
        self.folder = folder
        self.open()

    def open(self) -> None:
        self.streams = Streams(self.folder)
        self.appender = Appender(self.definition, "", self.streams.ledger, self.streams.files)
        with self.streams.ledger.transaction():
            self.appender.install()

    def source(self, say: Callable[[str], None] = lambda _: None) -> KafkaSource:
        setting = SourceSetting(self.folder, 7, lambda _: None, lambda: False, say)
        return KafkaSource(self.definition, self.appender, self._parse, setting)

    @staticmethod
    def _parse(rows: list[dict[str, Any]], origin: str) -> Any:
        plain = [(r["ts"], r["c0"]) if isinstance(r["ts"], int) else (0, -1) for r in rows]
        nothing = [0] * len(rows)
        return arrived(plain, origin, c1=nothing, c2=nothing)

    def values(self, stream: str = "s:a") -> "Counter[int]":
        found: Counter[int] = Counter()
        for segment in self.streams.ledger.segments(stream):
            if segment.rows and stream == "s:a":
                found.update(self.streams.files.read(segment)["c0"].to_pylist())
        return found


def awaited(source: KafkaSource, seen: Any) -> None:
    deadline = time.monotonic() + 60
    while not seen() and time.monotonic() < deadline and source.failure is None:
        time.sleep(0.01)


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"ts": 1_000_000, "c0": n, "more": 1} for n in numbers]


def test_twenty_kills_lose_and_double_no_message(kafka: Broker, tmp_path: Path) -> None:
    home = Home(tmp_path / "home", kafka, "kills")
    sent = 0
    for turn in range(20):
        kafka.send("kills", rows(*range(sent, sent + 10)))
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
    source = home.source()
    source.start()
    awaited(source, lambda: home.values().total() >= sent)
    source.stop()
    assert source.failure is None, str(source.failure)
    assert home.values() == Counter(range(sent))
    offsets = home.streams.ledger.ingest_position("s:a")["offsets"]
    assert {p: n for p, n in offsets.items() if n} == {"0": sent // 2, "1": sent // 2}
    home.streams.close()


def test_what_is_there_and_then_the_end(kafka: Broker, tmp_path: Path) -> None:
    kafka.send("finite", [*rows(1, 2, 3), "no JSON", "[]"], partitions=1)
    home = Home(tmp_path / "home", kafka, "finite", trigger="available_now")
    source = home.source()
    source.start()
    awaited(source, lambda: source.ended)
    assert source.ended, str(source.failure)
    assert home.values() == Counter([1, 2, 3])
    assert home.streams.ledger.counters()["rejected:a"] == 2
    source.stop()
    home.streams.close()


def test_latest_begins_with_what_comes(kafka: Broker, tmp_path: Path) -> None:
    kafka.send("news", rows(1))
    home = Home(tmp_path / "home", kafka, "news", start="latest", trigger="available_now")
    source = home.source()
    source.start()
    awaited(source, lambda: source.ended)
    source.stop()
    assert home.values() == Counter()
    home.streams.close()


def test_a_topic_that_is_not_there_is_told(kafka: Broker, tmp_path: Path) -> None:
    home = Home(tmp_path / "home", kafka, "nowhere")
    source = home.source()
    source.start()
    awaited(source, lambda: False)
    assert "stream a: there is no topic nowhere" in str(source.failure)
    assert "hint: make it" in str(source.failure)
    source.stop()
    home.streams.close()


TABLE = {
    "source": "kafka", "topic": "t", "options": {"bootstrap.servers": "b:9092"},
    "columns": {"ts": "timestamp", "n": "int"}, "time": "ts",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"topic": None}, "stream a has no topic"),
        ({"options": {}}, "stream a has no bootstrap.servers"),
        ({"start": "middle"}, "unknown start 'middle'"),
        ({"format": "json"}, "a stream of source kafka has no format"),
        ({"source": "http", "options": None}, 'topic is for source = "kafka"'),
    ],
)
def test_mistakes_of_a_declaration(change: dict[str, Any], told: str) -> None:
    table = {k: v for k, v in (TABLE | change).items() if v is not None}
    reader = StreamReader("a", table, Path())
    assert reader.definition() is None
    assert [m.message for m in reader.mistakes] == [told]


def test_clients_name_brokers_where_they_are_allowed_to() -> None:
    definition = StreamReader("a", TABLE, Path()).definition()
    assert definition is not None
    table = table_of(definition)
    assert (table["topic"], table["options"]) == ("t", {"bootstrap.servers": "b:9092"})
    with pytest.raises(UsageError, match="format kafka is not open to clients"):
        SourceRules().check(table)
    with pytest.raises(UsageError, match=r"option bootstrap\.servers is not open"):
        SourceRules(formats=("kafka",)).check(table)
    SourceRules(formats=("kafka",), options=("bootstrap.*",)).check(table)
