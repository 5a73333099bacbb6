"""Keeps the distances from a processor to the others current, and tells them in its reports.

The manager says who the others are (`acquaint`); each of them is measured soon after it was
heard of and again at an interval, the oldest first, a few at a time. Estimates are smoothed and
grow stale (`decide/place/network/distances`). A distance that was given as a property of the
processor (`distance.p2=30`) holds as long as none was measured; with `measure=false` given ones
alone count.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.control.admission.distances import GIVEN, MEASURED
from millstream.decide.place.network.distances import Estimates
from millstream.edge.http.distance_probe import DistanceProbe

EVERY_S = 30.0
AT_ONCE = 8  # peers measured in one round
TOLD_MAX = 150  # in one report
CLOSE_S = 5.0
UNKNOWN_MS = 1e9  # of whom routes know nothing: the last to be asked


class DistanceWatch:
    """Measures in a thread of its own from the first acquaintance on."""

    def __init__(
        self,
        name: str,
        properties: Mapping[str, Any],
        *,
        token: str | None = None,
        verify: str | bool = True,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._properties, self._clock = name, properties, clock
        self._token, self._verify, self._every_s = token, verify, every_s
        self._peers: dict[str, str] = {}
        self._estimates = Estimates(horizon_s=max(300.0, 10 * every_s))
        self._probe: DistanceProbe | None = None
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def measures(self) -> bool:
        return str(self._properties.get("measure", "true")).lower() != "false"

    def acquaint(self, peers: Mapping[str, str]) -> None:
        """Who the others are, by name; whoever is not among them is forgotten."""
        with self._lock:
            others = {name: url for name, url in peers.items() if name != self._name}
            for gone in self._peers.keys() - others.keys():
                self._estimates = self._estimates.forget(gone)
            self._peers = others
            if others and self.measures and self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="millstream-distances", daemon=True
                )
                self._thread.start()
        self._news.set()

    def close(self) -> None:
        self._stopping.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)  # a peer that is slow to answer is not waited for
        with self._lock:
            if self._probe is not None:
                self._probe.__exit__()

    def figures(self) -> dict[str, float]:
        """What was measured, under the names that reports have: rounded, a few at most."""
        with self._lock:
            names = sorted(self._peers)[:TOLD_MAX]
            found = {name: self._measured(name) for name in names}
        return {MEASURED + name: round(ms, 1) for name, ms in found.items() if ms is not None}

    def distances(self, targets: Sequence[str]) -> dict[str, float]:
        """Distances to some of the others: measured, measured now, or given."""
        found: dict[str, float] = {}
        for target in targets:
            with self._lock:
                known, url = self._measured(target), self._peers.get(target)
            if known is None and url is not None and self.measures:
                self._measure({target: url})
                with self._lock:
                    known = self._measured(target)
            if known is None:
                given = self._properties.get(GIVEN + target)
                known = float(given) if isinstance(given, int | float) else None
            if known is not None:
                found[target] = known
        return found

    def near(self) -> dict[str, float]:
        """All others that are known, with what is known of their distances; measures nothing."""
        with self._lock:
            found: dict[str, float] = {}
            for name in self._peers:
                given = self._properties.get(GIVEN + name)
                known = self._measured(name)
                usual = float(given) if isinstance(given, int | float) else UNKNOWN_MS
                found[name] = usual if known is None else known
            return found

    def _measured(self, target: str) -> float | None:
        known = self._estimates.pairs.get((self._name, target))
        if known is None or self._estimates.stale(known, self._clock()):
            return None
        return known.mean_ms

    def _measure(self, peers: Mapping[str, str]) -> None:
        """Measures outside the lock; what was forgotten meanwhile stays forgotten."""
        with self._lock:
            if self._probe is None:
                self._probe = DistanceProbe(self._name, token=self._token, verify=self._verify)
            probe = self._probe
        for name, url in peers.items():
            taken = None if self._stopping.is_set() else probe.round_trip_ms(url)
            if taken is None:
                continue
            with self._lock:
                if self._peers.get(name) == url:
                    now = self._clock()
                    self._estimates = self._estimates.observe_round_trip(
                        self._name, name, taken, now
                    )

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            with self._lock:
                peers = dict(self._peers)
                pairs = self._estimates.wanted([self._name, *peers], len(peers) ** 2 + len(peers))
            mine = [a if b == self._name else b for a, b in pairs if self._name in (a, b)]
            self._measure({name: peers[name] for name in mine[:AT_ONCE]})
            unknown = any(self._measured(name) is None for name in mine[AT_ONCE:])
            self._news.wait(1.0 if unknown else self._every_s)
