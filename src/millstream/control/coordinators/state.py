"""What a peer of distributed placement remembers, hears and does; records only.

The two tables of seed 003, section 4.1.1 are here: boundary children are a zone's `arrived`, the
operators mapped are a zone's `tables` at its coordinator and `hosted` at the hosts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from millstream.control.coordinators.mapping import Table
from millstream.control.coordinators.zones import Tree
from millstream.control.protocol.coordinator_messages import (
    Configuration,
    Map,
    Measure,
    Settings,
    TreeMessage,
    Zone,
)


@dataclass(frozen=True, slots=True)
class Timing:
    """When a peer stops waiting; seconds of the driver's clock."""

    measure_s: float = 2.0  # for distances, then it places with what it has
    mapping_s: float = 30.0  # for a whole mapping, then the proxy starts it again
    replace_s: float = float("inf")  # between periodic re-placements
    attempts_max: int = 5

    @property
    def lease_s(self) -> float:
        """How long a host trusts what it was told: a few periodic re-placements."""
        return 3 * self.replace_s + self.mapping_s


@dataclass(frozen=True, slots=True)
class ZoneState:
    """A zone at its coordinator. `zone` is None while only children have reported."""

    settings: Settings
    zone: Zone | None = None
    arrived: Mapping[str, Map] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    view: Mapping[tuple[str, str], float] = field(default_factory=dict)
    asked: frozenset[tuple[str, str]] = frozenset()
    awaiting: frozenset[str] = frozenset()  # peers that still measure
    asked_at_s: float = 0.0
    assigned: Mapping[str, str] = field(default_factory=dict)
    revision: int = 0
    remapped_at: int = 0  # the revision of the zone above that was last followed
    done: bool = False


@dataclass(frozen=True, slots=True)
class Hosted:
    """An operator at its host; without a configuration it was here once, at that revision."""

    epoch: int
    revision: int
    configuration: Configuration | None
    alternatives: tuple[Configuration, ...] = ()
    told_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TreeState:
    """A tree at its proxy."""

    tree: Tree
    settings: Settings
    levels: int
    phase: Literal["mapping", "placed", "refused"]
    since_s: float
    attempts: int = 1
    members: tuple[str, ...] = ()
    former: tuple[str, ...] = ()  # members of older epochs that may still host something


@dataclass(frozen=True, slots=True)
class PeerState:
    name: str
    timing: Timing = Timing()
    zones: Mapping[tuple[str, str], ZoneState] = field(default_factory=dict)
    hosted: Mapping[tuple[str, str], Hosted] = field(default_factory=dict)
    trees: Mapping[str, TreeState] = field(default_factory=dict)

    def running(self, tree: str) -> dict[str, Hosted]:
        """The operators of a tree that run here."""
        return {
            operator: hosted
            for (name, operator), hosted in self.hosted.items()
            if name == tree and hosted.configuration is not None
        }


# What happens to a peer.
@dataclass(frozen=True, slots=True)
class Submit:
    """An application wants a tree placed with this peer as proxy."""

    tree: Tree
    settings: Settings
    levels: int = 1
    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The application wants the tree no more."""

    tree: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message arrived; `route` are the peers it passed, in order, where it was routed."""

    message: TreeMessage
    route: tuple[str, ...] = ()
    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Probed:
    """The answer to `Probe`: distances to the targets that responded."""

    reason: Measure | Map
    distances: tuple[tuple[str, float], ...]
    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PeerDown:
    peer: str
    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Tick:
    now_s: float


Event = Submit | Withdraw | Received | Probed | PeerDown | Tick


# What a peer wants done.
@dataclass(frozen=True, slots=True)
class ToPeer:
    name: str
    routed: bool = False  # along the overlay, so that the peers on the way become known


@dataclass(frozen=True, slots=True)
class ToZone:
    """To the coordinator of a zone: the peer that owns the key."""

    zone: str


@dataclass(frozen=True, slots=True)
class Send:
    to: ToPeer | ToZone
    message: TreeMessage


@dataclass(frozen=True, slots=True)
class Probe:
    """Measure the distance from here to the targets."""

    targets: tuple[str, ...]
    reason: Measure | Map


@dataclass(frozen=True, slots=True)
class Report:
    """To the application: the tree is placed; `cost` is what the algorithm believes it costs."""

    tree: str
    epoch: int
    cost: float
    delay: float | None
    location: str  # of the root


@dataclass(frozen=True, slots=True)
class Refuse:
    """To the application: the tree cannot be placed."""

    tree: str
    epoch: int
    reason: Literal["latency", "source", "timeout"]
    detail: str


Action = Send | Probe | Report | Refuse
