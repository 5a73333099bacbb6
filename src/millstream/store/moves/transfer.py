"""Segments for other processors: pages of a stream, files, and who owns it from where on.

The distributor answers from the ledger what follows a number; the receiver (`receiving.py`) asks.
Neither knows a network: `Peer` is another processor, however it is reached.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Protocol

import pyarrow.parquet as pq

from millstream.core import errors
from millstream.language.plan.windows import BEGINNING
from millstream.store.consumers import remote
from millstream.store.integrity.digests import digest_of
from millstream.store.moves.ownership import Handed, Ownership
from millstream.store.moves.passing import Passing
from millstream.store.moves.records import Extent, Place, SealedRecord, as_sent
from millstream.store.retention import Retention
from millstream.store.segments import Segment

PAGE_SEGMENTS_MAX = 200
PAGE_BYTES_MAX = 64 << 20
CHUNK = 1 << 20
RefusedError = errors.RefusedError


@dataclass(frozen=True, slots=True)
class PathTime:
    """What rows of a stream have cost on their way so far."""

    evaluation_s: float = 0.0
    communication_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Page:
    """What follows a number of a stream, as one processor tells another."""

    stream: str
    epoch: int
    home_epoch: int
    segments: tuple[Segment, ...] = ()
    moved: Handed | None = None  # nothing more here: ask there
    behind_rows: int = 0  # rows after this page
    retained_from: int = BEGINNING
    last_rows: Mapping[str, int] = field(default_factory=dict)  # of base streams
    path: PathTime = field(default_factory=PathTime)  # what the rows have cost on their way


class Peer(Protocol):
    """Another processor. Every method may raise AwayError or RefusedError."""

    def page(self, stream: str, after: int, consumer: str, epoch: int, wait: float) -> Page: ...

    def fetch(self, stream: str, first: int, last: int) -> Iterable[bytes]:
        """One segment's rows as a Parquet file of that stream alone, then the file's digest."""
        ...

    def relayed(
        self, stream: str, first: int, last: int, digest: str, reader: str, wait: float
    ) -> Iterable[bytes]:
        """The same of a copy, where it has that very file by then."""
        ...

    def acknowledge(self, stream: str, consumer: str, following: int) -> None: ...

    def expect(self, stream: str, consumer: str) -> tuple[int, int]:
        """Keeps the stream for a consumer; gives the first number it can have, and the epoch."""
        ...

    def unexpect(self, stream: str, consumer: str) -> Place | None:
        """Keeps it no longer; gives the later owner, who may know the consumer from here."""
        ...

    def needs(self, move: str, operators: tuple[str, ...], to: Place) -> Extent: ...

    def sealed(self, move: str, wait: float) -> SealedRecord | None: ...

    def ready(self, move: str) -> None: ...

    def taken(self, move: str) -> None: ...

    def undo(self, move: str) -> None: ...


Peers = Callable[[Place], Peer]


class FollowedByDigest:
    """An open file whose digest comes after its last byte: who receives it knows what was sent."""

    def __init__(self, file: IO[bytes], digest: str) -> None:
        self._file, self._rest = file, digest.encode()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        if not data:
            data, self._rest = self._rest, b""
        return data

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "FollowedByDigest":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Distributor:
    """The answering side: serves segments of streams that are made here, or were."""

    def __init__(
        self,
        retention: Retention,
        ownership: Ownership,
        path_of: Callable[[str], PathTime] = lambda stream: PathTime(),  # noqa: ARG005
    ) -> None:
        self.streams, self.retention = retention.streams, retention
        self.ownership, self.ledger = ownership, retention.ledger
        self._path_of = path_of  # what rows of a stream have cost until they lie here
        self.passing = Passing(self._head)
        retention.passed_on = self.passing.needed
        self.on_acknowledged: list[Callable[[str], None]] = []

    def page(self, stream: str, after: int, consumer: str, epoch: int) -> Page:
        """Segments from a number on; or, where another owns the stream from there, who."""
        known = self.ownership.epoch(stream)
        if epoch > known or (self.ledger.stream(stream) is None and not known):
            raise RefusedError(
                "not_owner",
                f"stream {stream} is not made here",
                detail=f"asked for epoch {epoch}, known is {known}",
            )
        moved = self._successor(stream, after, epoch)
        segments = self.ledger.segments(stream, after)
        if moved is not None:
            segments = [s for s in segments if s.last < moved.next]
            if after >= moved.next or not segments:
                return Page(stream, moved.epoch, self.ledger.epoch, moved=moved)
            known = moved.epoch - 1  # these are from the time before
        if segments and segments[0].first < after:
            raise RefusedError("gap", f"stream {stream} was merged across number {after}")
        taken = _bounded(segments)
        head = self.ledger.stream(stream)
        return Page(
            stream,
            known,
            self.ledger.epoch,
            tuple(as_sent(s) for s in taken),
            behind_rows=sum(s.rows for s in segments[len(taken) :]),
            retained_from=int(head["retained_from"]) if head else BEGINNING,
            last_rows=self._last_rows(),
            path=self._path_of(stream),
        )

    def _head(self, stream: str) -> int:
        head = self.ledger.stream(stream)
        return int(head["next"]) if head is not None else 0

    def _successor(self, stream: str, after: int, epoch: int) -> Handed | None:
        """Who owns the stream from where on, as seen by a consumer that has all below `after`.

        Streams come back: hand-overs up to the consumer's epoch are behind it.
        """
        owned = self.ownership.owned(stream)
        if owned is not None and after >= owned.since:
            return None
        handed = self.ownership.handed(stream)
        later = [h for h in handed if h.next >= after and h.epoch > epoch]
        if later:
            return min(later, key=lambda h: (h.next, h.epoch))
        return max(handed, key=lambda h: h.epoch) if handed and owned is None else None

    def _last_rows(self) -> dict[str, int]:
        known = {
            r["id"]: int(r["ts_max"])
            for r in self.ledger.rows("SELECT id, ts_max FROM streams WHERE kind = 'base'")
        }
        for row in self.ledger.rows("SELECT * FROM last_rows"):
            known[row["stream"]] = max(known.get(row["stream"], BEGINNING), int(row["ts_max"]))
        return {name: ts for name, ts in known.items() if ts > BEGINNING}

    def open(self, stream: str, first: int, last: int) -> "FollowedByDigest":
        """One segment as a Parquet file, then its digest. An open file outlives its removal."""
        with self.streams.removals.reading():
            found = [
                s for s in self.ledger.segments(stream, first) if (s.first, s.last) == (first, last)
            ]
            if not found or not found[0].rows or found[0].file is None:
                raise RefusedError("gone", f"stream {stream} has no segment {first} to {last}")
            segment = found[0]
            if segment.tag is None:
                self.streams.files.check([segment])
                path = self.streams.files.path(str(segment.file))
                return FollowedByDigest(open(path, "rb"), segment.digest)
            alone = io.BytesIO()
            pq.write_table(self.streams.files.read(segment), alone, compression="zstd")
            alone.seek(0)
            return FollowedByDigest(alone, digest_of(alone.getbuffer()))

    def has(self, stream: str, first: int, last: int, digest: str, reader: str) -> bool:
        """Whether this very file is here; what follows it stays a while for who has asked."""
        if self.passing.asked(stream, reader, first):
            self.retention.retain([stream])
        found = self.ledger.segments(stream, first)[:1]
        return any((s.first, s.last, s.digest, s.tag) == (first, last, digest, None) for s in found)

    def relayed(
        self, stream: str, first: int, last: int, digest: str, reader: str
    ) -> "FollowedByDigest":
        """A segment of a copy as a file, then its digest, for another reader of the stream."""
        if not self.has(stream, first, last, digest, reader):
            raise RefusedError(
                "gone", f"stream {stream} has no such segment {first} to {last} here"
            )
        return self.open(stream, first, last)

    def expect(self, stream: str, consumer: str, *, ahead: bool = False) -> tuple[int, int]:
        """Keeps segments for another processor, from the first that is still there.

        `ahead` allows for a stream that is about to be made here: a manager says who will read it
        before it says that it is to be made, so that not even the first rows can be missed.
        """
        if self.ledger.stream(stream) is None and not ahead:
            raise RefusedError("not_owner", f"stream {stream} is not known here")
        with self.ledger.transaction() as ledger:
            ledger.add_stream(stream, "base" if stream.startswith("s:") else "copy")
            if remote(consumer) not in ledger.consumers(stream):
                self.streams.hold(remote(consumer), stream)
            following, _ = ledger.cursor(remote(consumer), stream)
        return following, self.ownership.epoch(stream)

    def unexpect(self, stream: str, consumer: str) -> Place | None:
        """Keeps a stream no longer for a consumer; gives who has taken it over, with its cursor."""
        if stream in self.ownership.arriving():
            raise RefusedError("busy", f"stream {stream} is on its way here, with its consumers")
        with self.ledger.transaction() as ledger:
            ledger.drop_cursor(remote(consumer), stream)
        self._passed(stream)
        if self.ownership.owned(stream) is not None:
            return None
        handed = self.ownership.handed(stream)
        return max(handed, key=lambda h: h.epoch).to if handed else None

    def acknowledge(self, stream: str, consumer: str, following: int) -> None:
        """A consumer has all below a number, durably."""
        name = remote(consumer)
        with self.ledger.transaction() as ledger:
            place = ledger.consumers(stream).get(name)
            if place is None:
                return
            if following > place[0]:
                ledger.set_cursor(name, stream, following, BEGINNING)
            handed = self.ownership.handed(stream)
            last = max(handed, key=lambda h: h.epoch) if handed else None
            if last and self.ownership.owned(stream) is None and following >= last.next:
                ledger.drop_cursor(name, stream)  # it has all of it; the pointer stays
        self._passed(stream)

    def _passed(self, stream: str) -> None:
        if self.ledger.consumers(stream):
            self.retention.retain([stream])
        for listener in self.on_acknowledged:
            listener(stream)


def _bounded(segments: list[Segment]) -> list[Segment]:
    """A page's worth of segments, one at least."""
    taken: list[Segment] = []
    size = 0
    for segment in segments:
        size += segment.size
        if taken and (size > PAGE_BYTES_MAX or len(taken) >= PAGE_SEGMENTS_MAX):
            break
        taken.append(segment)
    return taken
