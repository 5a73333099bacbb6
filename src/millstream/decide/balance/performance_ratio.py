"""How well a query is served: its delay over its inherent evaluation time (seed 002, section 2).

Two ways to the same figure: `observe` from the times of real rows, `estimate` from node loads by
the seed's cost model, equations (1) to (5). The ratio of a query is the worst over its streams, and
the objective is the worst over all queries. Only source rows that yield a result count, and a row's
delay ends with its last result. The seed calls f and g concave; they are convex (1 / (1 - rho) is).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from millstream.core.registry import Registry

Congestion = Callable[[float], float]  # load of a node -> how much longer work takes there
CONGESTION: Registry[Congestion] = Registry("congestion function")


@CONGESTION.member("mm1")
def mm1(load: float) -> float:
    """An M/M/1 queue: 1 / (1 - load).

    >>> mm1(0.5)
    2.0
    """
    return 1 / (1 - load) if load < 1 else inf


@CONGESTION.member("md1")
def md1(load: float) -> float:
    """An M/D/1 queue: waits half as long as M/M/1.

    >>> md1(0.5)
    1.5
    """
    return 1 + load / (2 * (1 - load)) if load < 1 else inf


@dataclass(frozen=True, slots=True)
class PerformanceRatio:
    """Delay over evaluation time, by where it arises (equation 3)."""

    processing: float
    communication: float

    @property
    def total(self) -> float:
        return self.processing + self.communication


@dataclass(frozen=True, slots=True)
class PathOperator:
    cost_s: float
    selectivity: float
    node: str


def evaluation_times_s(path: Sequence[PathOperator]) -> list[float]:
    """t_j of each operator: what one result-yielding source row costs it (equation 1).

    Such a row passes every filter, so each selectivity before counts as at least one.

    >>> evaluation_times_s([PathOperator(1.0, 0.5, "n"), PathOperator(1.0, 3.0, "n"),
    ...                     PathOperator(2.0, 1.0, "n")])
    [1.0, 1.0, 6.0]
    """
    times, rows = [], 1.0
    for operator in path:
        times.append(operator.cost_s * rows)
        rows *= max(operator.selectivity, 1.0)
    return times


def estimate(
    path: Sequence[PathOperator],
    loads: dict[str, float],
    transfer_s: float,
    transfers: int,
    congestion: Congestion = mm1,
) -> PerformanceRatio:
    """Equations (4) and (5) for the rows of one stream.

    >>> path = [PathOperator(1.0, 1.0, "a"), PathOperator(3.0, 1.0, "b")]
    >>> estimate(path, {"a": 0.5, "b": 0.0}, transfer_s=2.0, transfers=1)
    PerformanceRatio(processing=1.25, communication=0.5)
    """
    times = evaluation_times_s(path)
    whole = sum(times)
    if whole <= 0:
        return PerformanceRatio(inf, inf)
    slowed = sum(
        congestion(loads[operator.node]) * time for operator, time in zip(path, times, strict=True)
    )
    return PerformanceRatio(slowed / whole, transfer_s * transfers / whole)


@dataclass(frozen=True, slots=True)
class SourceRow:
    """What became of one source row for one query, as the sink or the engine saw it."""

    arrived_s: float
    results_s: tuple[float, ...]  # when each of its results came out
    evaluation_s: float  # p: time spent in operators for it
    communication_s: float = 0.0  # of the delay, the part on the network


def observe(row: SourceRow) -> PerformanceRatio | None:
    """The ratio of one source row; None if it yielded nothing, for then it does not count.

    >>> observe(SourceRow(1.0, (1.5, 3.0), 0.5, 1.0))
    PerformanceRatio(processing=2.0, communication=2.0)
    """
    if not row.results_s or row.evaluation_s <= 0:
        return None
    delay_s = max(row.results_s) - row.arrived_s
    return PerformanceRatio(
        (delay_s - row.communication_s) / row.evaluation_s,
        row.communication_s / row.evaluation_s,
    )


def worst(ratios: Iterable[PerformanceRatio]) -> PerformanceRatio | None:
    """The one with the largest total: of a query over its streams, of all over the queries."""
    return max(ratios, key=lambda ratio: ratio.total, default=None)
