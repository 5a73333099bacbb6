"""Segments between processors: a consumer pulls, stores under the same numbers, acknowledges.

The distributor answers from the ledger what follows a number, or who owns the stream from there on;
the receiver takes it over in one transaction with its position, so that a pull can be cut off and
repeated anywhere. Neither knows a network: `Peer` is another processor, however it is reached.
"""

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.engine import faults
from millstream.engine.ownership import Copy, Handed, Ownership, Place, remote
from millstream.engine.segments import Segment, disk_errors, sync
from millstream.errors import MillstreamError, StateError
from millstream.plan.windows import BEGINNING

if TYPE_CHECKING:
    from millstream.engine.engine import Engine

PAGE_SEGMENTS_MAX = 200
PAGE_BYTES_MAX = 64 << 20
CHUNK = 1 << 20


class PeerAwayError(MillstreamError):
    """Another processor does not answer; asked again later."""


class RefusedError(StateError):
    """Another processor, or this one, will not: `code` says why to programs."""

    def __init__(self, code: str, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.code = code


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

    def to_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "epoch": self.epoch,
            "home_epoch": self.home_epoch,
            "segments": [segment_json(s) for s in self.segments],
            "moved": None if self.moved is None else asdict(self.moved),
            "behind_rows": self.behind_rows,
            "retained_from": self.retained_from,
            "last_rows": dict(self.last_rows),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Page":
        moved = data["moved"]
        return Page(
            data["stream"],
            data["epoch"],
            data["home_epoch"],
            tuple(segment_of(data["stream"], s) for s in data["segments"]),
            None if moved is None else Handed(**{**moved, "to": Place(**moved["to"])}),
            data["behind_rows"],
            data["retained_from"],
            data["last_rows"],
        )


def segment_json(segment: Segment) -> dict[str, Any]:
    """A segment as it travels: where its file lies is each processor's own business."""
    data = asdict(segment)
    del data["stream"], data["file"], data["tag"]
    return data


def segment_of(stream: str, data: Mapping[str, Any]) -> Segment:
    return Segment(stream=stream, file=None, tag=None, **data)


class Peer(Protocol):
    """Another processor. Every method may raise PeerAwayError or RefusedError."""

    def page(self, stream: str, after: int, consumer: str, epoch: int, wait: float) -> Page: ...

    def fetch(self, stream: str, first: int, last: int) -> Iterable[bytes]:
        """One segment's rows as a Parquet file of that stream alone."""
        ...

    def acknowledge(self, stream: str, consumer: str, following: int) -> None: ...

    def expect(self, stream: str, consumer: str) -> tuple[int, int]:
        """Keeps the stream for a consumer; gives the first number it can have, and the epoch."""
        ...

    def unexpect(self, stream: str, consumer: str) -> None: ...

    def needs(self, move: str, operators: tuple[str, ...], to: Place) -> Mapping[str, Any]: ...

    def sealed(self, move: str, wait: float) -> Mapping[str, Any] | None: ...

    def ready(self, move: str) -> None: ...

    def taken(self, move: str) -> None: ...

    def undo(self, move: str) -> None: ...


Peers = Callable[[Place], Peer]


class Distributor:
    """The answering side: serves segments of streams that are made here, or were."""

    def __init__(self, engine: "Engine", ownership: Ownership) -> None:
        self.engine, self.ownership, self.ledger = engine, ownership, engine.ledger
        self.sent_bytes: dict[tuple[str, str], int] = {}
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
            tuple(taken),
            behind_rows=sum(s.rows for s in segments[len(taken) :]),
            retained_from=int(head["retained_from"]) if head else BEGINNING,
            last_rows=self._last_rows(),
        )

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

    def open(self, stream: str, first: int, last: int) -> IO[bytes]:
        """One segment as a Parquet file. An open file outlives its removal."""
        with self.engine.runner.removals.reading():
            found = [
                s for s in self.ledger.segments(stream, first) if (s.first, s.last) == (first, last)
            ]
            if not found or not found[0].rows or found[0].file is None:
                raise RefusedError("gone", f"stream {stream} has no segment {first} to {last}")
            segment = found[0]
            if segment.tag is None:
                return open(self.engine.store.path(str(segment.file)), "rb")
            alone = io.BytesIO()
            pq.write_table(self.engine.store.read(segment), alone, compression="zstd")
            alone.seek(0)
            return alone

    def sent(self, stream: str, consumer: str, size: int) -> None:
        key = (stream, consumer)
        self.sent_bytes[key] = self.sent_bytes.get(key, 0) + size

    def expect(self, stream: str, consumer: str) -> tuple[int, int]:
        """Keeps segments for another processor, from the first that is still there."""
        if self.ledger.stream(stream) is None:
            raise RefusedError("not_owner", f"stream {stream} is not known here")
        with self.ledger.transaction() as ledger:
            if remote(consumer) not in ledger.consumers(stream):
                self.engine.hold(remote(consumer), stream)
            following, _ = ledger.cursor(remote(consumer), stream)
        return following, self.ownership.epoch(stream)

    def unexpect(self, stream: str, consumer: str) -> None:
        with self.ledger.transaction() as ledger:
            ledger.drop_cursor(remote(consumer), stream)
        self._passed(stream)

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
            if handed and self.ownership.owned(stream) is None and following >= handed[-1].next:
                ledger.drop_cursor(name, stream)  # it has all of it; the pointer stays
        self._passed(stream)

    def _passed(self, stream: str) -> None:
        if self.ledger.consumers(stream):
            self.engine.maintenance.retain([stream])
        for listener in self.on_acknowledged:
            listener(stream)


