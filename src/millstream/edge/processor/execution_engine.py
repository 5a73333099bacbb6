"""The execution engine and its scheduler as a processor runs them: a loop, watched over.

Trouble with the machine (a full disk, a lost executor) ends the loop, not the processor: the
processor reports it and restarts the loop, because nothing is lost. It ends only if another process
has taken over its home, or if Spark's Java process has ended: the next process of this home
continues.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from millstream.core.errors import MillstreamError
from millstream.decide.schedule.costs import CostLine
from millstream.edge.telemetry.spans import Spans
from millstream.engine.loop import Loop
from millstream.engine.scheduling.step_scheduler import StepScheduler
from millstream.engine.steps.reports import StepReport
from millstream.store.ledger_file import HomeTakenOverError
from millstream.store.machine_failures import first_line

if TYPE_CHECKING:
    from millstream.engine.processor import Processor

AGAIN_SECONDS = 3.0  # after trouble; twice as long after each that follows soon
AGAIN_SECONDS_MAX = 60.0
QUIET_SECONDS = 60.0  # without trouble, after which the pause is short again
WATCH_SECONDS = 0.2
RESTARTS_KEPT = 1000
UNTYPICAL_STEPS = 3  # an operator's first ones: Spark generates and compiles code
COSTS_KEEP = 0.95  # of the past at each step: half of it is forgotten in 14 steps
FIXED_SECONDS_MAX = 0.2  # what of steps that are all alike is taken as the same for any rows


class ExecutionEngine:
    """Runs steps until it is stopped."""

    def __init__(self, processor: "Processor", say: Callable[[str], None]) -> None:
        self.processor, self._say = processor, say
        self._loop: Loop | None = None
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="millstream-watch", daemon=True)
        self.fenced = threading.Event()  # another process has this home now
        self.lost = threading.Event()  # Spark's Java process has ended
        self.restarts_s: deque[float] = deque(maxlen=RESTARTS_KEPT)  # when it began again
        self._began, self._pause_s = 0.0, AGAIN_SECONDS  # the next pause after trouble
        self.busy_seconds = 0.0
        self.steps = 0
        self._costs: dict[str, tuple[int, CostLine]] = {}  # steps seen, what they cost
        processor.engine.on_step.append(self._count)
        if (spans := Spans.wanted()) is not None:
            processor.engine.on_step.append(spans.step)
        processor.quiesce = self._quiesce

    @property
    def loop(self) -> Loop | None:
        return self._loop

    @property
    def scheduler(self) -> StepScheduler | None:
        return self._loop.scheduler if self._loop is not None else None

    def start(self) -> None:
        self._begin()
        self._watcher.start()

    def _begin(self) -> None:
        self._began = time.monotonic()
        self._loop = Loop(self.processor.engine)
        self.processor.hosting.running = True
        self._loop.start()

    def stop(self) -> None:
        """Finishes the steps in hand."""
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join()
        if self._loop is not None:
            self._loop.stop()
        self.processor.hosting.running = False

    def wake(self) -> None:
        if self._loop is not None:
            self._loop.wake()

    def _quiesce(self, operators: frozenset[str]) -> None:
        if self._loop is not None:
            self._loop.quiesce(operators)

    def _count(self, report: StepReport) -> None:
        self.busy_seconds += report.seconds
        self.steps += 1
        seen, line = self._costs.get(report.operator) or (0, CostLine(COSTS_KEEP))
        if seen >= UNTYPICAL_STEPS:
            line.learn(report.rows_in, report.seconds)
        self._costs[report.operator] = (seen + 1, line)

    def costs(self, operators: Collection[str]) -> dict[str, tuple[float, float]]:
        """Fixed and marginal seconds of steps, as measured; only of these operators."""
        known = dict(self._costs)  # slots go on learning meanwhile
        for gone in known.keys() - set(operators):
            self._costs.pop(gone, None)
        return {
            o: line.parts(FIXED_SECONDS_MAX)
            for o, (_, line) in known.items()
            if o in operators and line.weight
        }

    def _watch(self) -> None:
        """Begins again after trouble with the machine."""
        machine = self.processor.engine.plane.machine
        java = None if machine is None else machine.process()
        while not self._stopping.wait(WATCH_SECONDS):
            loop = self._loop
            if java is not None and java.poll() is not None:
                if loop is not None:
                    loop.suspects.blame()
                self.lost.set()
                return
            if loop is None or loop.failure is None:
                continue
            error: BaseException = loop.failure
            loop.stop()
            self._loop = None
            self._say(f"the engine has stopped: {_words(error)}")
            if isinstance(error, HomeTakenOverError):
                self.fenced.set()
                return
            if time.monotonic() - self._began > QUIET_SECONDS:
                self._pause_s = AGAIN_SECONDS
            deadline = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, AGAIN_SECONDS_MAX)
            while time.monotonic() < deadline and not self._stopping.is_set():
                self._stopping.wait(WATCH_SECONDS)
            if not self._stopping.is_set():
                self.restarts_s.append(time.monotonic())
                self._begin()

    def configure(self, **settings: Any) -> None:
        """New settings; the loop begins again with them."""
        engine = self.processor.engine
        engine.settings_changed(**settings)
        if self._loop is not None and "schedule" in settings and not self._stopping.is_set():
            self._loop.stop()
            self._begin()


def _words(error: BaseException) -> str:
    if isinstance(error, MillstreamError):
        return error.message
    try:
        first = first_line(error)
    except Exception:  # an error of Spark asks its Java process for words, which may be gone
        first = "Spark's Java process does not answer"
    return f"{type(error).__name__}: {first}"
