"""Runs the placement protocol of one processor over any transport: a control API, or a test.

The thin edge of `coordinator.step`: keeps the state behind a lock, resolves zones to processors,
asks the transport to send and to measure. A processor needs only hand it what arrives (`receive`)
and call `tick` now and then. Nothing is sent while the lock is held, so that two processors may
talk to each other at once.

A zone's coordinator is found in one of two ways (`Settings.finding`). By `hash`: processors know
each other by name, and the one with the highest digest of (zone, name) owns the zone; the zone of
one that fails falls to another while all other zones stay where they are (rendezvous hashing).
Messages then meet no processors on their way; In-Network's candidates are named by the proxy. They
travel in every message of the tree, and zones are looked up among them, so that all who take part
agree. By `routes`: messages to zones and to sources go from processor to processor along the
overlay, each knowing its own distances only, and those met on the way are candidates (section 4.4).
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from threading import Lock
from typing import Protocol

from millstream.control.coordinators.coordinator import step
from millstream.control.coordinators.overlay import next_hop
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
    Withdraw,
)
from millstream.control.coordinators.zones import Tree
from millstream.control.protocol.coordinator_messages import (
    InvalidateMap,
    Message,
    Routed,
    Settings,
    TreeMessage,
)


class Transport(Protocol):
    """What a processor's surroundings do for it."""

    def send(self, peer: str, message: Message) -> None:
        """Delivers a message to another processor's `receive`, once or more; raises nothing."""

    def probe(self, targets: Sequence[str]) -> Mapping[str, float]:
        """Distances from here in ms, of the targets that answer."""

    def near(self) -> Mapping[str, float]:
        """Those whom routes may go through, with their distances as far as they are known here."""

    def now_s(self) -> float: ...


def zone_owner(zone: str, peers: Sequence[str]) -> str:
    """The processor that coordinates a zone; all who know the same processors agree.

    >>> zone_owner("join-3", ["qp1", "qp2", "qp3"])
    'qp3'
    """

    def digest(peer: str) -> bytes:
        return blake2b(f"{zone}\n{peer}".encode(), digest_size=8).digest()

    return max(sorted(peers), key=digest)


TREES_COUNTED = 200
ROUTE_MAX = 160  # as many bits as an identifier has


@dataclass(slots=True)
class TreeCounts:
    """What a tree's mapping cost one processor; what stays within it counts as nothing."""

    sent: Counter[str] = field(default_factory=Counter)  # by kind of message
    received: int = 0  # and taken up, so that what followed from them is sent
    probed_pairs: int = 0


