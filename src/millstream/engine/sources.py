"""Kinds of sources by name, and what the loop may ask of those that bring rows by themselves.

Files are read piece by piece when the loop says so. Other sources have threads of their own; they
commit through the stream's appender and tell the engine after each commit.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from millstream.cql.catalog import StreamDefinition
from millstream.engine.file_ingest import FileIngest
from millstream.engine.push_source import PushSource
from millstream.engine.system_door import SystemDoor, about_the_system
from millstream.engine.system_source import SystemSource
from millstream.errors import UsageError
from millstream.registry import Registry
from millstream.spark.stream_source import StreamSource
from millstream.store.appending import Appender

if TYPE_CHECKING:
    from millstream.engine.engine import Engine


class LiveSource(Protocol):
    """A source that brings rows by itself between start and stop."""

    failure: BaseException | None  # why it cannot go on

    @property
    def ended(self) -> bool:
        """Whether no more rows will come, ever."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def silent_since(self) -> float:
        """The time since which no row has come and none is on its way."""
        ...


Opened = FileIngest | LiveSource
SOURCES: Registry[Callable[["Engine", StreamDefinition, Appender], Opened]] = Registry("source")


def kind_of(definition: StreamDefinition) -> str:
    """The kind of a source: as declared; else a file where there is a path, rows by hand if not."""
    return str(definition.source.get("source", "file" if "path" in definition.source else "push"))


@SOURCES.member("file")
def _file(engine: "Engine", definition: StreamDefinition, appender: Appender) -> Opened:
    if "path" not in definition.source:
        raise UsageError(
            f"stream {definition.name} has no path",
            hint='path = "a file or a folder", or source = "http"',
        )
    staging: Path = engine.home / "staging"
    return FileIngest(definition, appender, engine.spark, staging, engine.settings.batch_rows)


@SOURCES.member("spark")
def _spark(engine: "Engine", definition: StreamDefinition, appender: Appender) -> Opened:
    return StreamSource(
        definition, appender, engine.spark, engine.home, engine.arrived, engine.congested
    )


@SOURCES.member("system")
def _system(engine: "Engine", definition: StreamDefinition, appender: Appender) -> Opened:
    return SystemSource(definition, appender, engine)


@SOURCES.member("push")
@SOURCES.member("http")
def _push(engine: "Engine", definition: StreamDefinition, appender: Appender) -> Opened:
    kind = SystemDoor if about_the_system(definition) else PushSource
    return kind(definition, appender, engine.spark, engine.arrived)
