"""What members of a cluster without a manager tell each other about themselves: records only.

`Gossip` goes to a few members every second and is answered with `Rumours`: whatever the one who
asked does not know. `Remember` carries the record of a query to a partner before its submitter is
answered. They travel in the envelope of `control/protocol/envelope.py`.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from millstream.control.protocol.commands import Join
from millstream.control.protocol.records import Amount, Count, Many, Name, Names, Text

VERSION = 1  # of what members say to each other; those of another one do not mix
MEMBERS_MAX = 2000
RECORDS_MAX = 1000  # in one message; the rest comes with the next
PHASES = ("accepted", "running", "dropping", "gone")  # of a query's record, from first to last
Stand = tuple[Count, Annotated[int, Field(ge=0, lt=len(PHASES))], Name]


@dataclass(frozen=True, slots=True)
class Card:
    """A member as it describes itself; of two the one with the greater (epoch, beat) counts."""

    join: Join
    beat: Count  # it grows while the member is there
    streams: Names = ()  # that it has been told of
    left: bool = False  # it has said goodbye
    lost: bool = False  # a user has said that it is gone with its home

    @property
    def id(self) -> str:
        return self.join.id

    @property
    def age(self) -> tuple[int, int]:
        return self.join.epoch, self.beat


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A query as its acceptor has it; everybody keeps a copy, and the newest counts: the one with
    the highest revision, of these the latest phase, of these the acceptor first by name."""

    name: Name
    cql: Text
    acceptor: Name  # the member that took it, and leads whatever is to be done about it
    phase: Literal["accepted", "running", "dropping", "gone"] = "accepted"
    submitted_s: Amount = 0.0
    from_beginning: bool = False
    places: Annotated[dict[Name, Name], Many] = field(default_factory=dict)  # when it was deployed
    reason: Text = ""
    deliver_to: Annotated[str, Field(max_length=300)] = ""  # the site where its result is wanted
    latency_s: Amount | None = None
    revision: Count = 1

    @property
    def unfinished(self) -> bool:
        return self.phase in ("accepted", "dropping")

    @property
    def stand(self) -> "Stand":
        return self.revision, PHASES.index(self.phase), self.acceptor


Cards = Annotated[tuple[Card, ...], Field(max_length=MEMBERS_MAX)]
Records = Annotated[tuple[QueryRecord, ...], Field(max_length=RECORDS_MAX)]


@dataclass(frozen=True, slots=True)
class Gossip:
    """Whom the sender knows, itself first, and which records it has."""

    version: Count
    cards: Cards
    records: Annotated[dict[Name, Stand], Many] = field(default_factory=dict)  # by name: how new
    do: Literal["gossip"] = "gossip"


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep these records."""

    records: Records
    do: Literal["remember"] = "remember"


@dataclass(frozen=True, slots=True)
class Rumours:
    """The answer: whom the other one knows, and the records that the sender lacks."""

    version: Count
    cards: Cards
    records: Records = ()


MemberMessage = Gossip | Remember
