"""What a processor answers: a reply for each message, by the message's kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from millstream.control.moves.table import Phase
from millstream.control.protocol.member_messages import Rumours
from millstream.control.protocol.records import (
    UNTOLD,
    Amount,
    Count,
    Lineage,
    Many,
    Micros,
    Name,
    Names,
    Numbers,
    Peer,
    Properties,
    Table,
    Text,
    Told,
)
from millstream.core.codec import from_json
from millstream.language.share.dataflow import short_id, starting_at


@dataclass(frozen=True, slots=True)
class Done:
    """It is so now, or was before."""


@dataclass(frozen=True, slots=True)
class CompiledOperator:
    """An operator of a query; ids are equal wherever a text is compiled."""

    id: Name
    kind: Name
    label: Text
    inputs: Names  # ids of operators and base streams
    row_bytes: Count = 0  # estimated width of a row of its output
    properties: Properties = field(default_factory=dict)  # of any name (seed 000, 5.1.2)


@dataclass(frozen=True, slots=True)
class Compiled:
    operators: Annotated[tuple[CompiledOperator, ...], Field(max_length=5000)]  # producers first
    result: Name  # the operator that gives it
    columns: tuple[tuple[str, str], ...]
    relation: bool
    sources: Names  # ids of the base streams it reads
    plan: Text = ""
    by_start: bool = False  # whether ids depend on the query's start: these are for none
    # parts of its joins, and other ways to compute what its operators give, under the same id
    ways: Annotated[tuple[CompiledOperator, ...], Field(max_length=5000)] = ()

    @property
    def part_ids(self) -> tuple[str, ...]:
        """What its other ways may read beside its operators."""
        usual = {o.id for o in self.operators}
        return tuple(dict.fromkeys(o.id for o in self.ways if o.id not in usual))

    @property
    def readable(self) -> tuple[str, ...]:
        """Streams from which the result can be computed, by any way; without base streams."""
        usual = (o.id for o in self.operators if o.id != self.result)
        return tuple(dict.fromkeys((*usual, *self.part_ids)))

    def starting(self, start: int) -> "Compiled":
        """The same query with its start: nothing need be compiled again."""
        if not self.by_start:
            return self
        return replace(
            self,
            operators=tuple(_starting(o, start) for o in self.operators),
            result=starting_at(self.result, start),
            by_start=False,
            ways=tuple(_starting(o, start) for o in self.ways),
        )


def _starting(operator: CompiledOperator, start: int) -> CompiledOperator:
    name = starting_at(operator.id, start)
    inputs = tuple(starting_at(s, start) for s in operator.inputs)
    label = operator.label.replace(short_id(operator.id), short_id(name))
    return replace(operator, id=name, inputs=inputs, label=label)


@dataclass(frozen=True, slots=True)
class StreamMark:
    watermark: Micros
    retained_from: Micros
    ts_max: Micros


@dataclass(frozen=True, slots=True)
class Held:
    streams: Annotated[dict[Name, StreamMark], Many]


@dataclass(frozen=True, slots=True)
class Expected:
    next: Count
    epoch: Count


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far a move is, as one of its owners has it; `requested`: it knows nothing of the move."""

    phase: Phase
    rows_missing: Count = 0
    warm: bool = False
    reason: Text = ""  # why it cannot go on; empty while it can


@dataclass(frozen=True, slots=True)
class SealedStream:
    next: Count
    epoch: Count  # the new owner's
    cursors: Annotated[dict[Name, Count], Many]


@dataclass(frozen=True, slots=True)
class Sealed:
    streams: Annotated[dict[Name, SealedStream], Many]


@dataclass(frozen=True, slots=True)
class Reported:
    """What has changed since the version asked for. Figures are of any name; those of a query
    that has failed come with its reason. Counters count from the home's beginning."""

    version: Count
    operators: Annotated[dict[Name, Numbers], Many]
    streams: Annotated[dict[Name, Numbers], Many]
    edges: Annotated[dict[Name, Numbers], Many]  # keys: `STREAM>PROCESSOR`
    processor: Numbers = field(default_factory=dict)
    queries: Annotated[dict[Name, Table], Many] = field(default_factory=dict)  # state, reason
    notices: Annotated[tuple[Text, ...], Field(max_length=100)] = ()


