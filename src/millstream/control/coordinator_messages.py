"""What coordinators of distributed placement say to each other (seed 003, section 4, figure 4).

Five messages map a tree; two more fetch distances that a coordinator lacks. Each carries the tree
and the epoch of its mapping: a tree is mapped again when it is re-placed or a peer fails, and
what belongs to an older epoch is ignored. Records only; `encode` and `decode` make them JSON for
a control API.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from millstream.errors import UsageError


@dataclass(frozen=True, slots=True)
class Settings:
    """How a tree is mapped; the same in all its messages."""

    tree: str
    epoch: int
    proxy: str
    algorithm: Literal["edge", "edge_plus", "in_network"]
    k: int = 32
    latency_bound: float | None = None
    candidates: tuple[str, ...] = ()  # peers the proxy knows to be well located


@dataclass(frozen=True, slots=True)
class ZoneOperator:
    """An operator of a zone; children are operators of the zone or its boundary children."""

    id: str
    rate: float
    children: tuple[str, ...]
    common: tuple[str, ...]  # cl: places where all children have a source below them


@dataclass(frozen=True, slots=True)
class Zone:
    """A subtree that one coordinator places; operators in post-order, its root last."""

    id: str  # the root operator's
    operators: tuple[ZoneOperator, ...]
    boundary: tuple[str, ...]  # children placed by other coordinators, sources included
    upstream: str | None  # the zone above; none for the root zone, whose coordinator is the proxy
    wanted: tuple[str, ...]  # common places of the operators above: costs there will be asked for


@dataclass(frozen=True, slots=True)
class Configuration:
    """A subtree with its operator at a place: what it costs and where the children lie then.

    `delays` holds for each source below the time to the proxy, as if the way from `location` on
    were direct; empty where no bound is set.
    """

    location: str
    cost: float
    delays: tuple[float, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AddSubtree:
    """Proxy to coordinator: this zone is yours."""

    settings: Settings
    zone: Zone
    kind: Literal["ADD_SUBTREE"] = "ADD_SUBTREE"


@dataclass(frozen=True, slots=True)
class OperatorMapped:
    """Coordinator to host: this operator runs with you; the highest revision counts."""

    settings: Settings
    operator: str
    revision: int
    configuration: Configuration
    alternatives: tuple[Configuration, ...] = ()
    kind: Literal["OPERATOR_MAPPED"] = "OPERATOR_MAPPED"


@dataclass(frozen=True, slots=True)
class Map:
    """A placed subtree, sent upwards; to a source, without descendants, it means: begin.

    `path` holds the zones to the root (leaf-to-root path), `view` the distances known so far.
    A `configuration` of None says that no placement of the subtree keeps the latency bound.
    """

    settings: Settings
    operator: str
    rate: float
    configuration: Configuration | None
    path: tuple[str, ...]
    alternatives: tuple[Configuration, ...] = ()
    descendants: tuple[str, ...] = ()  # dl: the places of the sources below
    candidates: tuple[str, ...] = ()
    view: tuple[tuple[str, str, float], ...] = ()
    members: tuple[str, ...] = ()  # peers that the placement below depends on
    kind: Literal["MAP"] = "MAP"


@dataclass(frozen=True, slots=True)
class InvalidateMap:
    """To a former host: forget the operator, or (None) all of the tree's older epochs."""

    settings: Settings
    operator: str | None
    revision: int
    kind: Literal["INVALIDATE_MAP"] = "INVALIDATE_MAP"


@dataclass(frozen=True, slots=True)
class OperatorRemapped:
    """To a child's coordinator: its operator is wanted elsewhere; the highest revision counts."""

    settings: Settings
    operator: str
    location: str
    revision: int
    kind: Literal["OPERATOR_REMAPPED"] = "OPERATOR_REMAPPED"


@dataclass(frozen=True, slots=True)
class Measure:
    """To a peer: how far is it from you to these?"""

    settings: Settings
    zone: str
    reply_to: str
    targets: tuple[str, ...]
    kind: Literal["MEASURE"] = "MEASURE"


@dataclass(frozen=True, slots=True)
class Measured:
    """The answer; targets that did not respond are left out."""

    settings: Settings
    zone: str
    origin: str
    distances: tuple[tuple[str, float], ...]
    kind: Literal["MEASURED"] = "MEASURED"


Message = AddSubtree | OperatorMapped | Map | InvalidateMap | OperatorRemapped | Measure | Measured
_ADAPTER: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


def encode(message: Message) -> dict[str, Any]:
    """A message as JSON-ready data."""
    data: dict[str, Any] = _ADAPTER.dump_python(message, mode="json")
    return data


def decode(data: object) -> Message:
    """The inverse of `encode`; anything else is the sender's mistake."""
    try:
        return _ADAPTER.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError("malformed placement message", detail=f"{where}: {first['msg']}") from None
