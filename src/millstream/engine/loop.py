"""The loop: which piece of work comes next, in how many threads.

Pieces are ingesting a batch, running an operator's step, delivering a result, compacting a stream.
An operator or stream is in one thread at a time. The loop ends by itself when every finite stream
has ended and nothing is left to do.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Literal as OneOf

from millstream.core.errors import DamageError, MillstreamError
from millstream.decide.schedule.facts import Choice
from millstream.engine.delivering import Delivering
from millstream.engine.engine import Engine
from millstream.engine.quota import REVIEW_SECONDS, SINK_FAILED, review
from millstream.engine.scheduling.idleness import follow_others
from millstream.engine.scheduling.step_scheduler import StepScheduler
from millstream.engine.steps.reports import StepReport
from millstream.engine.steps.trains import Unit, alone
from millstream.engine.troubles.damage import Damage
from millstream.engine.troubles.restarting import Restarting
from millstream.engine.troubles.step_failures import StepFailures, StepsAgain
from millstream.engine.troubles.stopped_sources import StoppedSources, ends_all
from millstream.engine.troubles.suspects import Suspects
from millstream.language.cql.histories import past_of

IDLE_SECONDS = 0.05
LOOK_SECONDS = 0.2
TRY_AGAIN_SECONDS = 60.0  # what was parked or stopped for reasons that somebody may put right


@dataclass(frozen=True, slots=True)
class Piece:
    kind: OneOf["ingest", "step", "suspect", "deliver", "compact", "replace"]
    name: str
    more: frozenset[str] = frozenset()  # what else is busy with it


class Loop:
    """Drives an engine until it is stopped or has nothing more to do."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.finished = threading.Event()
        self.settled = threading.Event()  # all rows that have come so far are processed
        self.failure: BaseException | None = None
        self.steps = 0
        self._stop = threading.Event()
        self._busy: set[str] = set()
        self._changed = threading.Condition(engine.lock)
        self._heard = threading.Condition(threading.Lock())  # never held for longer than a look
        self._news = 0  # how often something has changed
        self._threads: list[threading.Thread] = []
        self._turn = 0
        self._owed = False  # rows to a sink, when all else was finished
        self.scheduler = StepScheduler(engine)
        engine.standings = self.scheduler.scheduler.standings
        self._choices: dict[str, tuple[Choice, Unit]] = {}  # steps in flight
        self._next_look = self._next_review = 0.0
        self._next_try = time.monotonic() + TRY_AGAIN_SECONDS
        self.damage = Damage(engine, self._say)
        self.delivering = Delivering(engine, self.damage, self._say)
        self.stopped_sources = StoppedSources(engine, self._say)
        self.suspects = Suspects(engine, self._say)
        self.restarting = Restarting(engine, self._say)
        self._failures = StepFailures(
            engine,
            self.damage,
            self.suspects,
            StepsAgain(
                self._step, self.scheduler.trains.give_up, lambda: self.steps, self._stop.is_set
            ),
        )

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        # A process may have ended between a delivery and the removal of what it had delivered.
        self.engine.maintenance.retain({d.result.stream for d in self.engine.deliveries})
        self.damage.try_again()
        self.stopped_sources.take_up()
        self.suspects.take_up()
        self.engine.on_arrival.append(self.wake)
        for source in self.engine.sources.values():
            source.start()
        self._threads = [
            threading.Thread(target=self._work, name=f"millstream-slot-{i}", daemon=True)
            for i in range(self.engine.settings.slots)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finishes the pieces in hand, then ends."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        self._hear()
        for thread in self._threads:
            thread.join()
        for source in self.engine.sources.values():
            source.stop()
        if self.wake in self.engine.on_arrival:
            self.engine.on_arrival.remove(self.wake)

    def run(self, tick: Callable[[], None] | None = None, every: float = 0.2) -> None:
        """Runs until all finite input is processed; calls `tick` now and then."""
        self.start()
        try:
            while not self._over(every):
                if tick is not None:
                    tick()
        finally:
            self.stop()
        trouble = self.failure or self.trouble
        if trouble is not None:
            raise trouble

    def _over(self, every: float) -> bool:
        """Whether all is done after so long: also what a sink that was away has kept waiting."""
        if not self.finished.wait(every):
            return False
        if self.failure is not None or not self._owed:
            return True
        if self._owes():
            self._stop.wait(every)
        else:  # it is back, and its query may have work again
            self._owed = False
            self.wake()
        return False

    def _owes(self) -> bool:
        """Whether a sink that has failed is tried again, or its query waits for it.

        Where something is damaged nobody waits: the run ends with that.
        """
        if self.damage.first is not None:
            return False
        waiting = any(
            q.state == "parked" and q.reason.startswith(SINK_FAILED)
            for q in list(self.engine.queries.values())
        )
        return waiting or any(d.problem for d in list(self.engine.deliveries))

    @property
    def trouble(self) -> MillstreamError | None:
        """Why some queries stand still while the others go on."""
        return self.damage.first or self.stopped_sources.first

    def wake(self, *, at_once: bool = True) -> None:
        """Something has changed from outside: a query, rows.

        Whoever says so waits for nothing: the engine's lock may be held for long. What need not be
        seen at once is seen when the loop looks again, at most `IDLE_SECONDS` later.
        """
        with self._heard:
            self._news += 1
            self.finished.clear()
            self.settled.clear()
            if at_once:
                self._heard.notify_all()

    def quiesce(self, operators: frozenset[str]) -> None:
        """Returns when none of the operators is in a step; whoever asks has let them rest."""
        with self._changed:
            while self._busy & operators and not self._stop.is_set():
                self._changed.wait(LOOK_SECONDS)

    # -- work -----------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stop.is_set():
            self._look_after_sources()
            news = self._news
            owes = self._owes()
            with self._changed:
                # asked first: what a table of the past brings after this look is not settled
                read = all(s.ended for n, s in list(self.engine.sources.items()) if past_of(n))
                try:
                    piece = self._next()
                except BaseException as error:  # else nobody would hear of it
                    self._fail(error)
                    return
                if piece is None:
                    settled = read and not self._waits() and self._settled()
                    complete = settled and self._complete()
                    self._owed = self._owed or (complete and owes)
                else:
                    self._busy |= {piece.name, *piece.more}
            if piece is None:
                self._rest(news, settled=settled, complete=complete)
                continue
            try:
                self._do(piece)
            except BaseException as error:
                self._fail(error)
            finally:
                with self._changed:
                    self._busy -= {piece.name, *piece.more}
                    self._changed.notify_all()
                self._hear()

    def _hear(self) -> None:
        """Lets whoever rests look again."""
        with self._heard:
            self._news += 1
            self._heard.notify_all()

    def _rest(self, news: int, *, settled: bool, complete: bool) -> None:
        """Waits for something to do; what has come since one looked is not done yet."""
        with self._heard:
            if news != self._news:
                return
            if settled:
                self.settled.set()
            if complete:
                self.finished.set()
            self._heard.wait(IDLE_SECONDS)

    def _waits(self) -> bool:
        """Whether there will be more to do without anything coming from outside."""
        waits = self.scheduler.holding or self._failures.waits or self.restarting.waits
        waits = waits or self.engine.replacements.waits
        return bool(self._busy) or waits

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            told = isinstance(error, MillstreamError)
            self.failure = error if told else self._machine_gone() or error
        self._stop.set()
        self.settled.set()
        self.finished.set()

    def _machine_gone(self) -> MillstreamError | None:
        machine = self.engine.plane.machine
        return None if machine is None else machine.gone()

    def _look_after_sources(self) -> None:
        """Now and then: has a source failed, has a stream fallen silent?"""
        with self._changed:
            if time.monotonic() < self._next_look:
                return
            self._next_look = time.monotonic() + LOOK_SECONDS
        try:
            for name, source in list(self.engine.sources.items()):
                if source.failure is not None:
                    self._source_failed(name, source.failure)
            follow_others(self.engine)
            if time.monotonic() >= self._next_review:
                self._next_review = time.monotonic() + REVIEW_SECONDS
                review(self.engine, self._say)
                self.restarting.look()
            if time.monotonic() >= self._next_try:
                self._next_try = time.monotonic() + TRY_AGAIN_SECONDS
                self.damage.try_again()
                self.stopped_sources.try_again()
        except BaseException as error:
            self._fail(error)

    def _source_failed(self, name: str, error: BaseException) -> None:
        if ends_all(error) or self._machine_gone() is not None:
            raise error
        self.stopped_sources.stop(name, error)

    def _settled(self) -> bool:
        """Whether finite files are read to their end; sources without end may bring more."""
        return all(i.ended or i.follow for i in self.engine.ingests.values())

    def _complete(self) -> bool:
        return all(i.ended for i in self.engine.ingests.values()) and not self.engine.live_sources()

    def _do(self, piece: Piece) -> None:
        engine = self.engine
        match piece.kind:
            case "ingest":
                self._ingest(piece.name)
            case "step":
                choice, unit = self._choices.pop(piece.name)
                report = None
                self.suspects.in_flight[piece.name] = unit
                try:
                    report = self._step(unit, ceil(choice.rows))
                finally:
                    self.suspects.in_flight.pop(piece.name, None)
                    with self._changed:
                        self.scheduler.finished(choice, report, unit)
            case "suspect":
                unit = alone(engine.operators[piece.name])
                self.suspects.in_flight[piece.name] = unit
                try:
                    self._step(unit, engine.settings.step_rows_max)
                finally:
                    self.suspects.in_flight.pop(piece.name, None)
                self.suspects.clear(piece.name)
            case "deliver":
                names = {piece.name, *piece.more}
                self.delivering.run([d for d in engine.deliveries if str(d.consumer) in names])
            case "replace":
                engine.replacements.switch(piece.name)
            case "compact":
                self._compact(piece.name.removeprefix("compact "))

    def _ingest(self, name: str) -> None:
        ingest = self.engine.ingests.get(name)
        if ingest is None:
            return  # it was taken away just now: the stream moves
        try:
            ingest.advance()
        except MillstreamError as error:
            self._source_failed(name, error)
            return
        self.engine.maintenance.retain([ingest.appender.stream])

    def _step(self, unit: Unit, rows: int) -> StepReport | None:
        engine = self.engine
        working = {o.id for o in unit.operators}
        engine.in_step |= working
        try:
            report = engine.runner.run(unit, rows)
        except Exception as error:
            if any(o.id not in engine.operators for o in unit.operators):
                return None  # a query was dropped meanwhile, and its streams with it
            self._failures.handle(unit, rows, error)
            return None
        finally:
            engine.in_step -= working
        self._failures.succeeded(unit)
        if report is not None:
            self.steps += 1
            for part in report.members:
                self._tell(part)
        engine.maintenance.retain({s for o in unit.operators for s in o.inputs})
        return None if report is None else report.whole

    def _compact(self, stream: str) -> None:
        try:
            self.engine.maintenance.compact(stream)
        except DamageError as error:
            if self.damage.of_ledger(error):
                raise
            self.damage.stop_compaction(stream, error)

    def _say(self, text: str) -> None:
        self.engine.notice(text)

    def _tell(self, report: StepReport) -> None:
        for listener in self.engine.on_step:
            listener(report)

    # -- choice ---------------------------------------------------------------------------------

    def _next(self) -> Piece | None:
        """Steps, as the scheduler chooses; every third time ingest, delivery and compaction.

        While somebody is under suspicion, nothing runs beside it.
        """
        suspect = self.suspects.next()
        self.engine.on_trial = suspect is not None  # rows wait as well
        if suspect is not None:
            return None if self._busy else Piece("suspect", suspect)
        if (taken := self.engine.replacements.ready(self._busy)) is not None:
            return Piece("replace", *taken)
        self._turn += 1
        if self._turn % 3 and (step := self._ready_step()) is not None:
            return step
        order = (self._ready_ingest, self._ready_delivery, self._ready_compaction)
        first = self._turn // 3 % len(order)  # by turns, so that results appear while rows come in
        for look in order[first:] + order[:first]:
            piece = look()
            if piece is not None:
                return piece
        return None if self._turn % 3 else self._ready_step()

    def _ready_step(self) -> Piece | None:
        found = self.scheduler.choose(self._busy | self._failures.resting())
        if found is None:
            return None
        choice, unit = found
        self._choices[choice.operator] = found
        return Piece("step", choice.operator, frozenset(unit.busy()))

    def _ready_ingest(self) -> Piece | None:
        for name, ingest in self.engine.ingests.items():
            if name not in self._busy and ingest.ready() and not self.engine.congested():
                # streams take turns: a join needs both
                self.engine.ingests[name] = self.engine.ingests.pop(name)
                return Piece("ingest", name)
        return None

    def _ready_delivery(self) -> Piece | None:
        names = [str(d.consumer) for d in self.delivering.due(self._busy)]
        return Piece("deliver", names[0], frozenset(names[1:])) if names else None

    def _ready_compaction(self) -> Piece | None:
        for stream in self.engine.maintenance.grown():
            if stream in self.damage.streams:
                continue
            name = f"compact {stream}"
            if name not in self._busy and self.engine.maintenance.compactable(stream):
                return Piece("compact", name)
        return None
