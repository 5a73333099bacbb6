"""Rows as counts by time, and operators over them with the costs of D-CAPE's equations 3.1 to 3.3.

Where a run of half an hour passes millions of rows through dozens of operators, what matters is how
many there are, when they entered, and what they cost: no row needs an identity. Counts are real
numbers. An operator says what a step gives and costs; it knows neither processor nor clock.

A unary operator on n rows costs n (omega + rho) + sigma n omega (3.2). A window join costs n omega
to read, psi for each row of its states to purge, rho for each pair it looks at, omega for each row
it writes (3.3), in the printed order of a step: purge both states by the first rows taken from the
other side; join left with the right state; left into the left state; join right with it.

Two selectivities under two names: `per_input` is output per input row (3.2, the thesis's own); a
join's output is counted per candidate pair within the window, so that states that are still filling
give less, and the pair's selectivity is set so that in the steady state the join gives `per_input`
rows for each row it reads.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Batch = tuple[float, float]  # when rows entered the system, how many


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a processor of speed 1 (not in the seed: chosen so that its plans load it so)."""

    omega_s: float = 5e-6  # read or write a row at a queue
    rho_s: float = 190e-6  # evaluate a unary operator on a row
    pair_s: float = 120e-9  # rho of a join: compare two rows
    psi_s: float = 50e-9  # look at a row of a state when purging
    step_s: float = 50e-6  # start a step


class CountedQueue:
    """Batches waiting, first in first out."""

    __slots__ = ("_batches", "rows")

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self.rows = 0.0

    def put(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self._batches.append(batch)
            self.rows += batch[1]

    def take(self, count: float) -> list[Batch]:
        """The oldest rows, at most so many; a batch may be parted."""
        taken: list[Batch] = []
        while self._batches and count > 1e-9:
            taken.append(self.take_batch(count))
            count -= taken[-1][1]
        return taken

    def take_batch(self, count: float) -> Batch:
        """The oldest batch, or so much of it."""
        time, rows = self._batches[0]
        if rows <= count + 1e-9:
            self._batches.popleft()
        else:
            self._batches[0] = (time, rows - count)
            rows = count
        self.rows = self.rows - rows if self._batches else 0.0  # rounding leaves no ghost of a row
        return time, rows

    @property
    def oldest(self) -> float | None:
        return self._batches[0][0] if self._batches else None


class WindowState:
    """Rows of one side of a join that can still match, by time."""

    __slots__ = ("_before", "_first", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._before: list[float] = [0.0]  # rows before each entry, one more than entries
        self._first = 0

    @property
    def rows(self) -> float:
        return self._before[-1] - self._before[self._first]

    def put(self, batches: Iterable[Batch]) -> None:
        for time, rows in batches:
            self._times.append(max(time, self._times[-1]) if self._times else time)
            self._before.append(self._before[-1] + rows)

    def purge(self, earliest: float) -> None:
        """Forgets rows before a time."""
        self._first = bisect_left(self._times, earliest, self._first)
        if self._first > 512:
            del self._times[: self._first]
            del self._before[: self._first]
            self._first = 0

    def within(self, start: float, end: float, *, left: bool) -> float:
        """Rows in [start, end) for a left row, in (start, end] for a right one.

        Rows come in ticks: with both ends a window would be a tick too wide.
        """
        find = bisect_left if left else bisect_right
        low = find(self._times, start, self._first)
        high = find(self._times, end, self._first)
        return self._before[high] - self._before[low]


@dataclass(frozen=True, slots=True)
class CountedStep:
    """What a step gave and cost."""

    output: list[Batch]
    seconds: float
    rows_in: float
    rows_out: float
    candidates: float


@dataclass(slots=True)
class CountedOperator:
    """An operator with its queues and, where it is a join, its states."""

    id: str
    per_input: float  # rows out per row in
    window_s: float = 0.0
    pair_selectivity: float = 0.0  # rows out per candidate pair; joins only
    queues: list[CountedQueue] = field(default_factory=lambda: [CountedQueue()])
    states: list[WindowState] = field(default_factory=list)
    _last_out: float = 0.0

    @property
    def queue_rows(self) -> float:
        return sum(queue.rows for queue in self.queues)

    @property
    def state_rows(self) -> float:
        return sum(state.rows for state in self.states)

    @property
    def oldest(self) -> float | None:
        ages = [age for queue in self.queues if (age := queue.oldest) is not None]
        return min(ages) if ages else None

    def step(self, rows: float, costs: Costs) -> CountedStep:
        """Works on the oldest rows of all inputs together, at most so many."""
        taken = self._take(rows)
        count = sum(n for part in taken for _, n in part)
        if not self.states:
            output = [(time, n * self.per_input) for time, n in taken[0]] if self.per_input else []
            candidates, work = count, count * costs.rho_s
        else:
            output, candidates, work = self._join(taken, costs)
        out = sum(n for _, n in output)
        seconds = costs.step_s + (count + out) * costs.omega_s + work
        return CountedStep(output, seconds, count, out, candidates)

    def _take(self, rows: float) -> list[list[Batch]]:
        """The sides of a join go forward in time together, so that neither state swells."""
        if len(self.queues) == 1:
            return [self.queues[0].take(rows)]
        taken: list[list[Batch]] = [[], []]
        left, right = self.queues
        while rows > 1e-9 and (left.rows or right.rows):
            first, second = left.oldest, right.oldest
            side = int(first is None or (second is not None and second < first))
            batch = self.queues[side].take_batch(rows)
            taken[side].append(batch)
            rows -= batch[1]
        return taken

    def _join(self, taken: Sequence[list[Batch]], costs: Costs) -> tuple[list[Batch], float, float]:
        """A step in the printed order; output, pairs within the window, seconds but for omega."""
        left, right = taken
        purged = self.state_rows
        if left:
            self.states[1].purge(left[0][0] - self.window_s)
        if right:
            self.states[0].purge(right[0][0] - self.window_s)
        looked = sum(n for _, n in left) * self.states[1].rows
        matched = self._matches(left, self.states[1], left=True)
        self.states[0].put(left)
        looked += sum(n for _, n in right) * self.states[0].rows
        matched += self._matches(right, self.states[0], left=False)
        self.states[1].put(right)
        output: list[Batch] = []
        pairs = 0.0
        for time, count in sorted(matched):
            # A result exists when its later half has come, and order is kept from step to step.
            self._last_out = max(self._last_out, time)
            output.append((self._last_out, count * self.pair_selectivity))
            pairs += count
        return output, pairs, purged * costs.psi_s + looked * costs.pair_s

    def _matches(self, new: Sequence[Batch], state: WindowState, *, left: bool) -> list[Batch]:
        width = self.window_s
        found = ((t, n * state.within(t - width, t + width, left=left)) for t, n in new)
        return [(time, pairs) for time, pairs in found if pairs]


def unary(name: str, per_input: float = 1.0) -> CountedOperator:
    return CountedOperator(name, per_input)


def window_join(
    name: str, window_s: float, rates: tuple[float, float], per_input: float = 2.0
) -> CountedOperator:
    """A join that gives `per_input` rows for each row when rows come at these rates.

    Rows of one side look at the rows of the other that came before them within the window, so a
    second has 2 r1 r2 w candidate pairs.
    """
    pairs = 2 * rates[0] * rates[1] * window_s
    selectivity = per_input * (rates[0] + rates[1]) / pairs if pairs else 0.0
    queues, states = [CountedQueue(), CountedQueue()], [WindowState(), WindowState()]
    return CountedOperator(name, per_input, window_s, selectivity, queues, states)
