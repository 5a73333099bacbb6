"""Virtual operators: the seed's generic unary and multi-stream ones, with set cost and selectivity.

An operator says what a step on some rows gives and costs; queues and time belong to the processor.
Plans are described by `OperatorSpec` and built here. Seed 001, section 3.2.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from millstream.core.operator_graph import OperatorGraph
from millstream.sim.arrivals import Arrivals
from millstream.sim.kernel import stream_seed
from millstream_lab.raindrop.rows import NO_ROWS, Queue, Rows, concatenated, mixed, uniform


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator of a plan.

    `selectivity` is output per input row, and for a join (two inputs) output per pair of rows
    within the window. `inputs` name operators or streams, in order.
    """

    id: str
    inputs: tuple[str, ...]
    selectivity: float
    row_cost_s: float
    fixed_cost_s: float = 0.0
    window_s: float | None = None  # joins: rows within this of each other are compared
    query: str | None = None  # roots: whose result this is

    def __post_init__(self) -> None:
        if (self.window_s is None) != (len(self.inputs) == 1):
            raise ValueError(f"{self.id}: a join has two inputs and a window, others one and none")


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """A plan in virtual time: streams with their arrivals, and operators over them."""

    name: str
    streams: dict[str, Arrivals]
    operators: tuple[OperatorSpec, ...]

    @property
    def graph(self) -> OperatorGraph[OperatorSpec]:
        return OperatorGraph(self.operators)


@dataclass(frozen=True, slots=True)
class StepResult:
    output: Rows
    candidates: float


@dataclass(slots=True)
class VirtualOperator:
    """One operator with its input queues and, for a join, the rows that can still match."""

    spec: OperatorSpec
    queues: list[Queue]
    seen: list[Rows] = field(default_factory=lambda: [NO_ROWS, NO_ROWS])
    salt: int = 0

    def __post_init__(self) -> None:
        self.salt = stream_seed(0, self.spec.id)

    def pending(self) -> int:
        return sum(len(queue) for queue in self.queues)

    def oldest(self) -> float | None:
        ages = [age for queue in self.queues if (age := queue.oldest()) is not None]
        return min(ages) if ages else None

    def take(self, count: int) -> list[Rows]:
        """Rows for a step, oldest first over all inputs: who is ahead waits for who is behind."""
        if len(self.queues) == 1:
            return [self.queues[0].take(count)]
        first, second = (queue.first_times(count) for queue in self.queues)
        both = np.sort(np.concatenate([first, second]))[:count]
        ahead = int(np.searchsorted(first, both[-1], side="right")) if len(both) else 0
        return [self.queues[0].take(ahead), self.queues[1].take(len(both) - ahead)]

    def seconds(self, count: int) -> float:
        return self.spec.fixed_cost_s + self.spec.row_cost_s * count

    def run(self, rows: Sequence[Rows], low: Sequence[float]) -> StepResult:
        """The step's output. `low`, by input: no older row can come there any more."""
        if len(self.queues) == 1:
            return StepResult(self._filtered(rows[0]), float(len(rows[0])))
        return self._joined(rows[0], rows[1], low)

    def _filtered(self, rows: Rows) -> Rows:
        if not len(rows):
            return NO_ROWS
        copies = int(self.spec.selectivity)
        chance = uniform(rows.ids, self.salt) < self.spec.selectivity - copies
        parts = [Rows(rows.times[chance], rows.ids[chance])] if chance.any() else []
        for copy in range(copies):
            ids = rows.ids if self.spec.selectivity <= 1 else mixed(rows.ids, self.salt + copy + 1)
            parts.append(Rows(rows.times, ids))
        joined = concatenated(parts)
        if len(parts) > 1:
            order = np.argsort(joined.times, kind="stable")
            joined = Rows(joined.times[order], joined.ids[order])
        return joined

    def _joined(self, left: Rows, right: Rows, low: Sequence[float]) -> StepResult:
        """New left with seen right, then new right with seen and new left: each pair once."""
        window = self.spec.window_s or 0.0
        one, looked_one = self._matches(left, self.seen[1], flipped=False)
        self.seen[0] = _merged(self.seen[0], left)
        two, looked_two = self._matches(right, self.seen[0], flipped=True)
        self.seen[1] = _merged(self.seen[1], right)
        for side in (0, 1):  # what no row still to come on the other side can reach is dropped
            kept = self.seen[side].times >= low[1 - side] - window
            if not kept.all():
                self.seen[side] = Rows(self.seen[side].times[kept], self.seen[side].ids[kept])
        output = concatenated([part for part in (one, two) if len(part)])
        order = np.argsort(output.times, kind="stable")
        return StepResult(Rows(output.times[order], output.ids[order]), looked_one + looked_two)

    def _matches(self, new: Rows, seen: Rows, *, flipped: bool) -> tuple[Rows, float]:
        if not len(new) or not len(seen):
            return NO_ROWS, 0.0
        window = self.spec.window_s or 0.0
        starts = np.searchsorted(seen.times, new.times - window, side="left")
        ends = np.searchsorted(seen.times, new.times + window, side="right")
        counts = ends - starts
        total = int(counts.sum())
        if not total:
            return NO_ROWS, 0.0
        mine = np.repeat(np.arange(len(new)), counts)
        offsets = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        theirs = np.repeat(starts, counts) + offsets
        left, right = (seen.ids[theirs], new.ids[mine]) if flipped else (
            new.ids[mine], seen.ids[theirs])  # fmt: skip
        with np.errstate(over="ignore"):
            pairs = mixed(left, self.salt) * np.uint64(3) + mixed(right, self.salt + 1)
        kept = uniform(pairs, self.salt + 2) < self.spec.selectivity
        # A result exists from the moment its later half arrived.
        times = np.maximum(new.times[mine], seen.times[theirs])[kept]
        return Rows(times, pairs[kept]), float(total)


def _merged(seen: Rows, new: Rows) -> Rows:
    rows = concatenated([part for part in (seen, new) if len(part)])
    if len(seen) and len(new) and seen.times[-1] > new.times[0]:
        order = np.argsort(rows.times, kind="stable")
        return Rows(rows.times[order], rows.ids[order])
    return rows
