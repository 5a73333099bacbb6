"""Quality of service: what an administrator wants, in weights and in limits.

A goal is a statistic, maximise or minimise, and a weight; the weights of a specification sum to 1
(seed, section 5.1). A goal may also carry a limit ('delay at most 2 s'), which the seed leaves out:
it is then met or not. Specifications hold for all queries, or for one query with the weight of that
query. This module judges measured values; it never decides who runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from millstream.core.errors import UsageError
from millstream.core.registry import Registry

DELAY = frozenset({"delay", "delay_max", "oldest"})  # statistics of how late results are
STOCKS = frozenset({"queue_rows", "queue_rows_max", "queue_bytes"})  # of how much waits
MAXIMISE = "maximise"
MINIMISE = "minimise"
_SPELLINGS = {
    "maximise": MAXIMISE, "maximize": MAXIMISE, "max": MAXIMISE,
    "minimise": MINIMISE, "minimize": MINIMISE, "min": MINIMISE,
}  # fmt: skip


def quantifier(text: str) -> str:
    """Either spelling of the quantifier.

    >>> quantifier("minimize")
    'minimise'
    """
    if text not in _SPELLINGS:
        raise UsageError(f"unknown quantifier {text!r}", hint="maximise or minimise")
    return _SPELLINGS[text]


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of a specification (seed, table 5.1), with an optional limit."""

    statistic: str
    quantifier: str
    weight: float
    limit: float | None = None  # at most this when minimised, at least this when maximised

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantifier", quantifier(self.quantifier))
        if not (isfinite(self.weight) and 0 <= self.weight <= 1):
            raise UsageError(
                f"the weight of {self.statistic} must lie in 0 to 1, not {self.weight}"
            )
        if self.limit is not None and not (isfinite(self.limit) and self.limit >= 0):
            raise UsageError(f"the limit of {self.statistic} must be a number from 0 on")

    @property
    def minimised(self) -> bool:
        return self.quantifier == MINIMISE

    def met(self, value: float | None) -> bool | None:
        """Whether the limit holds; None without limit or without a value."""
        if self.limit is None or value is None:
            return None
        return value <= self.limit if self.minimised else value >= self.limit

    def attainment(self, value: float) -> float:
        """How far a limit is reached, in 0 to 1; 1 when met.

        >>> Goal("delay", "minimise", 1.0, limit=2.0).attainment(8.0)
        0.25
        """
        limit = self.limit or 0.0
        if self.met(value):
            return 1.0
        if self.minimised:
            return limit / value if value > 0 else 1.0
        return value / limit if limit > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Specification:
    """Goals whose weights sum to 1."""

    goals: tuple[Goal, ...]
    name: str = "custom"
    may_drop: bool = False  # rows that have missed the limit of delay are given up

    def __post_init__(self) -> None:
        limited = any(g.limit is not None and g.statistic in DELAY for g in self.goals)
        if self.may_drop and not limited:
            raise UsageError(
                "may_drop needs a limit of delay: rows that have missed it are dropped",
                hint="delay <= 2s, may_drop",
            )
        if not self.goals:
            raise UsageError("a QoS specification without goals")
        for goal in self.goals:
            _served(goal)
        names = [goal.statistic for goal in self.goals]
        if len(set(names)) != len(names):
            raise UsageError("a statistic has two goals in one QoS specification")
        total = sum(goal.weight for goal in self.goals)
        if abs(total - 1) > 1e-6:
            raise UsageError(
                f"the weights of a QoS specification must sum to 1, not {total:g}",
                detail=", ".join(f"{goal.statistic} {goal.weight:g}" for goal in self.goals),
            )

    @property
    def weights(self) -> dict[str, float]:
        return {goal.statistic: goal.weight for goal in self.goals}


def _served(goal: Goal) -> None:
    """Refuses what rows would be scheduled against: their prices know one direction only."""
    more = goal.statistic in ("output_rate", "throughput")
    if (more or goal.statistic in STOCKS | DELAY) and goal.minimised is more:
        usual, sign = (MAXIMISE, ">=") if more else (MINIMISE, "<=")
        raise UsageError(
            f"{goal.statistic} cannot be {goal.quantifier}d: nothing is scheduled for that",
            hint=f"write '{goal.statistic} {usual}', or a limit with '{sign}'",
        )
    if goal.limit == 0 and goal.statistic in DELAY:
        raise UsageError(f"the limit of {goal.statistic} must be above 0: every row takes time")


@dataclass(frozen=True, slots=True)
class Quality:
    """What is wanted of all queries together and of some in particular.

    The global specification has weight `weight`, each query's its own; scores are combined in these
    proportions.
    """

    overall: Specification
    weight: float = 1.0
    by_query: Mapping[str, tuple[float, Specification]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shares = [self.weight, *(weight for weight, _ in self.by_query.values())]
        if any(not isfinite(share) or share < 0 for share in shares) or sum(shares) <= 0:
            raise UsageError("QoS weights of queries must not be negative, and not all 0")

    def of(self, query: str) -> tuple[float, Specification]:
        """What is wanted of one query: its own goals at its weight, or those of all at theirs."""
        return self.by_query.get(query, (self.weight, self.overall))

    @property
    def goals(self) -> tuple[Goal, ...]:
        """The goals of all specifications, their weights in proportion and summing to 1."""
        total = self.weight + sum(weight for weight, _ in self.by_query.values())
        return tuple(
            replace(goal, weight=goal.weight * share / total)
            for share, specification in ((self.weight, self.overall), *self.by_query.values())
            for goal in specification.goals
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """One goal beside what is measured, for displays."""

    query: str | None  # None: the global specification
    goal: Goal
    value: float | None
    met: bool | None
    misses_in_s: float | None = None  # at the present rate, where that is soon and clear


def _template(name: str, *goals: tuple[str, str, float]) -> Specification:
    return Specification(tuple(Goal(*goal) for goal in goals), name)


TEMPLATES: Registry[Specification] = Registry("QoS template")
for _specification in (
    # The default suite gives equal weight to all three (section 5.1).
    _template(
        "balanced",
        ("queue_rows", MINIMISE, 0.33),
        ("delay", MINIMISE, 0.33),
        ("output_rate", MAXIMISE, 0.34),
    ),
    _template("fresh", ("delay", MINIMISE, 1.0)),
    _template("small", ("queue_rows", MINIMISE, 1.0)),
    _template("productive", ("output_rate", MAXIMISE, 1.0)),
    _template("alerting", ("delay", MINIMISE, 0.7), ("output_rate", MAXIMISE, 0.3)),
    _template("reporting", ("output_rate", MAXIMISE, 0.7), ("delay", MINIMISE, 0.3)),
    _template("frugal", ("queue_rows", MINIMISE, 0.75), ("throughput", MAXIMISE, 0.25)),
):
    TEMPLATES.add(_specification.name, _specification)

DEFAULT = Quality(TEMPLATES.get("balanced"))
