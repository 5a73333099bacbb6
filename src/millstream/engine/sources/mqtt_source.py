"""Messages of MQTT topics, by Eclipse Paho: acknowledged after the commit, each counted once.

The broker keeps a session for this stream: what comes while nobody reads is sent later, and a
message that was not acknowledged is sent again, marked as a repeat, under the number that it had.
The ledger keeps the numbers and digests of the last messages with their rows, as many as the broker
may leave unacknowledged; a repeat of one of these is acknowledged and not counted. Messages of
quality 0 are not kept for anybody: of these, some may be lost.
"""

import hashlib
import time
import uuid
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream.core.errors import MillstreamError
from millstream.core.extras import mqtt_library
from millstream.engine.sources.broker_source import CONGESTED_S, BrokerSource, text_of

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

POLL_S = 0.1
GATHER_S = 0.002  # further messages are waited for so long before what has come is kept
AWAY_S = 30.0  # a broker that is away for longer than this has failed
AGAIN_S = 0.5
BREAKS_MAX = 8  # connections that break in that time, though the broker had answered
ANSWER_S = 10.0  # in which a broker has answered to a new connection and to what we want of it
RECEIVE_MAX = 200  # messages that the broker sends before the first of them is acknowledged
SESSION_S = 30 * 86400  # for which the broker keeps what comes while nobody reads
KEEPALIVE_S = 30
PORT, PORT_TLS = 1883, 8883
QUALITY = 1
# Why a broker turns a reader away for now: server unavailable, busy, moved elsewhere for a while,
# too many connections or messages at once.
FOR_NOW = (0x88, 0x89, 0x97, 0x9C, 0x9F)
TAKEN_OVER = 0x8E
TWICE = "another reader may have the same client_id"
Seen = list[list[Any]]  # [number, digest] of messages, the latest last


class _AwayError(Exception):
    """The connection broke or was not made. Errors of our own work are others, and go on up."""


