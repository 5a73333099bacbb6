"""Libraries that not everybody needs: which extra of the package brings each, told when missed."""

import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from millstream.core.errors import UsageError

EXTRAS = {
    "pyspark": "spark",
    "py4j": "spark",
    "pandas": "spark",
    "grpc": "connect",
    "highspy": "planning",
    "networkx": "planning",
    "matplotlib": "plots",
    "openpyxl": "spreadsheets",
    "prompt_toolkit": "shell",
    "psycopg": "postgres",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
    "confluent_kafka": "kafka",
    "paho": "mqtt",
    "nats": "nats",
    "opentelemetry": "tracing",
}


@contextmanager
def told_where_missing() -> Iterator[None]:
    """In the block, a library that is not installed is an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRAS:
            raise
        raise UsageError(
            f"this needs {library}, which is not installed",
            hint=f"pip install 'millstream[{EXTRAS[library]}]'",
        ) from None


def mqtt_library() -> Any:
    """Eclipse Paho, in a process that may have thousands of files open.

    Paho waits by `select`, which knows no descriptor above 1,023: a client with such a socket takes
    every look for a lost connection and stays deaf for ever. It gets `poll` instead.
    """
    with told_where_missing():
        import paho.mqtt.client as paho  # noqa: PLC0415  (an extra)
    vars(paho)["select"] = _Polled
    return paho


class _Polled:
    """What Paho uses of the module `select`, for any descriptor."""

    error = select.error

    @staticmethod
    def select(
        reading: Sequence[Any], writing: Sequence[Any], _failing: Sequence[Any], wait_s: float
    ) -> tuple[list[Any], list[Any], list[Any]]:
        wanted: dict[int, int] = {}
        for sockets, event in ((reading, select.POLLIN), (writing, select.POLLOUT)):
            for socket in sockets:
                number = socket.fileno()
                if number < 0:
                    raise ValueError("a socket that is closed")  # as `select` does
                wanted[number] = wanted.get(number, 0) | event
        poll = select.poll()
        for number, events in wanted.items():
            poll.register(number, events)
        ready = dict(poll.poll(wait_s * 1000))
        broken = select.POLLERR | select.POLLHUP | select.POLLNVAL
        return (
            [s for s in reading if ready.get(s.fileno(), 0) & (select.POLLIN | broken)],
            [s for s in writing if ready.get(s.fileno(), 0) & (select.POLLOUT | broken)],
            [],
        )
