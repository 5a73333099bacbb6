"""MQTT and NATS as sources: every message once, whoever is killed when; trouble is told."""

import asyncio
import json
import os
import resource
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from broker_home import Home, awaited, cut_off_twenty_times, rows
from nats.js import JetStreamContext
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from message_brokers import Process, mosquitto, nats_server, publish_mqtt, publish_nats
from millstream.control.definitions.source_rules import SourceRules
from millstream.control.definitions.stream_table import StreamReader, table_of
from millstream.core.errors import UsageError
from millstream.engine.sources import mqtt_source
from millstream.engine.sources.mqtt_source import MqttSource
from millstream.engine.sources.nats_source import NatsSource

pytestmark = pytest.mark.process


def texts(*numbers: int) -> list[str]:
    return [json.dumps(row) for row in rows(*numbers)]


@pytest.fixture
def mqtt(tmp_path: Path) -> Iterator[Process]:
    (tmp_path / "broker").mkdir()
    with mosquitto(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Process]:
    with nats_server(tmp_path / "broker") as broker:
        yield broker


def mqtt_home(folder: Path, broker: Process, **more: Any) -> Home:
    options = {"host": "127.0.0.1", "port": broker.port, **more}
    return Home(folder, MqttSource, {"source": "mqtt", "topic": "rooms/#", "options": options})


def nats_home(folder: Path, broker: Process, subject: str = "rooms.>", **more: Any) -> Home:
    options = {"servers": f"nats://127.0.0.1:{broker.port}"}
    source = {"source": "nats", "topic": subject, "options": options, **more}
    return Home(folder, NatsSource, source)


# -- MQTT -----------------------------------------------------------------------------------------


def test_mqtt_twenty_kills_lose_and_double_no_message(mqtt: Process, tmp_path: Path) -> None:
    home = mqtt_home(tmp_path / "home", mqtt)
    home.run_until(lambda: home.position().get("session"))  # from here on the broker keeps them
    sent = cut_off_twenty_times(
        home, lambda numbers: publish_mqtt(mqtt.port, "rooms/one", texts(*numbers))
    )
    source = home.run_until(lambda: home.values().total() >= sent)
    assert source.failure is None, str(source.failure)
    assert home.values() == Counter(range(sent))
    home.streams.close()


