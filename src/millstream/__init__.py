"""Millstream: many continuous queries, one shared dataflow, on Apache Spark."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.session import Session

__version__ = "0.1.0"
__all__ = ["Session", "__version__"]


def __getattr__(name: str) -> Any:
    """`Session` is imported when it is asked for: it brings Spark with it."""
    if name == "Session":
        from millstream.session import Session  # noqa: PLC0415

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
