"""The scheduler of one processor: asks the algorithm, keeps statistics, lets the selector review.

A facade over algorithms, selectors, statistics and goals that both drivers use, the engine on Spark
and the simulator. It decides from the views it is given and nothing else; see `protocol` for the
contract. The same views, reports and times give the same choices.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from copy import copy
from random import Random

from millstream.core.operator_graph import PlanGraph
from millstream.decide.schedule import scoring
from millstream.decide.schedule.algorithms import ALGORITHMS
from millstream.decide.schedule.facts import Choice, OperatorView, StepReport, Switch
from millstream.decide.schedule.limits import Deadline, deadlines, most_urgent, step_rows_max
from millstream.decide.schedule.plans import graph_of
from millstream.decide.schedule.protocol import (
    Algorithm,
    Pick,
    Review,
    Selector,
    Situation,
    Verdict,
)
from millstream.decide.schedule.quality import DEFAULT, Quality, Specification, Standing
from millstream.decide.schedule.selectors import SELECTORS
from millstream.decide.schedule.settings import ScheduleSettings
from millstream.decide.schedule.statistics import OVERALL, PLAN, StatisticsGatherer
from millstream.decide.schedule.workload import with_workload, workload

KEEPS_ORDER = "foresight"  # the selector that does not change the algorithm for who starves
STARVED_SHARE = 0.05  # of the time, for operators that starve under it
GOAL_AWARE = {"cost_aware", "priced"}  # the algorithms that steer by the queries' goals


class Scheduler:
    """Chooses operator and workload for one processor.

    >>> scheduler = Scheduler(ScheduleSettings(candidates=("mtiq",), selector="fixed"))
    >>> views = [OperatorView("a", 3, consumers=("b",)), OperatorView("b", 8)]
    >>> choice = scheduler.choose(views, now=0.0)
    >>> choice.operator, choice.rows, choice.reason
    ('b', 8, '8 rows queued')
    >>> scheduler.choose(views, now=0.0) is None  # one slot, and it is taken
    True
    """

    def __init__(
        self, settings: ScheduleSettings | None = None, quality: Quality = DEFAULT
    ) -> None:
        self.settings = settings or ScheduleSettings()
        self.statistics = StatisticsGatherer(self.settings.old_weight)
        self.in_flight_counts = True  # a driver whose queues forget running rows says so
        self._workload = self.settings  # with RATIO and THRESHOLD as the selector wants them
        self.trace: deque[Choice | Switch] = deque(maxlen=self.settings.trace_length)
        self.switches = 0
        self.starvation: dict[str, int] = {}  # picks without work, by algorithm
        self.seconds_in_charge: dict[str, float] = {}
        # What goals cost the others: by query with goals of its own, seconds of its steps that went
        # before older rows of others.
        self.went_before_s: dict[str, float] = {}
        self._before: set[int] = set()  # choices in flight that do
        self._began: float | None = None
        self._selector: Selector = SELECTORS.get(self.settings.selector)()
        self._algorithms: dict[str, Algorithm] = {
            name: ALGORITHMS.get(name)() for name in self.settings.candidates
        }
        self._board = scoring.ScoreBoard()
        self._random = Random(self.settings.seed)
        self._algorithm: Algorithm | None = None
        self._in_charge_since = 0.0
        self._review_at = 0.0
        self._no_alarm_before = 0.0
        self._plan: PlanGraph | None = None
        self._edges: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
        self._in_flight: dict[str, Choice] = {}
        self._waiting_since: dict[str, float] = {}
        self._number = 0
        self._stale = True
        # One of the seed's algorithms that was named alone runs as it is.
        aware = not GOAL_AWARE.isdisjoint(self.settings.candidates)
        self._guards = self.settings.selector != "fixed" or aware
        self._kept: tuple[Deadline, ...] = ()
        self._abandoned: dict[str, float] = {}  # when a step was chosen that came to nothing
        self._quality = quality
        self.set_quality(quality)

    # ---- what the driver calls

    def choose(self, views: Sequence[OperatorView], now: float) -> Choice | None:
        """The next operator and its workload, or None when nothing can run."""
        situation = self._look(views, now)
        if len(self._in_flight) >= self.settings.slots:
            return None
        starved = self._overlooked(now)
        if starved is not None and self._algorithm is not None and self._keeps_order():
            self._no_alarm_before = now + self.settings.scoring_s
            rows = self._rows_for_the_starved(situation.by_id[starved])
            return self._take(self._algorithm, Pick(starved, "starves", rows), situation)
        if self._algorithm is None or now >= self._review_at or starved is not None:
            self._review(situation, starved)
        elif self._due(now):
            self.statistics.update(now, self._algorithm.name, situation.plan.leaves)
            self._stale = True
        if self._stale:
            for algorithm in self._algorithms.values():
                algorithm.refresh(situation)
            self._stale = False
            self._kept = deadlines(situation) if self._guards else ()
        if self._kept and self._algorithm is not None:
            urgent = most_urgent(self._kept, situation, self._may_go_first)
            if urgent is not None:
                return self._take(self._algorithm, urgent, situation)
        overdue = self._overdue(situation)
        if overdue is not None and self._algorithm is not None:
            return self._take(self._algorithm, overdue, situation)
        return self._ask(situation)

    def report(self, report: StepReport) -> None:
        """A step is done."""
        choice = self._in_flight.pop(report.operator, None)
        current = self._algorithm.name if self._algorithm else self.settings.candidates[0]
        self.statistics.step(report, choice.algorithm if choice else current)
        if choice is not None and choice.number in self._before:
            self._before.discard(choice.number)
            self._charge(report)
        if self._plan is not None and report.operator not in self._plan.depth:
            self.statistics.forget([report.operator])  # it left the plan while its step ran

    def abandon(self, choice: Choice) -> None:
        """A step failed or was given up: its operator may be chosen again."""
        self._before.discard(choice.number)
        self._abandoned[choice.operator] = choice.at
        self._in_flight.pop(choice.operator, None)

    # ---- what an administrator calls

    @property
    def quality(self) -> Quality:
        return self._quality

    def set_quality(self, quality: Quality | Specification) -> None:
        """New goals, from now on; statistics and scores of the past are judged by them too."""
        if isinstance(quality, Specification):
            quality = Quality(quality)
        for goal in quality.goals:
            self.statistics.plan_statistic(goal.statistic)
        self._quality = quality
        self._goals = quality.goals
        self.statistics.watched = frozenset(quality.by_query)
        self._stale = True

    def in_charge(self, now: float) -> dict[str, float]:
        """Seconds each algorithm has been in charge."""
        spent = dict(self.seconds_in_charge)
        if self._algorithm is not None:
            name = self._algorithm.name
            spent[name] = spent.get(name, 0.0) + max(0.0, now - self._in_charge_since)
        return spent

    def starving(self, now: float) -> dict[str, float]:
        """Operators whose work was passed over past the threshold, and for how long."""
        limit = self.settings.starvation_wait_s
        if limit is None:
            return {}
        return {
            name: now - since for name, since in self._waiting_since.items() if now - since > limit
        }

    def catch_up(self, now: float) -> None:
        """Measures the results of an interval that no choice has closed yet.

        Intervals end when the driver asks for a choice. A run that ends, or has nothing to choose
        from, would otherwise say of its goals what it knew before its last results.
        """
        if self._algorithm is None or self._plan is None or not self.statistics.unmeasured_rows:
            return
        if self._due(now) or self.statistics.series("delay", OVERALL, PLAN) is None:
            self.statistics.update(now, self._algorithm.name, self._plan.leaves)
            self._stale = True

    def standings(self) -> list[Standing]:
        """Every goal beside its measured value, and whether its limit is met."""
        return scoring.standings(self._quality, self.statistics)

    def costs_others(self, now: float) -> dict[str, float]:
        """Of queries with own goals: the part of time in which they went before older rows."""
        elapsed = max(1e-9, now - self._began) if self._began is not None else 1.0
        return {name: spent / elapsed for name, spent in self.went_before_s.items()}

    @property
    def algorithm(self) -> str | None:
        """The name of the algorithm in charge."""
        return self._algorithm.name if self._algorithm else None

    @property
    def scores(self) -> Mapping[str, float]:
        """The algorithms' scores at the last review; none where the selector asks for none."""
        return self._board.scores

    @property
    def in_flight(self) -> tuple[str, ...]:
        return tuple(self._in_flight)

    # ---- inside

    def _look(self, views: Sequence[OperatorView], now: float) -> Situation:
        edges = [(view.id, view.producers, view.consumers) for view in views]
        if self._plan is None or edges != self._edges:
            gone = {name for name, *_ in self._edges} - {name for name, *_ in edges}
            self.statistics.forget(gone)
            for name in gone:
                self._abandoned.pop(name, None)
                self._waiting_since.pop(name, None)
            self._plan, self._edges, self._stale = graph_of(views), edges, True
        by_id = {view.id: view for view in views}
        rows = 0.0
        waiting = self._waiting_since
        for view in views:
            rows += view.rows
            if view.rows > 0 and view.runnable and view.id not in self._in_flight:
                waiting.setdefault(view.id, now)
            else:
                waiting.pop(view.id, None)
        self.statistics.observe(by_id, rows, now)
        return Situation(
            now, views, by_id, self._plan, self.statistics, self._workload, self._quality,
            self._goals, self.in_flight_counts,
        )  # fmt: skip

    def _due(self, now: float) -> bool:
        updated = self.statistics.updated_at
        return updated is None or now - updated >= self.settings.statistics_s - 1e-9

    def _overlooked(self, now: float) -> str | None:
        """The operator whose work has been passed over past the threshold, if any."""
        limit = self.settings.starvation_wait_s
        if limit is None or len(self._algorithms) == 1 or now < self._no_alarm_before:
            return None
        for name, since in self._waiting_since.items():
            if now - since > limit:
                return name
        return None

    def _keeps_order(self) -> bool:
        """Whether who starves gets a step, and the algorithm in charge stays.

        The seed changes the algorithm (section 3.2.4). The one that weighs rows by the goals passes
        some over for good reason under overload: two seconds of another leave rows half-way in the
        plan that cost the queries more than the one who starved gains.
        """
        current = self._algorithm.name if self._algorithm is not None else ""
        return self.settings.selector == KEEPS_ORDER and current in GOAL_AWARE

    def _rows_for_the_starved(self, view: OperatorView) -> float:
        """As many as leave the others their share of the time until the next alarm."""
        fixed_s, row_s = self.statistics.step_cost(view)
        spare_s = STARVED_SHARE * self.settings.scoring_s - fixed_s
        return min(view.rows, max(1.0, float(round(spare_s / row_s))))

    def _overdue(self, situation: Situation) -> Pick | None:
        """The work that has waited longest, where that is longer than anybody should.

        An algorithm that weighs rows against the cost of a step passes over a queue of few rows for
        as long as others are longer; what few rows carry may be a whole window's result.
        """
        limit = self.settings.patience_s
        if limit is None or not self._waiting_since:
            return None
        name, since = min(self._waiting_since.items(), key=lambda item: (item[1], item[0]))
        waited = situation.now - since
        if waited <= limit:
            return None
        rows = situation.by_id[name].rows
        most = self.settings.rows_max
        return Pick(name, f"has waited {waited:.1f} s", rows if most is None else min(rows, most))

    def _review(self, situation: Situation, starved: str | None) -> Algorithm:
        now = situation.now
        before = self.algorithm
        if before is not None:
            self.statistics.update(now, before, situation.plan.leaves)
            self._board.chosen(before, now)
        for member in self._algorithms.values():
            member.refresh(situation)
        self._stale = False
        self._kept = deadlines(situation) if self._guards else ()
        situation.settings = self.settings
        verdict = self._selector.select(self._review_of(situation, before, starved))
        reason = f"{starved} starves; {verdict.reason}" if starved else verdict.reason
        if starved is not None:
            self._waiting_since[starved] = now  # a new chance before the next alarm
            # Under overload everybody waits long: one alarm an interval is enough.
            self._no_alarm_before = now + self.settings.scoring_s
        if verdict.algorithm != before:
            self.switches += 1
        algorithm = self._install(verdict, before, reason, now)
        situation.settings = self._workload
        return algorithm

    def _install(self, verdict: Verdict, before: str | None, reason: str, now: float) -> Algorithm:
        if before is not None:
            spent = self.seconds_in_charge.get(before, 0.0)
            self.seconds_in_charge[before] = spent + now - self._in_charge_since
        self._in_charge_since = now
        self._algorithm = algorithm = self._algorithms[verdict.algorithm]
        self._workload = with_workload(self.settings, verdict.workload)
        wait = verdict.review_after_s
        self._review_at = now + (self.settings.scoring_s if wait is None else wait)
        self.trace.append(Switch(now, before, verdict.algorithm, reason))
        return algorithm

    def _review_of(self, situation: Situation, current: str | None, starved: str | None) -> Review:
        settings = self.settings

        def scores() -> Mapping[str, float]:
            return self._board.review(
                settings.candidates, current, self._quality, self.statistics,
                situation.now, settings.decay, settings.decay_by,
            )  # fmt: skip

        # An algorithm under which somebody starves must go (section 3.2.4).
        others = tuple(name for name in settings.candidates if name != current)
        candidates = others if starved is not None and others else settings.candidates
        return Review(situation, current, candidates, scores, self._random, self._imagine, starved)

    def _imagine(self, candidate: str) -> Algorithm:
        return copy(self._algorithms[candidate])

    def _ask(self, situation: Situation) -> Choice | None:
        algorithm = self._algorithm
        assert algorithm is not None
        most = self.settings.starvation_picks_max
        for barren, pick in enumerate(algorithm.rank(situation), start=1):
            if self._can_run(situation.by_id[pick.operator]):
                self._count_barren(algorithm, barren - 1)
                return self._take(algorithm, pick, situation)
            if barren >= most and len(self._algorithms) > 1:
                self._count_barren(algorithm, barren)
                successor = self._review(situation, pick.operator)
                break
        else:
            return None
        # The algorithm was changed for its barren picks; its successor is given all the time.
        successor.refresh(situation)
        for pick in successor.rank(situation):
            if self._can_run(situation.by_id[pick.operator]):
                return self._take(successor, pick, situation)
        return None

    def _count_barren(self, algorithm: Algorithm, picks: int) -> None:
        """Picks without work, while another operator had some: the seed's starvation."""
        if picks:
            self.starvation[algorithm.name] = self.starvation.get(algorithm.name, 0) + picks

    def _charge(self, report: StepReport) -> None:
        """Notes a step that went before older rows for the queries with goals of their own."""
        view = self.statistics.view(report.operator)
        mine = [q for q in view.queries if q in self._quality.by_query] if view else []
        for query in mine:
            spent = self.went_before_s.get(query, 0.0)
            self.went_before_s[query] = spent + report.seconds / len(mine)

    def _goes_before(self, view: OperatorView, views: Sequence[OperatorView]) -> bool:
        """Whether older rows of others could run instead."""
        if view.oldest is None or not any(q in self._quality.by_query for q in view.queries):
            return False
        mine = set(view.queries)
        return any(
            other.oldest is not None
            and other.oldest < view.oldest
            and self._can_run(other)
            and mine.isdisjoint(other.queries)
            for other in views
        )

    def _may_go_first(self, view: OperatorView) -> bool:
        """Whether an urgent step may go before all others: not where one just came to nothing."""
        last = self._abandoned.get(view.id)
        seen = self.statistics.observed_at
        patient = last is None or seen is None or seen - last >= self.settings.statistics_s
        return patient and self._can_run(view)

    def _can_run(self, view: OperatorView) -> bool:
        return view.rows > 0 and view.runnable and view.id not in self._in_flight

    def _take(self, algorithm: Algorithm, pick: Pick, situation: Situation) -> Choice:
        view, now = situation.by_id[pick.operator], situation.now
        rows = workload(view.rows, self._workload) if pick.rows is None else pick.rows
        if self._kept:
            most = step_rows_max(self._kept, situation, view)
            rows = min(rows, most if most >= view.rows else float(round(most)))
        if self.settings.rows_max is not None:
            rows = min(rows, self.settings.rows_max)
        self._number += 1
        choice = Choice(self._number, view.id, rows, now, algorithm.name, pick.reason)
        if self._quality.by_query and self._goes_before(view, situation.views):
            self._before.add(choice.number)
        if self._began is None:
            self._began = now
        self._in_flight[view.id] = choice
        self._waiting_since.pop(view.id, None)
        algorithm.ran(pick, now)
        self.trace.append(choice)
        return choice
