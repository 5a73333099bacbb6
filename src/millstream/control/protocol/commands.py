"""What a manager says to a processor: names, fields, limits. No decision.

Commands name explicit targets; said twice they change nothing. They travel in the envelope of
`control/protocol/envelope.py`, one reply for each (`control/protocol/replies.py`).

The connection requests of the seed's table 4.1, and the tenth that algorithm 4 uses:

    Activate        host            SendData     expect      StopSend     unexpect
    DeActivate      unhost          ReceiveData  connect     StopReceive  disconnect
    SendStatistics  report          Shutdown     stop        Restart      reset
    STARTSTREAM     start_stream    (to the processor where the source's rows enter)
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from millstream.control.protocol.records import (
    Count,
    Lineage,
    Many,
    Micros,
    Name,
    Names,
    Peer,
    Properties,
    Table,
    Text,
)


@dataclass(frozen=True, slots=True)
class Declare:
    """A base stream exists; with `ingest`, its rows enter here once it is started."""

    stream: Table  # a job file's stream table as JSON, with `name`; paths are absolute
    ingest: bool = False
    do: Literal["declare"] = "declare"


@dataclass(frozen=True, slots=True)
class StartStream:
    """Rows may come now; before, queries could be registered that see all of them."""

    stream: Name  # its name, without `s:`
    do: Literal["start_stream"] = "start_stream"


@dataclass(frozen=True, slots=True)
class Forget:
    """A base stream is declared no more; nothing reads it."""

    stream: Name
    do: Literal["forget"] = "forget"


@dataclass(frozen=True, slots=True)
class Compile:
    """A question: which operators has this query?"""

    cql: Text
    do: Literal["compile"] = "compile"


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep what the base streams have from now on, for a query that is about to be deployed."""

    query: Name
    streams: Names  # ids: `s:NAME`
    do: Literal["hold"] = "hold"


@dataclass(frozen=True, slots=True)
class Release:
    query: Name
    streams: Names
    do: Literal["release"] = "release"


@dataclass(frozen=True, slots=True)
class Host:
    """Run these operators of this query. An operator runs while any query here names it."""

    query: Name
    cql: Text
    start: Micros
    operators: Names
    result: bool = False  # its last operator is among them: keep its rows for subscribers
    restarts: Count = 0  # so often somebody has restarted it: a failure before that is over
    failed: Text = ""  # why it has failed: it comes to rest here, until it is restarted
    # by operator: what it reads, where that is not what its text says first
    ways: Annotated[dict[Name, Names], Many] = field(default_factory=dict)
    pauses: Count = 0  # so often somebody has told it to rest or to go on; odd: it is to rest
    do: Literal["host"] = "host"


@dataclass(frozen=True, slots=True)
class Unhost:
    """The query uses these operators here no more; those that no query uses are forgotten."""

    query: Name
    operators: Names
    dropped: bool = False  # nobody uses the query any more, here or elsewhere
    do: Literal["unhost"] = "unhost"


@dataclass(frozen=True, slots=True)
class Expect:
    """Keep the stream's segments, from the first still there, until this processor has them."""

    stream: Name
    consumer: Name
    do: Literal["expect"] = "expect"


@dataclass(frozen=True, slots=True)
class Unexpect:
    stream: Name
    consumer: Name
    do: Literal["unexpect"] = "unexpect"


@dataclass(frozen=True, slots=True)
class Connect:
    """Pull a stream into this ledger under its numbers; a new source takes the old one's place."""

    stream: Name
    source: Peer
    do: Literal["connect"] = "connect"


@dataclass(frozen=True, slots=True)
class TakeFrom:
    """Take the bytes of a copied stream from another reader while that goes well; nobody: from its
    source. A hint: what the source says counts."""

    stream: Name
    relay: Peer | None = None
    do: Literal["take_from"] = "take_from"


@dataclass(frozen=True, slots=True)
class Disconnect:
    stream: Name
    do: Literal["disconnect"] = "disconnect"


@dataclass(frozen=True, slots=True)
class Prepare:
    """Get ready to own these operators, whose owner is `old`: copy, warm up, wait. The same for
    base streams: see whether their sources can be read, copy, wait."""

    move: Name
    hosts: Annotated[tuple[Host, ...], Field(max_length=1000)]  # of every query that uses them
    inputs: Annotated[dict[Name, Peer], Many]  # the owners of what they read from outside
    old: Peer
    # base streams whose rows are to enter here, as `Declare` has them
    streams: Annotated[tuple[Table, ...], Field(max_length=1000)] = ()
    do: Literal["prepare"] = "prepare"

    @property
    def operators(self) -> tuple[str, ...]:
        """What moves, by id: operators, and base streams as `s:NAME`."""
        bases = {f"s:{table['name']}" for table in self.streams}
        return tuple(sorted({o for host in self.hosts for o in host.operators} | bases))


