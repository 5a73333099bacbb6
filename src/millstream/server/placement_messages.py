"""What processors say to each other about the placement of a tree: shapes and limits, no decision.

    POST /placement/messages     an `Envelope`: messages of the protocol, and who takes part where
    POST /placement/trees        a `Wish`: place this tree with the processor asked as its proxy
    GET  /placement/trees/ID     a `Share`: what one processor hosts of it, and what it has said

The messages themselves are `control/coordinator_messages`; everything here is checked as it
arrives, because it comes from another process.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from millstream.control.coordinator_messages import Amount, Count, Message, Name, decode
from millstream.control.coordinator_zones import Tree
from millstream.errors import UsageError

MESSAGES_MAX = 1000
PEERS_MAX = 2000
WAIT_S_MAX = 120.0

Peers = Annotated[dict[Name, Name], Field(max_length=PEERS_MAX)]  # by name: where it answers
_TREE: TypeAdapter[Tree] = TypeAdapter(Tree)
Kind = TypeVar("Kind", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Envelope(_Body):
    """Messages to one processor, together. `down` are processors that the sender cannot reach."""

    peers: Peers
    down: Annotated[list[Name], Field(max_length=PEERS_MAX)] = []
    messages: Annotated[list[dict[str, Any]], Field(max_length=MESSAGES_MAX)] = []

    def decoded(self) -> list[Message]:
        return [decode(data) for data in self.messages]


class Wish(_Body):
    """A tree to be placed; `peers` are the processors that may take part."""

    tree: dict[str, Any]
    peers: Peers
    algorithm: Literal["edge", "edge_plus", "in_network"] = "in_network"
    k: Annotated[int, Field(ge=0, le=10_000)] = 32
    latency_bound: Amount | None = None
    levels: Annotated[int, Field(ge=1, le=100)] = 1
    wait_s: Annotated[float, Field(gt=0, le=WAIT_S_MAX)] = 60.0


class Share(_Body):
    """One processor's part in a tree."""

    operators: Annotated[list[Name], Field(max_length=5000)]
    sent: dict[Name, Count]  # messages to others, by kind
    received: Count
    probed_pairs: Count
    envelopes: Count

    @property
    def messages(self) -> int:
        return sum(self.sent.values())


def read_envelope(body: dict[str, Any]) -> Envelope:
    return _read(Envelope, body)


def read_wish(body: dict[str, Any]) -> tuple[Wish, Tree]:
    wish = _read(Wish, body)
    try:
        return wish, _TREE.validate_python(wish.tree)
    except ValidationError as error:
        raise _mistake("tree", error) from None


def read_share(body: dict[str, Any]) -> Share:
    return _read(Share, body)


def tree_json(tree: Tree) -> dict[str, Any]:
    data: dict[str, Any] = _TREE.dump_python(tree, mode="json")
    return data


def _read(kind: type[Kind], body: dict[str, Any]) -> Kind:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise _mistake(kind.__name__.lower(), error) from None


def _mistake(what: str, error: ValidationError) -> UsageError:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return UsageError(f"malformed {what}", detail=f"{where}: {first['msg']}"[:500])
