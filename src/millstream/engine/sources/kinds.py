"""Kinds of sources by name: who brings the rows of a declared stream.

Files are read piece by piece when the loop says so. Other sources have threads of their own; they
commit through the stream's appender and tell the engine after each commit.
"""

from collections.abc import Callable
from dataclasses import dataclass

from millstream.core.errors import UsageError
from millstream.core.registry import Registry
from millstream.engine.dataflow import Dataflow
from millstream.engine.ports import DataPlane, LiveSource, RowParser, SourceSetting
from millstream.engine.sources.broker_source import BrokerSource
from millstream.engine.sources.file_ingest import FileIngest
from millstream.engine.sources.kafka_source import KafkaSource
from millstream.engine.sources.mqtt_source import MqttSource
from millstream.engine.sources.nats_source import NatsSource
from millstream.engine.sources.push_source import PushSource
from millstream.engine.sources.rule_source import RuleSource
from millstream.engine.sources.system_rows import about_the_system, posted_rows
from millstream.engine.sources.system_source import SystemSource
from millstream.engine.sources.tables.history_source import HistorySource
from millstream.engine.sources.tables.postgres_source import PostgresSource
from millstream.engine.sources.tables.reference_source import ReferenceSource
from millstream.engine.sources.tables.versioned_source import DeltaSource, IcebergSource
from millstream.engine.troubles.unread import Unread
from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.appending import Appender

Opened = FileIngest | LiveSource


@dataclass(frozen=True, slots=True)
class Opening:
    """A stream that is declared, and the engine that it feeds."""

    definition: StreamDefinition
    appender: Appender
    flow: Dataflow
    plane: DataPlane
    setting: SourceSetting


SOURCES: Registry[Callable[[Opening], Opened]] = Registry("source")


def kind_of(definition: StreamDefinition) -> str:
    """The kind of a source: as declared; else a file where there is a path, rows by hand if not."""
    return str(definition.source.get("source", "file" if "path" in definition.source else "push"))


def _parser(opening: Opening) -> RowParser:
    """Reads rows, for as long as a step may take."""
    unread = Unread(
        opening.definition, opening.appender.ledger, opening.plane.machine,
        opening.setting.step_seconds_max,
    )  # fmt: skip
    return unread.bounded(opening.plane.row_parser(opening.definition))


@SOURCES.member("file")
def _file(opening: Opening) -> Opened:
    definition = opening.definition
    if "path" not in definition.source:
        raise UsageError(
            f"stream {definition.name} has no path",
            hint='path = "a file or a folder", or source = "http"',
        )
    return FileIngest(definition, opening.appender, opening.plane, opening.setting)


@SOURCES.member("spark")
def _spark(opening: Opening) -> Opened:
    return opening.plane.open_stream(opening.definition, opening.appender, opening.setting)


def _broker(kind: type[BrokerSource]) -> Callable[[Opening], Opened]:
    def opened(opening: Opening) -> Opened:
        parse = _parser(opening)
        return kind(opening.definition, opening.appender, parse, opening.setting)

    return opened


for _kind in (
    KafkaSource, MqttSource, NatsSource, PostgresSource, DeltaSource, IcebergSource
):  # fmt: skip
    SOURCES.add(_kind.kind, _broker(_kind))


@SOURCES.member("history")
def _history(opening: Opening) -> Opened:
    definition = opening.definition
    parse = opening.plane.row_parser(definition)
    return HistorySource(definition, opening.appender, parse, opening.setting, opening.flow)


@SOURCES.member("system")
def _system(opening: Opening) -> Opened:
    arrived = opening.setting.arrived
    return SystemSource(opening.definition, opening.appender, opening.flow, arrived)


@SOURCES.member("rules")
def _rules(opening: Opening) -> Opened:
    definition = opening.definition
    parse = _parser(opening)
    return RuleSource(definition, opening.appender, parse, opening.flow, opening.setting)


@SOURCES.member("reference")
def _reference(opening: Opening) -> Opened:
    definition = opening.definition
    parse = _parser(opening)
    return ReferenceSource(definition, opening.appender, parse, opening.flow, opening.setting)


@SOURCES.member("push")
@SOURCES.member("http")
def _push(opening: Opening) -> Opened:
    definition = opening.definition
    own = about_the_system(definition)
    parse = posted_rows(definition) if own else _parser(opening)
    setting = opening.setting
    return PushSource(definition, opening.appender, parse, setting.arrived, setting.say)
