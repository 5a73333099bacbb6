"""Random queries over the streams of a cluster, as in seed 002, section 4.

Decides how many streams each query reads and which, the shape of its join tree, where its filters
stand, and every selectivity, cost and window, all from one seed. The totals of queries and
operators come out exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millstream.core.errors import UsageError
from millstream.decide.balance.model.operator_tree import Operator, QueryTree

CHOICES = ("uniform", "zipf", "dealt")


@dataclass(frozen=True, slots=True)
class Workload:
    """The seed's figures; those it does not give are marked."""

    queries: int = 500
    operators: int = 5750
    streams_a_query: tuple[int, int] = (1, 3)  # not in the seed; gives a mean load of about 0.5
    choice: str = "uniform"  # uniform, zipf, or dealt: every stream equally often
    zipf_theta: float = 0.95
    selectivity: tuple[float, float] = (0.5, 0.8)
    filter_us: float = 20.0
    join_us: float = 80.0
    window_s: tuple[float, float] = (5.0, 20.0)  # the seed's 5,000 to 20,000, read as ms
    filters_above_joins: float = 0.2  # not in the seed: their share
    shared_filters: float = 0.0  # not in the seed: share of first filters that others have too
    shared_variants: int = 4  # ... and how many different ones a stream has

    def __post_init__(self) -> None:
        if self.choice not in CHOICES:
            raise UsageError(
                f"unknown choice of streams {self.choice!r}", hint=f"one of {', '.join(CHOICES)}"
            )
        low, high = self.streams_a_query
        if not 1 <= low <= high:
            raise UsageError(f"a query cannot read {low} to {high} streams")


def random_queries(
    workload: Workload, streams: Sequence[str], random: np.random.Generator
) -> tuple[QueryTree, ...]:
    low, high = workload.streams_a_query
    if high > len(streams):
        raise UsageError(f"queries of {high} streams over {len(streams)} streams")
    arity = random.integers(low, high + 1, workload.queries)
    filters = _filter_counts(workload, arity, random)
    dealer = _Dealer(workload, streams, random)
    return tuple(
        _query(f"q{n}", dealer.streams(int(arity[n])), int(filters[n]), workload, random)
        for n in range(workload.queries)
    )


def _filter_counts(
    workload: Workload, arity: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Filters of each query: one a stream, the rest to make queries alike, the total exact."""
    joins = int((arity - 1).sum())
    filters = workload.operators - joins
    if filters < int(arity.sum()):
        raise UsageError(
            f"{workload.operators} operators are too few for {workload.queries} queries",
            detail=f"their joins are {joins} and every stream has at least one filter",
            hint="raise the operators or lower the queries or the streams a query",
        )
    mean = workload.operators / workload.queries
    lacking = np.maximum(mean - (2 * arity - 1), 0.25)  # what its joins and first filters leave
    extra = filters - int(arity.sum())
    return arity + random.multinomial(extra, lacking / lacking.sum())


class _Dealer:
    def __init__(
        self, workload: Workload, streams: Sequence[str], random: np.random.Generator
    ) -> None:
        self.workload, self.random = workload, random
        self.order = [streams[n] for n in random.permutation(len(streams))]
        weights = 1.0 / np.arange(1, len(streams) + 1) ** workload.zipf_theta
        self.weights = weights / weights.sum()
        self.deck: list[str] = []

    def streams(self, count: int) -> list[str]:
        if self.workload.choice == "dealt":
            return self._dealt(count)
        weights = self.weights if self.workload.choice == "zipf" else None
        picked = self.random.choice(len(self.order), count, replace=False, p=weights)
        return [self.order[n] for n in picked]

    def _dealt(self, count: int) -> list[str]:
        hand: list[str] = []
        while len(hand) < count:
            if not self.deck:
                self.deck = [self.order[n] for n in self.random.permutation(len(self.order))]
            card = next((n for n, stream in enumerate(self.deck) if stream not in hand), None)
            if card is None:  # only streams already in hand are left: begin a new deck
                self.deck = []
                continue
            hand.append(self.deck.pop(card))
        return hand


def _query(
    name: str, streams: list[str], filters: int, workload: Workload, random: np.random.Generator
) -> QueryTree:
    """A random join tree; first a filter for each stream, then the rest at random places."""
    above_joins = len(streams) - 1
    at_leaf = [1] * len(streams)
    at_join = [0] * above_joins
    for _ in range(filters - len(streams)):
        if above_joins and random.random() < workload.filters_above_joins:
            at_join[int(random.integers(above_joins))] += 1
        else:
            at_leaf[int(random.integers(len(streams)))] += 1
    maker = _Maker(name, workload, random)
    tops = [maker.filters(stream, at_leaf[n], stream) for n, stream in enumerate(streams)]
    for n in range(above_joins):
        left = tops.pop(int(random.integers(len(tops))))
        right = tops.pop(int(random.integers(len(tops))))
        tops.append(maker.filters(maker.join(left, right), at_join[n]))
    return QueryTree(name, tuple(maker.operators))


class _Maker:
    def __init__(self, name: str, workload: Workload, random: np.random.Generator) -> None:
        self.name, self.workload, self.random = name, workload, random
        self.operators: list[Operator] = []

    def _selectivity(self) -> float:
        return float(self.random.uniform(*self.workload.selectivity))

    def join(self, left: str, right: str) -> str:
        window_s = float(self.random.uniform(*self.workload.window_s))
        name = f"{self.name}.j{len(self.operators)}"
        cost_s = self.workload.join_us / 1e6
        self.operators.append(Operator(name, (left, right), cost_s, self._selectivity(), window_s))
        return name

    def filters(self, below: str, count: int, stream: str = "") -> str:
        for n in range(count):
            name = f"{self.name}.f{len(self.operators)}"
            cost_s = self.workload.filter_us / 1e6
            selectivity, physical = self._selectivity(), ""
            if stream and n == 0 and self.random.random() < self.workload.shared_filters:
                # The same predicate on the same stream: where two run on one host they are one.
                variant = int(self.random.integers(self.workload.shared_variants))
                low, high = self.workload.selectivity
                physical = f"{stream}?{variant}"
                selectivity = low + (high - low) * (variant + 0.5) / self.workload.shared_variants
            self.operators.append(Operator(name, (below,), cost_s, selectivity, 0.0, physical))
            below = name
        return below
