"""Foresight: plays every candidate forward on what was measured, and takes the one that ends best.

The wheel learns from windows of two seconds, in which each algorithm inherits the queues its
predecessor left; it pays for exploring and credits the wrong one. But what an algorithm will do
with the present queues can be computed: costs, selectivities and arrival rates are measured. So at each
review every candidate's own code is run on imagined queues for a few seconds, rows flowing as
fractions, and its holding costs (see `holding`) are added up. Taking the best of several policies
played from the present state does at least as well as the best of them kept for ever, as far as the
model holds (rollout). The work of a review is bounded.

No chance is involved, and nothing needs to be explored.
"""

from dataclasses import replace

from millstream.schedule.holding import Outlook, outlook
from millstream.schedule.protocol import Algorithm, OperatorView, Review, Situation, Verdict
from millstream.schedule.workload import workload

BETTER = 0.98  # a change of algorithm must promise at least this improvement
VIEWS_MAX = 20_000  # operator views looked at in one review, whatever the plan's size


class Foresight:
    name = "foresight"

    def select(self, review: Review) -> Verdict:
        situation = review.situation
        candidates = review.candidates
        if review.starved is not None and len(candidates) > 1:
            candidates = tuple(name for name in candidates if name != review.current)
        if review.current is None or situation.statistics.series("queue_rows") is None:
            return Verdict(candidates[0], "nothing measured yet", review.settings.statistics_s)
        if len(candidates) == 1:
            return Verdict(candidates[0], "the only candidate")
        ahead = outlook(situation)
        steps = VIEWS_MAX // (len(candidates) * max(1, len(situation.views)))
        steps = max(5, min(review.settings.foresight_steps_max, steps))
        costs = {
            name: foreseen_cost(review.imagine(name), situation, ahead, steps)
            for name in candidates
        }
        best = min(candidates, key=lambda name: (costs[name], candidates.index(name)))
        current = review.current
        if current in costs and costs[best] > BETTER * costs[current]:
            best = current
        return Verdict(best, f"foreseen cost {costs[best]:.4g} in {_told(costs)}")


def _told(costs: dict[str, float]) -> str:
    return ", ".join(f"{name} {cost:.4g}" for name, cost in costs.items())


def foreseen_cost(
    algorithm: Algorithm, situation: Situation, ahead: Outlook, steps_max: int
) -> float:
    """Holding cost a second, over the horizon, if this algorithm were in charge."""
    statistics, plan = situation.statistics, situation.plan
    views = {view.id: view for view in situation.views}
    start, now = situation.now, situation.now
    end = now + situation.settings.horizon_s
    arrivals = {leaf: statistics.arrival_rates.get(leaf, 0.0) for leaf in plan.leaves}
    kept = {name: statistics.row_selectivity(view) for name, view in views.items()}
    cost = {name: statistics.step_cost(view) for name, view in views.items()}
    total = 0.0
    for _ in range(steps_max):
        if now >= end:
            break
        taken = _first(algorithm, replace_views(situation, views, now))
        if taken is None:
            elapsed = _until_work(arrivals, end - now)
            total += elapsed * _stock(views, ahead)
            _arrive(views, arrivals, now, elapsed)
            now += elapsed
            continue
        name, rows = taken
        fixed_s, row_s = cost[name]
        elapsed = fixed_s + row_s * rows
        total += elapsed * _stock(views, ahead)
        view = views[name]
        views[name] = replace(view, rows=max(0.0, view.rows - rows), oldest=_after(view, rows, now))
        _arrive(views, arrivals, now, elapsed)
        for consumer in plan.consumers[name]:
            fed = views[consumer]
            oldest = fed.oldest if fed.rows > 1e-9 else view.oldest
            views[consumer] = replace(fed, rows=fed.rows + rows * kept[name], oldest=oldest)
        now += elapsed
    # What is left would go on costing: about half of the time its work takes.
    left = sum(view.rows * ahead.seconds[name] for name, view in views.items())
    total += 0.5 * left * _stock(views, ahead)
    return total / max(now - start, 1e-9)


def replace_views(situation: Situation, views: dict[str, OperatorView], now: float) -> Situation:
    return Situation(
        now,
        list(views.values()),
        views,
        situation.plan,
        situation.statistics,
        situation.settings,
        situation.goals,
    )


def _first(algorithm: Algorithm, situation: Situation) -> tuple[str, float] | None:
    for pick in algorithm.rank(situation):
        view = situation.by_id[pick.operator]
        if view.rows > 0.5 and view.runnable:
            rows = workload(view.rows, situation.settings) if pick.rows is None else pick.rows
            algorithm.ran(pick, situation.now)
            return pick.operator, min(rows, view.rows)
    return None


def _stock(views: dict[str, OperatorView], ahead: Outlook) -> float:
    return sum(view.rows * ahead.cost[name] for name, view in views.items())


def _after(view: OperatorView, rows: float, now: float) -> float | None:
    """The oldest row once some are taken: rows came evenly since the oldest."""
    if view.oldest is None or rows >= view.rows:
        return None
    return view.oldest + (now - view.oldest) * rows / view.rows


def _until_work(arrivals: dict[str, float], most: float) -> float:
    rate = max(arrivals.values(), default=0.0)
    return min(most, 1.0 / rate) if rate > 0 else most


def _arrive(
    views: dict[str, OperatorView], arrivals: dict[str, float], now: float, elapsed: float
) -> None:
    for leaf, rate in arrivals.items():
        if rate > 0:
            view = views[leaf]
            oldest = view.oldest if view.oldest is not None else now
            views[leaf] = replace(view, rows=view.rows + rate * elapsed, oldest=oldest)