@dataclass(frozen=True, slots=True)
class Progress:
    """A question to the old or the new owner: how far is the move?"""

    move: Name
    do: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True)
class Seal:
    """To the old owner: hand the operators over, in one transaction. The commit point."""

    move: Name
    operators: Names
    to: Peer
    do: Literal["seal"] = "seal"


@dataclass(frozen=True, slots=True)
class TakeOver:
    """To the new owner: fetch the sealed record and the rest of the tails, then run."""

    move: Name
    old: Peer | None = None  # where the old owner is by now
    do: Literal["take_over"] = "take_over"


@dataclass(frozen=True, slots=True)
class Undo:
    """Forget the copy (new owner); nothing to do (old owner). Refused as `sealed` after the seal
    by the old owner, and by a new owner that has taken over. `lost`: the other one will not come
    back; nobody asks it, and what was sealed there is forgotten here as well."""

    move: Name
    lost: bool = False
    do: Literal["undo"] = "undo"


@dataclass(frozen=True, slots=True)
class Complete:
    """The move's record may go: at the old owner, once every reader has what it still holds."""

    move: Name
    do: Literal["complete"] = "complete"


@dataclass(frozen=True, slots=True)
class Configure:
    """Settings; None leaves them as they are. `statistics` names what reports shall hold."""

    schedule: Table | None = None
    quality: Table | None = None
    properties: Properties | None = None
    statistics: Names | None = None
    do: Literal["configure"] = "configure"


@dataclass(frozen=True, slots=True)
class Acquaint:
    """The other processors and where they answer: how far are they? Who is not named is gone."""

    peers: Annotated[tuple[Peer, ...], Field(max_length=1000)]
    do: Literal["acquaint"] = "acquaint"


@dataclass(frozen=True, slots=True)
class Report:
    """A question: what has changed since this version? Waits up to `wait_s` for a change of note
    (a query failed, a move's phase); figures alone do not end the wait."""

    since: Count = 0
    wait_s: Annotated[float, Field(ge=0, le=60)] = 0.0
    do: Literal["report"] = "report"


@dataclass(frozen=True, slots=True)
class TakeInventory:
    """A question: everything that a processor hosts, owns, copies and keeps for others."""

    do: Literal["inventory"] = "inventory"


@dataclass(frozen=True, slots=True)
class Reset:
    """Remove all queries, streams and rows, and wait for new ones."""

    do: Literal["reset"] = "reset"


@dataclass(frozen=True, slots=True)
class Stop:
    """Finish the steps in hand and end the process; the home stays. `again`: the same command then
    begins again in its place, perhaps of a newer version, and goes on with the home."""

    again: bool = False
    do: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True)
class Home:
    """The home of another processor, of which a copy is kept: what becomes of the copy."""

    owner: Peer  # and where it answers
    number: Count  # of the configuration
    role: Literal["follow", "fence", "adopt", "forget"]


@dataclass(frozen=True, slots=True)
class KeepReplicas:
    """Who is to have everything of this home before it counts, and which homes of others are kept
    here. Configurations are numbered, so that it may come late or twice."""

    number: Count = 0  # of this home's configuration; 0: it has none
    wanted: Annotated[int, Field(ge=0, le=9)] = 0  # others that are to have everything
    followers: Annotated[tuple[Peer, ...], Field(max_length=9)] = ()
    homes: Annotated[tuple[Home, ...], Field(max_length=1000)] = ()
    do: Literal["keep_replicas"] = "keep_replicas"


Command = (
    Declare | StartStream | Forget | Compile | Hold | Release | Host | Unhost | Expect | Unexpect
    | Connect | Disconnect | Prepare | Progress | Seal | TakeOver | Undo | Complete | Configure
    | Acquaint | Report | TakeInventory | Reset | Stop | KeepReplicas | TakeFrom
)  # fmt: skip
QUESTIONS = (Compile, Progress, Report, TakeInventory)
UNNUMBERED = (*QUESTIONS, KeepReplicas)  # what needs no place in the order of messages


HOME_TAKEN = "home_taken"  # the code of a refusal: another process has the home by now


@dataclass(frozen=True, slots=True)
class Join:
    """A processor to a manager: here I am. Said at its start, and again while no manager is heard.

    `epoch` is the home's: it grows each time the home is opened, and a manager refuses one that
    is lower than it has seen of this home. `home` tells homes apart: one under a known id may be
    another, in the place of one that is lost.
    """

    id: Name
    url: Name
    epoch: Count
    properties: Properties = field(default_factory=dict)  # of any name (table 5.1)
    home: Lineage = ""
    PATH: ClassVar[str] = "/processors"
