"""Priced: what a second of the processor is worth says who runs next, and on how many rows.

It steers by the same holding costs as the cost-aware algorithm (see `holding`), lets what meets in
a join advance together as that does, and goes further in two ways.

- **Whole branches.** An operator's index is the most holding cost that a second of work from here
  on can get rid of, over every way to go on above it: several consumers are taken along as long as
  each raises the quotient (the index of a branching bandit). Along one path alone, a filter that
  several queries share looks better than it is.
- **Lots.** A second lost to fixed costs is lost to all that waits until the busy period ends:
  its price is what a second of work gets rid of for those who just come to be served, times the
  time left. Rows that wait for a larger
  lot cost what they cost to hold. The lot at which both are equal is the economic lot size,
  `sqrt(2 x fixed cost x price x rows a second / holding cost of a row)`. Rows fewer than most of a
  lot stand behind all others; a step takes as many as pay off over all operators of their way.

How long the busy period lasts follows from the load: what waits over the share of time that is
left, and a horizon where none is. An idle processor waits for nobody: who stands behind all others
runs when there are no others.
"""

from collections.abc import Iterator, Mapping
from math import inf, sqrt

from millstream.decide.schedule.algorithms.cost_aware import NEARLY, fed_by, who_is_behind
from millstream.decide.schedule.facts import OperatorView
from millstream.decide.schedule.holding import MEMORY, Outlook, awaited, outlook, weight_of
from millstream.decide.schedule.protocol import Pick, Situation
from millstream.decide.schedule.quality import DELAY
from millstream.decide.schedule.settings import ScheduleSettings

READY = 0.7  # of a lot: fewer rows wait for more
WHOLE = 2.0  # lots: no more than that is not cut
HELD = 1e-6  # what is held goes after all others
BUSY_S_MAX = 40.0  # a busy period without an end in sight
BUSY_S_MIN = 0.2  # work that is always about
LONGER = 5.0  # times what waits: the least that a busy period is thought to last
IDLE_SHARE_MIN = 0.01
BLOCKS_MAX = 64  # ways to go on that are kept an operator
# Until batches of different sizes have told what of a step is fixed: rows to wait for, how long at
# most, and how many to take.
FEW_ROWS, FEW_S, FIRST_ROWS = 5.0, 0.5, 50.0
TOLD_SPREAD = 0.01  # of the mean: batches that differ by more tell it
FIXED_SHARE_MAX = 0.9  # of a step, where it is only thought to be fixed

Block = tuple[float, float]  # holding cost got rid of, and the seconds that takes


