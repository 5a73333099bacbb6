"""Drives a central policy in virtual time: collects statistics, asks, carries out.

Statistics are what a manager would get from its processors: mean loads by unit each period, with
the scatter that arrivals give them. A manager sees a host that is down as silent. No decision here.
"""

from typing import Any

import numpy as np

from millstream.decide.balance.model.central_policy import CentralPolicy, Observation
from millstream.decide.balance.model.dataflow import Floats
from millstream.sim.cluster.cluster import Cluster

STATISTICS_BYTES = 24  # of one unit's figures in one report
SLOWLY = 0.05  # weight of a new sample while rates only scatter
COUNTED_MAX = 1e18  # rows: numpy draws no larger counts
CLEARLY = 4.5  # deviations from the average that are a change, not scatter


class Centralised:
    """The controller of one run."""

    def __init__(
        self, policy: CentralPolicy, *, period_s: float = 1.0, sample_s: float = 0.5, kept: int = 10
    ) -> None:
        self.policy, self.period_s, self.sample_s, self.kept = policy, period_s, sample_s, kept
        self.control_bytes = 0.0
        self.messages = 0
        self.memory: Any = None

    def start(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.history: list[Floats] = []
        self.rates = cluster.stream_rates
        self.latest: list[Floats] = []
        cluster.kernel.every(self.sample_s, self._collect)
        cluster.kernel.every(self.period_s, self._decide)

    def _collect(self) -> None:
        """One sample: a unit's load rises and falls with the rows of its stream."""
        cluster, flow = self.cluster, self.cluster.flow
        true = cluster.stream_rates
        seen = true
        if cluster.setting.noise:
            expected = np.clip(true * self.sample_s, 1e-9, COUNTED_MAX)
            counts = cluster.kernel.generator("statistics").poisson(expected)
            seen = counts / self.sample_s
        relative = seen / np.maximum(true, 1e-9)
        stream_of = np.zeros(len(flow.units), dtype=np.int64)
        index = {stream.id: n for n, stream in enumerate(flow.streams)}
        for n, unit in enumerate(flow.units):
            stream_of[n] = index[unit.stream]
        self.history = [
            *self.history[1 - self.kept :],
            cluster.flows.unit_loads() * relative[stream_of],
        ]
        self._follow(seen)
        self.messages += len(flow.hosts)
        self.control_bytes += STATISTICS_BYTES * len(flow.units)

    def _follow(self, seen: Floats) -> None:
        """Rates as long averages, but a clear change is believed at once."""
        self.latest = [*self.latest[-1:], seen]
        recent = np.mean(self.latest, axis=0)
        scatter = np.sqrt(np.maximum(self.rates, 1.0) / (self.sample_s * len(self.latest)))
        changed = np.abs(recent - self.rates) > CLEARLY * scatter
        smooth = self.rates + SLOWLY * (seen - self.rates)
        self.rates = np.where(changed, recent, smooth)

    def _decide(self) -> None:
        cluster = self.cluster
        movable = np.ones(len(cluster.flow.units), dtype=bool)
        planned = cluster.flows.placed.unit_host.copy()
        for going in cluster.moves.under_way.values():
            movable[going.unit], planned[going.unit] = False, going.target
        seen = Observation(
            cluster.now_s,
            cluster.flow,
            planned,
            self.rates,
            cluster.hosts.speed,
            cluster.network.typical_delay_s(),
            cluster.flows.unit_backlog_s(),
            np.array(self.history),
            movable,
        )
        moves, self.memory = self.policy.decide(seen, self.memory)
        self.messages += len(moves)
        for move in moves:
            cluster.moves.start(move.unit, move.host, cluster.now_s, move.reason)

    def moved(self, unit: int, source: int, target: int) -> None:
        """Seen in the next statistics."""

    def crashed(self, host: int) -> None:
        """Seen in the next statistics."""

    def restarted(self, host: int) -> None:
        """Seen in the next statistics."""
