"""One processor in virtual time: runs a plan's operators as the scheduler says.

The driver of `schedule` without Spark: the same classes choose, a kernel keeps the time, virtual
operators do the work. It records what an experiment wants to plot and leaves judging to others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from millstream.decide.schedule import Choice, Delivery, OperatorView, Scheduler, StepReport
from millstream.sim.kernel import Kernel, stream_seed
from millstream_lab.raindrop.operators import PlanSpec, VirtualOperator
from millstream_lab.raindrop.rows import Queue, Rows, SourceQueue


@dataclass(slots=True)
class Second:
    """What happened in one second of virtual time."""

    rows_delivered: float = 0.0
    delay_s_total: float = 0.0
    queue_row_seconds: float = 0.0
    held_row_seconds: float = 0.0  # in queues and in running steps, whichever way queues count
    queue_rows_max: float = 0.0
    seconds: float = 0.0
    algorithm: str = ""


@dataclass(slots=True)
class Record:
    """A run, second by second; each delivery's time and when its rows had arrived; results."""

    seconds: list[Second] = field(default_factory=list)
    results: dict[str, list[Rows]] = field(default_factory=dict)
    deliveries: list[tuple[float, NDArray[np.float64]]] = field(default_factory=list)
    by_root: dict[str, list[tuple[float, NDArray[np.float64]]]] = field(default_factory=dict)
    steps: int = 0

    def at(self, now: float) -> Second:
        index = max(0, int(now - 1e-12))
        while len(self.seconds) <= index:
            self.seconds.append(Second())
        return self.seconds[index]


