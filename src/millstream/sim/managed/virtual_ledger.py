"""What a virtual processor keeps across a crash: streams of numbered segments, cursors, moves.

The data plane of 0005 in its simplest form: a segment is a tuple of rows, an operator hands rows on
and counts them (the count is its state). Everything a real processor must not lose in a move is
here: numbers, cursors, states, what is kept for whom.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from millstream.control.moves.table import Phase, Story
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import HostedQuery

Rows = tuple[str, ...]
MANAGER = "manager"
WHEREVER = 0  # a cursor on a copy that has not begun: from its first segment on


@dataclass(slots=True)
class VirtualStream:
    """Segments of a stream that are here, owned or copied."""

    segments: dict[int, Rows] = field(default_factory=dict)
    following: int = 1  # the next number here
    epoch: int = 0  # above 0: owned
    since: int = 1  # from which number on it is made here

    @property
    def first(self) -> int:
        """The first number that is still here."""
        return min(self.segments, default=self.following)


@dataclass(slots=True)
class Pull:
    """A stream that is copied from elsewhere, and for whom."""

    source: Peer
    users: set[str]  # the manager, or moves
    first: int = 0  # the number that it began with; 0: it has not begun


@dataclass(slots=True)
class HandOver:
    """At the old owner: what was sealed. At the new one: what it prepares for."""

    role: Literal["old", "new"]
    story: Story
    operators: tuple[str, ...]
    peer: Peer
    hosts: dict[str, HostedQuery] = field(default_factory=dict)
    consumers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    # of the seal
    cursors: dict[str, dict[str, int]] = field(default_factory=dict)  # operator: stream: number
    states: dict[str, int] = field(default_factory=dict)
    streams: dict[str, tuple[int, int]] = field(default_factory=dict)  # next, new epoch
    copied: bool = False

    @property
    def phase(self) -> Phase:
        return self.story.phase


@dataclass(slots=True)
class VirtualLedger:
    """Durable state of one home."""

    epoch: int = 1
    manager: tuple[int, int] = (0, 0)
    leader: str = ""  # whose the greatest message is
    led_by: tuple[str, int] = ("", 0)  # who last changed something, at which revision
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    declared: dict[str, bool] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    entered: dict[str, int] = field(default_factory=dict)  # rows of a source that are in
    queries: dict[str, HostedQuery] = field(default_factory=dict)
    streams: dict[str, VirtualStream] = field(default_factory=dict)
    cursors: dict[tuple[str, str], int] = field(default_factory=dict)  # (reader, stream): next
    states: dict[str, int] = field(default_factory=dict)
    holds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pulls: dict[str, Pull] = field(default_factory=dict)
    moves: dict[str, HandOver] = field(default_factory=dict)
    farewells: list[tuple[str, Peer]] = field(default_factory=list)  # to be said to sources
    # every time a stream was handed over: from which number on, to whom (with the new epoch)
    pointers: dict[str, list[tuple[int, Peer]]] = field(default_factory=dict)

    def stream(self, name: str) -> VirtualStream:
        return self.streams.setdefault(name, VirtualStream())

    def readers(self, stream: str) -> dict[str, int]:
        return {r: n for (r, s), n in self.cursors.items() if s == stream}

    def operators(self) -> set[str]:
        return {o for q in self.queries.values() for o in q.operators}

    def owns(self, stream: str) -> bool:
        return stream in self.streams and self.streams[stream].epoch > 0

    def retain(self) -> None:
        """Removes segments that no cursor needs; a stream that nobody has is forgotten."""
        needed: dict[str, int] = {}
        for (_, stream), number in self.cursors.items():
            needed[stream] = min(needed.get(stream, number), number)
        for name, held in self.streams.items():
            least = needed.get(name, held.following)
            for number in [n for n in held.segments if n < least]:
                del held.segments[number]

    def drop_reader(self, reader: str) -> None:
        for key in [k for k in self.cursors if k[0] == reader]:
            del self.cursors[key]
