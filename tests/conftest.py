"""Real neighbours for all tests of a run that need one: a PostgreSQL, a Kafka broker."""

from collections.abc import Iterator

import pytest

from kafka_broker import Broker, running_broker
from postgres_server import Server, running_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    with running_broker() as broker:
        yield broker
