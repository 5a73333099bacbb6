"""A Kafka broker for tests: librdkafka's own, inside this process."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest


class Broker:
    """Takes messages, and says where it listens."""

    def __init__(self, library: Any) -> None:
        self._library = library
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
