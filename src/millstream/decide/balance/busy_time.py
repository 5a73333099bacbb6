"""How busy a processor was in a window, and which operators kept it busy.

A step is known when it ends, and may be longer than a window: what it took is laid over the windows
that follow, so that a load never exceeds one and no second is lost. An operator's share of the time
follows the same low-pass filter as the load (seed 002, section 3.3), so that the loads of all
operators together are about that of the processor. Measures nothing itself.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

NEGLIGIBLE = 1e-4  # of the time: an operator below it has no load


@dataclass(frozen=True, slots=True)
class BusyTime:
    carried_s: float = 0.0  # of steps that were longer than what they were counted in
    operators: Mapping[str, float] = field(default_factory=dict)  # shares of the time, filtered


def after_window(
    known: BusyTime,
    seconds: Mapping[str, float],
    span_s: float,
    *,
    alpha: float,
    present: Collection[str],
) -> tuple[BusyTime, float]:
    """Takes in the seconds that operators took in a window; gives the window's load.

    `span_s` is the time there was: the window's length times the steps that may run at once.

    >>> known, load = after_window(BusyTime(), {"o": 3.0}, 2.0, alpha=0.5, present={"o"})
    >>> load, known.carried_s, known.operators["o"]
    (1.0, 1.0, 0.75)
    """
    if span_s <= 0:
        return known, 0.0
    total_s = known.carried_s + sum(seconds.values())
    used_s = min(total_s, span_s)
    shares = {
        name: alpha * known.operators.get(name, 0.0) + (1 - alpha) * seconds.get(name, 0.0) / span_s
        for name in present
    }
    kept = {name: share for name, share in shares.items() if share >= NEGLIGIBLE}
    return BusyTime(total_s - used_s, kept), used_s / span_s
