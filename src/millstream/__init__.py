"""Millstream: many continuous queries, one shared dataflow, on Apache Spark."""

from typing import TYPE_CHECKING, Any

from millstream.core.errors import CqlError, MillstreamError

if TYPE_CHECKING:
    from millstream.app.session import Session, attach
    from millstream.app.session.dashboard import dashboard

__version__ = "0.1.0"
__all__ = ["CqlError", "MillstreamError", "Session", "__version__", "attach", "dashboard"]


def __getattr__(name: str) -> Any:
    """Imported when asked for: they are slow to load. Spark comes when an engine is started."""
    if name == "Session":
        from millstream.app.session import Session  # noqa: PLC0415

        return Session
    if name == "attach":
        from millstream.app.session import attach  # noqa: PLC0415

        return attach
    if name == "dashboard":
        from millstream.app.session.dashboard import dashboard  # noqa: PLC0415

        return dashboard
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
