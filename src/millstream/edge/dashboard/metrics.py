"""A snapshot as Prometheus metrics.

Names begin with `millstream_`, units are base units at the end of the name. Labels are few: a
query, an operator, a processor, a stream; what ended is gone from the next scrape.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from millstream.control.snapshot.model import Snapshot

CONTENT_TYPE = CONTENT_TYPE_LATEST


def exposition(snapshot: Snapshot) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(snapshot))
    return generate_latest(registry)


class _Collector:
    """One scrape of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield from _overall(snapshot)
        yield from _streams(snapshot)
        yield from _queries(snapshot)
        yield from _operators(snapshot)
        yield from _processors(snapshot)


def _overall(snapshot: Snapshot) -> Iterator[Metric]:
    overview = snapshot.overview
    yield _gauge("snapshot_timestamp_seconds", "When these figures were true", snapshot.taken)
    yield _gauge("up", "1 while it works or has finished", float(overview.state != "failed"))
    yield _gauge("backlog_rows", "Rows waiting in all queues", overview.backlog_rows)
    yield _gauge("backlog_bytes", "Bytes waiting in all queues", overview.backlog_bytes)
    if overview.watermark_lag_s is not None:
        yield _gauge("watermark_lag_seconds", "Event time results are behind",
                     overview.watermark_lag_s)  # fmt: skip
    yield _counter("steps", "Steps run", overview.steps)
    alarms = GaugeMetricFamily("millstream_alarms", "Alarms raised now", labels=["severity"])
    for severity in ("error", "warning"):
        raised = sum(a.severity == severity for a in overview.alarms)
        alarms.add_metric([severity], raised)
    yield alarms
    each = GaugeMetricFamily(
        "millstream_alarm_since_seconds", "Since when an alarm is active",
        labels=["severity", "kind", "subject_kind", "subject"],
    )  # fmt: skip
    for alarm in overview.alarms:
        names = [alarm.severity, alarm.kind, alarm.subject_kind, alarm.subject]
        each.add_metric(names, alarm.since or snapshot.taken)
    yield each
    decisions = GaugeMetricFamily(
        "millstream_recent_decisions", "Decisions among the last ones kept", labels=["kind"]
    )
    kinds = sorted({d.kind for d in snapshot.decisions})
    for kind in kinds:
        decisions.add_metric([kind], sum(d.kind == kind for d in snapshot.decisions))
    yield decisions


def _streams(snapshot: Snapshot) -> Iterator[Metric]:
    each = [((s.name,), s) for s in snapshot.streams]
    names = ("stream",)
    yield _counters("stream_rows", "Rows accepted", names, ((k, s.rows) for k, s in each))
    yield _counters("stream_late_rows", "Rows too late", names, ((k, s.late) for k, s in each))
    yield _counters(
        "stream_rejected_rows", "Malformed rows", names, ((k, s.rejected) for k, s in each)
    )


def _queries(snapshot: Snapshot) -> Iterator[Metric]:
    each = [((q.name,), q) for q in snapshot.queries]
    names = ("query",)
    yield _counters("query_rows", "Rows of the result", names, ((k, q.rows) for k, q in each))
    yield _counters(
        "query_shed_rows", "Rows it did without: they had missed its limit of delay", names,
        ((k, q.shed_rows) for k, q in each),
    )  # fmt: skip
    yield _gauges(
        "query_delay_seconds", "How long the oldest waiting row has been here", names,
        ((k, q.delay_s) for k, q in each),
    )  # fmt: skip
    yield _gauges(
        "query_performance_ratio", "Delay of its results over their evaluation time", names,
        ((k, q.ratio) for k, q in each),
    )  # fmt: skip
    yield _counters(
        "query_own_work_seconds", "Work that only this query needs", names,
        ((k, q.cost_s_own) for k, q in each),
    )  # fmt: skip
    yield _gauges(
        "query_shared_work_seconds", "Its part of shared work; falls when others join in", names,
        ((k, q.cost_s_shared) for k, q in each),
    )  # fmt: skip
    yield _gauges(
        "query_running", "1 while it runs, 0 where it is parked or failed", names,
        ((k, float(q.state == "running")) for k, q in each),
    )  # fmt: skip
    yield _gauges(
        "query_goal_met", "1 where a QoS limit holds", ("query", "statistic"),
        (((q.name, g.statistic), float(g.met)) for _, q in each for g in q.goals
         if g.met is not None),
    )  # fmt: skip


def _operators(snapshot: Snapshot) -> Iterator[Metric]:
    names = ("operator", "kind", "processor")
    each = [((o.id, o.kind, o.processor), o) for o in snapshot.operators]
    yield _counters("operator_rows_in", "Rows read", names, ((k, o.rows_in) for k, o in each))
    yield _counters("operator_rows_out", "Rows given", names, ((k, o.rows_out) for k, o in each))
    yield _counters("operator_steps", "Steps run", names, ((k, o.steps) for k, o in each))
    yield _counters("operator_seconds", "Seconds of work", names, ((k, o.cost_s) for k, o in each))
    yield _gauges(
        "operator_queue_rows", "Rows waiting", names, ((k, o.queue_rows) for k, o in each)
    )
    yield _gauges(
        "operator_queries", "Queries that share it", names, ((k, len(o.queries)) for k, o in each)
    )


def _processors(snapshot: Snapshot) -> Iterator[Metric]:
    names = ("processor",)
    each = [((p.id,), p) for p in snapshot.processors]
    yield _gauges("processor_load", "Share of its slots at work", names,
                  ((k, p.load) for k, p in each))  # fmt: skip
    yield _gauges("processor_memory_bytes", "Memory in use", names,
                  ((k, p.memory_bytes) for k, p in each))  # fmt: skip
    yield _gauges("processor_segments", "Segments retained", names,
                  ((k, p.segments) for k, p in each))  # fmt: skip
    yield _gauges("processor_segment_bytes", "Bytes of segments retained", names,
                  ((k, p.segment_bytes) for k, p in each))  # fmt: skip
    yield _gauges("processor_ledger_bytes", "Size of the ledger", names,
                  ((k, p.ledger_bytes) for k, p in each))  # fmt: skip
    yield _gauges("processor_up", "1 while it is heard of", names,
                  ((k, float(p.state not in ("silent", "lost"))) for k, p in each))  # fmt: skip
    yield _gauges(
        "processor_algorithm", "1 for the scheduling algorithm in charge",
        ("processor", "algorithm"),
        (((p.id, p.algorithm), 1.0) for _, p in each if p.algorithm),
    )  # fmt: skip


Values = Iterable[tuple[tuple[str, ...], Any]]


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(f"millstream_{name}", words, value=value)


def _counter(name: str, words: str, value: float) -> Metric:
    return CounterMetricFamily(f"millstream_{name}", words, value=value)


def _gauges(name: str, words: str, labels: tuple[str, ...], values: Values) -> Metric:
    family = GaugeMetricFamily(f"millstream_{name}", words, labels=labels)
    for key, value in values:
        if value is not None:
            family.add_metric(key, value)
    return family


def _counters(name: str, words: str, labels: tuple[str, ...], values: Values) -> Metric:
    family = CounterMetricFamily(f"millstream_{name}", words, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family
