"""What a driver and the scheduler say to each other.

The contract, for the real engine and for virtual time alike:

1. The driver calls `Scheduler.choose(views, now)` whenever a slot is free. `views` holds every
   operator of the processor, also those without work: Chain and FIFO need the shape of the plan. A
   view may be handed over again unchanged, so only operators whose queues moved need a new one.
2. The answer is a `Choice`: an operator and how many of its pending rows to take, oldest first. The
   driver may take more or fewer (segments have boundaries) and says so in the report. None means:
   nothing can run now; ask again when rows arrive or a step ends.
3. When the step is done the driver calls `Scheduler.report(report)`; when it failed,
   `Scheduler.abandon(choice)`. Until then the operator is in flight and not chosen again. At most
   `slots` choices are in flight.
4. `now` and all times are seconds on one clock of the driver's, never going back. The scheduler
   reads no clock, starts no thread, touches no data: results cannot depend on its choices.

Scheduling decides order and batch size only. Rows may be fractional: the seed counts pages.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from millstream.core.operator_graph import PlanGraph
from millstream.decide.schedule.facts import OperatorView
from millstream.decide.schedule.quality import Goal, Quality
from millstream.decide.schedule.settings import ScheduleSettings
from millstream.decide.schedule.statistics import StatisticsGatherer


@dataclass(frozen=True, slots=True)
class Pick:
    """What an algorithm would run next; `rows` None leaves the workload to RATIO and THRESHOLD."""

    operator: str
    reason: str
    rows: float | None = None


@dataclass(slots=True)
class Situation:
    """All that an algorithm may look at, gathered by the scheduler."""

    now: float
    views: Sequence[OperatorView]
    by_id: Mapping[str, OperatorView]
    plan: PlanGraph
    statistics: StatisticsGatherer
    settings: ScheduleSettings
    quality: Quality
    goals: Sequence[Goal]  # of all specifications, their weights summing to 1
    # Whether rows of a running step still count as memory: the engine's do until their step is
    # committed, the seed's leave the queue when it starts (section 1.2).
    in_flight_counts: bool = True


class Algorithm(Protocol):
    """Orders operators by preference; may remember, forgets with `reset`.

    `rank` yields picks best first and includes operators without work: taking one of those is what
    the seed calls starvation (section 3.2.4). The scheduler takes the first that can run and then
    tells the algorithm with `ran`.
    """

    name: str

    def rank(self, situation: Situation) -> Iterable[Pick]: ...

    def refresh(self, situation: Situation) -> None:
        """Called when statistics were updated or the plan changed: priorities may be recomputed."""

    def ran(self, pick: Pick, now: float) -> None: ...


@dataclass(slots=True)
class Review:
    """What a selector may look at when the time to score has come."""

    situation: Situation
    current: str | None  # the algorithm in charge; None before the first
    candidates: tuple[str, ...]  # to choose from; without the current one if somebody starves
    scores: Callable[[], Mapping[str, float]]  # equations 5.1 and 5.2; ask once a review
    random: Random
    imagine: Callable[[str], Algorithm]  # a copy of a candidate, to play with
    starved: str | None = None  # the operator whose waiting forced this review

    @property
    def settings(self) -> ScheduleSettings:
        return self.situation.settings


@dataclass(frozen=True, slots=True)
class Workload:
    """RATIO and THRESHOLD (section 4.1), where a selector sets them."""

    ratio: float
    threshold_rows: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The algorithm to run until the next review, and on what workloads."""

    algorithm: str
    reason: str
    review_after_s: float | None = None  # None: the setting
    workload: Workload | None = None  # None: as set


class Selector(Protocol):
    """Chooses the algorithm; asked at reviews only."""

    name: str

    def select(self, review: Review) -> Verdict: ...
