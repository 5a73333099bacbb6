"""Which query's limit of delay is at risk, and what has to run next for it.

A price cannot promise a limit: it says which query is worth more, not which is late. So a query
with a limit of its own goes before all others as soon as its oldest row has used up half of it,
what is still to be done for the rows that wait included; until then the price of its rows decides
as everywhere. At half of the limit this does what a fixed priority for the query would do, and
leaves the others the time that a fixed priority would take from them for nothing. (A query that
needs most of the processor cannot catch up later. So it is half of the limit times the square of
the share that its rows leave of the processor: a query that needs all of it goes first at once.)
Within the query the oldest rows go first, those nearest to the result among equals. No step can be
interrupted: while there are such limits, no step of any query is planned for longer than a quarter
of the tightest.

Limits that together ask for more than the processor has are kept by descending weight, as many as
fit; the others are out of reach and count by their price alone. Pure; the scheduler asks at every
choice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millstream.decide.schedule.facts import OperatorView
from millstream.decide.schedule.protocol import Pick, Situation
from millstream.decide.schedule.quality import DELAY, Specification

RISK_SHARE = 0.5  # of the limit, from which on a query goes first
STEP_SHARE = 0.25  # of the tightest limit: the longest step of anybody


@dataclass(frozen=True, slots=True)
class Deadline:
    """A query's limit of delay, and the operators that work for it."""

    query: str
    limit_s: float
    seconds: Mapping[str, float]  # by operator: work that one of its rows still needs, to the root
    load: float  # of one slot, as rows come now


def delay_limit_s(specification: Specification) -> float | None:
    """The tightest limit of delay among some goals.

    >>> from millstream.decide.schedule.goal_text import specification_from_text
    >>> delay_limit_s(specification_from_text("delay <= 2s, output_rate maximise 0.3"))
    2.0
    """
    limits = [
        goal.limit
        for goal in specification.goals
        if goal.limit is not None and goal.minimised and goal.statistic in DELAY
    ]
    return min(limits, default=None)


def deadlines(situation: Situation) -> tuple[Deadline, ...]:
    """The limits that can be kept, those of the greatest weight first."""
    wanted = sorted(situation.quality.by_query.items(), key=lambda own: (-own[1][0], own[0]))
    found: list[Deadline] = []
    room = float(situation.settings.slots)
    for query, (_, specification) in wanted:
        limit_s = delay_limit_s(specification)
        if limit_s is None:
            continue
        one = _deadline(situation, query, limit_s)
        if one.load > room and _work_s(one, situation) > limit_s:
            continue  # out of reach: its rows would be late if nobody else were served at all
        room -= one.load
        found.append(one)
    return tuple(found)


def _deadline(situation: Situation, query: str, limit_s: float) -> Deadline:
    statistics, plan = situation.statistics, situation.plan
    seconds: dict[str, float] = {}
    for name in reversed(plan.order):
        view = situation.by_id[name]
        onward = [seconds[c] for c in plan.parents(name) if c in seconds]
        if onward or query in view.queries:
            _, row_s = statistics.step_cost(view)
            seconds[name] = row_s + statistics.row_selectivity(view) * sum(onward)
    rates = statistics.arrival_rates
    load = sum(rates.get(name, 0.0) * cost for name, cost in seconds.items())
    return Deadline(query, limit_s, seconds, load)


def _work_s(one: Deadline, situation: Situation) -> float:
    """What waits for a query, in seconds of work."""
    work = sum(situation.by_id[name].rows * cost for name, cost in one.seconds.items())
    return work / situation.settings.slots


def most_urgent(
    kept: tuple[Deadline, ...], situation: Situation, free: Callable[[OperatorView], bool]
) -> Pick | None:
    """What has to run now for the query that has least time left, if one is at risk."""
    best: tuple[float, Pick] | None = None
    for one in kept:
        pick = _oldest(one, situation, free)
        if pick is None:
            continue
        view, oldest = pick
        spare_s = one.limit_s - (situation.now - oldest) - _work_s(one, situation)
        # Who needs much of the processor cannot catch up later: it may wait for less.
        used = RISK_SHARE * max(0.0, 1 - one.load / situation.settings.slots) ** 2
        if spare_s > one.limit_s * (1 - used) or (best is not None and spare_s >= best[0]):
            continue
        reason = f"{one.query} has {max(0.0, spare_s):.3g} s left of {one.limit_s:g} s"
        best = (spare_s, Pick(view.id, reason, view.rows))
    return None if best is None else best[1]


def _oldest(
    one: Deadline, situation: Situation, free: Callable[[OperatorView], bool]
) -> tuple[OperatorView, float] | None:
    """The operator of a query with the oldest rows that can run, the nearest to its result."""
    depth = situation.plan.depth
    best: tuple[float, int] | None = None
    found: OperatorView | None = None
    for name in one.seconds:
        view = situation.by_id[name]
        if view.oldest is None or not free(view):
            continue
        rank = (view.oldest, -depth[name])
        if best is None or rank < best:
            best, found = rank, view
    return None if found is None or best is None else (found, best[0])


def step_rows_max(kept: tuple[Deadline, ...], situation: Situation, view: OperatorView) -> float:
    """How many rows a step may take so that no kept limit waits for it too long.

    A step that is all fixed cost cannot be shortened: it may take as long again for its rows.
    """
    longest_s = STEP_SHARE * min(one.limit_s for one in kept)
    fixed_s, row_s = situation.statistics.step_cost(view)
    return max(1.0, max(longest_s - fixed_s, fixed_s) / row_s)
