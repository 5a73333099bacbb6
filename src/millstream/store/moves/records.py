"""What the two owners of a move tell each other and keep: typed values, one codec, no decision.

The same records on the wire, in the ledger and in memory (`control/protocol/records.py` writes and
reads them). The sealed record is all that a new owner needs to go on where the old one stopped.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from millstream.control.moves.table import Phase, Story
from millstream.control.protocol.commands import Prepare
from millstream.language.plan.windows import BEGINNING
from millstream.store.consumers import Cursor
from millstream.store.segments import Segment


@dataclass(frozen=True, slots=True)
class Place:
    """A processor and where it answers."""

    processor: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class InputExtent:
    """What operators can still reach of a stream, and where more of it comes from."""

    segments: tuple[Segment, ...]
    next: int  # the first number that its owner has not pulled, or made, yet
    source: Place
    epoch: int

    @property
    def first(self) -> int:
        """The first number that is needed."""
        return min((s.first for s in self.segments), default=self.next)


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """Where the source of a base stream stands, as the ledger of its owner has it.

    Positions are the stream's own (a place in files, offsets of a broker) and, each under its key,
    those of producers: the last number of each.
    """

    started: bool
    files: tuple[tuple[str, str], ...] = ()  # those it has seen, with their digests, in order
    positions: dict[str, dict[str, Any]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # rows that went aside, by counter
    retained_from: int = BEGINNING

    def ended(self, stream: str) -> bool:
        """Whether no more rows will come."""
        return bool(self.positions.get(stream, {}).get("ended"))


@dataclass(frozen=True, slots=True)
class Extent:
    """Where operators stand, and all that they can still reach."""

    cursors: dict[str, dict[str, Cursor]]  # by operator and stream
    inputs: dict[str, InputExtent]  # by stream
    sources: dict[str, SourceRecord] = field(default_factory=dict)  # by base stream that moves

    def cursors_on(self, stream: str) -> list[int]:
        """The next numbers of all operators that read a stream."""
        return [reads[stream].next for reads in self.cursors.values() if stream in reads]


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A state of an operator: a stream that only it reads and writes. Of a base stream, its rows
    that were late or malformed."""

    columns: str  # Spark's JSON schema
    next: int
    segments: tuple[Segment, ...]
    consumers: dict[str, Cursor] = field(default_factory=dict)  # who reads what went aside


@dataclass(frozen=True, slots=True)
class HandedStream:
    """How the new owner goes on with a stream."""

    next: int
    epoch: int  # the new owner's
    watermark: int
    ts_max: int
    rows: int
    committed: float | None  # when the old owner last committed a step
    consumers: tuple[str, ...]  # other processors that read it
    subscribers: dict[str, Cursor]  # by query: who reads its results
    progress: dict[str, Any]  # the operator's own notes
    statistics: dict[str, int | float]
    states: dict[str, StateRecord]


@dataclass(frozen=True, slots=True)
class SealedRecord:
    """The commit point of a move, as the old owner's ledger has it."""

    extent: Extent
    streams: dict[str, HandedStream]  # by operator
    queries: dict[str, tuple[str, str]]  # state and reason


@dataclass(frozen=True, slots=True)
class Move:
    """One side of a move, as this processor's ledger has it."""

    id: str
    role: Literal["old", "new"]
    story: Story
    operators: tuple[str, ...]
    other: Place  # the new owner at the old one, and the reverse
    request: Prepare | None = None  # at the new owner
    copied: tuple[str, ...] = ()  # streams that are copied for this move
    expected: tuple[tuple[str, Place], ...] = ()  # streams, and who was asked to keep them
    sealed: SealedRecord | None = field(default=None)

    @property
    def phase(self) -> Phase:
        return self.story.phase


def as_sent(segment: Segment) -> Segment:
    """A segment as it travels: where its file lies is each processor's own business.

    Of a file that holds other streams as well only this one's rows travel: their digest follows
    them (`transfer.py`).
    """
    digest = segment.digest if segment.tag is None else ""
    return replace(segment, file=None, tag=None, digest=digest)
