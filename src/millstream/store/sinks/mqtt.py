"""Results into MQTT: a table as retained messages, one a key; a stream published, row by row.

MQTT has no transactions. A batch counts as delivered when the broker has acknowledged each of its
messages; a kill before the ledger notes that publishes the batch again. For a table by a key this
changes nothing: each key that a batch touches gets its row as it is then. Otherwise each message
carries the delivery's name, the number of its batch and its place there, which a repeat has too.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.control.definitions.sink_table import PLACEHOLDER, SinkDefinition
from millstream.core.errors import UsageError
from millstream.core.extras import mqtt_library
from millstream.core.secrets import resolved, without_secrets
from millstream.store import faults
from millstream.store.delivery import Result, TargetError
from millstream.store.file_formats import json_lines, zoned
from millstream.store.sinks.net_changes import GONE, KIND, states

if TYPE_CHECKING:
    from paho.mqtt.client import Client

ANSWER_S = 10.0
ACKNOWLEDGED_S = 60.0  # in which the broker takes a batch
IN_FLIGHT = 500  # messages that the broker has not acknowledged yet
LOOK_S = 0.05
KEEPALIVE_S = 30
PORT, PORT_TLS = 1883, 8883
QUALITY = 1
FORBIDDEN = re.compile(r"[+#\0]")  # in the topic of a message
Message = tuple[str, str | None]  # topic and value; None: the row is gone


class MqttSink:
    """One topic, or one for each value of some columns: `rooms/{room}/warm`."""

    def __init__(self, definition: SinkDefinition) -> None:
        mqtt_library()
        self._written = {k: v for k, v in definition.options.items() if k != "topic"}
        self._topic, self._key = definition.options["topic"], definition.key
        self.dataset = ("mqtt", self._topic)  # for whoever draws lineage
        self._client: Client | None = None
        self._refused, self._delivery = "", ""
        self._connected = threading.Event()

    def recover(self, following: int) -> None:
        """What the ledger has not noted comes again, under the numbers that it had."""

    def following(self, result: Result, delivery: str) -> int:
        """The broker knows nothing of what it has taken: the ledger's word counts."""
        self._delivery = delivery
        if self._client is None:
            self._open(result)
        return 1

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.disconnect()
                client.loop_stop()

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        if self._client is None:
            self._open(result)
        try:
            self._publish(result, first, self._messages(result, table))
        except (RuntimeError, ValueError) as error:  # of the library: it is not connected
            self.close()
            raise self._away(str(error)) from None
        except BaseException:
            self.close()
            raise

    # -- the broker -----------------------------------------------------------------------------

    def _open(self, result: Result) -> None:
        paho = mqtt_library()
        from paho.mqtt.enums import CallbackAPIVersion  # noqa: PLC0415

        try:
            options = resolved(f"the sink of query {result.query}", self._written)
        except UsageError as error:
            raise TargetError(error.message, detail=error.detail, hint=error.hint) from None
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        if "username" in options:
            client.username_pw_set(str(options["username"]), options.get("password"))
        secure = options.get("tls") == "true" or "ca_file" in options
        if secure:
            client.tls_set(ca_certs=options.get("ca_file"))
        client.max_inflight_messages_set(IN_FLIGHT)
        client.on_connect, client.on_publish = self._heard, self._taken
        self._refused = ""
        self._connected.clear()
        port = int(options.get("port", PORT_TLS if secure else PORT))
        try:
            client.connect(str(options["host"]), port, KEEPALIVE_S)
        except (OSError, ValueError) as error:
            raise self._away(without_secrets(str(error), self._written, options)) from None
        client.loop_start()
        self._client = client
        if not self._connected.wait(ANSWER_S):
            self.close()
            raise self._away(f"no answer within {ANSWER_S:.0f} s")
        if self._refused:
            self.close()
            raise self._no_entry()

    def _heard(self, _client: Any, _data: Any, _flags: Any, reason: Any, _more: Any) -> None:
        if reason.is_failure:
            self._refused = str(reason)
        self._connected.set()

    def _taken(self, _client: Any, _data: Any, _number: int, reason: Any, _more: Any) -> None:
        if reason.is_failure:
            self._refused = str(reason)

    def _publish(self, result: Result, first: int, messages: Iterator[Message]) -> None:
        client = self._client
        assert client is not None
        faults.reach("sink.begun")
        sent: list[Any] = []
        deadline = time.monotonic() + ACKNOWLEDGED_S
        for place, (topic, value) in enumerate(messages):
            self._await(len(sent) - IN_FLIGHT, sent, deadline)
            told = client.publish(
                topic, value, QUALITY, retain=bool(self._key), properties=self._about(first, place)
            )
            sent.append(told)
        faults.reach("sink.written")
        self._await(len(sent) - 1, sent, deadline)
        faults.reach("sink.committed")

    def _await(self, place: int, sent: "list[Any]", deadline: float) -> None:
        """Waits until the broker has acknowledged one message, and all that were sent before."""
        while place >= 0 and not sent[place].is_published():
            if self._refused:
                raise self._no_entry()
            if time.monotonic() > deadline:
                raise self._away(f"not acknowledged within {ACKNOWLEDGED_S:.0f} s")
            sent[place].wait_for_publish(LOOK_S)
        if self._refused:
            raise self._no_entry()

    def _about(self, first: int, place: int) -> Any:
        from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415
        from paho.mqtt.properties import Properties  # noqa: PLC0415

        about: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        about.UserProperty = [
            ("delivery", self._delivery), ("batch", str(first)), ("row", str(place)),
        ]  # fmt: skip
        return about

    # -- rows -----------------------------------------------------------------------------------

    def _messages(self, result: Result, table: pa.Table) -> Iterator[Message]:
        columns = [*self._key, *PLACEHOLDER.findall(self._topic)]
        if strange := [name for name in columns if name not in table.column_names]:
            raise TargetError(
                f"query {result.query} gives no column {strange[0]}, which its sink names",
                hint=f"it gives {', '.join(table.column_names)}",
            )
        if not self._key:
            yield from zip(self._topics(result, table), json_lines(zoned(table)), strict=True)
            return
        if not result.changes:  # the latest row of a key is what counts
            yield from zip(self._topics(result, table), json_lines(zoned(table)), strict=True)
            return
        rows = states(table, self._key, result.query)
        gone = pc.equal(rows[KIND], GONE).to_pylist()
        values = json_lines(zoned(rows.drop_columns([KIND])))
        for topic, value, away in zip(self._topics(result, rows), values, gone, strict=True):
            yield topic, None if away else value

    def _topics(self, result: Result, rows: pa.Table) -> Iterator[str]:
        names = list(dict.fromkeys(PLACEHOLDER.findall(self._topic)))
        texts = zoned(rows.select(names)).to_pylist() if names else [{}] * rows.num_rows
        for values in texts:
            parts = {name: _level(values[name]) for name in names}
            for name, part in parts.items():
                if part is None:
                    raise TargetError(
                        f"a value of column {name} cannot stand in a topic",
                        detail=f"query {result.query}, {name} = {values[name]!r}",
                        hint="values in a topic are not NULL and have no /, + or #",
                    )
            topic = self._topic
            for name, part in parts.items():
                topic = topic.replace(f"{{{name}}}", str(part))
            yield topic

    # -- trouble --------------------------------------------------------------------------------

    def _away(self, words: str) -> TargetError:
        return TargetError(
            f"the broker does not take messages for {self._topic}", detail=words,
            hint="rows are kept and published again: see that it runs and the options are right",
        )  # fmt: skip

    def _no_entry(self) -> TargetError:
        return TargetError(
            f"the broker refuses messages for {self._topic}", detail=self._refused,
            hint="see to username and password, and to what they may publish",
        )  # fmt: skip


def _level(value: Any) -> str | None:
    """A value as a level of a topic; None for what cannot be one."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return None if value is None or not text or "/" in text or FORBIDDEN.search(text) else text
