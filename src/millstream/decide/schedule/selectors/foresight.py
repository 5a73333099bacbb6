"""Foresight: plays every candidate forward on what was measured, and takes the one that ends best.

The wheel learns from windows of two seconds, in which each algorithm inherits the queues its
predecessor left; it pays for exploring and credits the wrong one. But what an algorithm will do
with the present queues can be computed: costs, selectivities and arrival rates are measured. So at
each review every candidate's own code is run on imagined queues for a few seconds, rows flowing as
fractions, and its holding costs (see `holding`) are added up. Taking the best of several policies
played from the present state does at least as well as the best of them kept for ever, as far as the
model holds (rollout). The work of a review is bounded.

RATIO and THRESHOLD are set beside the algorithm, by the goals and the measured costs of steps (see
`workload`): the seed keeps them fixed and leaves adapting them to future work (section 4.1).

No chance is involved, and nothing needs to be explored: the algorithm in charge changes only where
another promises clearly less, and that is seldom, as the priced one steers by the same costs.

What cannot be foreseen is judged by what was seen. Goals over statistics other than queues, delays
and rates (a user's own, or how busy a processor is) have no holding cost; where they weigh more
than the others, each algorithm runs once and then the one with the highest score by equations 5.1
and 5.2 is in charge, until another's is clearly higher.
"""

from collections.abc import Sequence
from typing import cast

from millstream.decide.schedule.facts import OperatorView
from millstream.decide.schedule.holding import MEMORY, RATE, Outlook, outlook
from millstream.decide.schedule.protocol import Algorithm, Review, Situation, Verdict
from millstream.decide.schedule.quality import DELAY, Goal
from millstream.decide.schedule.selectors.exploration import Exploration
from millstream.decide.schedule.workload import adapted_workload, workload

# These steer by the same costs, and the first of them among the candidates is the one to beat:
# models err, so another must promise this much less than it, and any change this much less than
# staying.
HOMES, HOME_LESS, STAY_LESS = ("priced", "cost_aware"), 0.8, 0.98
SCORE_MORE = 0.02  # by which a score must be higher than that of the algorithm in charge
VIEWS_MAX = 10_000  # operator views looked at in one review, whatever the plan's size


class Foresight:
    name = "foresight"

    def __init__(self) -> None:
        self._exploration = Exploration()

    def select(self, review: Review) -> Verdict:
        if review.situation.statistics.series("queue_rows") is None or review.current is None:
            first = review.candidates[-1]
            return Verdict(first, "nothing measured yet", review.settings.statistics_s)
        if len(review.candidates) > 1 and unforeseen(review.situation.goals) > 0.5:
            return self._by_score(review, review.current)
        best, reason = _least_cost(review, review.current)
        if not review.settings.adapt_workload:
            return Verdict(best, reason)
        wanted = adapted_workload(review.situation)
        told = f"ratio {wanted.ratio:.3g}, threshold {wanted.threshold_rows:.3g}"
        return Verdict(best, f"{reason}; {told}", workload=wanted)

    def _by_score(self, review: Review, current: str) -> Verdict:
        """For goals that have no holding cost: what served them best so far."""
        scores = review.scores()
        explored = self._exploration.next(review)
        if explored is not None:
            return explored
        best = max(review.candidates, key=lambda name: (scores[name], name))
        if current in review.candidates and scores[best] < scores[current] + SCORE_MORE:
            best = current
        return Verdict(best, f"goals that cannot be foreseen: score {scores[best]:.3f}")


def unforeseen(goals: Sequence[Goal]) -> float:
    """The weight of goals that no holding cost stands for."""
    return sum(g.weight for g in goals if g.statistic not in MEMORY | DELAY | RATE)


def _least_cost(review: Review, current: str) -> tuple[str, str]:
    """The algorithm to be in charge, and why."""
    situation, candidates = review.situation, review.candidates
    if len(candidates) == 1:
        return candidates[0], "the only candidate"
    home = next((name for name in HOMES if name in candidates), None)
    waiting = sum(view.rows for view in situation.views)
    if waiting <= review.settings.threshold_rows:
        # Nothing to foresee; but who was chosen for a burst must not stay for the calm.
        calm = home or current
        if calm in candidates:
            return calm, f"{waiting:.4g} rows wait: hardly anything to choose"
    ahead = outlook(situation)
    if ahead.overload > 0 and home is not None:
        # A few seconds tell little of what waits for many: what is put off now is paid for later.
        return home, "more waits than can be foreseen"
    steps = VIEWS_MAX // (len(candidates) * max(1, len(situation.views)))
    steps = max(5, min(review.settings.foresight_steps_max, steps))
    costs = {
        name: foreseen_cost(review.imagine(name), situation, ahead, steps) for name in candidates
    }
    favour = {home: HOME_LESS, current: STAY_LESS}
    if current == home:
        favour[home] = HOME_LESS * STAY_LESS
    best = min(candidates, key=lambda name: (costs[name] * favour.get(name, 1.0), name))
    told = ", ".join(f"{name} {cost:.4g}" for name, cost in costs.items())
    return best, f"least foreseen cost of {told}"


class _ImaginedView:
    """An operator view that may change: algorithms read it as if it were one."""

    __slots__ = (
        "bytes", "consumers", "fixed_cost_s", "id", "kind", "meets", "members", "oldest",
        "producers", "queries", "row_cost_s", "row_selectivity", "rows", "runnable",
    )  # fmt: skip

    def __init__(self, view: OperatorView) -> None:
        self.id, self.rows, self.oldest = view.id, view.rows, view.oldest
        self.bytes, self.queries, self.runnable = view.bytes, view.queries, view.runnable
        self.producers, self.consumers = view.producers, view.consumers
        self.fixed_cost_s, self.row_cost_s = view.fixed_cost_s, view.row_cost_s
        self.row_selectivity = view.row_selectivity
        self.members, self.kind, self.meets = view.members, view.kind, view.meets


