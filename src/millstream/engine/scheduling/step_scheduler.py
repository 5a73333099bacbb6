"""Which operator runs next, and on how many rows: the processor's scheduler over the live dataflow.

The scheduler decides from views of the operators' queues and from what their steps cost; it never
touches data, so that no choice changes a result. Every choice and every change of algorithm is in
`scheduler.trace`.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from millstream.core.operator_graph import OperatorGraph
from millstream.core.steady_clock import SteadyClock
from millstream.decide.schedule.facts import Choice, Delivery, OperatorView
from millstream.decide.schedule.facts import StepReport as Finished
from millstream.decide.schedule.scheduler import Scheduler
from millstream.engine.dataflow import Dataflow
from millstream.engine.scheduling.goals import take_wishes
from millstream.engine.scheduling.pacing import Pacing
from millstream.engine.settings import PATIENCE_S
from millstream.engine.steps.reports import StepReport
from millstream.engine.steps.trains import Trains, Unit
from millstream.language.share.dataflow import Kind, Operator
from millstream.store.segments import Segment

# What a step on Spark costs before anything was measured (docs/design/0002-engine.md).
FIXED_COST_S = 0.1
ROW_COST_S = 2e-6
# Kinds in which rows of one input wait for those of another.
MEETING: frozenset[Kind] = frozenset({"join", "interval", "semijoin"})


class StepScheduler:
    """Asks the scheduler for the engine, and tells it what came of it.

    What it schedules are units: an operator, or several that run in one job.
    """

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.trains = Trains(flow)
        settings = flow.settings
        schedule = settings.schedule.with_(slots=settings.slots, rows_max=settings.step_rows_max)
        if schedule.patience_s is None and schedule.selector != "fixed":
            schedule = schedule.with_(patience_s=PATIENCE_S)
        self.scheduler = Scheduler(schedule, settings.quality)
        self.pacing = Pacing(settings.pace_s)
        self.holding = False  # whether rows wait for nothing but the pace
        self.seconds = 0.0  # spent on choosing and on keeping statistics
        self._clock = SteadyClock()
        self._shape: _Shape | None = None

    def choose(self, busy: Collection[str]) -> tuple[Choice, Unit] | None:
        """The next unit that can run and is not busy."""
        clock = time.perf_counter()
        take_wishes(self.flow, self.scheduler)
        units = {u.id: u for u in self.trains.units(busy)}
        shape, now = self._current_shape(), self.now()
        home = {o.id: u.id for u in units.values() for o in u.operators}
        views = [self._view(u, shape, home, busy) for u in units.values()]
        if self.pacing.pace_s:
            held = {v.id for v in views if self._held(v, units[v.id], now)}
            views = [replace(v, runnable=False) if v.id in held else v for v in views]
            self.holding = bool(held)
        choice = self.scheduler.choose(views, now) if views else None
        if choice is not None:
            self.pacing.began((o.id for o in units[choice.operator].operators), now)
        self.seconds += time.perf_counter() - clock
        return None if choice is None else (choice, units[choice.operator])

    def finished(self, choice: Choice, report: StepReport | None, unit: Unit) -> None:
        """A step ended; without a report there was nothing to do, or it failed."""
        if report is None:
            self.scheduler.abandon(choice)
            return
        clock = time.perf_counter()
        now = self.now()
        waited = max(0.0, now - report.arrived) if report.rows_out else 0.0
        delivery = Delivery(report.rows_out, waited * report.rows_out, waited)
        mine = {o.id for o in unit.operators}
        queries = [q.name for q in self.flow.queries.values() if q.stream in mine]
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

    def now(self) -> float:
        return self._clock()

    def _held(self, view: OperatorView, unit: Unit, now: float) -> bool:
        """Whether a unit has work that could be done now but for the pace."""
        full = view.rows >= self.flow.settings.step_rows_max
        if full or not (view.rows and view.runnable):
            return False
        return not self.pacing.due((o.id for o in unit.operators), view.oldest, now)

    def _current_shape(self) -> "_Shape":
        """Who feeds whom and for whom; worked out again only when queries come or go."""
        key = (tuple(self.flow.operators), tuple(self.flow.queries))
        if self._shape is None or self._shape.key != key:
            self._shape = _shape_of(self.flow, key)
            self.pacing.keep(self.flow.operators)
        return self._shape

    def _view(
        self, unit: Unit, shape: "_Shape", home: Mapping[str, str], busy: Collection[str]
    ) -> OperatorView:
        """A unit's queue is its first operator's: all stand at the same place."""
        lead = unit.operators[0]
        waiting = [
            s
            for stream, found in self.flow.pending(lead).items()
            for s in found
            if unit.limits is None or s.last < unit.limits[stream]
        ]
        near = shape.near(unit)
        paused = self.flow.paused_operators
        return OperatorView(
            unit.id,
            rows=_rows(waiting),
            bytes=sum(s.size for s in waiting),
            oldest=min((s.arrived for s in waiting), default=None),
            producers=_units(home, near.inputs),
            consumers=_units(home, near.consumers),
            queries=near.queries,
            members=len(unit.operators),
            kind=lead.kind,
            meets=lead.kind in MEETING and len(lead.inputs) > 1,
            fixed_cost_s=FIXED_COST_S,
            row_cost_s=ROW_COST_S,
            runnable=not any(o.id in busy or o.id in paused for o in unit.operators),
        )


def _units(home: Mapping[str, str], operators: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(home[o] for o in operators if o in home))


@dataclass(frozen=True, slots=True)
class _Near:
    """What a unit reads, who reads it, and for whom."""

    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    consumers: tuple[str, ...]
    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Shape:
    """The dataflow as the scheduler sees it."""

    key: tuple[tuple[str, ...], tuple[str, ...]]
    graph: OperatorGraph[Operator]
    queries: dict[str, tuple[str, ...]]
    known: dict[str, _Near] = field(default_factory=dict)  # by unit

    def near(self, unit: Unit) -> _Near:
        """Worked out once for the same operators: a unit may have hundreds."""
        found = self.known.get(unit.id)
        if found is None or found.operators != unit.operators:
            ids = [o.id for o in unit.operators]
            found = self.known[unit.id] = _Near(
                unit.operators,
                tuple(dict.fromkeys(s for o in unit.operators for s in o.inputs)),
                tuple(dict.fromkeys(c for o in ids for c in self.graph.consumers(o))),
                tuple(dict.fromkeys(q for o in ids for q in self.queries.get(o, ()))),
            )
        return found


def _shape_of(flow: Dataflow, key: tuple[tuple[str, ...], tuple[str, ...]]) -> _Shape:
    operators = tuple(flow.operators.values())
    queries: dict[str, list[str]] = {o.id: [] for o in operators}
    for query in flow.queries.values():
        for name in query.operators:
            if name in queries:
                queries[name].append(query.name)
    named = {name: tuple(ids) for name, ids in queries.items()}
    return _Shape(key, OperatorGraph(operators), named)


def _rows(waiting: list[Segment]) -> float:
    """Rows in the queue; a watermark alone is work as well, if little."""
    return max(sum(s.rows for s in waiting), 1) if waiting else 0
