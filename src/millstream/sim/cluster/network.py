"""The network: latency, bandwidth, congestion, links that are slow or cut.

`shared` is one medium of the given bandwidth for all (the seed's '100 Mbps network'); `switched`
gives every host that bandwidth in and out. Decides what share of the rows under way arrives in a
tick, and how long a row is under way. It knows nothing of what rows mean, nor of policies.
"""

from dataclasses import dataclass, field

import numpy as np

from millstream.core.errors import UsageError
from millstream.decide.balance.model.dataflow import Flags, Floats, Ints, sum_by
from millstream.decide.balance.model.queueing import SMALLEST, backlog_after

MEDIA = ("shared", "switched")


@dataclass(frozen=True, slots=True)
class NetworkModel:
    medium: str = "shared"
    bandwidth_mbps: float = 100.0
    latency_ms: float = 0.1  # not in the seed: a local network's
    packet_bytes: float = 100.0

    def __post_init__(self) -> None:
        if self.medium not in MEDIA:
            raise UsageError(
                f"unknown network medium {self.medium!r}", hint=f"one of {', '.join(MEDIA)}"
            )
        if self.bandwidth_mbps <= 0 or self.latency_ms < 0 or self.packet_bytes <= 0:
            raise UsageError(
                "a network needs a bandwidth above zero and a latency of at least zero"
            )

    @property
    def bytes_per_s(self) -> float:
        return self.bandwidth_mbps * 1e6 / 8


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A pair of hosts whose connection is worse than the rest."""

    ends: frozenset[int]
    latency_factor: float = 1.0
    bandwidth_mbps: float | None = None


@dataclass(slots=True)
class Network:
    model: NetworkModel
    hosts: int
    group: Ints = field(init=False)  # hosts with unequal numbers cannot reach each other
    slow: tuple[SlowLink, ...] = ()
    cut: frozenset[frozenset[int]] = frozenset()  # single links that are down
    cut_since_s: float = 0.0
    queue_bytes: Floats = field(init=False)  # by resource: out of each host, into each, the medium
    used_bytes_per_s: Floats = field(init=False)  # in the last tick, by resource
    slow_queue_bytes: tuple[float, ...] = ()  # by slow link
    carried_bytes: float = 0.0  # in all

    def set_slow(self, links: tuple[SlowLink, ...]) -> None:
        self.slow, self.slow_queue_bytes = links, ()

    def __post_init__(self) -> None:
        self.group = np.zeros(self.hosts, dtype=np.int64)
        self.queue_bytes = np.zeros(2 * self.hosts + 1)
        self.used_bytes_per_s = np.zeros(2 * self.hosts + 1)

    def _capacity(self, tick_s: float) -> Floats:
        whole = self.model.bytes_per_s * tick_s
        capacity = np.full(2 * self.hosts + 1, whole)
        if self.model.medium == "switched":
            capacity[-1] = np.inf
        return capacity

    def reachable(self, sender: Ints, receiver: Ints) -> Flags:
        open_: Flags = self.group[sender] == self.group[receiver]
        for ends in self.cut:
            open_ &= ~self._between(ends, sender, receiver)
        return open_

    @staticmethod
    def _between(ends: frozenset[int], sender: Ints, receiver: Ints) -> Flags:
        a, b = sorted(ends) if len(ends) == 2 else sorted(ends) * 2
        here: Flags = ((sender == a) & (receiver == b)) | ((sender == b) & (receiver == a))
        return here

    def connected(self, a: int, b: int) -> bool:
        return bool(self.group[a] == self.group[b]) and frozenset((a, b)) not in self.cut

    def carry(
        self,
        sender: Ints,
        receiver: Ints,
        *,
        under_way_bytes: Floats,
        extra_out_bytes: Floats,
        extra_in_bytes: Floats,
        tick_s: float,
    ) -> Floats:
        """One tick; returns the share of each flow's bytes that arrives.

        The extra bytes, state under way in moves, load the same resources.
        """
        n = self.hosts
        moving = np.where(self.reachable(sender, receiver), under_way_bytes, 0.0)
        total = np.concatenate(
            (
                sum_by(sender, moving, n) + extra_out_bytes,
                sum_by(receiver, moving, n) + extra_in_bytes,
                [moving.sum() + extra_out_bytes.sum()],
            )
        )
        capacity = self._capacity(tick_s)
        bounded = np.isfinite(capacity)
        rest = np.full(len(total), self.model.packet_bytes / 2)
        left = np.zeros(len(total))
        left[bounded] = backlog_after(
            np.zeros(int(bounded.sum())), total[bounded], capacity[bounded], rest[bounded]
        )
        self.queue_bytes = left
        self.used_bytes_per_s = (total - left) / tick_s
        share = 1.0 - np.divide(left, total, out=np.zeros(len(total)), where=total > SMALLEST)
        arrives = np.minimum(np.minimum(share[sender], share[n + receiver]), share[-1])
        arrives = np.where(moving > 0, arrives, self.reachable(sender, receiver) * arrives)
        arrives = self._through_slow_links(sender, receiver, moving, arrives, tick_s)
        self.carried_bytes += float((arrives * moving).sum())
        return arrives

    def _through_slow_links(
        self, sender: Ints, receiver: Ints, moving: Floats, arrives: Floats, tick_s: float
    ) -> Floats:
        queues = []
        for link in self.slow:
            queue = 0.0
            if link.bandwidth_mbps is not None:
                here = self._between(link.ends, sender, receiver)
                room = link.bandwidth_mbps * 1e6 / 8 * tick_s
                asked = float(moving[here].sum())
                if asked > room:
                    arrives = np.where(here, np.minimum(arrives, room / asked), arrives)
                    queue = asked - room
            queues.append(queue)
        self.slow_queue_bytes = tuple(queues)
        return arrives

    def delays_s(self, sender: Ints, receiver: Ints, row_bytes: Floats, now_s: float) -> Floats:
        """How long a row sent now is under way: latency, transmission, the longest queue ahead."""
        n = self.hosts
        rate = self.model.bytes_per_s
        queue = np.maximum(self.queue_bytes[sender], self.queue_bytes[n + receiver])
        queue = np.maximum(queue, self.queue_bytes[-1]) / rate
        delay = self.model.latency_ms / 1e3 + row_bytes / rate + queue
        queues = self.slow_queue_bytes or (0.0,) * len(self.slow)
        for link, queued in zip(self.slow, queues, strict=True):
            here = self._between(link.ends, sender, receiver)
            extra = np.full(len(delay), self.model.latency_ms / 1e3 * (link.latency_factor - 1))
            if link.bandwidth_mbps is not None:
                extra += (row_bytes + queued) / (link.bandwidth_mbps * 1e6 / 8)
            delay = np.where(here, delay + extra, delay)
        whole: Floats = np.where(
            self.reachable(sender, receiver), delay, delay + now_s - self.cut_since_s
        )
        return whole

    def typical_delay_s(self) -> float:
        """Of a row between two hosts, with the queues of the last tick."""
        rate = self.model.bytes_per_s
        queue = float(np.median(self.queue_bytes[: 2 * self.hosts]))
        queue = max(queue, float(self.queue_bytes[-1]))
        return self.model.latency_ms / 1e3 + (self.model.packet_bytes + queue) / rate

    def busiest_bytes_per_s(self, sender: int, receiver: int) -> float:
        """Use of the most used resource between two hosts."""
        used = self.used_bytes_per_s
        own = max(float(used[sender]), float(used[self.hosts + receiver]))
        return max(own, float(used[-1])) if self.model.medium == "shared" else own

    def latency_s(self, a: int, b: int) -> float:
        """For one control message."""
        factor = max(
            (s.latency_factor for s in self.slow if s.ends == frozenset((a, b))), default=1
        )
        return self.model.latency_ms / 1e3 * factor
