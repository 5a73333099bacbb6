"""What the queries seen so far tell about those to come: popular streams, common sizes.

Two statistics make planning less myopic (requirement R3 of SQPR). *Popularity*: how many distinct
queries could read a stream; of two ways to compute a result that cost the same, the one that
leaves a popular intermediate stream behind will be reused. *Grain*: sizes that make up most of
the CPU demand; a host with 0.49 free where joins cost 0.5 has nothing useful free, so the cost of
running something is the useful capacity that is lost. Counts only; places nothing.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from itertools import product

import numpy as np

from millstream.decide.place.reuse.catalog import Catalog, Closure, Floats

DISCOUNT = 0.4  # most that popularity takes off an operator's price
HALF = 3.0  # queries at which half of it is taken
KEPT_SHARE = 0.05  # of the demand: smaller classes of sizes do not shape the grain
CLASSES = 3
FINE = 64  # a host that holds more of the smallest size than this has no grain
TOLERANCE = 1e-9


class Demand:
    """Running counts over the queries submitted, admitted or not."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.wanted: Counter[int] = Counter()  # stream -> distinct queries that may use it
        self.sizes: Counter[float] = Counter()  # CPU cost, rounded -> operators run
        self.grain = Grain(())
        self.targets: dict[int, list[int]] = {}  # stream -> query streams that may read it
        self._seen: set[int] = set()
        self._next_look = 16

    def see(self, stream: int, closure: Closure) -> bool:
        """A query on this stream was submitted; says whether it is the first."""
        if stream in self._seen:
            return False
        self._seen.add(stream)
        self.wanted.update(closure.streams[closure.roots : -1])
        for name in closure.streams[closure.roots : -1]:
            self.targets.setdefault(name, []).append(stream)
        return True

    def forget(self, stream: int, closure: Closure) -> None:
        """Takes back `see`."""
        self._seen.discard(stream)
        self.wanted.subtract(closure.streams[closure.roots : -1])
        for name in closure.streams[closure.roots : -1]:
            self.targets[name].remove(stream)

    def ran(self, cost: float) -> None:
        """An operator of this cost was started."""
        self.sizes[round(cost, 4)] += 1

    def remember(self) -> tuple[Counter[float], "Grain", int]:
        """The sizes seen, to be given back to `recall`."""
        return self.sizes.copy(), self.grain, self._next_look

    def recall(self, memory: tuple[Counter[float], "Grain", int]) -> None:
        self.sizes, self.grain, self._next_look = memory

    def look(self) -> None:
        """Derives the grain anew when twice as much has been seen."""
        if self.sizes.total() >= self._next_look:
            self._next_look = 2 * self.sizes.total()
            largest = float(self.catalog.cpu_offered.max(initial=0.0))
            self.grain = grain_of(self.sizes, largest)

    def discounts(self, closure: Closure) -> Floats:
        """Factor on each operator's price: below 1 where its output will be wanted again."""
        wanted, output, target = self.wanted, self.catalog.output, closure.streams[-1]
        factors = []
        for operator in closure.operators:
            stream = output[operator]
            count = 0 if stream == target else wanted[stream]
            factors.append(1.0 - DISCOUNT * count / (count + HALF))
        return np.array(factors)[:, None]


class Grain:
    """How much of a free amount can be used by operators of the common sizes.

    >>> grain = Grain((0.0, 0.5, 1.0, 1.5))
    >>> grain.useful(0.99), grain.useful(1.2)
    (0.5, 1.0)
    """

    __slots__ = ("_array", "sums")

    def __init__(self, sums: tuple[float, ...]) -> None:
        self.sums = sums
        self._array = np.array(sums)

    def __bool__(self) -> bool:
        return bool(self.sums)

    def useful(self, free: float) -> float:
        if not self.sums:
            return free
        return self.sums[max(0, bisect_right(self.sums, free + TOLERANCE) - 1)]

    def useful_all(self, free: Floats) -> Floats:
        if not self.sums:
            return free
        places = np.searchsorted(self._array, free + TOLERANCE, side="right") - 1
        return self._array[np.maximum(places, 0)]


def grain_of(sizes: Mapping[float, int], largest: float) -> Grain:
    """The sums that operators of the common sizes can make, up to the largest host."""
    classes = common_sizes(sizes)
    if not classes or not np.isfinite(largest) or largest > FINE * min(classes):
        return Grain(())
    counts = [range(int((largest + TOLERANCE) // size) + 1) for size in classes]
    if np.prod([len(each) for each in counts], dtype=float) > 100_000:
        return Grain(())
    sums = {
        round(sum(count * size for count, size in zip(chosen, classes, strict=True)), 9)
        for chosen in product(*counts)
    }
    return Grain(tuple(sorted(value for value in sums if value <= largest + TOLERANCE)))


def common_sizes(sizes: Mapping[float, int]) -> tuple[float, ...]:
    """Classes of sizes within 5 % of each other that carry most of the demand.

    A class stands for its largest member: what fits that fits all of it.

    >>> common_sizes({1.0: 10, 0.501: 5, 0.505: 5, 0.006: 40})
    (0.505, 1.0)
    """
    classes: list[tuple[float, float]] = []  # largest member, demand
    smallest = 0.0
    for size in sorted(sizes):
        demand = size * sizes[size]
        if classes and size <= smallest * 1.05:
            classes[-1] = (size, classes[-1][1] + demand)
        else:
            classes.append((size, demand))
            smallest = size
    total = sum(demand for _, demand in classes)
    kept = sorted(
        (item for item in classes if item[1] >= KEPT_SHARE * total > 0), key=lambda item: -item[1]
    )[:CLASSES]
    return tuple(sorted(size for size, _ in kept))
