"""How well each algorithm has served the goals: equations 5.1 and 5.2 of the seed.

Pure: from the gatherer's views and a quality to a score in 0 to 1 an algorithm. An algorithm of
which nothing is known scores 0.5, the middle.
"""

from collections.abc import Mapping

from millstream.decide.schedule.quality import Goal, Quality, Specification, Standing
from millstream.decide.schedule.statistics import OVERALL, PLAN, StatisticsGatherer, query_object

MIDDLE = 0.5
DELAYS = ("delay", "delay_max")
FORETOLD_S_MAX = 300.0  # what lies further ahead is not told


def normalised(mean: float, history: float, least: float, greatest: float, faded: float) -> float:
    """Equation 5.1, z in 0 to 1. As printed it lies in -0.5 to 1.5: hence the clamp.

    Fading draws towards the middle, not towards 0.

    >>> normalised(8.0, 5.0, 0.0, 10.0, 1.0), normalised(8.0, 5.0, 0.0, 10.0, 0.5)
    (0.8, 0.65)
    >>> normalised(3.0, 3.0, 3.0, 3.0, 1.0)
    0.5
    """
    if greatest <= least:
        return MIDDLE
    return min(1.0, max(0.0, (mean - history) / (greatest - least) * faded + MIDDLE))


def goal_score(
    goal: Goal, statistics: StatisticsGatherer, view: str, subject: str, faded: float
) -> float:
    """How good an algorithm's view is for one goal; a limit is judged by attainment."""
    own = statistics.series(goal.statistic, view, subject)
    history = statistics.series(goal.statistic, OVERALL, subject)
    if own is None or history is None:
        return MIDDLE
    if goal.limit is not None:
        return (goal.attainment(own.average) - MIDDLE) * faded + MIDDLE
    z = normalised(own.average, history.average, history.least, history.greatest, faded)
    return 1 - z if goal.minimised else z


def specification_score(
    specification: Specification,
    statistics: StatisticsGatherer,
    view: str,
    subject: str = PLAN,
    faded: float = 1.0,
) -> float:
    """Equation 5.2."""
    return sum(
        goal.weight * goal_score(goal, statistics, view, subject, faded)
        for goal in specification.goals
    )


def quality_score(
    quality: Quality, statistics: StatisticsGatherer, view: str, faded: float = 1.0
) -> float:
    """The score over the global and all queries' specifications, by their weights."""
    total = quality.weight
    score = quality.weight * specification_score(quality.overall, statistics, view, PLAN, faded)
    for query, (weight, specification) in quality.by_query.items():
        total += weight
        score += weight * specification_score(
            specification, statistics, view, query_object(query), faded
        )
    return score / total


def standings(quality: Quality, statistics: StatisticsGatherer) -> list[Standing]:
    """Every goal beside its measured value, and whether its limit is met."""
    specifications: list[tuple[str | None, Specification]] = [(None, quality.overall)]
    specifications += [(query, spec) for query, (_, spec) in quality.by_query.items()]
    found: list[Standing] = []
    for query, specification in specifications:
        subject = PLAN if query is None else query_object(query)
        for goal in specification.goals:
            value = measured(goal, statistics, subject)
            met = goal.met(value)
            soon = _misses_in_s(goal, statistics, subject) if met else None
            found.append(Standing(query, goal, value, met, soon))
    return found


def measured(goal: Goal, statistics: StatisticsGatherer, subject: str) -> float | None:
    """The value of a goal: its average, and of a query's delay what waiting rows have waited.

    Results tell a delay only when they come: a query that gives none would meet every limit.
    """
    series = statistics.series(goal.statistic, OVERALL, subject)
    value = None if series is None else series.average
    if goal.limit is None or goal.statistic not in DELAYS or subject == PLAN:
        return value
    waiting = statistics.series("oldest", OVERALL, subject)
    if waiting is None or waiting.last_at != statistics.updated_at:
        return value
    if value is None:
        return waiting.last if waiting.last > goal.limit else None
    return max(value, waiting.last) if waiting.last > goal.limit else value


def _misses_in_s(goal: Goal, statistics: StatisticsGatherer, subject: str) -> float | None:
    """When a limit that is met will not be, if things go on as they do; None where it will."""
    if goal.limit is None:
        return None
    names = (goal.statistic, "oldest") if goal.statistic in DELAYS else (goal.statistic,)
    soon = []
    for name in names:
        series = statistics.series(name, OVERALL, subject)
        if series is None or series.last_at != statistics.updated_at:
            continue
        falls = series.trend.slope < 0
        seconds = series.trend.seconds_to(goal.limit)
        if seconds is not None and falls != goal.minimised and seconds <= FORETOLD_S_MAX:
            soon.append(seconds)
    return min(soon, default=None)


class ScoreBoard:
    """The scores of all algorithms, with the seed's trick: the one that has just run keeps its own.

    Whoever runs long becomes its own yardstick, because the history is then mostly its own; so at
    each review every algorithm *but* the one that ran is scored anew, and the runner's old score
    fades (section 5.2, 'to overcome this problem').
    """

    def __init__(self) -> None:
        self._scores: dict[str, float] = {}
        self._ran_at: dict[str, float] = {}
        self._ran_choice: dict[str, int] = {}
        self._choices = 0

    @property
    def scores(self) -> Mapping[str, float]:
        """As of the last review."""
        return self._scores

    def chosen(self, algorithm: str, now: float) -> None:
        self._choices += 1
        self._ran_at[algorithm] = now
        self._ran_choice[algorithm] = self._choices

    def faded(self, algorithm: str, now: float, decay: float, decay_by: str) -> float:
        """decay ** time, time in seconds or in choices since the algorithm ran."""
        if algorithm not in self._ran_at:
            return 1.0
        if decay_by == "choices":
            return float(decay ** (self._choices - self._ran_choice[algorithm]))
        return float(decay ** (now - self._ran_at[algorithm]))

    def review(
        self,
        candidates: tuple[str, ...],
        current: str | None,
        quality: Quality,
        statistics: StatisticsGatherer,
        now: float,
        decay: float,
        decay_by: str,
    ) -> Mapping[str, float]:
        """New scores for all but the current algorithm, whose old one fades by one step."""
        scores: dict[str, float] = {}
        for algorithm in candidates:
            if algorithm == current:
                old = self._scores.get(algorithm, MIDDLE)
                scores[algorithm] = (old - MIDDLE) * decay + MIDDLE
            else:
                faded = self.faded(algorithm, now, decay, decay_by)
                scores[algorithm] = quality_score(quality, statistics, algorithm, faded)
        self._scores = scores
        return scores
