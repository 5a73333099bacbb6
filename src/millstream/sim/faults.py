"""What goes wrong in a run, and when; a fault is data, `Weather` is what is wrong right now.

Crashes and slow hosts act on hosts, partitions, cut and slow links on the network, loss and
repetition on control messages, skew on a node's clock. Every fault has a start and may have an end.
Nothing here knows a policy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from millstream.core.errors import UsageError
from millstream.decide.balance.model.dataflow import Ints
from millstream.sim.cluster.hosts import Hosts
from millstream.sim.cluster.network import Network, SlowLink

KINDS = ("crash", "slow_host", "slow_link", "cut_link", "partition", "clock", "loss", "repeat")
LINK_KINDS = ("slow_link", "cut_link")
DRIFT_MAX = 1.0  # no real clock is off by a hundredth of it; far beyond, a run would never end
DRIFT_MIN = -0.999  # of several that add up: a clock never stands still


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    at_s: float
    until_s: float | None = None  # None: to the end of the run
    hosts: tuple[str, ...] = ()  # of a link, the two ends; of a partition, one side
    factor: float = 1.0  # how much slower a host, how much longer a link's latency
    bandwidth_mbps: float | None = None  # of a slow link
    probability: float = 0.0  # of losing or repeating a message
    offset_s: float = 0.0  # of a clock
    drift: float = 0.0  # of a clock: seconds a second

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"unknown fault {self.kind!r}", hint=f"one of {', '.join(KINDS)}")
        if self.kind in LINK_KINDS and len(self.hosts) != 2:
            raise UsageError(f"a {self.kind} fault names the two hosts of the link")
        if self.kind in ("crash", "slow_host", "partition", "clock") and not self.hosts:
            raise UsageError(f"a {self.kind} fault names the hosts it strikes")
        if self.until_s is not None and self.until_s <= self.at_s:
            raise UsageError(f"a {self.kind} fault ends at {self.until_s} s, before it begins")
        if not 0 <= self.probability <= 1:
            raise UsageError(f"a probability of {self.probability}")
        if self.factor <= 0 or self.drift <= -1:
            raise UsageError(f"a {self.kind} fault needs a factor above 0 and a drift above -1")
        if self.drift > DRIFT_MAX:
            raise UsageError(
                f"a clock cannot drift by {self.drift:g} seconds a second",
                hint=f"at most {DRIFT_MAX:g}: a clock that runs twice as fast",
            )
        if self.bandwidth_mbps is not None and self.bandwidth_mbps <= 0:
            raise UsageError(
                f"a {self.kind} fault needs a bandwidth_mbps above 0", hint="cut_link cuts a link"
            )


@dataclass(slots=True)
class Weather:
    """Faults in force; applies them to hosts and network as they come and go."""

    names: Sequence[str]
    hosts: Hosts
    network: Network
    active: list[Fault] = field(default_factory=list)

    def numbers(self, fault: Fault) -> list[int]:
        index = {name: n for n, name in enumerate(self.names)}
        unknown = [name for name in fault.hosts if name not in index]
        if unknown:
            raise UsageError(f"fault {fault.kind!r} names an unknown host {unknown[0]!r}")
        return [index[name] for name in fault.hosts]

    def begin(self, fault: Fault, now_s: float) -> None:
        self.active.append(fault)
        self._apply(now_s)

    def end(self, fault: Fault, now_s: float) -> None:
        self.active.remove(fault)
        self._apply(now_s)

    def _apply(self, now_s: float) -> None:
        up = np.ones(len(self.names), dtype=bool)
        slowdown = np.ones(len(self.names))
        sides: list[tuple[int, ...]] = [()] * len(self.names)  # the partitions a host is within
        links, cut = [], set()
        for number, fault in enumerate(self.active):
            at = self.numbers(fault)
            if fault.kind == "crash":
                up[at] = False
            elif fault.kind == "slow_host":
                slowdown[at] *= fault.factor
            elif fault.kind == "partition":
                for host in set(at):
                    sides[host] += (number,)
            elif fault.kind == "slow_link":
                links.append(SlowLink(frozenset(at), fault.factor, fault.bandwidth_mbps))
            elif fault.kind == "cut_link":
                cut.add(frozenset(at))
        group = _groups(sides)
        self.hosts.down_since_s = np.where(self.hosts.up & ~up, now_s, self.hosts.down_since_s)
        self.hosts.up, self.hosts.slowdown = up, slowdown
        if (group.any() or cut) and not (self.network.group.any() or self.network.cut):
            self.network.cut_since_s = now_s
        self.network.group, self.network.cut = group, frozenset(cut)
        self.network.set_slow(tuple(links))

    def probability(self, kind: str) -> float:
        """Of a message being lost or repeated: independent faults add up."""
        spared = 1.0
        for fault in self.active:
            if fault.kind == kind:
                spared *= 1 - fault.probability
        return 1 - spared

    def clock(self, host: str) -> tuple[float, float]:
        """Offset and drift of a host's clock."""
        skews = [f for f in self.active if f.kind == "clock" and host in f.hosts]
        drift = sum(f.drift for f in skews)
        return sum(f.offset_s for f in skews), drift if drift > -1 else DRIFT_MIN


def _groups(sides: Sequence[tuple[int, ...]]) -> Ints:
    """A number by host: equal for hosts in the same partitions, 0 for those in none."""
    numbers: dict[tuple[int, ...], int] = {(): 0}
    return np.array([numbers.setdefault(some, len(numbers)) for some in sides], dtype=np.int64)
