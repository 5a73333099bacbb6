"""How processes talk: one envelope for managers, partners and coordinators.

Several messages to one process travel together, and the answer holds one reply for each, in their
order. `docs/design/0005-distribution.md` is the contract, with what each side must tolerate; in
short:

- A manager leads. Its envelopes carry its epoch and a number that grows with every one that changes
  something. A processor remembers the greatest (epoch, number) durably and refuses lower ones as
  `stale`, with what it has seen; the same one again is carried out again. So nothing that was
  overtaken takes effect late. `lineage` and `revision` identify the sender's memory and its age,
  and a processor's inventory says from which memory it got its state: a manager that does not
  remember that state learns it (control/recovery). Envelopes with number 0 hold only questions
  (`QUESTIONS`) and may overtake others.
- A processor sends to others as an equal: as a partner that balances (`decide/balance/protocol.py`,
  moves by `control/moves/handover.py`) or as a coordinator that places trees
  (`control/protocol/coordinator_messages`). Those protocols bear what is late, lost or repeated;
  their numbers are in the messages. It may ask what a manager may ask (`QUESTIONS`).
- Without a manager, the member that accepts a query leads for as long as its deployment takes: it
  speaks as a manager does, under its own name as `sender`, while all others are engaged by it
  (docs/design/0024-without-a-manager.md). A manager outranks it.
- `to` names the process meant: an address may belong to another one by now (`not_me`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import Field

from millstream.control.coordinators.zones import Tree
from millstream.control.moves.handover import PeerCommand
from millstream.control.protocol import coordinator_messages as placing
from millstream.control.protocol.commands import QUESTIONS, UNNUMBERED, Command
from millstream.control.protocol.member_messages import MemberMessage
from millstream.control.protocol.records import Amount, Count, Lineage, Name, Names
from millstream.control.protocol.replies import Refusal, Reply, decode_reply
from millstream.core.codec import EXACT, to_bytes
from millstream.core.errors import UsageError
from millstream.decide.balance import protocol as balancing

MESSAGE_BYTES_MAX = 4 << 20
MESSAGES_MAX = 1000
PEERS_MAX = 2000
WAIT_S_MAX = 120.0
PATH = "/control"
MANAGER = "manager"  # who sends, where no processor does
Peers = Annotated[dict[Name, Name], Field(max_length=PEERS_MAX)]  # by name: where it answers


@dataclass(frozen=True, slots=True)
class Introduce:
    """A partner says where it answers, and which base streams' rows enter there."""

    url: Name
    streams: Names = ()
    do: Literal["introduce"] = "introduce"


@dataclass(frozen=True, slots=True)
class TakePart:
    """The processors that take part in placing, and where they answer."""

    peers: Peers
    do: Literal["take_part"] = "take_part"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """To a proxy: the sender cannot reach this processor."""

    processor: Name
    do: Literal["unreachable"] = "unreachable"


@dataclass(frozen=True, slots=True)
class ReadShare:
    """A question among coordinators: what do you host of a tree, by its mapping of this epoch, and
    what have you said?"""

    tree: Name
    epoch: Count = 0
    do: Literal["read_share"] = "read_share"


@dataclass(frozen=True, slots=True)
class PlaceTree:
    """A manager's question to a proxy: where do you, with these processors, place this tree?"""

    tree: Tree
    peers: Peers
    algorithm: Literal["edge", "edge_plus", "in_network"] = "in_network"
    k: Annotated[int, Field(ge=0, le=10_000)] = 32
    latency_bound: Amount | None = None
    levels: Annotated[int, Field(ge=1, le=100)] = 1
    wait_s: Annotated[float, Field(gt=0, le=WAIT_S_MAX)] = 60.0
    do: Literal["place_tree"] = "place_tree"


Message = (
    Command | PlaceTree | PeerCommand | Introduce | TakePart | Unreachable | ReadShare
    | MemberMessage | balancing.Message | placing.Message
)  # fmt: skip
OF_MANAGERS = (*get_args(Command), PlaceTree)
OF_PROCESSORS = (
    *get_args(PeerCommand), Introduce, TakePart, Unreachable, ReadShare, *QUESTIONS,
    *get_args(MemberMessage), *get_args(balancing.Message), *get_args(placing.Message),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Envelope:
    """Messages from one process to another."""

    epoch: Count  # the sender's: of a manager's life, or of a processor's home
    number: Count  # 0 for questions, and for what processors say to each other
    to: Name
    messages: Annotated[
        tuple[Annotated[Message, Field(discriminator="do")], ...], Field(max_length=MESSAGES_MAX)
    ]
    sender: Name = MANAGER  # or the processor that speaks
    by: Literal["manager", "processor"] = "manager"
    lineage: Lineage = ""  # of a manager: which life of which memory speaks
    revision: Count = 0  # ... and how much it remembers by now
    __pydantic_config__ = EXACT

    def __post_init__(self) -> None:
        mine = OF_MANAGERS if self.by == "manager" else OF_PROCESSORS
        for message in self.messages:
            if not isinstance(message, mine):
                raise UsageError(f"malformed envelope: a {self.by} does not say {message.do}")
            changes = not isinstance(message, (*UNNUMBERED, PlaceTree))
            if self.by == "manager" and changes and not self.number:
                raise UsageError("a message that changes something has a number")

    @property
    def commands(self) -> tuple[Command, ...]:
        """What a manager says."""
        return cast("tuple[Command, ...]", self.messages)


def written(replies: Sequence[Reply]) -> bytes:
    """The answer to an envelope, as JSON text."""
    told = (
        b'{"%s":%s}' % (b"error" if isinstance(reply, Refusal) else b"ok", to_bytes(reply))
        for reply in replies
    )
    return b'{"replies":[%s]}' % b",".join(told)


def read_replies(envelope: Envelope, answer: Mapping[str, Any]) -> tuple[Reply, ...]:
    """What was answered to each message."""
    found = answer.get("replies") if isinstance(answer, Mapping) else None
    if not isinstance(found, list) or len(found) != len(envelope.messages):
        raise UsageError("an answer with another number of replies")
    return tuple(decode_reply(m, r) for m, r in zip(envelope.messages, found, strict=True))
