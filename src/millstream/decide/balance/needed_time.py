"""What share of a processor's time its operators need, however often they happened to run.

A processor with little to do runs a step for every few rows that come, and is busy with what steps
cost at the least; the same operators beside many others take more rows a step and cost half of it.
So how busy a processor is says little about what it could take or what an operator would cost
elsewhere. Needed is what remains when every operator runs once in a cycle: never more than it was
busy, and the sum over operators is what they need together. From rates and measured costs of steps;
measures nothing itself.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from millstream.decide.balance.busy_time import NEGLIGIBLE


@dataclass(frozen=True, slots=True)
class Rates:
    """How often operators ran and how many rows they took, a second, by the seed's filter."""

    steps: Mapping[str, float] = field(default_factory=dict)
    rows: Mapping[str, float] = field(default_factory=dict)


def after_window(
    known: Rates,
    steps: Mapping[str, int],
    rows: Mapping[str, int],
    span_s: float,
    *,
    alpha: float,
    present: Collection[str],
) -> Rates:
    """Takes in the steps and rows of a window (seed 002, section 3.3)."""
    if span_s <= 0:
        return known

    def filtered(before: Mapping[str, float], now: Mapping[str, int]) -> dict[str, float]:
        rates = {
            name: alpha * before.get(name, 0.0) + (1 - alpha) * now.get(name, 0) / span_s
            for name in present
        }
        return {name: rate for name, rate in rates.items() if rate >= NEGLIGIBLE}

    return Rates(filtered(known.steps, steps), filtered(known.rows, rows))


def more_alone(
    rates: Rates, operator: str, cost: tuple[float, float], cycle_s: float, members: int
) -> float:
    """What an operator would need more by itself: the whole fixed cost of a job of so many.

    >>> more_alone(Rates(steps={"o": 4.0}, rows={"o": 1000.0}), "o", (0.1, 1e-4), 5.0, 3)
    0.04000000000000001
    """
    return (members - 1) * needed(Rates(rates.steps), operator, cost, cycle_s)


def needed(rates: Rates, operator: str, cost: tuple[float, float], cycle_s: float) -> float:
    """The share of the time that an operator needs: its rows, and a step a cycle at the most.

    >>> rates = Rates(steps={"o": 4.0, "p": 0.1}, rows={"o": 1000.0})
    >>> needed(rates, "o", (0.1, 1e-4), 5.0), needed(rates, "o", (0.1, 1e-4), 0.0)
    (0.12000000000000001, 0.5)
    >>> needed(rates, "p", (0.1, 1e-4), 5.0)
    0.010000000000000002
    """
    fixed_s, row_s = cost
    steps = rates.steps.get(operator, 0.0)
    if cycle_s > 0:
        steps = min(steps, 1 / cycle_s)
    return fixed_s * steps + row_s * rates.rows.get(operator, 0.0)
