"""How far other processes are: round trips over HTTP, measured and handed to the estimates.

One probe belongs to one process and asks its peers' `/health` over kept connections; the least of a
few answers counts, because everything that is not distance only adds.
`decide/place/network/distances` keeps the estimates (smoothed, stale, completed); nothing here
decides.
"""

import time
from collections.abc import Callable, Mapping

from millstream.client.http import HttpClient
from millstream.core.errors import AwayError
from millstream.decide.place.network.distances import Estimates

SAMPLES = 5
ANSWER_S = 5.0


class DistanceProbe:
    """Measures from one process to others; use with `with`, or close it."""

    def __init__(
        self,
        origin: str,
        *,
        token: str | None = None,
        verify: str | bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.origin = origin
        self._clock = clock
        self._http = HttpClient(token, verify, answer_s=ANSWER_S)

    def __enter__(self) -> "DistanceProbe":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def round_trip_ms(self, url: str, samples: int = SAMPLES) -> float | None:
        """The least of a few round trips; None where nobody answers."""
        least: float | None = None
        for number in range(samples + 1):
            began = self._clock()
            try:
                self._http.send("GET", f"{url.rstrip('/')}/health")
            except AwayError:  # also one that was closed meanwhile
                return None
            if number:  # the first one also opens the connection
                taken = 1000 * (self._clock() - began)
                least = taken if least is None else min(least, taken)
        return least

    def observe(
        self, peers: Mapping[str, str], estimates: Estimates, now_s: float, *, limit: int = 8
    ) -> Estimates:
        """Probes the peers (name to URL) whose distance is unknown or oldest, at most `limit`."""
        asked = 0
        for pair in estimates.wanted([self.origin, *peers], len(peers) ** 2 + len(peers)):
            other = pair[1] if pair[0] == self.origin else pair[0]
            if self.origin not in pair or other not in peers:
                continue
            if asked >= limit:
                break
            asked += 1
            taken = self.round_trip_ms(peers[other])
            if taken is not None:
                estimates = estimates.observe_round_trip(self.origin, other, taken, now_s)
        return estimates
