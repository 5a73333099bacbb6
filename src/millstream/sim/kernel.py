"""Virtual time: a heap of events, and one source of chance a purpose.

The kernel decides only what happens next: the earliest event, and among events of one time the one
scheduled first (or with the lower `priority`). It knows nothing of operators, hosts or networks and
never reads a clock. A run is a function of the seed: every purpose draws from a random stream of
its own name, so that one more draw in one place does not shift the draws of another.
"""

import heapq
from collections.abc import Callable
from hashlib import blake2b
from math import inf, isfinite
from random import Random

import numpy as np

Callback = Callable[[], object]


class Event:
    """Something that will happen; may be cancelled until it does."""

    __slots__ = ("callback", "cancelled", "time")

    def __init__(self, time: float, callback: Callback) -> None:
        self.time = time
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Kernel:
    """Runs events in order of time.

    >>> kernel = Kernel(seed=1)
    >>> heard = []
    >>> _ = kernel.at(2.0, lambda: heard.append("later"))
    >>> _ = kernel.after(1.0, lambda: heard.append(f"at {kernel.now}"))
    >>> kernel.run()
    2
    >>> heard, kernel.now
    (['at 1.0', 'later'], 2.0)
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.now = 0.0
        self._heap: list[tuple[float, int, int, Event]] = []
        self._count = 0
        self._stopped = False
        self._randoms: dict[str, Random] = {}
        self._generators: dict[str, np.random.Generator] = {}

    def at(self, time: float, callback: Callback, *, priority: int = 0) -> Event:
        """Calls back at a time from now on; equal times go by priority, then by order of call."""
        if not isfinite(time) or time < self.now:
            raise ValueError(f"an event at {time} when it is {self.now}")
        event = Event(time, callback)
        self._count += 1
        heapq.heappush(self._heap, (time, priority, self._count, event))
        return event

    def after(self, delay: float, callback: Callback, *, priority: int = 0) -> Event:
        return self.at(self.now + delay, callback, priority=priority)

    def every(self, period: float, callback: Callback, *, first: float | None = None) -> Event:
        """Calls back again and again; the returned event, when cancelled, ends the series."""
        if period <= 0:
            raise ValueError(f"a period of {period}")
        series = Event(self.now if first is None else first, callback)

        def beat() -> None:
            if series.cancelled:
                return
            callback()
            if not series.cancelled:  # the callback may have ended its own series
                self.after(period, beat)

        self.at(self.now + period if first is None else first, beat)
        return series

    def run(self, until: float = inf, *, events_max: int | None = None) -> int:
        """Runs events up to and including `until`; returns how many ran.

        Afterwards `now` is `until` if that is finite, else the time of the last event, unless
        `stop` was called or `events_max` was reached first.
        """
        done = 0
        self._stopped = False
        while self._heap and not self._stopped:
            if self._heap[0][0] > until or done == events_max:
                break
            time, _, _, event = heapq.heappop(self._heap)
            if event.cancelled:
                continue
            self.now = time
            event.callback()
            done += 1
        exhausted = not self._heap or self._heap[0][0] > until
        if exhausted and not self._stopped and isfinite(until):
            self.now = max(self.now, until)
        return done

    def stop(self) -> None:
        """Ends the current run after the event that calls it."""
        self._stopped = True

    @property
    def pending(self) -> int:
        """Events that are still to come."""
        return sum(not event.cancelled for *_, event in self._heap)

    def random(self, name: str) -> Random:
        """The random stream of that name; the same object at every call."""
        if name not in self._randoms:
            self._randoms[name] = Random(stream_seed(self.seed, name))
        return self._randoms[name]

    def generator(self, name: str) -> np.random.Generator:
        """The numpy stream of that name; apart from `random` of the same name."""
        if name not in self._generators:
            seed = stream_seed(self.seed, f"numpy/{name}")
            self._generators[name] = np.random.default_rng(seed)
        return self._generators[name]


def stream_seed(seed: int, name: str) -> int:
    """A seed for one purpose, the same in every process (the builtin hash of text is not)."""
    return int.from_bytes(blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "big")
