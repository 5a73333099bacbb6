"""Libraries that not everybody needs: which extra of the package brings each, told when missed."""

from collections.abc import Iterator
from contextlib import contextmanager

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
