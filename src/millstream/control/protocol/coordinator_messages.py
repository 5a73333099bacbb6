"""What coordinators of distributed placement say to each other (seed 003, section 4, figure 4).

Five messages map a tree; two more fetch distances that a coordinator lacks; `Routed` carries one of
them over the overlay, where zones are found by routes. Each carries the tree
and the epoch of its mapping: a tree is mapped again when it is re-placed or a peer fails, and
what belongs to an older epoch is ignored. Records only; they travel in the envelope of
`control/protocol/envelope.py`.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from millstream.control.protocol.records import Amount, Count, Many, Name, Names


@dataclass(frozen=True, slots=True)
class Settings:
    """How a tree is mapped; the same in all its messages."""

    tree: Name
    epoch: Count
    proxy: Name
    algorithm: Literal["edge", "edge_plus", "in_network"]
    k: Count = 32
    latency_bound: Amount | None = None
    candidates: Names = ()  # peers the proxy knows to be well located
    ends: Names = ()  # where the root's stream is read; the proxy alone where nothing is said
    timed: Names = ()  # those of them that the bound counts for; all where nothing is said
    finding: Literal["hash", "routes"] = "hash"  # of zones: rendezvous, or routes of the overlay

    @property
    def read_at(self) -> tuple[str, ...]:
        """Where the tree's result is wanted: it is shipped to each of these."""
        return self.ends or (self.proxy,)

    @property
    def timed_at(self) -> tuple[str, ...]:
        return self.timed or self.read_at


@dataclass(frozen=True, slots=True)
class ZoneOperator:
    """An operator of a zone; children are operators of the zone or its boundary children."""

    id: Name
    rate: Amount
    children: Names
    common: Names  # cl: places where all children have a source below them


@dataclass(frozen=True, slots=True)
class Zone:
    """A subtree that one coordinator places; operators in post-order, its root last."""

    id: Name  # the root operator's
    operators: Annotated[tuple[ZoneOperator, ...], Field(min_length=1, max_length=5000)]
    boundary: Names  # children placed by other coordinators, sources included
    upstream: Name | None  # the zone above; none for the root zone, whose coordinator is the proxy
    wanted: Names  # common places of the operators above: costs there will be asked for


@dataclass(frozen=True, slots=True)
class Configuration:
    """A subtree with its operator at a place: what it costs and where the children lie then.

    `delays` holds for each source below the time to the proxy, as if the way from `location` on
    were direct; empty where no bound is set.
    """

    location: Name
    cost: Amount
    delays: Annotated[tuple[Amount, ...], Many] = ()
    children: Names = ()


@dataclass(frozen=True, slots=True)
class AddSubtree:
    """Proxy to coordinator: this zone is yours."""

    settings: Settings
    zone: Zone
    do: Literal["ADD_SUBTREE"] = "ADD_SUBTREE"


@dataclass(frozen=True, slots=True)
class OperatorMapped:
    """Coordinator to host: this operator runs with you; the highest revision counts."""

    settings: Settings
    operator: Name
    revision: Count
    configuration: Configuration
    alternatives: Annotated[tuple[Configuration, ...], Many] = ()
    do: Literal["OPERATOR_MAPPED"] = "OPERATOR_MAPPED"


@dataclass(frozen=True, slots=True)
class Map:
    """A placed subtree, sent upwards; to a source, without descendants, it means: begin.

    `path` holds the zones to the root (leaf-to-root path), `view` the distances known so far.
    A `configuration` of None says that no placement of the subtree keeps the latency bound.
    """

    settings: Settings
    operator: Name
    rate: Amount
    configuration: Configuration | None
    path: Annotated[tuple[Name, ...], Field(min_length=1, max_length=5000)]
    alternatives: Annotated[tuple[Configuration, ...], Many] = ()
    descendants: Names = ()  # dl: the places of the sources below
    candidates: Names = ()
    view: Annotated[tuple[tuple[Name, Name, Amount], ...], Many] = ()
    members: Names = ()  # peers that the placement below depends on
    do: Literal["MAP"] = "MAP"


@dataclass(frozen=True, slots=True)
class InvalidateMap:
    """To a former host: forget the operator, or (None) all of the tree's older epochs."""

    settings: Settings
    operator: Name | None
    revision: Count
    do: Literal["INVALIDATE_MAP"] = "INVALIDATE_MAP"


@dataclass(frozen=True, slots=True)
class OperatorRemapped:
    """To a child's coordinator: its operator is wanted elsewhere; the highest revision counts."""

    settings: Settings
    operator: Name
    location: Name
    revision: Count
    do: Literal["OPERATOR_REMAPPED"] = "OPERATOR_REMAPPED"


@dataclass(frozen=True, slots=True)
class Measure:
    """To a peer: how far is it from you to these?"""

    settings: Settings
    zone: Name
    reply_to: Name
    targets: Names
    do: Literal["MEASURE"] = "MEASURE"


@dataclass(frozen=True, slots=True)
class Measured:
    """The answer; targets that did not respond are left out."""

    settings: Settings
    zone: Name
    origin: Name
    distances: Annotated[tuple[tuple[Name, Amount], ...], Many]
    do: Literal["MEASURED"] = "MEASURED"


TreeMessage = (
    AddSubtree | OperatorMapped | Map | InvalidateMap | OperatorRemapped | Measure | Measured
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Routed:
    """A message on its way to the owner of a key, from processor to processor."""

    message: Annotated[TreeMessage, Field(discriminator="do")]
    key: Name
    level: Annotated[int, Field(ge=0, le=160)]  # of the overlay's tables; it grows with every hop
    route: Annotated[tuple[Name, ...], Field(max_length=200)]  # those it has passed, in order
    do: Literal["ROUTED"] = "ROUTED"

    @property
    def settings(self) -> Settings:
        return self.message.settings


Message = TreeMessage | Routed