class MqttSource(BrokerSource):
    """What is published under a topic, or under all that a pattern matches, as a stream."""

    kind = "mqtt"
    of_message = ("topic", "value", "received", "retained")

    def _read(self, options: Mapping[str, Any]) -> None:
        self._come: list[MQTTMessage] = []
        self._refused = self._sent_away = ""
        self._away_since: float | None = None
        breaks: deque[float] = deque(maxlen=BREAKS_MAX)
        client = self._client(options)
        try:
            while not self._stopped.is_set():
                try:
                    self._follow(client, options)
                except _AwayError as trouble:
                    now = time.monotonic()
                    self._away_since = self._away_since or now
                    if now - self._away_since > AWAY_S:
                        raise self._trouble(str(trouble)) from None
                    if self._heard:
                        breaks.append(now)
                    if len(breaks) == BREAKS_MAX and now - breaks[0] < AWAY_S:
                        words = f"{trouble}, {BREAKS_MAX} times in {now - breaks[0]:.0f} s: {TWICE}"
                        raise self._trouble(words) from None
                    self._stopped.wait(AGAIN_S)
        finally:
            client.disconnect()

    def _client(self, options: Mapping[str, Any]) -> "Client":
        paho = mqtt_library()
        from paho.mqtt.enums import CallbackAPIVersion  # noqa: PLC0415

        client: Client = paho.Client(
            CallbackAPIVersion.VERSION2, self._client_id(options), manual_ack=True,
            protocol=paho.MQTTv5,
        )  # fmt: skip
        if options.get("username") is not None:
            client.username_pw_set(str(options["username"]), options.get("password"))
        if options.get("tls") or options.get("ca_file"):
            client.tls_set(ca_certs=options.get("ca_file"))
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_disconnect = self._disconnected
        client.on_message = lambda _client, _data, message: self._come.append(message)
        return client

    def _client_id(self, options: Mapping[str, Any]) -> str:
        """Under which the broker keeps the session: chosen once, so that a restart finds it."""
        named = options.get("client_id") or self._position().get("client")
        chosen = str(named or f"millstream-{self.definition.name}-{uuid.uuid4().hex[:12]}")
        if self._position().get("client") != chosen:
            self._note(client=chosen, session=False)
        return chosen

    def _note(self, **more: Any) -> None:
        appender, stream = self.appender, self.appender.stream
        with appender.lock, appender.ledger.transaction() as ledger:
            ledger.set_ingest_position(stream, {**ledger.ingest_position(stream), **more})

    def _connected(
        self, client: "Client", _data: Any, flags: Any, reason: Any, _properties: Any
    ) -> None:
        if reason.is_failure:
            self._turned_away(reason)
            return
        if not flags.session_present:
            if self._position().get("session"):
                self._setting.say(
                    f"stream {self.definition.name}: the broker has forgotten this reader; what "
                    "was published while it was away is lost"
                )
            self._note(session=False, recent=[])
        self._subscribe(client)

    def _subscribe(self, client: "Client") -> None:
        """Also in a session that goes on: the connection that began it may have broken before the
        broker heard what we want. Retained messages come with the first subscription alone."""
        from paho.mqtt.subscribeoptions import SubscribeOptions  # noqa: PLC0415

        only_new = SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
        client.subscribe(
            self._topic, options=SubscribeOptions(qos=QUALITY, retainHandling=only_new)
        )

    def _subscribed(
        self, _client: "Client", _data: Any, _number: int, reasons: list[Any], _properties: Any
    ) -> None:
        """From here on the broker keeps what comes for us."""
        for reason in reasons:
            if reason.is_failure:
                self._turned_away(reason)
                return
        self._heard = True
        self._away_since = None
        if not self._position().get("session"):
            self._note(session=True)

    def _turned_away(self, reason: Any) -> None:
        if reason.value in FOR_NOW:
            self._sent_away = str(reason)
        else:
            self._refused = str(reason)

    def _disconnected(
        self, _client: "Client", _data: Any, flags: Any, reason: Any, _properties: Any
    ) -> None:
        """Two readers with one id would take the session from each other for ever, and each would
        get some of the messages. Not every broker says so: that shows in how often it breaks."""
        if flags.is_disconnect_packet_from_server:
            if reason.value == TAKEN_OVER:
                self._refused = f"{reason}: {TWICE}"
            else:
                self._sent_away = str(reason)

    def _follow(self, client: "Client", options: Mapping[str, Any]) -> None:
        """Reads for as long as one connection lasts."""
        self._connect(client, options)
        patience = time.monotonic() + ANSWER_S
        while not self._stopped.is_set():
            self._look(client, POLL_S)
            if not self._heard and time.monotonic() > patience:
                raise _AwayError(f"the broker has not answered within {ANSWER_S:.0f} s")
            before = 0
            while before < len(self._come) < self._setting.batch_rows:
                before = len(self._come)
                self._look(client, GATHER_S)
            while self._setting.congested() and not self._stopped.is_set():
                self._look(client, CONGESTED_S)  # it hears of us, and sends no more than allowed
            if self._come and not self._stopped.is_set():
                self._keep(client)

    def _connect(self, client: "Client", options: Mapping[str, Any]) -> None:
        from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415
        from paho.mqtt.properties import Properties  # noqa: PLC0415

        wanted: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        wanted.ReceiveMaximum = RECEIVE_MAX
        wanted.SessionExpiryInterval = int(options.get("session_s", SESSION_S))
        secure = bool(options.get("tls") or options.get("ca_file"))
        port = int(options.get("port", PORT_TLS if secure else PORT))
        self._come.clear()
        self._heard, self._sent_away = False, ""
        try:
            client.connect(
                str(options["host"]), port, KEEPALIVE_S, clean_start=False, properties=wanted
            )
        except OSError as error:
            raise _AwayError(str(error)) from None

    def _look(self, client: "Client", wait_s: float) -> None:
        """Takes what has come; messages of a connection that broke are sent again, so that those
        that were not kept yet are left to the next."""
        from paho.mqtt.client import MQTT_ERR_SUCCESS  # noqa: PLC0415

        answer = client.loop(wait_s)
        if self._refused:
            raise self._no_entry(self._refused)
        if answer != MQTT_ERR_SUCCESS or self._sent_away:
            raise _AwayError(f"the connection was lost: {self._sent_away or answer}")

    def _keep(self, client: "Client") -> None:
        """Commits what has come, then acknowledges it: whoever dies between sees it again."""
        messages, self._come = self._come, []
        recent: Seen = list(self._position().get("recent", []))
        new = [m for m in messages if not (m.dup and _mark(m) in recent)]
        if new:
            rows = [self._row(self._own(m), bytes(m.payload)) for m in new]
            marks = [_mark(m) for m in new if m.qos]
            place = {**self._position(), "recent": [*recent, *marks][-RECEIVE_MAX:]}
            self._append(rows, place)
        self._demand_safety()
        for message in messages:
            if message.qos:
                client.ack(message.mid, message.qos)

    def _own(self, message: "MQTTMessage") -> dict[str, Any]:
        return {
            "topic": message.topic,
            "value": text_of(message.payload),
            "received": self._stamp("received", int(time.time() * 1000)),
            "retained": bool(message.retain),
        }

    def _no_entry(self, words: str) -> MillstreamError:
        return MillstreamError(
            f"stream {self.definition.name}: the broker refuses this reader", detail=words,
            hint="see to username, password and client_id in its options: it is tried again",
        )  # fmt: skip


def _mark(message: "MQTTMessage") -> list[Any]:
    """What a repeat has in common with its original."""
    content = message.topic.encode() + b"\0" + message.payload
    return [message.mid, hashlib.blake2b(content, digest_size=8).hexdigest()]