def foreseen_cost(
    algorithm: Algorithm, situation: Situation, ahead: Outlook, steps_max: int
) -> float:
    """Holding cost a second, over the horizon, if this algorithm were in charge."""
    play = _Play(situation, ahead)
    end = situation.now + situation.settings.horizon_s
    for _ in range(steps_max):
        if play.now >= end or not play.step(algorithm):
            break
    return play.cost_a_second(end)


class _Play:
    """Imagined queues, and what they have cost so far."""

    def __init__(self, situation: Situation, ahead: Outlook) -> None:
        statistics, plan = situation.statistics, situation.plan
        self.now = self._start = situation.now
        self._ahead = ahead
        self._consumers = plan.parents
        self._views = {view.id: _ImaginedView(view) for view in situation.views}
        self._kept = {view.id: statistics.row_selectivity(view) for view in situation.views}
        self._cost = {view.id: statistics.step_cost(view) for view in situation.views}
        self._arrivals = [
            (view, statistics.arrival_rates[name])
            for name, view in self._views.items()
            if name in statistics.arrival_rates
        ]
        # Algorithms see the imagined queues through a situation of their own.
        by_id = cast(dict[str, OperatorView], self._views)
        self._situation = Situation(
            self.now, list(by_id.values()), by_id, plan, statistics, situation.settings,
            situation.quality, situation.goals,
        )  # fmt: skip
        self._total = 0.0
        self._order = [(name, plan.producers(name)) for name in plan.order]
        self._fan_out = {name: max(1, len(plan.parents(name))) for name in plan.order}
        self._shares = self._input_shares()

    def step(self, algorithm: Algorithm) -> bool:
        """One step of the algorithm; False when hardly anything is left to do."""
        self._situation.now = self.now
        for pick in algorithm.rank(self._situation):
            view = self._views[pick.operator]
            if view.rows >= 1 and view.runnable:
                break
        else:
            return False
        algorithm.ran(pick, self.now)
        wanted = pick.rows
        if wanted is None:
            wanted = workload(view.rows, self._situation.settings)
        self._run(view, min(wanted, view.rows))
        return True

    def _run(self, view: _ImaginedView, rows: float) -> None:
        fixed_s, row_s = self._cost[view.id]
        elapsed = fixed_s + row_s * rows
        born = view.oldest
        self._total += elapsed * self._stock()
        # Rows came evenly since the oldest did.
        if born is not None:
            left = view.rows - rows
            view.oldest = born + (self.now - born) * rows / view.rows if left > 0 else None
        view.rows -= rows
        made = rows * self._kept[view.id]
        for consumer in self._consumers(view.id):
            fed = self._views[consumer]
            if fed.oldest is None or fed.rows < 1:
                fed.oldest = born
            fed.rows += made
        for leaf, rate in self._arrivals:
            if leaf.oldest is None:
                leaf.oldest = self.now
            leaf.rows += rate * elapsed
        self.now += elapsed

    def _input_shares(self) -> dict[str, list[float]]:
        """For operators with several inputs: the share of their rows that comes by each."""
        arriving = {leaf.id: rate for leaf, rate in self._arrivals}
        flow: dict[str, float] = {}
        shares: dict[str, list[float]] = {}
        for name, producers in self._order:
            coming = [flow[producer] for producer in producers]
            flow[name] = (sum(coming) + arriving.get(name, 0.0)) * self._kept[name]
            if len(producers) > 1:
                total = sum(coming)
                even = 1 / len(producers)
                shares[name] = [part / total if total > 0 else even for part in coming]
        return shares

    def _stock(self) -> float:
        """The holding cost of all queues for a second.

        Above a join results wait for the input that lags: they are counted as if all inputs lagged
        like the worst, not input by input.
        """
        ahead, waiting, total, memory = self._ahead, dict[str, float](), 0.0, 0.0
        for name, producers in self._order:
            queued = self._views[name].rows
            memory += queued * ahead.memory[name]
            above = [waiting[producer] / self._fan_out[producer] for producer in producers]
            shares = self._shares.get(name)
            if shares is not None:
                held = max(w / max(s, 1e-3) for w, s in zip(above, shares, strict=True))
            else:
                held = above[0] if above else 0.0
            waiting[name] = held + queued * ahead.value[name]
            if not self._consumers(name):
                total += waiting[name]
        return memory + total

    def cost_a_second(self, end: float) -> float:
        """Of the time played, of what was not played, and of what is left at the end.

        What is left at the end waits about half of its remaining work. Who takes small steps is not
        played to the end: until then what waits shrinks or grows as the load lets it.
        """
        unplayed = max(0.0, end - self.now)
        left = sum(v.rows * self._ahead.seconds[name] for name, v in self._views.items())
        stock = self._stock()
        total = self._total
        if left > 0:
            load = sum(rate * self._ahead.seconds[leaf.id] for leaf, rate in self._arrivals)
            at_end = left + (load - 1) * unplayed
            if at_end > 0:
                then = stock * at_end / left
                total += 0.5 * (stock + then) * unplayed + 0.5 * then * at_end
            else:
                total += 0.5 * stock * left / (1 - load)
        return total / max(self.now + unplayed - self._start, 1e-9)
