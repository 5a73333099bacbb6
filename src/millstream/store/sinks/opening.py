"""The family of sinks that job files and calls name by type. Opening one reaches no target yet."""

from collections.abc import Callable
from typing import Protocol

from millstream.control.definitions.sink_table import SinkDefinition
from millstream.core.registry import Registry
from millstream.store.delivery import ResumingSink, Sink
from millstream.store.sinks.delta import DeltaSink
from millstream.store.sinks.iceberg import IcebergSink
from millstream.store.sinks.kafka import KafkaSink
from millstream.store.sinks.mqtt import MqttSink
from millstream.store.sinks.postgres import PostgresSink


class TargetSink(Sink, ResumingSink, Protocol):
    """A sink whose target keeps the delivery's number beside the rows."""


SINKS: Registry[Callable[[SinkDefinition], TargetSink]] = Registry("type of sink")
SINKS.add("postgres", PostgresSink)
SINKS.add("delta", DeltaSink)
SINKS.add("iceberg", IcebergSink)
SINKS.add("kafka", KafkaSink)
SINKS.add("mqtt", MqttSink)


def open_sink(definition: SinkDefinition) -> TargetSink:
    return SINKS.get(definition.kind)(definition)
