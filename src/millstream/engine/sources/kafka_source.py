"""Rows of a Kafka topic, by librdkafka: no jar, and the offsets are the ledger's, not the broker's.

Offsets are recorded in the transaction that publishes the rows, so each message counts once,
whatever was killed when. A partition that appears later is read from its beginning. The reader
assigns itself all partitions: no group, no rebalance by others.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.core.errors import MillstreamError, UsageError
from millstream.core.extras import told_where_missing
from millstream.engine.ports import RowParser, SourceSetting
from millstream.engine.sources.broker_source import CONGESTED_S, BrokerSource, text_of
from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.appending import Appender

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

POLL_S = 0.1
LOOK_S = 10.0  # between two looks for new partitions
ANSWER_S = 10.0  # a broker that does not answer for so long is away
AWAY_S = 30.0  # ... and after so long the source has failed
QUIET = 2  # of librdkafka, which else tells every broken connection on the terminal
GONE = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID")


class KafkaSource(BrokerSource):
    """One topic as a stream."""

    kind = "kafka"
    of_message = ("key", "value", "topic", "partition", "offset", "timestamp")

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        parse: RowParser,
        setting: SourceSetting,
    ) -> None:
        super().__init__(definition, appender, parse, setting)
        self._library = _library()
        self._start = str(definition.source.get("start", "earliest"))
        self._finite = definition.source.get("trigger") == "available_now"

    # -- reading --------------------------------------------------------------------------------

    def _read(self, options: Mapping[str, Any]) -> None:
        consumer = self._library.Consumer(
            {"log_level": QUIET}
            | dict(options)
            | {
                "group.id": "millstream",  # the library asks for one; it is never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "allow.auto.create.topics": False,
                "enable.partition.eof": True,
            }
        )
        try:
            self._follow(consumer)
        finally:
            consumer.close()

    def _follow(self, consumer: "Consumer") -> None:
        assigned: set[int] = set()
        ends: dict[int, int] = {}
        reached: dict[int, int] = {}  # beyond what is no message, such as marks of transactions
        looked = 0.0
        while not self._stopped.is_set():
            if not assigned or time.monotonic() - looked > LOOK_S:
                looked = time.monotonic()
                found = self._partitions(consumer)
                if new := found - assigned:
                    self._assign(consumer, new)
                    assigned |= new
                    if self._finite:
                        ends |= {p: self._bounds(consumer, p)[1] for p in new}
            if self._setting.congested():
                self._stopped.wait(CONGESTED_S)
                continue
            messages = self._taken(consumer, reached)
            if messages:
                self._keep(messages)
            offsets = self._position().get("offsets", {})
            come = {p: max(int(offsets.get(str(p), 0)), reached.get(p, 0)) for p in ends}
            if self._finite and all(come[p] >= end for p, end in ends.items()):
                self.appender.finish()
                self._setting.arrived(self.definition.name)
                return

    def _partitions(self, consumer: "Consumer") -> set[int]:
        """The topic's partitions; waits a while for a broker that is away."""
        deadline = time.monotonic() + AWAY_S
        while True:
            try:
                told = consumer.list_topics(self._topic, timeout=ANSWER_S).topics[self._topic]
            except self._library.KafkaException as error:
                if time.monotonic() > deadline or self._stopped.is_set():
                    raise self._trouble(_words(error.args[0])) from None
                continue
            if told.error is not None:
                raise self._gone(_words(told.error))
            return set(told.partitions)

    def _assign(self, consumer: "Consumer", partitions: set[int]) -> None:
        """Reads on from where the ledger says; what it does not know, from the start asked for."""
        known = self._position().get("offsets", {})
        later = bool(known)  # a partition that appeared since: none of its messages is old news
        places = []
        for number in sorted(partitions):
            low, high = self._bounds(consumer, number)
            begin = low if later or self._start == "earliest" else high
            at = int(known.get(str(number), begin))
            if at < low:
                raise UsageError(
                    f"stream {self.definition.name}: messages of topic {self._topic} are gone",
                    detail=f"partition {number} begins with {low}, and {at} comes next",
                    hint="keep messages for longer at the broker; here a new run is needed",
                )
            places.append(self._library.TopicPartition(self._topic, number, at))
        self._note({str(place.partition): place.offset for place in places})
        consumer.incremental_assign(places)

    def _note(self, offsets: Mapping[str, int]) -> None:
        """Where partitions begin is decided once: what comes while nobody reads counts too."""
        appender, stream = self.appender, self.appender.stream
        with appender.lock, appender.ledger.transaction() as ledger:
            before = ledger.ingest_position(stream)
            known = {**before.get("offsets", {}), **offsets}
            ledger.set_ingest_position(stream, {**before, "offsets": known})

    def _bounds(self, consumer: "Consumer", partition: int) -> tuple[int, int]:
        place = self._library.TopicPartition(self._topic, partition)
        low, high = consumer.get_watermark_offsets(place, timeout=ANSWER_S)
        return int(low), int(high)

    def _taken(self, consumer: "Consumer", reached: dict[int, int]) -> "list[Message]":
        found = []
        for message in consumer.consume(self._setting.batch_rows, POLL_S):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == self._library.KafkaError._PARTITION_EOF:
                reached[message.partition() or 0] = message.offset() or 0
            elif error.name() in GONE:
                raise self._gone(_words(error))
            elif not error.retriable():
                raise self._trouble(_words(error))
        return found

    def _keep(self, messages: "Sequence[Message]") -> None:
        offsets = dict(self._position().get("offsets", {}))
        for message in messages:
            offsets[str(message.partition())] = (message.offset() or 0) + 1
        rows = [self._row(self._own(message), message.value()) for message in messages]
        self._append(rows, {"offsets": offsets})

    def _own(self, message: "Message") -> dict[str, Any]:
        return {
            "key": text_of(message.key()),
            "value": text_of(message.value()),
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": self._stamp("timestamp", message.timestamp()[1]),
        }

    # -- trouble --------------------------------------------------------------------------------

    def _gone(self, words: str) -> MillstreamError:
        return MillstreamError(
            f"stream {self.definition.name}: there is no topic {self._topic}", detail=words,
            hint="make it, or name another: it is tried again, and nothing is lost",
        )  # fmt: skip


def _library() -> Any:
    with told_where_missing():
        import confluent_kafka  # noqa: PLC0415  (an extra)
    return confluent_kafka


def _words(error: Any) -> str:
    return str(error.str()) if hasattr(error, "str") else str(error)
