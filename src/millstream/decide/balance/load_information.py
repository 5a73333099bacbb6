"""What a node knows of its own load, and when it tells its partners (seed 002, section 3.3).

Each window gives a measured load (busy time over window length). A low-pass filter removes short
fluctuations; its weight alpha is not guessed but solved from how large and how long fluctuations
are that shall not be seen (m1, m2, l) and from the factor kappa at which a node broadcasts. Nothing
here sends: `closed_window` says whether to.
"""

from dataclasses import dataclass

from millstream.core.errors import UsageError

PRECISION = 1e-9
IDLE = 1e-6  # below this a load is nothing, and factors of it mean nothing


@dataclass(frozen=True, slots=True)
class LoadInformation:
    """Own load as used for balancing, and what the partners were told last."""

    load: float = 0.0
    broadcast: float | None = None  # None: nothing told yet
    broadcast_s: float = 0.0  # when
    windows: int = 0


@dataclass(frozen=True, slots=True)
class Fluctuation:
    """A short change that balancing shall ignore: up to `factor` times within `rise` windows, held
    for `hold` windows (m1, m2 and l of the seed)."""

    rise_windows: int = 1
    hold_windows: int = 1
    factor: float = 2.0


def relative_estimate(alpha: float, fluctuation: Fluctuation) -> float:
    """Filtered load after the fluctuation over the load before it: the seed's closed form.

    >>> round(relative_estimate(0.9, Fluctuation(1, 1, 2.0)), 6)  # 2 - alpha^2
    1.19
    """
    m1, m2, l_ = fluctuation.rise_windows, fluctuation.hold_windows, fluctuation.factor
    held = alpha**m2
    # (alpha^(m1+1) - 1) / (1 - alpha) as a sum, which also holds at alpha = 1.
    lag = -sum(alpha**k for k in range(m1 + 1))
    return held + held * (l_ - 1) / m1 * (m1 + 1 + lag) + (1 - held) * l_


def smallest_alpha(fluctuation: Fluctuation, kappa: float) -> float:
    """The least alpha for which the fluctuation stays below the factor kappa, up and down alike.

    >>> round(smallest_alpha(Fluctuation(1, 1, 2.0), 1.2), 4)  # the seed rounds to 0.9
    0.8944
    """
    _check(fluctuation, kappa)
    falling = Fluctuation(
        fluctuation.rise_windows, fluctuation.hold_windows, 1 / fluctuation.factor
    )

    def ignored(alpha: float) -> bool:
        return (
            relative_estimate(alpha, fluctuation) <= kappa
            and relative_estimate(alpha, falling) >= 1 / kappa
        )

    if ignored(0.0):
        return 0.0
    low, high = 0.0, 1.0  # alpha = 1 never moves, so it ignores everything
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if ignored(middle) else (middle, high)
    return high


def largest_alpha(factor: float, kappa: float, windows: int) -> float:
    """The most alpha with which a lasting change by `factor` is broadcast within so many windows.

    >>> round(largest_alpha(2.0, 1.2, 10), 4)
    0.9779
    """
    if factor <= kappa or windows < 1:
        raise UsageError(
            f"a change by {factor} is never broadcast with kappa {kappa}",
            hint="ask for a factor above kappa, within at least one window",
        )
    return float(((factor - kappa) / (factor - 1)) ** (1 / windows))


def _check(fluctuation: Fluctuation, kappa: float) -> None:
    if fluctuation.rise_windows < 1 or fluctuation.hold_windows < 0 or fluctuation.factor <= 1:
        raise UsageError(
            "a fluctuation rises over at least one window to more than once the load",
            detail=f"got {fluctuation}",
        )
    if kappa <= 1:
        raise UsageError(
            f"kappa is {kappa}", hint="a node broadcasts when its load changes by kappa > 1"
        )


def closed_window(
    known: LoadInformation,
    measured: float,
    now_s: float,
    *,
    alpha: float,
    kappa: float,
    silence_s_max: float,
) -> tuple[LoadInformation, bool]:
    """Takes in one window's measured load; tells whether the partners must hear of it.

    Silence is bounded, because a partner must be able to tell an unchanged node from a dead one;
    the seed leaves that open.
    """
    load = measured if known.windows == 0 else alpha * known.load + (1 - alpha) * measured
    windows, last = known.windows + 1, known.broadcast
    if last is None:
        due = True
    else:
        low, high = max(min(last, load), IDLE), max(last, load, IDLE)
        due = high >= kappa * low or now_s - known.broadcast_s >= silence_s_max
    if due:
        return LoadInformation(load, load, now_s, windows), True
    return LoadInformation(load, last, known.broadcast_s, windows), False


def shifted(known: LoadInformation, change: float) -> LoadInformation:
    """Own load after a fragment came or went, without waiting for the filter to notice."""
    return LoadInformation(
        max(0.0, known.load + change), known.broadcast, known.broadcast_s, known.windows
    )
