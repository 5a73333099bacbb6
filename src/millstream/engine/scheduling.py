"""Which operator runs next, and on how many rows: the processor's scheduler over the live dataflow.

The scheduler decides from views of the operators' queues and from what their steps cost; it never
touches data, so that no choice changes a result. Every choice and every change of algorithm is in
`scheduler.trace`.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass

from millstream.share.dataflow import Operator
from millstream.engine.engine import Engine
from millstream.engine.segments import Segment
from millstream.engine.steps import StepReport
from millstream.schedule.protocol import Choice, Delivery, OperatorView
from millstream.schedule.protocol import StepReport as Finished
from millstream.schedule.quality import Quality, Specification
from millstream.schedule.scheduler import Scheduler

# What a step on Spark costs before anything was measured (docs/design/0002-engine.md).
FIXED_COST_S = 0.1
ROW_COST_S = 2e-6


class StepScheduler:
    """Asks the scheduler for the engine, and tells it what came of it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        settings = engine.settings
        self.scheduler = Scheduler(
            settings.schedule.with_(slots=settings.slots, rows_max=settings.step_rows_max),
            settings.quality,
        )
        self.seconds = 0.0  # spent on choosing and on keeping statistics
        self._clock = 0.0
        self._shape: _Shape | None = None

    def set_quality(self, quality: Quality | Specification) -> None:
        """New goals, from now on."""
        self.scheduler.set_quality(quality)

    def choose(self, busy: Collection[str]) -> Choice | None:
        """The next operator that can run and is not busy."""
        clock = time.perf_counter()
        shape = self._current_shape()
        views = [self._view(o, shape, busy) for o in shape.operators]
        choice = self.scheduler.choose(views, self._now()) if views else None
        self.seconds += time.perf_counter() - clock
        return choice

    def finished(self, choice: Choice, report: StepReport | None) -> None:
        """A step ended; without a report there was nothing to do, or it failed."""
        if report is None:
            self.scheduler.abandon(choice)
            return
        clock = time.perf_counter()
        now = self._now()
        waited = max(0.0, now - report.arrived) if report.rows_out else 0.0
        delivery = Delivery(report.rows_out, waited * report.rows_out, waited)
        queries = [q.name for q in self.engine.queries.values() if q.stream == report.operator]
        self.scheduler.report(
            Finished(
                report.operator,
                rows_in=report.rows_in,
                rows_out=report.rows_out,
                seconds=report.seconds,
                finished=now,
                choice=choice.number,
                bytes_in=report.bytes_in,
                bytes_out=report.bytes_out,
                delivered=delivery if queries else Delivery(),
                by_query=dict.fromkeys(queries, delivery),
            )
        )
        self.seconds += time.perf_counter() - clock

    def _now(self) -> float:
        self._clock = max(self._clock, time.time())
        return self._clock

    def _current_shape(self) -> "_Shape":
        """Who feeds whom and for whom; worked out again only when queries come or go."""
        key = (tuple(self.engine.operators), tuple(self.engine.queries))
        if self._shape is None or self._shape.key != key:
            self._shape = _shape_of(self.engine, key)
        return self._shape

    def _view(self, operator: Operator, shape: "_Shape", busy: Collection[str]) -> OperatorView:
        waiting = [s for found in self.engine.runner.pending(operator).values() for s in found]
        return OperatorView(
            operator.id,
            rows=_rows(waiting),
            bytes=sum(s.size for s in waiting),
            oldest=min((s.arrived for s in waiting), default=None),
            producers=tuple(s for s in operator.inputs if s in self.engine.operators),
            consumers=shape.consumers[operator.id],
            queries=shape.queries[operator.id],
            fixed_cost_s=FIXED_COST_S,
            row_cost_s=ROW_COST_S,
            runnable=operator.id not in busy and operator.id not in self.engine.paused_operators,
        )


@dataclass(frozen=True, slots=True)
class _Shape:
    """The dataflow as the scheduler sees it."""

    key: tuple[tuple[str, ...], tuple[str, ...]]
    operators: tuple[Operator, ...]
    consumers: dict[str, tuple[str, ...]]
    queries: dict[str, tuple[str, ...]]


def _shape_of(engine: Engine, key: tuple[tuple[str, ...], tuple[str, ...]]) -> _Shape:
    operators = tuple(engine.operators.values())
    consumers: dict[str, list[str]] = {o.id: [] for o in operators}
    queries: dict[str, list[str]] = {o.id: [] for o in operators}
    for operator in operators:
        for stream in operator.inputs:
            if stream in consumers:
                consumers[stream].append(operator.id)
    for query in engine.queries.values():
        for name in query.operators:
            if name in queries:
                queries[name].append(query.name)
    return _Shape(
        key,
        operators,
        {name: tuple(ids) for name, ids in consumers.items()},
        {name: tuple(ids) for name, ids in queries.items()},
    )


def _rows(waiting: list[Segment]) -> float:
    """Rows in the queue; a watermark alone is work as well, if little."""
    return max(sum(s.rows for s in waiting), 1) if waiting else 0
