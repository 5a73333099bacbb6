"""When rows arrive: constant, Poisson with changing means, and the World Cup trace.

Each pattern gives the sorted arrival times of one stream up to an end, as a pure function of its
parameters and a random stream. Nothing here knows what the rows are for.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
TRACE = "worldcup98_requests_per_minute.txt"


class Arrivals(Protocol):
    """A pattern of arrivals."""

    def times(self, until: float, generator: np.random.Generator) -> Times: ...


@dataclass(frozen=True, slots=True)
class Constant:
    """A row every 1 / rate seconds, the first at time 0."""

    rate: float

    def times(self, until: float, generator: np.random.Generator) -> Times:
        return np.arange(0.0, until, 1.0 / self.rate)


@dataclass(frozen=True, slots=True)
class ChangingPoisson:
    """Poisson arrivals whose mean is drawn anew every few seconds (seed 001, section 6.1).

    A period is a burst with the given chance; then its mean is `burst` times that of a steady one.
    The seed calls bursts ten times the average in one place, twice in another: hence a parameter.
    """

    rate: float  # rows a second in steady periods, on average
    burst: float = 2.0
    burst_chance: float = 0.3
    spread: float = 0.25  # steady means vary by this share either way
    period_s: float = 5.0

    def means(self, until: float, generator: np.random.Generator) -> Times:
        periods = int(np.ceil(until / self.period_s))
        means = self.rate * generator.uniform(1 - self.spread, 1 + self.spread, periods)
        return np.where(generator.random(periods) < self.burst_chance, means * self.burst, means)

    def times(self, until: float, generator: np.random.Generator) -> Times:
        return _poisson(self.means(until, generator), self.period_s, until, generator)

    @property
    def mean_rate(self) -> float:
        """Rows a second over steady periods and bursts."""
        return self.rate * (1 + self.burst_chance * (self.burst - 1))


@dataclass(frozen=True, slots=True)
class WorldCup:
    """The pattern of requests to the 1998 World Cup site, its minutes played in `minute_s` seconds.

    Sixteen days from 20 June 1998 on; a run starts at a minute drawn at random unless given. The
    counts are scaled so that the whole trace has the given mean rate; within a minute arrivals are
    Poisson.
    """

    rate: float
    minute_s: float = 1.0
    start_minute: int | None = None

    def times(self, until: float, generator: np.random.Generator) -> Times:
        counts = worldcup_counts()
        minutes = int(np.ceil(until / self.minute_s))
        start = self.start_minute
        if start is None:
            start = int(generator.integers(len(counts)))
        chosen = counts[(start + np.arange(minutes)) % len(counts)]
        return _poisson(chosen * (self.rate / counts.mean()), self.minute_s, until, generator)


@cache
def worldcup_counts() -> Times:
    """Requests a minute; Arlitt and Jin, '1998 World Cup Web Site Access Logs', August 1998."""
    text = files("millstream.sim").joinpath("data", TRACE).read_text()
    return np.array([float(line) for line in text.splitlines() if not line.startswith("#")])


def _poisson(means: Times, period_s: float, until: float, generator: np.random.Generator) -> Times:
    counts = generator.poisson(means * period_s)
    starts = np.repeat(np.arange(len(means)) * period_s, counts)
    times = np.sort(starts + generator.random(len(starts)) * period_s)
    return times[times < until]
