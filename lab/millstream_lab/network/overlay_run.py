"""Distributed placement in virtual time: the coordinators of `control` over a simulated overlay.

A driver of `control.coordinator.step`: it resolves zone addresses by the overlay, delivers each
message after the delay of its route, answers probes from the true distances, and counts. Faults
are settings: lost, repeated and delayed messages, peers that fail. Decides nothing itself.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from millstream.control.coordinators.coordinator import step
from millstream.control.coordinators.overlay import Overlay
from millstream.control.coordinators.state import (
    Action,
    Event,
    PeerDown,
    PeerState,
    Probe,
    Probed,
    Received,
    Refuse,
    Report,
    Send,
    Submit,
    Tick,
    Timing,
    ToPeer,
    ToZone,
)
from millstream.control.coordinators.zones import Tree, tree_of
from millstream.control.protocol.coordinator_messages import Settings, TreeMessage
from millstream.core.placement import Placement
from millstream.decide.place.check import cost_and_delay
from millstream.decide.place.network.tree import NetworkTree
from millstream.sim.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Faults:
    """What the network does to messages between different peers."""

    loss: float = 0.0
    repetition: float = 0.0
    jitter_ms: float = 0.0
    silent: frozenset[str] = frozenset()  # peers that answer no probe


@dataclass(slots=True)
class Counts:
    """What crossed the network; within one peer nothing does."""

    messages: Counter[str] = field(default_factory=Counter)
    envelopes: int = 0  # messages to one peer in one step travel together (section 5, batching)
    hops: int = 0
    probed_pairs: int = 0


@dataclass(slots=True)
class OverlayRun:
    """Peers on an overlay. Times of events are seconds, distances milliseconds."""

    overlay: Overlay
    timing: Timing = field(default_factory=Timing)
    faults: Faults = field(default_factory=Faults)
    seed: int = 0
    kernel: Kernel = field(init=False)
    peers: dict[str, PeerState] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    outcomes: list[Report | Refuse] = field(default_factory=list)
    finished_s: float = 0.0

    def __post_init__(self) -> None:
        self.kernel = Kernel(self.seed)

    def submit(self, tree: Tree, settings: Settings, levels: int = 1) -> None:
        event = Submit(tree, settings, levels, self.kernel.now)
        self.kernel.after(0.0, lambda: self.feed(settings.proxy, event))

    def run(self, until_s: float | None = None, tick_s: float | None = None) -> None:
        """To quiescence; with ticks, to a given time."""
        if tick_s is not None:
            assert until_s is not None
            ticks = int(until_s / tick_s)
            for number in range(1, ticks + 1):
                self.kernel.at(self.kernel.now + number * tick_s, self.tick)
        self.kernel.run() if until_s is None else self.kernel.run(until_s)

    def tick(self) -> None:
        for name in sorted(self.peers):
            if name not in self.overlay.down:
                self.feed(name, Tick(self.kernel.now))

    def fail(self, peer: str, noticed_after_s: float = 1.0) -> None:
        """A peer dies now; the others notice a little later."""
        self.overlay = self.overlay.without([peer])

        def notice() -> None:
            for name in sorted(self.peers):
                if name not in self.overlay.down:
                    self.feed(name, PeerDown(peer, self.kernel.now))

        self.kernel.after(noticed_after_s, notice)

    def feed(self, name: str, event: Event) -> None:
        if name in self.overlay.down:
            return
        state = self.peers.get(name) or PeerState(name, self.timing)
        self.peers[name], actions = step(state, event)
        self._perform(name, actions)

    def _perform(self, name: str, actions: tuple[Action, ...]) -> None:
        reached: set[str] = set()
        for action in actions:
            match action:
                case Send():
                    self._send(name, action, reached)
                case Probe():
                    self._probe(name, action)
                case _:
                    self.outcomes.append(action)
                    self.finished_s = self.kernel.now
        self.counts.envelopes += len(reached)

    def _send(self, name: str, send: Send, reached: set[str]) -> None:
        match send.to:
            case ToZone(zone):
                route = self.overlay.route(name, zone)
            case ToPeer(peer, routed=True):
                route = self.overlay.route(name, peer)
            case ToPeer(peer):
                route = (name,) if peer == name else (name, peer)
        target = route[-1]
        if target == name:
            self._arrive(name, send.message, route, 0.0)
            return
        reached.add(target)
        self.counts.messages[send.message.do] += 1
        self.counts.hops += len(route) - 1
        chance = self.kernel.generator("faults")
        if self.faults.loss and chance.uniform() < self.faults.loss:
            return
        delay_ms = self.overlay.delay(route)
        copies = 2 if self.faults.repetition and chance.uniform() < self.faults.repetition else 1
        for _ in range(copies):
            late_ms = chance.uniform(0, self.faults.jitter_ms) if self.faults.jitter_ms else 0.0
            self._arrive(target, send.message, route, (delay_ms + late_ms) / 1e3)

    def _arrive(
        self, target: str, message: TreeMessage, route: tuple[str, ...], delay_s: float
    ) -> None:
        self.kernel.after(
            delay_s, lambda: self.feed(target, Received(message, route, self.kernel.now))
        )

    def _probe(self, name: str, probe: Probe) -> None:
        """A ping: takes a round trip to the farthest target that answers."""
        here = self.overlay.index[name]
        quiet = self.faults.silent | self.overlay.down
        found = tuple(
            (target, float(self.overlay.distance[here, self.overlay.index[target]]))
            for target in probe.targets
            if target not in quiet or target == name
        )
        self.counts.probed_pairs += len(probe.targets)
        round_trip_s = 2 * max((ms for _, ms in found), default=0.0) / 1e3
        reason = probe.reason
        self.kernel.after(
            round_trip_s, lambda: self.feed(name, Probed(reason, found, self.kernel.now))
        )

    def placement(self, tree: str) -> dict[str, str]:
        """Where operators run, as their hosts believe; fails if two hosts believe it of one."""
        found: dict[str, str] = {}
        for name, state in self.peers.items():
            if name in self.overlay.down:
                continue
            for operator in state.running(tree):
                assert operator not in found, f"{operator} runs on {found[operator]} and {name}"
                found[operator] = name
        return found


@dataclass(frozen=True, slots=True)
class Distributed:
    """A tree placed by the protocol, judged by the checker."""

    placement: Placement
    cost: float
    delay: float
    counts: Counts
    seconds: float  # virtual, until the root was placed


def place_distributed(
    problem: NetworkTree, overlay: Overlay, settings: Settings, levels: int = 1
) -> Distributed | Refuse:
    """Maps one tree over a faultless overlay and collects what its hosts were told."""
    run = OverlayRun(overlay)
    asked = replace(settings, proxy=problem.proxy, latency_bound=problem.latency_bound)
    run.submit(tree_of(problem, settings.tree), asked, levels)
    run.run()
    outcome = run.outcomes[-1]
    if isinstance(outcome, Refuse):
        return outcome
    sources = {source.id for source in problem.sources}
    placement = {
        operator: host
        for operator, host in run.placement(settings.tree).items()
        if operator not in sources
    }
    cost, delay = cost_and_delay(problem, placement)
    return Distributed(placement, cost, delay, run.counts, run.finished_s)