def test_mqtt_reads_where_thousands_of_files_are_open(mqtt: Process, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("this machine allows fewer than 4,096 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    with ExitStack() as many:
        for _ in range(1100):  # the next socket is beyond what `select` knows
            many.enter_context(open(os.devnull, "rb"))
        home = mqtt_home(tmp_path / "home", mqtt)
        home.run_until(lambda: home.position().get("session"))
        publish_mqtt(mqtt.port, "rooms/one", texts(*range(20)))
        source = home.run_until(lambda: home.values().total() >= 20)
        assert source.failure is None, str(source.failure)
        assert home.values() == Counter(range(20))
        home.streams.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_mqtt_what_comes_while_nobody_reads_comes_later(mqtt: Process, tmp_path: Path) -> None:
    home = mqtt_home(tmp_path / "home", mqtt)
    home.run_until(lambda: home.position().get("session"))
    publish_mqtt(mqtt.port, "rooms/one", [*texts(*range(500)), "no JSON"])
    publish_mqtt(mqtt.port, "elsewhere", texts(1000))
    mqtt.stop(signal.SIGTERM)
    mqtt.start()  # the session outlives the broker's process as well
    home.run_until(lambda: home.streams.ledger.counters().get("rejected:a"))
    assert home.values() == Counter(range(500))
    assert len(home.position()["recent"]) == mqtt_source.RECEIVE_MAX
    assert home.notices == []
    home.streams.close()


def test_mqtt_equal_messages_count_each(mqtt: Process, tmp_path: Path) -> None:
    home = mqtt_home(tmp_path / "home", mqtt)
    home.run_until(lambda: home.position().get("session"))
    publish_mqtt(mqtt.port, "rooms/one", texts(*[7] * 300))
    home.run_until(lambda: home.values().total() >= 300)
    assert home.values() == Counter({7: 300})
    home.streams.close()


def test_mqtt_a_broker_that_forgot_the_session_is_told(mqtt: Process, tmp_path: Path) -> None:
    home = mqtt_home(tmp_path / "home", mqtt)
    home.run_until(lambda: home.position().get("session"))
    mqtt.stop(signal.SIGKILL)
    for kept in (tmp_path / "broker").glob("*.db*"):
        kept.unlink()
    mqtt.start()
    home.run_until(lambda: home.notices)
    assert "the broker has forgotten this reader" in home.notices[0]
    home.streams.close()


def test_mqtt_a_session_that_began_without_a_subscription_reads_all_the_same(
    mqtt: Process, tmp_path: Path
) -> None:
    """As a reader leaves it whose first connection broke before the broker heard its wish."""
    home = mqtt_home(tmp_path / "home", mqtt, client_id="reader")
    wanted: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    wanted.SessionExpiryInterval = 600
    broken = paho.Client(CallbackAPIVersion.VERSION2, "reader", protocol=paho.MQTTv5)
    broken.connect("127.0.0.1", mqtt.port, clean_start=False, properties=wanted)
    while not broken.is_connected():
        assert broken.loop(0.1) == paho.MQTT_ERR_SUCCESS
    broken.disconnect()
    home.run_until(lambda: home.position().get("session"))
    publish_mqtt(mqtt.port, "rooms/one", texts(1, 2))
    home.run_until(lambda: home.values().total() >= 2)
    assert home.values() == Counter([1, 2])
    home.streams.close()


def test_mqtt_a_retained_message_comes_once(mqtt: Process, tmp_path: Path) -> None:
    publish_mqtt(mqtt.port, "rooms/one", texts(1), retain=True)
    home = mqtt_home(tmp_path / "home", mqtt)
    home.run_until(lambda: home.values().total() >= 1)
    publish_mqtt(mqtt.port, "rooms/one", texts(2))
    home.run_until(lambda: home.values().total() >= 2)  # a second connection
    assert home.values() == Counter([1, 2])
    home.streams.close()


def test_mqtt_a_broker_that_is_away_is_told(
    mqtt: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_source, "AWAY_S", 0.2)
    home = mqtt_home(tmp_path / "home", mqtt)
    mqtt.stop()
    source = home.run_until(lambda: False)
    assert "topic rooms/# of stream a cannot be read" in str(source.failure)
    mqtt.start()
    home.streams.close()


class Between:
    """Between a reader and the broker: keeps back what the broker says on some connections."""

    def __init__(self, broker: Process, keep_back: Callable[[int, bytes], bool]) -> None:
        self._broker, self._keep_back = broker, keep_back
        self.connections: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                reader, _ = self._listening.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._broker.port))
            self.connections.append(reader)
            number = len(self.connections)
            pairs = ((reader, broker, False), (broker, reader, True))
            for pair in pairs:
                threading.Thread(target=self._pass, args=(number, *pair), daemon=True).start()

    def _pass(self, number: int, come: socket.socket, go: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while content := come.recv(65536):
                if not (answers and self._keep_back(number, content)):
                    go.sendall(content)
        for end in (come, go):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listening.close()


CONNACK, SUBACK = 0x20, 0x90  # the first byte of these answers


@pytest.mark.parametrize("lost", [CONNACK, SUBACK])
def test_mqtt_an_answer_that_never_comes_is_not_waited_for(
    mqtt: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    monkeypatch.setattr(mqtt_source, "ANSWER_S", 0.5)
    between = Between(mqtt, lambda number, content: number == 1 and content[0] == lost)
    home = mqtt_home(tmp_path / "home", mqtt, port=between.port)
    source = home.run_until(lambda: home.position().get("session"))
    assert source.failure is None, str(source.failure)
    publish_mqtt(mqtt.port, "rooms/one", texts(1, 2))
    home.run_until(lambda: home.values().total() >= 2)
    assert home.values() == Counter([1, 2])
    between.close()
    home.streams.close()


def test_mqtt_breaks_with_hours_between_them_are_no_absence(
    mqtt: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_source, "AWAY_S", 0.7)
    monkeypatch.setattr(mqtt_source, "AGAIN_S", 0.05)
    between = Between(mqtt, lambda number, content: False)
    home = mqtt_home(tmp_path / "home", mqtt, port=between.port)
    source = home.source()
    source.start()
    for number in range(4):
        sent = number + 1
        awaited(source, lambda sent=sent: len(between.connections) >= sent)
        publish_mqtt(mqtt.port, "rooms/one", texts(number))
        time.sleep(0.5)  # the whole takes longer than a broker may be away
        with suppress(OSError):
            between.connections[-1].shutdown(socket.SHUT_RDWR)
    awaited(source, lambda: home.values().total() >= 4)
    source.stop()
    assert source.failure is None, str(source.failure)
    between.close()
    home.streams.close()


def test_mqtt_two_readers_with_one_id_are_told(
    mqtt: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_source, "AGAIN_S", 0.05)
    first = mqtt_home(tmp_path / "first", mqtt, client_id="one")
    second = mqtt_home(tmp_path / "second", mqtt, client_id="one")
    source = first.source()
    source.start()
    awaited(source, lambda: first.position().get("session"))
    other = second.source()
    other.start()
    awaited(source, lambda: other.failure)
    for reader in (source, other):
        reader.stop()
    failed = [reader.failure for reader in (source, other) if reader.failure]
    assert "another reader may have the same client_id" in str(failed[0])
    for home in (first, second):
        home.streams.close()


def test_mqtt_an_error_of_our_own_is_not_a_broken_connection(
    mqtt: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = mqtt_home(tmp_path / "home", mqtt)
    home.run_until(lambda: home.position().get("session"))
    publish_mqtt(mqtt.port, "rooms/one", texts(1))

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(MqttSource, "_append", full)
    source = home.run_until(lambda: False)
    assert "no space left on device" in str(source.failure)
    monkeypatch.undo()
    home.run_until(lambda: home.values().total())
    assert home.values() == Counter([1])
    home.streams.close()


# -- NATS -----------------------------------------------------------------------------------------


def test_nats_twenty_kills_lose_and_double_no_message(nats: Process, tmp_path: Path) -> None:
    publish_nats(nats.port, "rooms.one", [], name="rooms", subjects=["rooms.>"])
    home = nats_home(tmp_path / "home", nats)
    sent = cut_off_twenty_times(
        home, lambda numbers: publish_nats(nats.port, "rooms.one", texts(*numbers))
    )
    source = home.run_until(lambda: home.values().total() >= sent)
    assert source.failure is None, str(source.failure)
    assert home.values() == Counter(range(sent))
    assert home.position()["sequence"] == sent
    home.streams.close()


@pytest.mark.parametrize("asked_after_s", [0, 0.5])
def test_nats_what_is_there_and_then_the_end(
    nats: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_after_s: float
) -> None:
    """Also where the server hands all of it over before it says how much there is."""
    told = JetStreamContext.PushSubscription.consumer_info

    async def told_late(reader: Any) -> Any:
        await asyncio.sleep(asked_after_s)
        return await told(reader)

    monkeypatch.setattr(JetStreamContext.PushSubscription, "consumer_info", told_late)
    values = [*texts(*range(30)), "no JSON"]
    publish_nats(nats.port, "rooms.one", values, name="rooms", subjects=["rooms.>", "other"])
    publish_nats(nats.port, "other", texts(1000))
    home = nats_home(tmp_path / "home", nats, trigger="available_now")
    source = home.source()
    source.start()
    awaited(source, lambda: source.ended)
    source.stop()
    assert source.ended, str(source.failure)
    assert home.values() == Counter(range(30))
    assert home.streams.ledger.counters()["rejected:a"] == 1
    home.streams.close()


def test_nats_latest_begins_with_what_comes(nats: Process, tmp_path: Path) -> None:
    publish_nats(nats.port, "rooms.one", texts(1), name="rooms", subjects=["rooms.>"])
    home = nats_home(tmp_path / "home", nats, start="latest")
    home.run_until(lambda: home.position().get("sequence") == 1)
    publish_nats(nats.port, "rooms.one", texts(2))
    home.run_until(lambda: home.values().total())
    assert home.values() == Counter([2])
    home.streams.close()


def test_nats_messages_that_are_gone_are_told(nats: Process, tmp_path: Path) -> None:
    kept = {"name": "rooms", "subjects": ["rooms.>"], "max_msgs": 3}
    publish_nats(nats.port, "rooms.one", texts(0, 1), **kept)
    home = nats_home(tmp_path / "home", nats)
    home.run_until(lambda: home.values().total() == 2)
    publish_nats(nats.port, "rooms.one", texts(*range(2, 12)))
    source = home.run_until(lambda: False)
    assert isinstance(source.failure, UsageError)
    assert "the server begins with 10, and 3 comes next" in str(source.failure)
    home.streams.close()


def test_nats_a_subject_that_is_not_there_is_told(nats: Process, tmp_path: Path) -> None:
    home = nats_home(tmp_path / "home", nats, "nowhere")
    source = home.run_until(lambda: False)
    assert "stream a: no stream of JetStream has nowhere" in str(source.failure)
    home.streams.close()


# -- declarations ---------------------------------------------------------------------------------

COLUMNS = {"ts": "timestamp", "n": "int"}
MQTT = {"source": "mqtt", "topic": "t", "options": {"host": "b"}, "columns": COLUMNS, "time": "ts"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"options": {}}, "stream a has no host"),
        (
            {"options": {"host": "b", "passwd": "x"}},
            "unknown option passwd; did you mean password?",
        ),
        ({"start": "latest"}, "start is for sources kafka, nats"),
        (
            {"trigger": "available_now"},
            "trigger is for sources spark, kafka, nats, postgres, delta, iceberg",
        ),
        ({"source": "nats"}, "stream a has no servers"),
    ],
)
def test_mistakes_of_a_declaration(change: dict[str, Any], told: str) -> None:
    reader = StreamReader("a", MQTT | change, Path())
    assert reader.definition() is None
    assert reader.mistakes[0].message == told


def test_clients_name_brokers_where_they_are_allowed_to() -> None:
    definition = StreamReader("a", MQTT, Path()).definition()
    assert definition is not None
    with pytest.raises(UsageError, match="format mqtt is not open to clients"):
        SourceRules().check(table_of(definition))
    SourceRules(formats=("mqtt",), options=("host",)).check(table_of(definition))
