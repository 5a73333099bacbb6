"""Fixtures that all packages share: one Spark session for each process of a run."""

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# No property judges how long it took: a busy machine is no fault of the code. Every run makes up
# the same examples, so that what failed fails again; MILLSTREAM_PROPERTIES=random makes up others.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("MILLSTREAM_PROPERTIES", "same"))

# Runs of seconds end before Java's optimising compiler has earned what it costs: half of the CPU.
# Processes that tests start inherit this.
os.environ.setdefault("MILLSTREAM_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Daemons that tests start, and their clients, share a keyring that is not the user's own.
_KEYS = tempfile.TemporaryDirectory(prefix="millstream-keys-")
os.environ["MILLSTREAM_KEYS"] = _KEYS.name


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session of the test run; starting one costs seconds."""
    from millstream.spark.session import session  # noqa: PLC0415  (only Spark tests pay)

    running = session("local[2]")
    yield running
    running.stop()
