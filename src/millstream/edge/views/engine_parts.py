"""An engine's raw figures as the records of a snapshot: streams, operators, edges, the processor.

Pure but for looking at the engine's declarations and, for memory, at the JVM.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from millstream.control.snapshot.diagnosis import error_with_row, pressure_of
from millstream.control.snapshot.model import (
    EdgeSnapshot,
    ErrorSnapshot,
    GoalSnapshot,
    OperatorSnapshot,
    ProcessorSnapshot,
    StreamSnapshot,
)
from millstream.edge.views.engine_figures import Figures, age_s
from millstream.edge.views.recent import Rates
from millstream.engine.scheduling.goal_snapshots import goals_told
from millstream.engine.steps.shedding import shed_rows
from millstream.language.plan.explain import describe
from millstream.language.plan.windows import BEGINNING, FOREVER

if TYPE_CHECKING:
    from millstream.edge.views.scheduler_watch import SchedulerWatch
    from millstream.engine.engine import Engine
    from millstream.engine.loop import Loop
    from millstream.engine.query import Query
    from millstream.language.share.dataflow import Operator


def event_time(at: int) -> str | None:
    """An event time for people: ISO, `end`, or nothing yet."""
    from millstream.engine.status import mark  # noqa: PLC0415

    return mark(at)


def stream_snapshots(
    engine: "Engine", figures: Figures, rates: Rates, processor: str
) -> tuple[StreamSnapshot, ...]:
    from millstream.engine.scheduling.idleness import silent_s  # noqa: PLC0415
    from millstream.engine.sources.kinds import kind_of  # noqa: PLC0415
    from millstream.language.share.dataflow import base_stream  # noqa: PLC0415

    found = []
    for name, appender in list(engine.appenders.items()):
        stream = base_stream(name)
        row = figures.streams.get(stream)
        if row is None:
            continue
        found.append(
            StreamSnapshot(
                stream,
                name,
                kind_of(appender.definition),
                processor,
                rows=row["rows"],
                rows_per_s=rounded(rates.of(("stream", stream))),
                late=figures.late.get(name, 0),
                rejected=figures.rejected.get(name, 0),
                watermark=event_time(row["watermark"]),
                ended=figures.ended.get(name, False),
                columns=tuple((f.name, f.type) for f in appender.definition.columns),
                silent_s=None if figures.ended.get(name) else rounded(silent_s(engine, name)),
            )
        )
    return tuple(found)


def operator_snapshots(
    engine: "Engine",
    figures: Figures,
    rates: Rates,
    groups: Mapping[str, str],
    processor: str,
    now: float,
) -> tuple[OperatorSnapshot, ...]:
    users: dict[str, list[str]] = {}
    for query in list(engine.queries.values()):
        for used in query.operators:
            users.setdefault(used, []).append(query.name)
    found = []
    for operator in list(engine.operators.values()):
        row = figures.statistics.get(operator.id)
        queues = [figures.queues.get((s, operator.id)) for s in operator.inputs]
        waiting = [q for q in queues if q is not None]
        oldest = min((q.oldest for q in waiting if q.oldest is not None), default=None)
        found.append(
            OperatorSnapshot(
                operator.id,
                operator.kind,
                operator.label,
                processor,
                "paused" if operator.id in engine.paused_operators else "running",
                tuple(sorted(users.get(operator.id, ()))),
                groups.get(operator.id, ""),
                rows_in=row["rows_in"] if row else 0,
                rows_out=row["rows_out"] if row else 0,
                rows_in_per_s=rounded(rates.of(("in", operator.id))),
                rows_out_per_s=rounded(rates.of(("out", operator.id))),
                queue_rows=sum(q.rows for q in waiting),
                queue_bytes=sum(q.bytes for q in waiting),
                waiting_s=age_s(oldest, now),
                steps=row["steps"] if row else 0,
                cost_s=round(row["seconds"], 3) if row else 0.0,
                load=rounded(rates.of(("seconds", operator.id))),
                text=text_of(operator),
                shed_rows=shed_rows(row) if row else 0,
            )
        )
    return tuple(found)


@lru_cache(maxsize=10_000)
def text_of(operator: "Operator") -> str:
    """What an operator computes."""
    return " ".join(describe(operator.core or operator.node)).strip()


def edge_snapshots(
    engine: "Engine", figures: Figures, rates: Rates, now: float
) -> tuple[EdgeSnapshot, ...]:
    """From streams to the operators that read them; rates are what the stream brings."""
    limit = engine.settings.backlog_rows_max
    found = []
    for (stream, operator), queue in figures.queues.items():
        rate = rates.of(("stream", stream))
        waited = age_s(queue.oldest, now) or 0.0
        found.append(
            EdgeSnapshot(
                stream,
                operator,
                rounded(rate),
                rounded(rate * figures.bytes_a_row.get(stream, 0.0)),
                queue.rows,
                queue.bytes,
                pressure_of(queue.rows, limit, waited),
            )
        )
    return tuple(found)


def processor_snapshot(
    engine: "Engine",
    figures: Figures,
    rates: Rates,
    loop: "Loop | None",
    watch: "SchedulerWatch",
    goals: tuple[GoalSnapshot, ...],
    name: str,
    now: float,
) -> ProcessorSnapshot:
    machine = engine.plane.machine
    used, most = (None, None) if machine is None else machine.memory()
    slots = engine.settings.slots
    return ProcessorSnapshot(
        name,
        "running",
        "" if machine is None else machine.address(),
        now,
        load=rounded(min(1.0, rates.of("seconds") / slots)),
        slots=slots,
        memory_bytes=used,
        memory_bytes_max=most,
        algorithm=loop.scheduler.scheduler.algorithm if loop is not None else None,
        selector=engine.settings.schedule.selector,
        scores=watch.scores(),
        goals=goals,
        operators=len(engine.operators),
        segments=figures.segments,
        segment_bytes=figures.segment_bytes,
        ledger_bytes=engine.ledger.size_bytes(),
        steps=loop.steps if loop is not None else 0,
        steps_per_s=rounded(rates.of("steps")),
        epoch=engine.ledger.epoch,
    )


def goals_by_query(loop: "Loop | None") -> Mapping[str | None, tuple[GoalSnapshot, ...]]:
    """Goals beside their measured values; those of None hold for all queries together."""
    return {} if loop is None else goals_told(loop.engine)


def goals_costs(loop: "Loop | None", now: float) -> Mapping[str, float]:
    """By query: the part of time in which its steps went before older rows, for its goals."""
    if loop is None:
        return {}
    return {q: round(v, 4) for q, v in loop.scheduler.scheduler.costs_others(now).items()}


def error_of(query: "Query") -> ErrorSnapshot | None:
    """Why a query failed, and the row behind it."""
    if query.state != "failed":
        return None
    return error_with_row(query.reason, query.culprits)


def watermark_lag_s(engine: "Engine", figures: Figures) -> float | None:
    """By how much event time results are behind what has come, at most over running queries."""
    from millstream.language.plan.nodes import sources_of  # noqa: PLC0415
    from millstream.language.share.dataflow import base_stream  # noqa: PLC0415

    lags = []
    for query in list(engine.queries.values()):
        result = figures.streams.get(query.stream)
        if query.state != "running" or result is None:
            continue
        heads = [
            head
            for s in sources_of(query.plan.root)
            if (head := figures.streams.get(base_stream(s.stream))) is not None
        ]
        reached = [h["ts_max"] if h["watermark"] == FOREVER else h["watermark"] for h in heads]
        known = [r for r in reached if r != BEGINNING]
        if not known or result["watermark"] == BEGINNING:
            continue
        lags.append(0 if result["watermark"] == FOREVER else min(known) - result["watermark"])
    return round(max(0, *lags) / 1e6, 3) if lags else None


def rounded(value: float) -> float:
    """Three digits: what a person reads, and what need not be sent again for a fourth.

    >>> rounded(1234.56), rounded(0.0012345)
    (1230.0, 0.00123)
    """
    return float(f"{value:.3g}")
