"""The statistics gatherer: one place for what is known of operators, queues and plans.

It keeps a view of the statistics for each algorithm (what happened while it was in charge), an
overall view, and the current state of queues (seed, section 3.2.5). Looking up and noting a step
cost the same however many operators there are; an update, once a second or so, is linear. It
decides nothing and reads no clock.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from millstream.core.errors import UsageError
from millstream.decide.schedule.costs import CostLine
from millstream.decide.schedule.facts import Delivery, OperatorView, StepReport
from millstream.decide.schedule.measures import (
    OPERATOR_STATISTICS,
    PLAN_STATISTICS,
    Counters,
    Interval,
    OperatorStatistic,
    PlanStatistic,
    Series,
)

OVERALL = "overall"  # the historical view H of equation 5.1
CURRENT = "current"  # the present state of queues
USUAL_SHARE = 0.02  # of the last interval in what is usual
PLAN = "plan"  # the object that stands for all queries together


@dataclass(slots=True)
class _OperatorTable:
    """Everything of one operator in one view."""

    counters: Counters = field(default_factory=Counters)
    at_update: Counters = field(default_factory=Counters)
    values: dict[str, float] = field(default_factory=dict)
    averages: dict[str, float] = field(default_factory=dict)  # weighted, equation 3.1


class StatisticsGatherer:
    """Notes steps and queues, answers questions about them."""

    def __init__(self, old_weight: float = 0.875) -> None:
        self.old_weight = old_weight
        self._operator_statistics = dict(OPERATOR_STATISTICS.items())
        self._each_step = [s for s in self._operator_statistics.values() if s.when == "step"]
        self._plan_statistics = dict(PLAN_STATISTICS.items())
        self._tables: dict[str, dict[str, _OperatorTable]] = {OVERALL: {}}
        self._series: dict[str, dict[str, dict[str, Series]]] = {OVERALL: {}}
        self._costs: dict[str, CostLine] = {}
        self._class_costs: dict[str, CostLine] = {}
        self._touched: dict[str, set[str]] = {}
        self._views: Mapping[str, OperatorView] = {}
        self._interval = Interval()
        self._queries: dict[str, Interval] = {}  # those that have given results, and
        self.watched: frozenset[str] = frozenset()  # those with goals of their own, from the start
        self._queue_area = 0.0
        self._bytes_area = 0.0
        self._queue_rows = 0.0
        self._queue_bytes = 0.0
        self._observed_at: float | None = None
        self.updated_at: float | None = None
        self._arrived: dict[str, float] = {}  # rows that ever reached a leaf
        self._arrived_before: dict[str, float] = {}
        self.arrival_rates: dict[str, float] = {}  # rows a second at each leaf, lately
        self.usual_rates: dict[str, float] = {}  # the same over a minute or so
        self._arrivals_seen: dict[str, int] = {}

    # ---- noting

    def register(self, statistic: OperatorStatistic | PlanStatistic) -> None:
        """Adds a user's own statistic (section 3.3.2), computed from now on; it can be a goal."""
        if isinstance(statistic, OperatorStatistic):
            if statistic.name in self._operator_statistics:
                raise UsageError(f"operator statistic {statistic.name!r} exists already")
            self._operator_statistics[statistic.name] = statistic
            if statistic.when == "step":
                self._each_step.append(statistic)
        else:
            if statistic.name in self._plan_statistics:
                raise UsageError(f"statistic {statistic.name!r} exists already")
            self._plan_statistics[statistic.name] = statistic

    def knows(self, statistic: OperatorStatistic | PlanStatistic) -> bool:
        if isinstance(statistic, OperatorStatistic):
            return statistic.name in self._operator_statistics
        return statistic.name in self._plan_statistics

    def plan_statistic(self, name: str) -> PlanStatistic:
        if name not in self._plan_statistics:
            PLAN_STATISTICS.get(name)  # raises with the near misses
        return self._plan_statistics[name]

    def observe(self, by_id: Mapping[str, OperatorView], queue_rows: float, now: float) -> None:
        """Takes note of all queues; memory is their mean over time, not over samples."""
        self._advance(now)
        self._views = by_id
        self._queue_rows = queue_rows
        self._interval.queue_rows_max = max(self._interval.queue_rows_max, queue_rows)

    def step(self, report: StepReport, algorithm: str) -> None:
        """Takes note of a finished step in the algorithm's view and overall."""
        self._advance(report.finished)
        candidates = report.rows_in if report.candidates is None else report.candidates
        for view in (algorithm, OVERALL):
            table = self._table(view, report.operator)
            counters = table.counters
            counters.runs += 1
            counters.rows_in += report.rows_in
            counters.rows_out += report.rows_out
            counters.candidates += candidates
            counters.seconds += report.seconds
            counters.bytes_in += report.bytes_in
            counters.bytes_out += report.bytes_out
            for statistic in self._each_step:
                value = statistic.compute(counters)
                if value is not None:
                    table.values[statistic.name] = value
            self._touched.setdefault(view, set()).add(report.operator)
        self.cost(report.operator).learn(report.rows_in, report.seconds)
        kind = self._views[report.operator].kind if report.operator in self._views else ""
        if kind:
            self._class_costs.setdefault(kind, CostLine()).learn(report.rows_in, report.seconds)
        self._interval.busy_s += report.seconds
        _deliver(self._interval, report.delivered)
        for query, delivery in report.by_query.items():
            _deliver(self._queries.setdefault(query, Interval()), delivery)
        if report.queue_rows is not None:
            self._queue_rows = report.queue_rows
            self._interval.queue_rows_max = max(self._interval.queue_rows_max, report.queue_rows)
        if report.queue_bytes is not None:
            self._queue_bytes = report.queue_bytes

    def update(self, now: float, algorithm: str, leaves: Sequence[str] = ()) -> None:
        """Closes the interval: periodic statistics of what moved since the last update."""
        self._advance(now)
        started = self.updated_at if self.updated_at is not None else now
        self.updated_at = now
        for view in (algorithm, OVERALL):
            for operator in sorted(self._touched.pop(view, ())):
                self._update_operator(self._table(view, operator))
        interval = self._interval
        interval.seconds = now - started
        self._interval = Interval()
        if interval.seconds > 0:
            self._close(interval, now, algorithm)
            self._estimate_arrivals(leaves, interval.seconds)
        self._queue_area = self._bytes_area = 0.0

    def _advance(self, now: float) -> None:
        if self._observed_at is None:
            self._observed_at = now
            if self.updated_at is None:
                self.updated_at = now
            return
        elapsed = now - self._observed_at
        if elapsed > 0:
            self._queue_area += elapsed * self._queue_rows
            self._bytes_area += elapsed * self._queue_bytes
            self._observed_at = now

    def _close(self, interval: Interval, now: float, algorithm: str) -> None:
        interval.queue_rows = self._queue_area / interval.seconds
        interval.queue_rows_max = max(interval.queue_rows_max, interval.queue_rows)
        interval.queue_bytes = self._bytes_area / interval.seconds
        oldest = [v.oldest for v in self._views.values() if v.rows > 0 and v.oldest is not None]
        interval.oldest_s = now - min(oldest) if oldest else None
        self._record(PLAN, interval, now, algorithm)
        pending: dict[str, float] = {}
        waiting: dict[str, float] = {}  # since when
        for view in self._views.values():
            for query in view.queries:
                pending[query] = pending.get(query, 0.0) + view.rows
                if view.rows > 0 and view.oldest is not None:
                    waiting[query] = min(waiting.get(query, view.oldest), view.oldest)
        for query in sorted({*self._queries, *(self.watched & pending.keys())}):
            tally = self._queries.setdefault(query, Interval())
            if query not in pending and not tally.rows_delivered:
                self._forget_query(query)  # it left the plan
                continue
            tally.seconds = interval.seconds
            tally.queue_rows = tally.queue_rows_max = pending.get(query, 0.0)
            if query in waiting:
                tally.oldest_s = now - waiting[query]
            self._record(query_object(query), tally, now, algorithm)
            self._queries[query] = Interval()

    def _forget_query(self, query: str) -> None:
        del self._queries[query]
        for objects in self._series.values():
            objects.pop(query_object(query), None)

    def _record(self, subject: str, interval: Interval, now: float, algorithm: str) -> None:
        for statistic in self._plan_statistics.values():
            value = statistic.compute(interval)
            if value is None:
                continue
            for view in (algorithm, OVERALL):
                objects = self._series.setdefault(view, {})
                series = objects.setdefault(subject, {}).get(statistic.name)
                if series is None:
                    series = objects[subject][statistic.name] = Series(self.old_weight)
                series.add(value, now)
                if view == OVERALL:
                    series.trend.add(value, now)

    def _update_operator(self, table: _OperatorTable) -> None:
        lately = table.counters.minus(table.at_update)
        table.at_update = replace(table.counters)
        for statistic in self._operator_statistics.values():
            total = statistic.compute(table.counters)
            if total is None:
                continue
            table.values[statistic.name] = total
            recent = statistic.compute(lately)
            if recent is not None:
                old = table.averages.get(statistic.name, recent)
                table.averages[statistic.name] = old * self.old_weight + recent * (
                    1 - self.old_weight
                )

    def _estimate_arrivals(self, leaves: Sequence[str], seconds: float) -> None:
        # Where rows of several inputs meet, some may come straight from a stream.
        meeting = (view.id for view in self._views.values() if view.meets and view.producers)
        for name in (*leaves, *meeting):
            view = self._views.get(name)
            taken = self._table(OVERALL, name).counters.rows_in
            made = sum(
                self._table(OVERALL, producer).counters.rows_out
                for producer in (view.producers if view else ())
            )
            # Rows in flight are in no queue and in no report yet, hence the running maximum.
            here = taken + (view.rows if view else 0.0) - made
            arrived = max(self._arrived.get(name, 0.0), here)
            before = self._arrived_before.get(name, 0.0)
            rate = max(0.0, arrived - before) / seconds
            self._arrived[name] = self._arrived_before[name] = arrived
            old = self.arrival_rates.get(name, rate)
            self.arrival_rates[name] = 0.5 * old + 0.5 * rate
            self._arrivals_seen[name] = seen = self._arrivals_seen.get(name, 0) + 1
            usual = self.usual_rates.get(name, rate)
            self.usual_rates[name] = usual + (rate - usual) * max(USUAL_SHARE, 1 / seen)

    def _table(self, view: str, operator: str) -> _OperatorTable:
        tables = self._tables.setdefault(view, {})
        table = tables.get(operator)
        if table is None:
            table = tables[operator] = _OperatorTable()
        return table

    # ---- asking

    @property
    def unmeasured_rows(self) -> float:
        """Rows delivered since the last update."""
        return self._interval.rows_delivered

    @property
    def observed_at(self) -> float | None:
        """When queues were last looked at."""
        return self._observed_at

    def view(self, operator: str) -> OperatorView | None:
        """An operator as last seen."""
        return self._views.get(operator)

    def views(self) -> tuple[str, ...]:
        """The views that exist: overall, and one for each algorithm that has run."""
        return tuple(self._tables)

    def get(self, statistic: str, operator: str, view: str = OVERALL) -> float | None:
        """A statistic of one operator, from totals since the start."""
        if view == CURRENT:
            return self._current(statistic, operator)
        table = self._tables.get(view, {}).get(operator)
        return None if table is None else table.values.get(statistic)

    def average(self, statistic: str, operator: str, view: str = OVERALL) -> float | None:
        """The weighted average of a statistic of one operator (equation 3.1)."""
        table = self._tables.get(view, {}).get(operator)
        return None if table is None else table.averages.get(statistic)

    def _current(self, statistic: str, operator: str) -> float | None:
        view = self._views.get(operator)
        if view is None:
            return None
        values = {"queue_rows": view.rows, "queue_bytes": view.bytes, "oldest": view.oldest}
        return values.get(statistic)

    def series(self, statistic: str, view: str = OVERALL, subject: str = PLAN) -> Series | None:
        """How a plan statistic went in a view, for all queries or one (`query_object`)."""
        return self._series.get(view, {}).get(subject, {}).get(statistic)

    def ranked(
        self,
        statistic: str,
        view: str = OVERALL,
        *,
        order: Literal["highest", "lowest"] = "highest",
        keep: Callable[[float], bool] = lambda _: True,
    ) -> list[tuple[str, float]]:
        """Operators by a statistic, ties by name: 'selectivity below 1, lowest first'."""
        names: Iterable[str] = self._views if view == CURRENT else self._tables.get(view, {})
        found = [(name, self.get(statistic, name, view)) for name in names]
        known = [(name, value) for name, value in found if value is not None and keep(value)]
        sign = -1 if order == "highest" else 1
        return sorted(known, key=lambda pair: (sign * pair[1], pair[0]))

    def highest(self, statistic: str, view: str = OVERALL) -> str | None:
        """'Which operator has the highest priority?'"""
        return next((name for name, _ in self.ranked(statistic, view)), None)

    def lowest(self, statistic: str, view: str = OVERALL) -> str | None:
        return next((name for name, _ in self.ranked(statistic, view, order="lowest")), None)

    def cost(self, operator: str) -> CostLine:
        line = self._costs.get(operator)
        if line is None:
            line = self._costs[operator] = CostLine()
        return line

    def row_selectivity(self, view: OperatorView) -> float:
        """Output per input row as last known; the view's own estimate, else 1, before any.

        Who has given nothing yet is about to give a first row: a join that ran ahead of one of its
        inputs would otherwise look worthless, and never run again.
        """
        measured = self.average("row_selectivity", view.id)
        if measured is None:
            measured = self.get("row_selectivity", view.id)
        if measured is None:
            measured = view.row_selectivity
        elif measured == 0:
            return 1 / (1 + self._table(OVERALL, view.id).counters.rows_in)
        return 1.0 if measured is None else measured

    def row_seconds(self, view: OperatorView) -> float:
        """Seconds for each input row as last known, fixed cost included."""
        measured = self.average("row_seconds", view.id)
        if measured is None:
            measured = self.get("row_seconds", view.id)
        if measured is None:
            measured = view.row_cost_s
        return max(1e-9, 1e-3 if measured is None else measured)

    def step_cost(self, view: OperatorView) -> tuple[float, float]:
        """Fixed seconds a step and seconds a row: its own, else its class's, else as estimated."""
        line = self._costs.get(view.id)
        if line is None or line.weight < 2:  # one step says nothing about two numbers
            alike = self._class_costs.get(view.kind) if view.kind else None
            if alike is not None and alike.weight >= 2:
                return alike.fixed_s, max(1e-9, alike.row_s)
            if view.row_cost_s is not None:
                return view.fixed_cost_s or 0.0, view.row_cost_s
            if line is None:
                return view.fixed_cost_s or 0.0, 1e-3
        return line.fixed_s, max(1e-9, line.row_s)

    def forget(self, operators: Iterable[str]) -> None:
        """Drops operators that left the plan; their share in plan statistics stays."""
        for operator in operators:
            for tables in self._tables.values():
                tables.pop(operator, None)
            self._costs.pop(operator, None)
            self._arrived.pop(operator, None)
            self._arrived_before.pop(operator, None)
            self.arrival_rates.pop(operator, None)
            self.usual_rates.pop(operator, None)
            self._arrivals_seen.pop(operator, None)
            for touched in self._touched.values():
                touched.discard(operator)


def query_object(query: str) -> str:
    """The name under which one query's plan statistics are kept."""
    return f"query:{query}"


def _deliver(interval: Interval, delivery: Delivery) -> None:
    interval.rows_delivered += delivery.rows
    interval.delay_s_total += delivery.delay_s_total
    interval.delay_s_max = max(interval.delay_s_max, delivery.delay_s_max)
