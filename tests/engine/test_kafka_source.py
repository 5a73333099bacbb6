"""A topic as a stream: every message once through kills, offsets in the ledger, trouble told."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from broker_home import COLUMNS, Home, awaited, cut_off_twenty_times, rows

from kafka_broker import Broker
from millstream.control.definitions.source_rules import SourceRules
from millstream.control.definitions.stream_table import StreamReader, table_of
from millstream.core.errors import UsageError
from millstream.engine.sources.kafka_source import KafkaSource
from millstream.language.plan.schema import Field

WITH_OFFSET = (*COLUMNS, Field("offset", "bigint"))


def home_of(folder: Path, broker: Broker, topic: str, **more: Any) -> Home:
    options = {"bootstrap.servers": broker.address}
    source = {"source": "kafka", "topic": topic, "options": options, **more}
    return Home(folder, KafkaSource, source, WITH_OFFSET)


def test_twenty_kills_lose_and_double_no_message(kafka: Broker, tmp_path: Path) -> None:
    home = home_of(tmp_path / "home", kafka, "kills")
    sent = cut_off_twenty_times(home, lambda numbers: kafka.send("kills", rows(*numbers)))
    source = home.run_until(lambda: home.values().total() >= sent)
    assert source.failure is None, str(source.failure)
    assert home.values() == Counter(range(sent))
    offsets = home.position()["offsets"]
    assert {p: n for p, n in offsets.items() if n} == {"0": sent // 2, "1": sent // 2}
    home.streams.close()


def test_what_is_there_and_then_the_end(kafka: Broker, tmp_path: Path) -> None:
    kafka.send("finite", [*rows(1, 2, 3), "no JSON", "[]"], partitions=1)
    home = home_of(tmp_path / "home", kafka, "finite", trigger="available_now")
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
    home = home_of(tmp_path / "home", kafka, "news", start="latest", trigger="available_now")
    source = home.source()
    source.start()
    awaited(source, lambda: source.ended)
    source.stop()
    assert home.values() == Counter()
    home.streams.close()


def test_a_topic_that_is_not_there_is_told(kafka: Broker, tmp_path: Path) -> None:
    home = home_of(tmp_path / "home", kafka, "nowhere")
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
        ({"source": "http", "options": None}, "topic is for sources kafka, mqtt, nats"),
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
