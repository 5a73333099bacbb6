"""What a claim of a seed is: a quantity of the rows, the range it must lie in, what it needs.

A verdict is one predicate: the claim's own quantity, computed from the stored rows and from nothing
else, lies in the range that the seed gives it, widened by a stated tolerance. A figure is a range
with two ends; 'more than' has one. A need is a range too, over the same rows: the scale at which
the seed claims it, or that nothing died. Where a need is not met, or where the rows lack what the
claim speaks of, the claim is not comparable, whatever its quantity says. Why a claim does not hold
is computed from the rows, or is 'not explained'.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import isnan
from statistics import fmean
from typing import Any

Row = Mapping[str, Any]
Rows = Sequence[Row]
Quantity = Callable[[Rows], float]
Told = Callable[[Rows], str]
NOT_EXPLAINED = "not explained"


class MissingError(Exception):
    """The rows do not have what a quantity is made of."""


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    INCOMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Bound:
    """A quantity and the range in which it must lie."""

    what: str  # the quantity in words
    quantity: Quantity
    low: float | None = None
    high: float | None = None
    tolerance: float = 0.0  # in the quantity's unit, at both ends
    unit: str = ""  # "%" for shares, "+%" for changes

    def contains(self, value: float) -> bool:
        above = self.low is None or value >= self.low - self.tolerance
        return above and (self.high is None or value <= self.high + self.tolerance)

    def wanted(self) -> str:
        """'at least 25 %, tolerance 5 %'."""
        if self.low is None:
            text = f"at most {shown(self.high, self.unit)}"
        elif self.high is None:
            text = f"at least {shown(self.low, self.unit)}"
        elif self.low == self.high:
            text = shown(self.low, self.unit)
        else:
            text = f"{shown(self.low, self.unit)} to {shown(self.high, self.unit)}"
        if not self.tolerance:
            return text
        return f"{text}, tolerance {shown(self.tolerance, self.unit.lstrip('+'))}"


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of a seed, as a bound on a quantity."""

    text: str
    bound: Bound
    needs: tuple[Bound, ...] = ()
    beside: Told | None = None  # more figures of the run, for the reader
    why: Told | None = None  # from the run, where the claim does not hold


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim beside our figure."""

    claim: str
    wanted: str  # the range, with its tolerance
    value: str  # our figure
    verdict: Verdict
    reason: str = ""  # where it does not hold or cannot be compared
    beside: str = ""  # more figures of the run

    @property
    def measured(self) -> str:
        return f"{self.value} ({self.beside})" if self.beside else self.value

    @property
    def holds(self) -> bool:
        return self.verdict == Verdict.HOLDS


def judged(claim: Claim, rows: Rows) -> Finding:
    """The verdict on one claim, from the rows alone."""
    bound = claim.bound
    wanted = f"{bound.what}: {bound.wanted()}"
    value = measured(bound, rows)
    if isnan(value):
        return Finding(
            claim.text, wanted, "nothing", Verdict.INCOMPARABLE, f"the run has no {bound.what}"
        )
    text = shown(value, bound.unit)
    beside = told(claim.beside, rows) if claim.beside is not None else ""
    for need in claim.needs:
        reached = measured(need, rows)
        if isnan(reached) or not need.contains(reached):
            seen = "none" if isnan(reached) else shown(reached, need.unit)
            reason = f"{need.what}: {seen}, needed {need.wanted()}"
            return Finding(claim.text, wanted, text, Verdict.INCOMPARABLE, reason, beside)
    if bound.contains(value):
        return Finding(claim.text, wanted, text, Verdict.HOLDS, beside=beside)
    reason = told(claim.why, rows) if claim.why is not None else ""
    return Finding(claim.text, wanted, text, Verdict.FAILS, reason or NOT_EXPLAINED, beside)


def measured(bound: Bound, rows: Rows) -> float:
    """The quantity, NaN where the rows lack what it is made of."""
    try:
        return float(bound.quantity(rows))
    except MissingError:
        return float("nan")


def told(tell: Told, rows: Rows) -> str:
    try:
        return tell(rows)
    except MissingError:
        return ""


def shown(value: float | None, unit: str = "") -> str:
    """A number as people read it.

    >>> shown(0.333, "+%"), shown(12345.6, "rows"), shown(0.5)
    ('+33.3 %', '12,346 rows', '0.5')
    """
    if value is None:
        return "any"
    if unit == "%":
        return f"{100 * value:.3g} %"
    if unit == "+%":
        return f"{100 * value:+.3g} %"
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{number} {unit}".rstrip()


# -- ranges ---------------------------------------------------------------------------------------


def at_least(
    what: str, quantity: Quantity, low: float, tolerance: float = 0.0, unit: str = ""
) -> Bound:
    return Bound(what, quantity, low, None, tolerance, unit)


def at_most(
    what: str, quantity: Quantity, high: float, tolerance: float = 0.0, unit: str = ""
) -> Bound:
    return Bound(what, quantity, None, high, tolerance, unit)


def about(
    what: str, quantity: Quantity, figure: float, tolerance: float = 0.0, unit: str = ""
) -> Bound:
    return Bound(what, quantity, figure, figure, tolerance, unit)


# -- rows -----------------------------------------------------------------------------------------


def chosen(rows: Rows, **where: object) -> list[Row]:
    """The rows that match; at least one."""
    found = [row for row in rows if all(row.get(key) == value for key, value in where.items())]
    if not found:
        raise MissingError(str(where))
    return found


def numbers(rows: Rows, column: str, **where: object) -> list[float]:
    """A column of the rows that match, without gaps; at least one number."""
    found = [float(r[column]) for r in chosen(rows, **where) if r.get(column) not in (None, "")]
    if not found:
        raise MissingError(f"{column} where {where}")
    return found


def mean(rows: Rows, column: str, **where: object) -> float:
    return fmean(numbers(rows, column, **where))


def values(rows: Rows, column: str) -> list[Any]:
    """The values of a column, each once, in order of appearance."""
    return list(dict.fromkeys(row[column] for row in rows if row.get(column) is not None))


def change(now: float, then: float) -> float:
    """By how much the first is more than the second, as a share."""
    if then == 0:
        raise MissingError("a change against nothing")
    return now / then - 1


def listed(figures: Mapping[Any, float], form: str = ".3g") -> str:
    return ", ".join(f"{name} {value:{form}}" for name, value in figures.items())


def largest_step(series: Sequence[float]) -> float:
    """The largest rise from one value to the next; negative where all fall."""
    if len(series) < 2:
        raise MissingError("a course of at least two values")
    return max(after - before for before, after in pairwise(series))


def smallest_step(series: Sequence[float]) -> float:
    return -largest_step([-value for value in series])


def confidence(found: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean, by the normal law; 0 of one value."""
    if len(found) < 2:
        return 0.0
    middle = fmean(found)
    spread = (sum((value - middle) ** 2 for value in found) / (len(found) - 1)) ** 0.5
    return float(1.96 * spread / len(found) ** 0.5)