class VirtualProcessor:
    """A plan under a scheduler, on a kernel."""

    def __init__(
        self,
        kernel: Kernel,
        plan: PlanSpec,
        scheduler: Scheduler,
        until: float,
        *,
        keep_results: bool = False,
        noise: float = 0.0,
        count_in_flight: bool = False,
    ) -> None:
        self.kernel = kernel
        self.plan = plan
        self.scheduler = scheduler
        self.record = Record()
        self.until = until
        self._keep_results = keep_results
        self._noise = noise  # share by which a step's duration varies
        # The seed counts queues only, and rows leave them when their step starts (section 1.2); the
        # engine's rows wait until their step is committed.
        self._count_in_flight = scheduler.in_flight_counts = count_in_flight
        self._random = kernel.random("durations")
        self._sources: dict[str, list[SourceQueue]] = {}
        self._operators = self._build(until)
        self._graph = plan.graph
        self._consumers = {
            spec.id: [
                (consumer, port)
                for consumer in self._graph.consumers(spec.id)
                for port, source in enumerate(self._operators[consumer].spec.inputs)
                if source == spec.id
            ]
            for spec in plan.operators
        }
        self._queries = {
            spec.id: tuple(
                other.query
                for other in plan.operators
                if other.query and spec.id in {other.id, *self._graph.subplan(other.id)}
            )
            for spec in plan.operators
        }
        self._flying: dict[str, list[Rows]] = {}  # rows in steps that are not done yet
        self._pending = 0
        self._running_rows = 0
        self._advanced_to = -1.0  # so that rows of time 0 arrive
        self._wake_at: float | None = None
        self._views: dict[str, OperatorView] = {}

    def _build(self, until: float) -> dict[str, VirtualOperator]:
        streams: dict[str, Rows] = {}
        for name, arrivals in self.plan.streams.items():
            times = arrivals.times(until, self.kernel.generator(f"arrivals/{name}"))
            base = np.uint64(stream_seed(self.kernel.seed, f"rows/{name}"))
            with np.errstate(over="ignore"):
                streams[name] = Rows(times, base + np.arange(len(times), dtype=np.uint64))
        operators: dict[str, VirtualOperator] = {}
        for spec in self.plan.operators:
            queues: list[Queue] = []
            for source in spec.inputs:
                if source in streams:
                    queue = SourceQueue(streams[source])
                    self._sources.setdefault(source, []).append(queue)
                    queues.append(queue)
                else:
                    queues.append(Queue())
            operators[spec.id] = VirtualOperator(spec, queues)
        return operators

    def run(self, on_second: Callable[[], None] | None = None) -> Record:
        """Runs to the end of the arrivals' time."""
        if on_second is not None:
            self.kernel.every(1.0, on_second)
        self.kernel.at(self.kernel.now, self._dispatch)
        self.kernel.run(until=self.until)
        self._advance(self.until)
        return self.record

    def drain(self) -> Record:
        """Runs on until nothing is pending."""
        self.kernel.run()
        return self.record

    @property
    def pending_rows(self) -> int:
        return self._pending

    def _advance(self, now: float) -> None:
        """Lets rows arrive and adds up how many waited for how long."""
        if now == self._advanced_to:
            return
        second = self.record.at(now)
        elapsed = now - max(0.0, self._advanced_to)
        area = self._pending * elapsed
        for queues in self._sources.values():
            for queue in queues:
                new = queue.arrive(now)
                if len(new):
                    area += float((now - new.times).sum())
                    self._pending += len(new)
        second.queue_row_seconds += area
        running = 0 if self._count_in_flight else self._running_rows
        second.held_row_seconds += area + running * elapsed
        second.seconds += elapsed
        second.queue_rows_max = max(second.queue_rows_max, self._pending)
        self._advanced_to = now

    def _look(self) -> Sequence[OperatorView]:
        for name, operator in self._operators.items():
            rows, oldest, known = operator.pending(), operator.oldest(), self._views.get(name)
            if self._count_in_flight and name in self._flying:
                rows += sum(len(part) for part in self._flying[name])
                oldest = min(float(part.times[0]) for part in self._flying[name] if len(part))
            if known is None or known.rows != rows or known.oldest != oldest:
                self._views[name] = OperatorView(
                    name,
                    rows,
                    rows * 100.0,
                    oldest,
                    self._graph.producers(name),
                    self._graph.consumers(name),
                    self._queries[name],
                    meets=len(operator.spec.inputs) > 1,
                )
        return list(self._views.values())

    def _dispatch(self) -> None:
        now = self.kernel.now
        self._advance(now)
        while len(self._flying) < self.scheduler.settings.slots:
            choice = self.scheduler.choose(self._look(), now)
            if choice is None:
                break
            self._start(choice)
        self.record.at(now + 1e-9).algorithm = self.scheduler.algorithm or ""
        if len(self._flying) < self.scheduler.settings.slots:
            self._sleep()

    def _sleep(self) -> None:
        """Nothing to do: wake when the next row arrives."""
        coming = [
            time
            for queues in self._sources.values()
            for queue in queues
            if (time := queue.next_arrival()) is not None
        ]
        if not coming:
            return
        first = min(coming)
        if self._wake_at is not None and self.kernel.now < self._wake_at <= first:
            return
        self._wake_at = first
        self.kernel.at(max(first, self.kernel.now), self._dispatch, priority=1)

    def _start(self, choice: Choice) -> None:
        operator = self._operators[choice.operator]
        rows = operator.take(max(1, round(choice.rows)))
        count = sum(len(part) for part in rows)
        self._flying[choice.operator] = rows
        self._running_rows += count
        if not self._count_in_flight:
            self._pending -= count
        seconds = operator.seconds(count)
        if self._noise:
            seconds *= 1 + self._noise * (2 * self._random.random() - 1)
        self.kernel.after(seconds, lambda: self._finish(choice, rows, seconds))

    def _finish(self, choice: Choice, rows: list[Rows], seconds: float) -> None:
        now = self.kernel.now
        self._advance(now)
        operator = self._operators[choice.operator]
        del self._flying[choice.operator]
        count = sum(len(part) for part in rows)
        self._running_rows -= count
        if self._count_in_flight:
            self._pending -= count
        low = [
            self._low(source, port, operator) for port, source in enumerate(operator.spec.inputs)
        ]
        result = operator.run(rows, low)
        output = result.output
        for consumer, port in self._consumers[choice.operator]:
            self._operators[consumer].queues[port].put(output)
            self._pending += len(output)
        delivered = Delivery()
        if not self._consumers[choice.operator]:
            delivered = self._deliver(choice.operator, output, now)
        query = operator.spec.query
        self.record.steps += 1
        self.scheduler.report(
            StepReport(
                choice.operator,
                count,
                len(output),
                seconds,
                now,
                choice.number,
                candidates=result.candidates,
                delivered=delivered,
                by_query={query: delivered} if query else {},
                queue_rows=self._pending,
            )
        )
        self._dispatch()

    def _deliver(self, root: str, output: Rows, now: float) -> Delivery:
        if self._keep_results:
            self.record.results.setdefault(root, []).append(output)
        if not len(output):
            return Delivery()
        self.record.deliveries.append((now, output.times))
        self.record.by_root.setdefault(root, []).append((now, output.times))
        delays = now - output.times
        total = float(delays.sum())
        second = self.record.at(now)
        second.rows_delivered += len(output)
        second.delay_s_total += total
        return Delivery(float(len(output)), total, float(delays.max()))

    def _low(self, source: str, port: int, operator: VirtualOperator) -> float:
        """No row older than this can still come to an input: what waits there or above it."""
        ages = [operator.queues[port].oldest()]
        for name in self._graph.subplan(source) if source in self._operators else ():
            ages.append(self._operators[name].oldest())
            ages.extend(float(part.times[0]) for part in self._flying.get(name, ()) if len(part))
        return min((age for age in ages if age is not None), default=self.kernel.now)
