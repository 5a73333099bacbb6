"""A processor in virtual time that pays for its connections and has a limited memory.

D-CAPE's chapter 5 rests on two limits of a processor: every connection costs CPU even when little
comes through it (figures 4.5 and 4.6: 8 to 12 are safe), and rows in queues and states fill a
memory that a collector keeps clean at rising cost until it is full (figures 5.10 and 5.11). The
processor runs the operators it is given, one step at a time, as a scheduler of `schedule` says. It
knows nothing of other processors: what its operators give goes to `emit`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.decide.schedule import Choice, OperatorView, Scheduler, ScheduleSettings, StepReport
from millstream.sim.kernel import Kernel
from millstream_lab.dcape.counted_rows import Batch, Costs, CountedOperator, CountedStep

Emit = Callable[[str, list[Batch]], None]


@dataclass(frozen=True, slots=True)
class Machine:
    """What a processor can do; not in the seed but for 8 to 12 connections and failing plan 4."""

    costs: Costs = field(default_factory=Costs)
    speed: float = 1.0
    connections_half: float = 36.0  # so many connections leave the engine half of the CPU
    send_s: float = 110e-6  # a row sent, or received, over the network
    receive_s: float = 110e-6
    memory_rows: float = 1_500_000.0
    collector: float = 0.1  # CPU for keeping memory clean, times live rows over free ones

    def engine_share(self, connections: int) -> float:
        """CPU that is left for operators beside so many connections.

        Quadratic: each connection is a thread, and threads disturb each other.

        >>> [round(Machine().engine_share(n), 2) for n in (0, 8, 12, 18, 36)]
        [1.0, 0.95, 0.9, 0.8, 0.5]
        """
        return 1.0 / (1.0 + (connections / self.connections_half) ** 2)

    def collector_share(self, rows: float) -> float:
        """CPU that the collector leaves: live over free rows, the cost of any copying collector."""
        used = min(rows / self.memory_rows, 0.999)
        return 1.0 / (1.0 + self.collector * used / (1.0 - used))


@dataclass(slots=True)
class Tally:
    """What an operator did since its statistics were last read."""

    rows_in: float = 0.0
    rows_out: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True)
class ConnectedProcessor:
    id: str
    kernel: Kernel
    machine: Machine
    settings: ScheduleSettings
    emit: Emit
    connections: int = 0
    operators: dict[str, CountedOperator] = field(default_factory=dict)
    failed_at: float | None = None
    rows: float = 0.0  # in queues and states
    engine_s: float = 0.0  # in operators
    transfer_s: float = 0.0  # in sending and receiving
    busy_s: float = 0.0  # in both, with what connections and the collector take of the CPU
    tallies: dict[str, Tally] = field(default_factory=dict)
    _shape: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)
    _views: dict[str, OperatorView] = field(default_factory=dict)
    _transfer_due_s: float = 0.0
    _running: str | None = None
    _leaving: dict[str, Callable[[], None]] = field(default_factory=dict)
    _scheduler: Scheduler = field(init=False)

    def __post_init__(self) -> None:
        self._scheduler = Scheduler(self.settings)

    # ---- what the cluster does with it

    def host(
        self, operator: CountedOperator, producers: tuple[str, ...], consumers: tuple[str, ...]
    ) -> None:
        self.operators[operator.id] = operator
        self.rows += operator.queue_rows + operator.state_rows
        self._shape[operator.id] = (producers, consumers)
        self.tallies.setdefault(operator.id, Tally())
        self._look(operator)
        self.wake()

    def release(self, name: str, then: Callable[[], None]) -> None:
        """Lets an operator go as soon as it is between two steps."""
        if self._running == name:
            self._leaving[name] = then
        else:
            self._forget(name)
            then()

    def receive(self, name: str, port: int, batches: list[Batch], *, remote: bool) -> None:
        if self.failed_at is not None:
            return
        operator = self.operators[name]
        operator.queues[port].put(batches)
        count = sum(rows for _, rows in batches)
        self.rows += count
        if remote:
            self.charge_transfer(count, self.machine.receive_s)
        self._look(operator)
        self.wake()

    def charge_transfer(self, rows: float, row_s: float) -> None:
        self._transfer_due_s += rows * row_s

    def wake(self) -> None:
        if self._running is None:
            self._dispatch()

    # ---- inside

    def _forget(self, name: str) -> None:
        operator = self.operators.pop(name)
        self.rows -= operator.queue_rows + operator.state_rows
        del self._shape[name], self._views[name], self.tallies[name]

    def _look(self, operator: CountedOperator) -> None:
        rows = operator.queue_rows
        known = self._views.get(operator.id)
        if known is None or known.rows != rows:
            producers, consumers = self._shape[operator.id]
            self._views[operator.id] = OperatorView(
                operator.id, rows, 0.0, operator.oldest, producers, consumers
            )

    def _dispatch(self) -> None:
        if self.failed_at is not None or not self.operators:
            return
        if self.rows > self.machine.memory_rows:
            self.failed_at = self.kernel.now  # out of memory: nothing runs here any more
            return
        choice = self._scheduler.choose(list(self._views.values()), self.kernel.now)
        if choice is None:
            return
        operator = self.operators[choice.operator]
        self._running = choice.operator
        share = self.machine.engine_share(self.connections)
        share *= self.machine.collector_share(self.rows)
        before = operator.queue_rows + operator.state_rows
        step = operator.step(choice.rows, self.machine.costs)
        self.rows += operator.queue_rows + operator.state_rows - before
        due, self._transfer_due_s = self._transfer_due_s, 0.0
        self.engine_s += step.seconds
        self.transfer_s += due
        seconds = (step.seconds + due) / (share * self.machine.speed)
        self.busy_s += seconds
        self.kernel.after(seconds, lambda: self._finish(choice, step, seconds))

    def _finish(self, choice: Choice, step: CountedStep, seconds: float) -> None:
        name = choice.operator
        tally = self.tallies[name]
        tally.rows_in += step.rows_in
        tally.rows_out += step.rows_out
        tally.seconds += step.seconds
        self._scheduler.report(
            StepReport(
                name,
                step.rows_in,
                step.rows_out,
                seconds,
                self.kernel.now,
                choice.number,
                candidates=step.candidates,
            )
        )
        self._look(self.operators[name])
        if step.output:
            self.emit(name, step.output)
        if leave := self._leaving.pop(name, None):
            self._forget(name)
            leave()
        self._running = None
        self._dispatch()
