"""A Kafka broker for tests: librdkafka's own, inside this process."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest


class Broker:
    """Takes messages, and says where it listens."""

    def __init__(self, library: Any, address: str = "") -> None:
        self._library, self.address = library, address
        if not address:
            self._cluster = library.Producer({"test.mock.num.brokers": 1, "log_level": 0})
            brokers = self._cluster.list_topics(timeout=30).brokers.values()
            self.address = ",".join(f"{b.host}:{b.port}" for b in brokers)

    def send(self, topic: str, values: Sequence[Any], partitions: int = 2) -> None:
        """Values as JSON, texts as they are, dealt out to the partitions in turn."""
        producer = self._library.Producer({"bootstrap.servers": self.address, "log_level": 0})
        for number, value in enumerate(values):
            text = value if isinstance(value, str) else json.dumps(value)
            producer.produce(topic, text, key=f"k{number}", partition=number % partitions)
        assert producer.flush(30) == 0


@contextmanager
def running_broker() -> Iterator[Broker]:
    yield Broker(pytest.importorskip("confluent_kafka"))


def committed(address: str, topic: str, partitions: int) -> list[tuple[Any, Any]]:
    """Keys and values, both JSON, as a consumer of committed messages sees them."""
    import confluent_kafka  # noqa: PLC0415  (an extra)

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "test", "enable.auto.commit": False,
         "enable.partition.eof": True, "log_level": 0}
    )  # fmt: skip
    found: list[tuple[Any, Any]] = []
    ended = 0
    consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(partitions)])
    while ended < partitions:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        key, value = message.key(), message.value()
        found.append((json.loads(key) if key else None, json.loads(value) if value else None))
    consumer.close()
    return found