class Priced:
    name = "priced"

    def __init__(self) -> None:
        self._index: dict[str, float] = {}
        self._lot: dict[str, tuple[float, float]] = {}  # rows to wait for, rows of a step
        self._fixed: dict[str, float] = {}  # as last told by batches of different sizes
        self._below: dict[str, tuple[str, ...]] = {}  # for joins: who feeds them, however far down
        self._nearly = NEARLY
        self._whole_queues = False

    def rank(self, situation: Situation) -> Iterator[Pick]:
        worth = {view.id: self._worth(view, situation.now) for view in situation.views}
        first: dict[str, OperatorView] = {}
        for join, below in self._below.items():
            behind = who_is_behind(situation.by_id.get(join), below, situation)
            if behind is not None:
                first[join] = behind
                worth[join] = min(worth[join], worth[behind.id])
        ranked = sorted(situation.views, key=lambda view: -worth[view.id])
        near = worth[ranked[0].id] * self._nearly if ranked else 0.0
        close = [view for view in ranked if worth[view.id] >= near > 0]
        close.sort(key=lambda view: inf if view.oldest is None else view.oldest)
        for view in (*close, *ranked[len(close) :]):
            if view.id in first:
                yield self._pick(first[view.id], worth, situation)
            yield self._pick(view, worth, situation)

    def _pick(self, view: OperatorView, worth: Mapping[str, float], situation: Situation) -> Pick:
        rows = self._rows(view, situation.settings)
        return Pick(view.id, f"worth {worth[view.id]:.4g}, lots of {rows:.4g}", rows)

    def refresh(self, situation: Situation) -> None:
        goals = situation.goals
        memory_alone = weight_of(goals, MEMORY) > 0 and weight_of(goals, DELAY) == 0
        self._nearly = 1.0 if memory_alone else NEARLY
        self._whole_queues = not (situation.in_flight_counts or awaited(goals))
        cost = self._costs(situation)
        kept = {v.id: situation.statistics.row_selectivity(v) for v in situation.views}
        ahead = outlook(situation)
        self._index = branch_index(situation, {n: c[1] for n, c in cost.items()}, kept, ahead.cost)
        flow = _flow(situation, kept)
        price = self._price_of_a_second(situation, ahead, cost, flow)
        self._lot = _lots(situation, cost, flow, ahead.cost, price)
        self._below = {} if memory_alone else fed_by(situation)

    def ran(self, pick: Pick, now: float) -> None:
        pass

    def _worth(self, view: OperatorView, now: float) -> float:
        if view.rows <= 0:
            return -inf
        index = self._index.get(view.id, 0.0)
        return index if self._ready(view, now) else index * HELD

    def _ready(self, view: OperatorView, now: float) -> bool:
        """Whether its rows carry a step of their own."""
        if view.oldest is None:
            return True
        if view.id not in self._fixed:
            return view.rows >= FEW_ROWS or now - view.oldest > FEW_S
        return view.rows >= self._lot.get(view.id, (1.0, 1.0))[0]

    def _rows(self, view: OperatorView, settings: ScheduleSettings) -> float:
        lot = self._lot[view.id][1] if view.id in self._lot else FIRST_ROWS
        if self._whole_queues:
            lot = max(lot, view.rows)
        rows = view.rows if view.rows <= WHOLE * lot else lot
        if settings.rows_max is not None:
            rows = min(rows, settings.rows_max)
        return round(rows) if 1 < rows < view.rows else rows

    def _costs(self, situation: Situation) -> dict[str, tuple[float, float]]:
        """Seconds a step and a row. Lots of one size do not tell the two apart.

        What larger and smaller ones told before still holds; else what steps of others cost.
        """
        statistics = situation.statistics
        told = {view.id: statistics.cost(view.id).told(TOLD_SPREAD) for view in situation.views}
        self._fixed = {
            view.id: fixed
            for view in situation.views
            if (fixed := told[view.id]) is not None
            or (fixed := self._fixed.get(view.id)) is not None
        }
        known = sorted(self._fixed.values())
        usual = known[len(known) // 2] if known else 0.0
        found = {}
        for view in situation.views:
            line = statistics.cost(view.id)
            if line.weight < 2:
                found[view.id] = statistics.step_cost(view)
                continue
            most = FIXED_SHARE_MAX * line.seconds_mean
            fixed_s = min(self._fixed.get(view.id, usual), most)
            row_s = (line.seconds_mean - fixed_s) / max(line.rows_mean, 1e-9)
            found[view.id] = (fixed_s, max(1e-9, row_s))
        return found

    def _price_of_a_second(
        self,
        situation: Situation,
        ahead: Outlook,
        cost: Mapping[str, tuple[float, float]],
        flow: Mapping[str, float],
    ) -> float:
        """Holding cost that a second lost to fixed costs causes until the busy period ends."""
        slots = situation.settings.slots
        work = {view.id: view.rows * ahead.seconds[view.id] for view in situation.views}
        backlog_s = sum(work.values()) / slots
        if backlog_s <= 0:
            return 0.0
        usual = situation.statistics.usual_rates
        load = sum(usual.get(name, 0.0) * ahead.seconds[name] for name in work) / slots
        busy_s = (backlog_s + BUSY_S_MIN) / max(IDLE_SHARE_MIN, 1 - load)
        busy_s = min(BUSY_S_MAX, max(busy_s, LONGER * backlog_s))
        index = sum(spent * self._index[name] for name, spent in work.items()) / slots / backlog_s
        left = float(slots)
        for name in sorted(work, key=self._index.__getitem__, reverse=True):
            left -= flow[name] * cost[name][1]
            if left < 0:
                # Whoever is worth less is not served anyway: the second is lost to this one.
                index = max(index, self._index[name])
                break
        return index * busy_s


def branch_index(
    situation: Situation,
    row_s: Mapping[str, float],
    kept: Mapping[str, float],
    cost: Mapping[str, float],
) -> dict[str, float]:
    """The most holding cost that a second of work from each operator on can get rid of."""
    plan = situation.plan
    blocks: dict[str, list[Block]] = {}
    for name in reversed(plan.order):
        consumers = plan.parents(name)
        onward = kept[name] * sum(cost[consumer] for consumer in consumers)
        blocks[name] = _with_the_best(
            (cost[name] - onward, max(row_s[name], 1e-12)),
            [(kept[name] * r, kept[name] * s) for c in consumers for r, s in blocks[c]],
        )
    return {name: found[0][0] / found[0][1] for name, found in blocks.items()}


def _with_the_best(own: Block, onward: list[Block]) -> list[Block]:
    """An operator's work with as much of what follows as raises what a second gets rid of.

    >>> _with_the_best((0.0, 1.0), [(6.0, 1.0), (1.0, 1.0)])
    [(6.0, 2.0), (1.0, 1.0)]
    """
    relief, seconds = own
    rest = sorted((b for b in onward if b[1] > 0), key=lambda b: b[0] / b[1], reverse=True)
    taken = 0
    for more, longer in rest:
        if more / longer <= relief / seconds:
            break
        relief, seconds, taken = relief + more, seconds + longer, taken + 1
    return [(relief, seconds), *rest[taken : taken + BLOCKS_MAX]]


def _flow(situation: Situation, kept: Mapping[str, float]) -> dict[str, float]:
    """Rows a second that come to each operator, as rows usually come."""
    plan, usual = situation.plan, situation.statistics.usual_rates
    flow: dict[str, float] = {}
    for name in plan.order:
        made = sum(flow[producer] * kept[producer] for producer in plan.producers(name))
        flow[name] = made + usual.get(name, 0.0)
    return flow


def _lots(
    situation: Situation,
    cost: Mapping[str, tuple[float, float]],
    flow: Mapping[str, float],
    holding: Mapping[str, float],
    price: float,
) -> dict[str, tuple[float, float]]:
    """For each operator: the rows to wait for, and those of a step.

    All operators on the way of a lot pay for its steps: hence their number under the root.
    """
    plan, settings = situation.plan, situation.settings
    above: dict[str, int] = {}
    found = {}
    for name in reversed(plan.order):
        above[name] = max((above[c] + 1 for c in plan.parents(name)), default=0)
        fixed_s, row_s = cost[name]
        if flow[name] <= 0:
            continue
        lot = sqrt(2 * fixed_s * price * flow[name] / max(holding[name], 1e-12))
        way = plan.depth[name] + above[name] + 1
        efficient = fixed_s * (1 - settings.overhead_share) / (settings.overhead_share * row_s)
        longest = max(1.0, (settings.step_s_max - fixed_s) / row_s)
        rows = min(max(efficient, lot * sqrt(way)), longest)
        found[name] = (min(max(1.0, READY * lot), rows), max(1.0, rows))
    return found
