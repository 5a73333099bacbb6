"""The seed's first example in virtual time: three filters, fractions of a tuple, one at a time.

Section 1.2 of seed 001: 'a tuple' is a page, so there are fractions; an operator takes at most one
tuple, works for its fixed time whatever it took, and gives a fixed share. Rows leave the queue when
their operator starts. The same scheduler classes choose.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.decide.schedule import Choice, Delivery, OperatorView, Scheduler, StepReport
from millstream.sim.kernel import Kernel


@dataclass(frozen=True, slots=True)
class PageOperator:
    """An operator of the example; they form a line in the order given."""

    id: str
    selectivity: float
    seconds: float


# Figure 1.1. The third cost is lost with the figure; 0.75 makes FIFO's cycle the two units the text
# describes.
EXAMPLE = (
    PageOperator("O1", 0.9, 1.0),
    PageOperator("O2", 0.1, 0.25),
    PageOperator("O3", 1.0, 0.75),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """The plan at one moment: after completions and arrivals, before the next start."""

    time: float
    queues: tuple[float, ...]
    throughput: float

    @property
    def queued(self) -> float:
        return sum(self.queues)


@dataclass(slots=True)
class PageLine:
    """The line of operators under a scheduler; one tuple arrives each time unit, or more."""

    scheduler: Scheduler
    operators: tuple[PageOperator, ...] = EXAMPLE
    rate: Callable[[int], float] = lambda _: 1.0  # tuples that arrive at time 0, 1, 2, ...
    first_queue_max: float | None = None  # a source queue of limited length drops what is more
    readings: list[Reading] = field(default_factory=list)
    runs: list[tuple[float, str]] = field(default_factory=list)
    first_output: float | None = None
    throughput: float = 0.0

    def run(self, until: int) -> list[Reading]:
        kernel = Kernel()
        queues = [0.0] * len(self.operators)
        oldest: list[float | None] = [None] * len(self.operators)
        names = [operator.id for operator in self.operators]
        busy = False

        def views() -> list[OperatorView]:
            return [
                OperatorView(
                    name,
                    round(queues[i], 9),
                    oldest=oldest[i],
                    producers=(names[i - 1],) if i else (),
                    consumers=(names[i + 1],) if i + 1 < len(names) else (),
                )
                for i, name in enumerate(names)
            ]

        def arrive(time: int) -> None:
            queues[0] += self.rate(time)
            if self.first_queue_max is not None:
                queues[0] = min(queues[0], self.first_queue_max)
            if oldest[0] is None:
                oldest[0] = kernel.now
            kernel.after(0.0, lambda: read(time), priority=2)

        def read(time: int) -> None:
            self.readings.append(Reading(time, tuple(queues), self.throughput))
            dispatch()

        def dispatch() -> None:
            nonlocal busy
            if busy:
                return
            choice = self.scheduler.choose(views(), kernel.now)
            if choice is None:
                return
            busy = True
            index = names.index(choice.operator)
            taken = min(1.0, queues[index])
            born = oldest[index]
            queues[index] -= taken
            if queues[index] <= 1e-9:
                queues[index], oldest[index] = 0.0, None
            self.runs.append((kernel.now, choice.operator))
            kernel.after(self.operators[index].seconds, lambda: finish(choice, index, taken, born))

        def finish(choice: Choice, index: int, taken: float, born: float | None) -> None:
            nonlocal busy
            busy = False
            given = taken * self.operators[index].selectivity
            delivered = Delivery()
            if index + 1 < len(names):
                queues[index + 1] += given
                if oldest[index + 1] is None:
                    oldest[index + 1] = born
            else:
                self.throughput += given
                self.first_output = self.first_output or kernel.now
                delay = kernel.now - (born if born is not None else kernel.now)
                delivered = Delivery(given, given * delay, delay)
            self.scheduler.report(
                StepReport(
                    choice.operator,
                    taken,
                    given,
                    self.operators[index].seconds,
                    kernel.now,
                    choice.number,
                    delivered=delivered,
                    queue_rows=sum(queues),
                )
            )
            kernel.after(0.0, dispatch, priority=3)

        for time in range(until + 1):
            kernel.at(float(time), lambda time=time: arrive(time), priority=1)  # type: ignore[misc]
        kernel.run(until=float(until))
        return self.readings
