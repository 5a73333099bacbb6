"""Marks in Kafka of how far deliveries are: a compacted topic, a message for each delivery.

A mark is written in the transaction that writes the rows, so both are there or neither is. Unlike
the offsets of a consumer group it does not go after a week in which nothing was written.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.store.delivery import TargetError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer

MARKS = "millstream-deliveries"
ANSWER_S = 30.0  # a broker that does not answer for so long is away
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Mark:
    """One delivery: whose rows are where, and what comes next."""

    delivery: str
    topic: str
    query: str
    changes: bool
    following: int
    begun: int = -1  # the offset of its first mark: who came first

    def at(self, following: int) -> "Mark":
        return replace(self, following=following)


class Marks:
    """The topic of marks, on one cluster."""

    def __init__(self, library: Any, options: Mapping[str, Any]) -> None:
        self._library, self._options = library, dict(options)

    def make(self) -> None:
        """Makes the topic where it is not there. One partition: who came first has one answer."""
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415  (an extra)
        from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415

        admin = AdminClient(self._options)
        if MARKS in admin.list_topics(timeout=ANSWER_S).topics:
            return
        wanted = NewTopic(MARKS, 1, -1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([wanted], request_timeout=ANSWER_S)[MARKS].result(ANSWER_S)
        except self._library.KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":  # somebody else was faster
                raise TargetError(
                    f"there is no topic {MARKS}, which keeps the progress of deliveries",
                    detail=str(error.args[0].str()),
                    hint="make it: one partition, cleanup.policy=compact",
                ) from None

    def note(self, producer: "Producer", mark: Mark) -> None:
        """Writes a mark within the producer's transaction."""
        producer.produce(MARKS, json.dumps(asdict(mark)), mark.delivery, partition=0)

    def forget(self, producer: "Producer", mark: Mark) -> None:
        producer.produce(MARKS, None, mark.delivery, partition=0)

    def read(self) -> dict[str, Mark]:
        """All that is committed now, by delivery.

        The end is asked for without regard to transactions, and reading goes up to there: where
        another's transaction is open in between, it is waited for, so that nothing older is taken
        for the newest.
        """
        end = self._end()
        consumer = self._consumer("read_committed")
        try:
            consumer.assign([self._library.TopicPartition(MARKS, 0, 0)])
            return self._up_to(consumer, end)
        finally:
            consumer.close()

    def _up_to(self, consumer: "Consumer", end: int) -> dict[str, Mark]:
        found: dict[str, Mark] = {}
        reached, deadline = 0, time.monotonic() + ANSWER_S
        while reached < end:
            message = consumer.poll(POLL_S)
            if message is None:
                if time.monotonic() > deadline:
                    raise TargetError(
                        f"topic {MARKS} cannot be read to its end",
                        detail=f"at {reached} of {end} after {ANSWER_S:.0f} s",
                        hint="another transaction is open: Millstream tries again",
                    )
                continue
            error = message.error()
            if error is None:
                _take(found, message)
            elif error.code() != self._library.KafkaError._PARTITION_EOF:
                raise self._library.KafkaException(error)
            reached = (message.offset() or 0) + (error is None)
        return found

    def _end(self) -> int:
        consumer = self._consumer("read_uncommitted")
        try:
            place = self._library.TopicPartition(MARKS, 0)
            _, high = consumer.get_watermark_offsets(place, timeout=ANSWER_S)
            return int(high)
        finally:
            consumer.close()

    def _consumer(self, isolation: str) -> "Consumer":
        consumer: Consumer = self._library.Consumer(
            self._options
            | {
                "group.id": "millstream",  # the library asks for one; it is never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",  # compaction may have taken the first ones
                "allow.auto.create.topics": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
            }
        )
        return consumer


def _take(found: dict[str, Mark], message: "Message") -> None:
    delivery, value = (message.key() or b"").decode(), message.value()
    if value is None:
        found.pop(delivery, None)
        return
    mark = Mark(**json.loads(value))
    found[delivery] = mark if mark.begun >= 0 else replace(mark, begun=message.offset() or 0)
