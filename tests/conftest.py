"""Real neighbours for all tests of a run that need one: a PostgreSQL, a Kafka broker."""

import sys
from collections.abc import Iterator

import pytest

from kafka_broker import Broker, running_broker
from postgres_server import Server, running_server


@pytest.fixture(autouse=True)
def clusters_in_virtual_time() -> Iterator[None]:
    """Closes the simulated clusters of a test: their homes lie in memory."""
    yield
    simulator = sys.modules.get("millstream.sim.managed.managed_cluster")
    while simulator is not None and simulator.OPEN:
        simulator.OPEN.pop().close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    with running_broker() as broker:
        yield broker