def _rows_in(path: str) -> int:
    """Rows of a Parquet file; -1 where it is none."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowInvalid, OSError):
        return -1


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


class Receiver:
    """The asking side: keeps local copies of streams that are made elsewhere."""

    def __init__(self, me: str, engine: "Engine", ownership: Ownership, peers: Peers) -> None:
        self.me, self.engine, self.ownership, self.peers = me, engine, ownership, peers
        self.ledger = engine.ledger
        self.behind: dict[str, int] = {}  # rows that the source has and we do not, last known
        self._acknowledged: dict[str, int] = {}  # what this process has said
        self._leaving = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def connect(self, stream: str, source: Place, epoch: int, *, kept: bool = True) -> None:
        """From now on a stream is pulled; said again, a new address of the source counts.

        Another owner with a higher epoch is reached through the pointer of the present one, once
        everything below it is here; another holder of the same epoch takes over at once.
        """
        if self.ownership.owned(stream) is not None:
            return
        with self.ledger.transaction() as ledger:
            ledger.add_stream(stream, "base" if stream.startswith("s:") else "copy")
            known = self.ownership.copy(stream)
            if known is None:
                position = self._position(stream)
                self.ownership.set_copy(Copy(stream, source, epoch, 0, position, kept))
            elif known.source.processor == source.processor or epoch <= known.epoch:
                if epoch < known.epoch:
                    return
                same = known.source.processor == source.processor
                home = known.home_epoch if same else 0
                self.ownership.set_copy(
                    replace(known, source=source, epoch=epoch, home_epoch=home, kept=True)
                )

    def _position(self, stream: str) -> int | None:
        """Where a new copy goes on: after what this processor has made of the stream itself."""
        handed = self.ownership.handed(stream)
        head = self.ledger.stream(stream)
        if handed and head is not None and self.ledger.segments(stream):
            return int(head["next"])
        return None

    def disconnect(self, stream: str) -> None:
        copy = self.ownership.copy(stream)
        if copy is None:
            return
        with self.ledger.transaction():
            self.ownership.drop_copy(stream)
            self.ownership.leave(stream, copy.source)
        self.say_farewells()

    def expect(self, stream: str, source: Place) -> tuple[int, int]:
        """Asks a source to keep a stream for us; a farewell that was not heard is forgotten."""
        with self._leaving:
            with self.ledger.transaction():
                self.ownership.stay(stream, source.processor)
            return self.peers(source).expect(stream, self.me)

    def say_farewells(self) -> None:
        """Tells sources that they need not keep streams for us; who is away hears it later."""
        for stream, source in self.ownership.farewells():
            with self._leaving:
                copy = self.ownership.copy(stream)
                back = copy is not None and copy.source.processor == source.processor
                if (stream, source) not in self.ownership.farewells():
                    continue
                try:
                    if not back:
                        self.peers(source).unexpect(stream, self.me)
                except RefusedError:
                    pass  # it knows nothing of the stream: so much the better
                except MillstreamError:
                    continue
                with self.ledger.transaction():
                    self.ownership.stay(stream, source.processor)

    # -- pulling --------------------------------------------------------------------------------

    def pull(self, stream: str, wait: float = 0.0) -> int:
        """Takes over what is new, as much of it as fits a page; gives the number of segments.

        Several may pull at once: only one of them finds the copy as it was when it commits.
        """
        copy = self.ownership.copy(stream)
        if copy is None or self.ownership.owned(stream) is not None or self.crowded(stream):
            return 0
        peer = self.peers(copy.source)
        if copy.next is None:
            copy = self._begin(copy)
        assert copy.next is not None
        if self._acknowledged.get(stream) != copy.next:  # cut off before it could be said
            self._acknowledge(peer, stream, copy.next)
        page = peer.page(stream, copy.next, self.me, copy.epoch, wait)
        self._believe(copy, page)
        if page.moved is not None:
            return self._follow(copy, page)
        self.behind[stream] = page.behind_rows
        if not page.segments:
            return 0
        with self._locks.setdefault(stream, threading.Lock()):
            if self.ownership.copy(stream) != copy:
                return 1  # somebody else has it by now
            self._take(copy, page, peer)
        self._acknowledge(peer, stream, page.segments[-1].last + 1)
        faults.reach("pull.acknowledged")
        return len(page.segments)

    def _acknowledge(self, peer: Peer, stream: str, following: int) -> None:
        peer.acknowledge(stream, self.me, following)
        self._acknowledged[stream] = following

    def _begin(self, copy: Copy) -> Copy:
        """The first question: from where on the source keeps the stream for us."""
        position, epoch = self.expect(copy.stream, copy.source)
        if epoch < copy.epoch:
            raise RefusedError("stale", f"{copy.source.processor} has an old epoch")
        begun = replace(copy, next=position, epoch=epoch)
        with self.ledger.transaction():
            present = self.ownership.copy(copy.stream)
            if present != copy:
                raise RefusedError("busy", f"the copy of {copy.stream} has changed meanwhile")
            self.ownership.set_copy(begun)
        return begun

    def _believe(self, copy: Copy, page: Page) -> None:
        """Refuses what a processor says that has been replaced without knowing it."""
        if page.epoch < copy.epoch or page.home_epoch < copy.home_epoch:
            raise RefusedError(
                "stale",
                f"{copy.source.processor} answers for {copy.stream} with an old epoch",
                detail=f"{page.epoch} of the stream, {page.home_epoch} of the home; seen were "
                f"{copy.epoch} and {copy.home_epoch}",
            )

    def _follow(self, copy: Copy, page: Page) -> int:
        """Everything below the successor's first number is here: goes on there."""
        assert page.moved is not None
        moved = page.moved
        if moved.to.processor == self.me:
            return 0  # the move ends when this processor takes over
        with self.ledger.transaction():
            if self.ownership.copy(copy.stream) != copy:
                return 0
            self.ownership.set_copy(replace(copy, source=moved.to, epoch=moved.epoch, home_epoch=0))
            self.ownership.leave(copy.stream, copy.source)
        faults.reach("pull.followed")
        self.say_farewells()
        return 1

    def _take(self, copy: Copy, page: Page, peer: Peer) -> None:
        assert copy.next is not None
        expected = copy.next
        for segment in page.segments:
            if segment.first != expected:
                raise RefusedError(
                    "gap",
                    f"{copy.source.processor} sent number {segment.first} of {copy.stream}",
                    detail=f"expected was {expected}",
                )
            expected = segment.last + 1
        with self.downloaded(page.segments, peer) as (size, stored):
            faults.reach("pull.written")
            with self.ledger.transaction() as ledger:
                if self.ownership.copy(copy.stream) != copy:
                    raise RefusedError("busy", f"the copy of {copy.stream} has changed meanwhile")
                ledger.adopt(stored)
                self.ownership.set_copy(
                    replace(copy, next=expected, epoch=page.epoch, home_epoch=page.home_epoch)
                )
                ledger.retained_from(copy.stream, page.retained_from)
                for base, ts_max in page.last_rows.items():
                    ledger.note_last_row(base, ts_max)
                ledger.count(f"pulled_bytes:{copy.stream}", size)
                ledger.count(f"pulled_rows:{copy.stream}", sum(s.rows for s in stored))
        faults.reach("pull.committed")

    @contextmanager
    def downloaded(
        self, segments: Iterable[Segment], peer: Peer
    ) -> Iterator[tuple[int, list[Segment]]]:
        """Fetches files; gives the bytes that came and the segments as they lie here.

        Where the block fails, nobody will name the files: they go again.
        """
        size, stored = 0, []
        try:
            for segment in segments:
                got, kept = self._download(segment, peer) if segment.rows else (0, segment)
                size += got
                stored.append(kept)
            yield size, stored
        except Exception:
            for kept in stored:
                if kept.file is not None:
                    self.engine.store.remove(kept.file)
            raise

    def _download(self, segment: Segment, peer: Peer) -> tuple[int, Segment]:
        name = self.engine.store.new_name()
        path = self.engine.store.path(name)
        try:
            size = self._store(path, peer.fetch(segment.stream, segment.first, segment.last))
            if _rows_in(path) != segment.rows:
                raise RefusedError("broken", f"a file of {segment.stream} came incomplete")
        except Exception:
            self.engine.store.remove(name)
            raise
        return size, replace(segment, file=name, tag=None, size=size)

    def _store(self, path: str, chunks: Iterable[bytes]) -> int:
        """Writes and syncs a file; gives its size."""
        size = 0
        with disk_errors():
            with open(path, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                    size += len(chunk)
            sync(path)
        return size

    def crowded(self, stream: str) -> bool:
        """Whether local readers are so far behind that pulling should wait."""
        limit = self.engine.settings.backlog_rows_max
        readers = [o for o in list(self.engine.operators.values()) if stream in o.inputs]
        return any(
            sum(s.rows for s in self.ledger.segments(stream, self.ledger.cursor(o.id, stream)[0]))
            > limit
            for o in readers
        )
