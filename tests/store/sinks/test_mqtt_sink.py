"""Topics of MQTT: a table as retained messages, a stream with numbers that tell repeats."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import target_runs
from target_runs import Home, cut_off_often

from message_brokers import Process, mosquitto
from millstream.control.definitions.sink_table import SinkDefinition, read_sink
from millstream.language.plan.schema import Field
from millstream.store.delivery import Result, SinkError, TargetError
from millstream.store.sinks import mqtt as mqtt_sink
from millstream.store.sinks.mqtt import MqttSink

paho: Any = pytest.importorskip("paho.mqtt.client")
pytestmark = pytest.mark.process
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RESULT = Result("q", "r:q", (Field("name", "string"), Field("n", "bigint")), changes=True)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Process]:
    (tmp_path / "broker").mkdir()
    with mosquitto(tmp_path / "broker") as running:
        yield running


def sink(broker: Process, topic: str, *key: str, **options: str) -> MqttSink:
    told = {"topic": topic, "host": "127.0.0.1", "port": str(broker.port)} | options
    return MqttSink(SinkDefinition("mqtt", told, key))


class Reader:
    """Everything that is published under a pattern."""

    def __init__(self, broker: Process, pattern: str) -> None:
        self.messages: list[Any] = []
        self._heard = False
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self._client.on_message = lambda _client, _data, message: self.messages.append(message)
        self._client.on_subscribe = lambda *_: setattr(self, "_heard", True)
        self._client.connect("127.0.0.1", broker.port)
        self._client.subscribe(pattern, 1)
        self._client.loop_start()
        while not self._heard:
            time.sleep(0.01)

    def all(self) -> list[Any]:
        """What has come when a message behind it has."""
        mark = f"mark-{time.monotonic_ns()}"
        self._client.publish("marks/all", mark, 1).wait_for_publish(30)
        deadline = time.monotonic() + 30
        while not any(m.payload == mark.encode() for m in self.messages):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return [m for m in self.messages if m.topic != "marks/all"]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def model_row(payload: bytes) -> tuple[Any, ...]:
    value = json.loads(payload)
    moment = datetime.fromisoformat(value["ts"])
    return value["name"], value["n"], round((moment - EPOCH).total_seconds() * 1e6)


def retained(broker: Process) -> "Counter[tuple[Any, ...]]":
    """The table that a subscriber finds who comes now."""
    reader = Reader(broker, "#")
    found = Counter(model_row(m.payload) for m in reader.all() if m.payload and m.retain)
    reader.close()
    return found


def test_fifty_kills_leave_the_query_s_table(
    broker: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_runs, "NAMES", ("a", "b", "c d", "ü"))
    home = Home(tmp_path / "home", changes=True)
    # within a batch that is cut off some keys are as they were, others as they will be
    cut_off_often(home, lambda: sink(broker, "t/{name}", "name"), lambda: settled(broker, home), 50)
    home.close()


def settled(broker: Process, home: Home) -> "Counter[tuple[Any, ...]]":
    """The table; where a kill left a batch half published, as it is when that has come again."""
    deliver_rest(home, sink(broker, "t/{name}", "name"))
    return retained(broker)


def deliver_rest(home: Home, opened: MqttSink) -> None:
    delivery = home.delivery(opened)
    while delivery.advance():
        pass
    delivery.close()


def test_fifty_kills_repeat_rows_under_their_numbers_and_lose_none(
    broker: Process, tmp_path: Path
) -> None:
    reader = Reader(broker, "#")

    def once() -> "Counter[tuple[Any, ...]]":
        deliver_rest(home, sink(broker, "rows"))
        rows: dict[Any, Any] = {}
        for message in reader.all():
            about = dict(message.properties.UserProperty)
            row = rows.setdefault((about["delivery"], about["batch"], about["row"]), message)
            assert row.payload == message.payload
        return Counter(model_row(m.payload) for m in rows.values())

    home = Home(tmp_path / "home", changes=False)
    cut_off_often(home, lambda: sink(broker, "rows"), once, 50)
    assert len(reader.all()) > sum(once().values())  # some came twice
    reader.close()
    home.close()


def changes(*rows: tuple[str | None, int, str]) -> pa.Table:
    moment = pa.array([EPOCH] * len(rows), pa.timestamp("us", tz="UTC"))
    names, numbers, signs = (list(c) for c in zip(*rows, strict=True))
    columns = [pa.array(names, pa.string()), pa.array(numbers, pa.int64()), moment, signs]
    return pa.table(columns, ["name", "n", "ts", "op"])


def test_a_repeat_in_a_larger_batch_leaves_nothing_of_between(broker: Process) -> None:
    opened = sink(broker, "t/{name}", "name")
    assert opened.following(RESULT, "d") == 1
    opened.deliver(RESULT, 1, 1, changes(("a", 1, "+"), ("b", 2, "+")))
    opened.deliver(RESULT, 1, 2, changes(("a", 1, "+"), ("b", 2, "+"), ("a", 1, "-")))
    opened.close()
    assert retained(broker) == Counter([("b", 2, 0)])


def test_trouble_is_told(broker: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = sink(broker, "t/{name}", "name")
    opened.following(RESULT, "d")
    for table, told in (
        (changes((None, 1, "+")), "a value of column name cannot stand in a topic"),
        (changes(("a/b", 1, "+")), "have no /"),
        (changes(("a", 1, "+"), ("a", 2, "+")), "two rows with one key"),
        (changes(("a", 1, "+")).drop_columns(["name"]), "gives no column name"),
    ):
        with pytest.raises(TargetError, match=told):
            opened.deliver(RESULT, 1, 1, table)
    opened.close()
    broker.stop()
    with pytest.raises(TargetError, match="the broker does not take messages for t"):
        opened.following(RESULT, "d")
    broker.start()
    assert opened.following(RESULT, "d") == 1
    opened.close()


def test_a_broker_that_goes_away_meanwhile_gets_the_rest(
    broker: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home", changes=False)
    home.grow(3)
    delivery = home.delivery(sink(broker, "rows"))
    assert delivery.advance() > 0
    broker.stop()
    home.grow(2)
    monkeypatch.setattr(mqtt_sink, "ACKNOWLEDGED_S", 1.0)
    with pytest.raises(SinkError, match="the broker does not take messages"):
        delivery.advance()
    broker.start()
    reader = Reader(broker, "#")
    delivery.retry.succeeded()
    assert delivery.advance() > 0
    assert delivery.advance() == 0
    assert len(reader.all()) > 0
    reader.close()
    delivery.close()
    home.close()


def test_refused_users_are_told_without_their_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORD", "s3cret-word")
    (tmp_path / "broker").mkdir()
    with mosquitto(tmp_path / "broker") as broker:
        broker.stop()
        settings = tmp_path / "broker" / "mosquitto.conf"
        settings.write_text(settings.read_text().replace("anonymous true", "anonymous false"))
        broker.start()
        opened = sink(broker, "t", username="me", password="env:WORD")
        with pytest.raises(TargetError, match="the broker refuses messages for t") as told:
            opened.following(RESULT, "d")
        assert "s3cret" not in str(told.value)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"topic": "t/+", "options": {"host": "b"}}, "not to patterns"),
        ({"topic": "t", "key": ["k"], "options": {"host": "b"}}, "the topic does not have k"),
        ({"topic": "t", "options": {}}, "the sink has no host"),
        ({"topic": "t", "options": {"host": "b", "passwort": "x"}}, "did you mean password"),
        ({"topic": "t", "options": {"host": "b", "password": "x"}}, "in plain text"),
    ],
)
def test_mistakes_of_a_declaration(table: dict[str, Any], told: str) -> None:
    definition, mistakes = read_sink({"type": "mqtt", **table}, Path())
    assert definition is None
    assert told in mistakes[0].message