@dataclass(frozen=True, slots=True)
class HostedQuery:
    cql: Text
    start: Micros
    operators: Names
    result: bool = False
    restarts: Count = 0
    ways: Annotated[dict[Name, Names], Many] = field(default_factory=dict)
    pauses: Count = 0
    told: Told = UNTOLD  # when a manager last had it hosted here


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A move that a processor takes part in, as its ledger has it."""

    role: Literal["old", "new"]
    phase: Phase
    operators: Names
    peer: Name  # the other one


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything durable at a processor that concerns the manager."""

    declared: Annotated[dict[Name, bool], Many]  # a base stream's name: whether rows enter here
    started: Names
    queries: Annotated[dict[Name, HostedQuery], Many]
    owned: Annotated[dict[Name, Count], Many]  # stream: epoch
    holds: Annotated[dict[Name, Names], Many]  # query: streams
    expected: Annotated[dict[Name, Names], Many]  # stream: consumers
    connected: Annotated[dict[Name, Peer], Many]
    moves: Annotated[dict[Name, MoveRecord], Many]
    # streams that others have by now, with their epoch there
    handed: Annotated[dict[Name, Peer], Many] = field(default_factory=dict)
    # queries that a manager below has been told of and has not deployed yet
    pending: Names = ()
    # streams whose bytes come from another reader; None: by a processor that takes no such hints
    relays: Annotated[dict[Name, Peer], Many] | None = None
    led_by: Lineage = ""  # the manager that last changed something here, and its revision then
    revision: Count = 0
    # for a manager that did not: the declarations, as they were told
    tables: Annotated[dict[Name, Table], Many] = field(default_factory=dict)
    # ... and when queries were dropped that were here
    dropped: Annotated[dict[Name, Told], Many] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TreePlaced:
    """What processors have found for a tree among themselves, and what that took."""

    placement: Annotated[dict[Name, Name], Many]  # by operator
    cost: Amount
    delay: Amount | None
    attempts: Count
    messages: Annotated[dict[Name, Count], Many]  # by kind
    envelopes: Count
    probed_pairs: Count
    zones: Annotated[dict[Name, Name], Many] = field(default_factory=dict)  # to coordinators


@dataclass(frozen=True, slots=True)
class TreeShare:
    """One processor's part in a tree."""

    operators: Names
    sent: Annotated[dict[Name, Count], Many]  # messages to others, by kind
    received: Count
    probed_pairs: Count
    envelopes: Count
    zones: Names = ()  # that it coordinates

    @property
    def messages(self) -> int:
        return sum(self.sent.values())


@dataclass(frozen=True, slots=True)
class KeptHome:
    """A copy of another processor's home."""

    number: Count  # of the configuration
    complete: Count  # the last one under which it had everything
    commit: Count  # how far it is
    state: Literal["following", "fenced", "adopted", "damaged"]
    had: Count = 0  # the last one under which a copy had everything that was damaged since


@dataclass(frozen=True, slots=True)
class Replicas:
    """Who has everything of a processor's home, and what it has of others'."""

    number: Count
    followers: Names
    safe: bool  # whether as many others as are wanted have what was committed a while ago
    homes: Annotated[dict[Name, KeptHome], Many] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as a reply. Codes the manager acts on: `stale`, `not_me`, `sealed`, `not_owner`,
    `unknown`, `busy` (ask again), `mistake` (the user's), `failed`. A `stale` one tells the
    greatest epoch that was seen, and how long ago another manager spoke, if one did."""

    code: Name
    message: Text
    detail: Text = ""
    hint: Text = ""
    epoch: Count = 0
    other_s: Amount | None = None
    outranks: bool = False  # of two managers that came to one epoch this one goes on, if followed


Answer = (
    Done | Compiled | Held | Expected | Progressed | Sealed | Reported | Inventory | TreePlaced
    | TreeShare | Rumours | Replicas
)  # fmt: skip
Reply = Answer | Refusal
ANSWERS: dict[str, type[Any]] = {
    "compile": Compiled,
    "hold": Held,
    "expect": Expected,
    "progress": Progressed,
    "seal": Sealed,
    "report": Reported,
    "inventory": Inventory,
    "place_tree": TreePlaced,
    "read_share": TreeShare,
    "gossip": Rumours,
    "keep_replicas": Replicas,
}


class Said(Protocol):
    """Anything that is answered; `do` names its kind."""

    @property
    def do(self) -> str: ...


def decode_reply(said: Said, data: Mapping[str, Any]) -> Reply:
    """The reply to a message; its kind follows from the message's."""
    if "error" in data:
        return from_json(Refusal, data["error"])
    reply: Reply = from_json(ANSWERS.get(said.do, Done), data.get("ok"))
    return reply
