"""Cost-aware: operator *and* batch size from measured fixed and marginal costs.

A step costs `fixed + row * n` seconds, and on Spark the fixed part is large (tens of milliseconds
against microseconds a row). An operator is worth

    holding cost got rid of for a second of work  x  share of the step not lost to the fixed cost

The first factor is Klimov's index: Chain's lower envelope, but over holding costs (see `holding`)
instead of row counts, so that it follows the goals. For memory alone it is Chain on marginal costs;
for delay alone it is results a second of work from here to the root. The second factor lets a queue
too short for a step of its own wait while others are worth more; when nothing else has work it runs
at once. The batch is the smallest whose fixed cost is an acceptable share of the step, so that
results flow, and no longer than the longest step wanted; but never below THRESHOLD, and where
memory counts as much as delay not below what RATIO gives either: rows of a step wait in no queue.
Where a rate counts and more waits than can be done soon, batches grow to `COARSER` times that. And
while so much waits, rows too few to carry a step are held for a moment, however dear they are: the
fixed cost of a step for each row of a favoured query would be taken from everybody else.
"""

from collections.abc import Iterator, Sequence
from math import inf

from millstream.decide.schedule.facts import OperatorView
from millstream.decide.schedule.holding import MEMORY, awaited, outlook, weight_of
from millstream.decide.schedule.protocol import Pick, Situation
from millstream.decide.schedule.quality import DELAY
from millstream.decide.schedule.settings import ScheduleSettings
from millstream.decide.schedule.workload import workload

# Operators worth this share of the best count as equal, and the oldest rows go first: rows that
# feed one join must advance together, or its results wait. Where nobody waits for results it is 1.
# And a join whose rows are ahead of what is still below it is worth no more than who is behind.
NEARLY = 0.8
COARSER = 2.5  # times the batch where a rate alone counts, under overload
# Under overload rows are held, counted from when they came: while a step would lose more than this
# to its fixed cost, for so long that the fixed cost is this share of the time, and no longer.
HOLD_LOSS, HOLD_SHARE, HOLD_S_MAX = 0.02, 0.002, 1.0
HELD = 1e-6  # what is held goes after all others


def batch_rows(
    pending: float,
    fixed_s: float,
    row_s: float,
    settings: ScheduleSettings,
    *,
    awaited: bool = True,
    coarse: float = 0.0,
) -> float:
    """Rows for one step: enough to carry the fixed cost, not longer than the longest step.

    >>> settings = ScheduleSettings(overhead_share=0.1, step_s_max=1.0)
    >>> batch_rows(60_000, fixed_s=0.06, row_s=2e-5, settings=settings)
    27000

    A rate is served by larger ones.

    >>> batch_rows(600_000, fixed_s=0.06, row_s=2e-5, settings=settings, coarse=1.0)
    67500
    """
    share = settings.overhead_share
    efficient = fixed_s * (1 - share) / (share * row_s)
    longest = (settings.step_s_max - fixed_s) / row_s
    least = settings.threshold_rows if awaited else workload(pending, settings)
    wanted = max(1.0, min(max(efficient, least), longest))
    if coarse:
        wanted *= COARSER**coarse
    # A remainder smaller than half a batch is taken along: it would not carry a step of its own.
    rows = pending if pending <= 1.5 * wanted else wanted
    if settings.rows_max is not None:
        rows = min(rows, settings.rows_max)
    return round(rows) if 1 < rows < pending else rows


