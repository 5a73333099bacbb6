"""Fixtures that all packages share: one Spark session for a whole run."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session of the test run; starting one costs seconds."""
    from millstream.engine.spark import session  # noqa: PLC0415  (only Spark tests pay)

    running = session("local[2]")
    yield running
    running.stop()