class PlacementDriver:
    """One processor's part in distributed placement."""

    def __init__(
        self,
        name: str,
        peers: Callable[[], Sequence[str]],
        transport: Transport,
        on_outcome: Callable[[Report | Refuse], None],
        timing: Timing | None = None,
    ) -> None:
        self._state = PeerState(name, timing or Timing())
        self._peers = peers
        self._transport = transport
        self._on_outcome = on_outcome
        self._lock = Lock()
        self._counts: dict[str, TreeCounts] = {}

    def submit(self, tree: Tree, settings: Settings, levels: int = 1) -> None:
        """Places a tree with this processor as its proxy; all processors are candidates."""
        known = settings.candidates
        if settings.finding == "hash":
            known = known or tuple(sorted(self._peers()))
        asked = replace(settings, proxy=self._state.name, candidates=known)
        self._feed(Submit(tree, asked, levels, self._transport.now_s()))

    def withdraw(self, tree: str) -> None:
        self._feed(Withdraw(tree))

    def receive(self, message: Message) -> None:
        """A message from another processor."""
        if isinstance(message, Routed):
            route = (*message.route, self._state.name)
            for event in self._routed(message.message, message.key, message.level, route):
                self._feed(event)
        else:
            self._feed(Received(message, (), self._transport.now_s()))
        with self._lock:
            self._counted(message.settings.tree).received += 1

    def peer_down(self, peer: str) -> None:
        self._feed(PeerDown(peer, self._transport.now_s()))

    def tick(self) -> None:
        self._feed(Tick(self._transport.now_s()))

    def running(self, tree: str, epoch: int = 0) -> tuple[str, ...]:
        """The operators of a tree that are placed here, by its mapping of an epoch or a later."""
        with self._lock:
            found = self._state.running(tree)
            return tuple(sorted(o for o, hosted in found.items() if hosted.epoch >= epoch))

    def counts(self, tree: str) -> TreeCounts:
        """What this processor sent, took up and measured for a tree so far."""
        with self._lock:
            known = self._counted(tree)
            return TreeCounts(Counter(known.sent), known.received, known.probed_pairs)

    def trees(self) -> frozenset[str]:
        """The trees of which anything is known here."""
        with self._lock:
            keys = (*self._state.zones, *self._state.hosted)
            return frozenset(self._state.trees).union(tree for tree, _ in keys)

    def zones(self, tree: str, epoch: int = 0) -> dict[str, int]:
        """The zones of a tree that this processor coordinates, by its mapping of an epoch or a
        later one; with that epoch."""
        with self._lock:
            return {
                zone: known.settings.epoch
                for (name, zone), known in sorted(self._state.zones.items(), key=lambda z: z[0])
                if name == tree and known.zone is not None and known.settings.epoch >= epoch
            }

    def forget(self, tree: str) -> None:
        """Drops all that is known of a tree whose proxy has not been heard for long."""
        later = Settings(tree, 1 << 62, self._state.name, "edge")
        self._feed(Received(InvalidateMap(later, None, 0), (), self._transport.now_s()))
        with self._lock:
            trees = {name: known for name, known in self._state.trees.items() if name != tree}
            self._state = replace(self._state, trees=trees)

    def _counted(self, tree: str) -> TreeCounts:
        if tree not in self._counts:
            while len(self._counts) >= TREES_COUNTED:
                del self._counts[next(iter(self._counts))]
            self._counts[tree] = TreeCounts()
        return self._counts[tree]

    def _feed(self, event: Event) -> None:
        """One event and all that follows from it on this processor, in order."""
        pending: deque[Event] = deque([event])
        while pending:
            with self._lock:
                self._state, actions = step(self._state, pending.popleft())
            for action in actions:
                pending.extend(self._perform(action))

    def _perform(self, action: Action) -> list[Event]:
        match action:
            case Send(ToZone(key), message) | Send(ToPeer(key, routed=True), message) if (
                message.settings.finding == "routes"
            ):
                return self._routed(message, key, 0, (self._state.name,))
            case Send(ToZone(zone), message):
                among = message.settings.candidates or self._peers()
                return self._send(zone_owner(zone, among), message)
            case Send(ToPeer(peer), message):
                return self._send(peer, message)
            case Probe(targets, reason):
                others = [target for target in targets if target != self._state.name]
                with self._lock:
                    self._counted(reason.settings.tree).probed_pairs += len(others)
                found = {self._state.name: 0.0, **self._transport.probe(others)}
                distances = tuple((target, found[target]) for target in targets if target in found)
                return [Probed(reason, distances, self._transport.now_s())]
            case Report() | Refuse():
                self._on_outcome(action)
        return []

    def _routed(
        self, message: TreeMessage, key: str, level: int, route: tuple[str, ...]
    ) -> list[Event]:
        """One hop further; or it has arrived, and those on its route are known."""
        here = self._state.name
        hop = next_hop(here, key, level, self._transport.near())
        if hop is None or key == here or len(route) > ROUTE_MAX:
            return [Received(message, route, self._transport.now_s())]
        peer, level = hop
        return self._send(peer, Routed(message, key, level, route))

    def _send(self, peer: str, message: Message) -> list[Event]:
        if peer == self._state.name and not isinstance(message, Routed):
            return [Received(message, (), self._transport.now_s())]
        with self._lock:
            self._counted(message.settings.tree).sent[message.do] += 1
        self._transport.send(peer, message)
        return []