class CostAware:
    name = "cost_aware"

    def __init__(self) -> None:
        self._index: dict[str, float] = {}
        self._cost: dict[str, tuple[float, float]] = {}
        self._nearly = NEARLY
        self._coarse: dict[str, float] = {}  # how large the goals want steps, see `holding`
        self._overload = False
        self._below: dict[str, tuple[str, ...]] = {}  # for joins: who feeds them, however far down
        self._awaited = True  # delay counts more than memory: results shall flow, in small batches

    def rank(self, situation: Situation) -> Iterator[Pick]:
        rows: dict[str, float] = {}

        def worth(view: OperatorView) -> float:
            if view.rows <= 0:
                return -inf
            fixed_s, row_s = self._cost.get(view.id, (0.0, 1e-3))
            rows[view.id] = n = batch_rows(
                view.rows, fixed_s, row_s, situation.settings, awaited=self._awaited,
                coarse=self._coarse.get(view.id, 0.0),
            )  # fmt: skip
            used = row_s * n / (fixed_s + row_s * n)
            if self._overload and 1 - used > HOLD_LOSS and view.oldest is not None:
                hold_s = min(HOLD_S_MAX, fixed_s / HOLD_SHARE)
                used *= HELD if situation.now - view.oldest < hold_s else 1.0
            return self._index.get(view.id, 0.0) * used

        worths = {view.id: worth(view) for view in situation.views}
        first: dict[str, OperatorView] = {}
        for name, below in self._below.items():
            behind = who_is_behind(situation.by_id.get(name), below, situation)
            if behind is not None:
                first[name] = behind
                worths[name] = min(worths[name], worths[behind.id])
        ranked = sorted(
            ((worths[view.id], view) for view in situation.views), key=lambda w: w[0], reverse=True
        )
        near = ranked[0][0] * self._nearly if ranked else 0.0
        close = [pair for pair in ranked if pair[0] >= near > 0]
        close.sort(key=lambda pair: inf if pair[1].oldest is None else pair[1].oldest)
        for value, view in (*close, *ranked[len(close) :]):
            if view.id in first:
                why = f"worth {value:.4g}: {view.id} has rows that are ahead of it"
                yield Pick(first[view.id].id, why, rows.get(first[view.id].id))
            yield Pick(view.id, f"worth {value:.4g}", rows.get(view.id))

    def refresh(self, situation: Situation) -> None:
        statistics, plan = situation.statistics, situation.plan
        self._cost = {view.id: statistics.step_cost(view) for view in situation.views}
        kept = {view.id: statistics.row_selectivity(view) for view in situation.views}
        ahead = outlook(situation)
        waiting, self._coarse, self._overload = ahead.cost, ahead.coarse, ahead.overload > 0
        goals = situation.goals
        memory_alone = weight_of(goals, MEMORY) > 0 and weight_of(goals, DELAY) == 0
        self._nearly = 1.0 if memory_alone else NEARLY
        self._awaited = awaited(goals)
        self._below = {} if memory_alone else fed_by(situation)
        self._index = {}
        for path in plan.paths():
            for start in range(len(path)):
                self._index[path[start]] = max(
                    self._index.get(path[start], -inf),
                    _relief([(self._cost[n][1], kept[n], waiting[n]) for n in path[start:]]),
                )

    def ran(self, pick: Pick, now: float) -> None:
        pass


def fed_by(situation: Situation) -> dict[str, tuple[str, ...]]:
    """For operators in which rows meet: who feeds them, however far down."""
    plan = situation.plan
    return {view.id: plan.subplan(view.id)[1:] for view in situation.views if view.meets}


def who_is_behind(
    view: OperatorView | None, below: Sequence[str], situation: Situation
) -> OperatorView | None:
    """Who below a join has the oldest rows, where they are older than those that wait at it.

    What the join makes of rows that are ahead is next to nothing: their partners are still below.
    """
    if view is None or view.oldest is None or view.rows <= 0:
        return None
    oldest, found = view.oldest, None
    for name in below:
        other = situation.by_id.get(name)
        if other is None or other.oldest is None or other.rows < 1 or not other.runnable:
            continue
        if other.oldest < oldest:
            oldest, found = other.oldest, other
    return found


def _relief(steps: list[tuple[float, float, float]]) -> float:
    """The most holding cost a second of work can get rid of, over (row seconds, kept, cost).

    Work may stop after any operator of the path: what is left then waits there at its cost.

    >>> round(_relief([(1.0, 0.9, 1.0), (0.25, 0.1, 1.0), (0.75, 1.0, 1.0)]), 3)
    0.774
    """
    first_cost = steps[0][2]
    left, spent, best = 1.0, 0.0, -inf
    for position, (row_s, kept, _) in enumerate(steps):
        spent += row_s * left
        left *= kept
        onward = left * steps[position + 1][2] if position + 1 < len(steps) else 0.0
        best = max(best, (first_cost - onward) / max(spent, 1e-12))
    return best
