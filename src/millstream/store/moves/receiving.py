"""Segments from other processors: pulled, stored under the same numbers, acknowledged.

A page is taken over in one transaction with the copy's position, so that a pull can be cut off and
repeated anywhere. A source that has been replaced without knowing it is not believed; one that need
not keep a stream any longer is told until it has heard.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from millstream.control.moves.table import ARRIVING
from millstream.core.errors import MillstreamError
from millstream.store import faults
from millstream.store.integrity.digests import LENGTH
from millstream.store.moves.ownership import Copy, Ownership
from millstream.store.moves.records import Place
from millstream.store.moves.relaying import Relay
from millstream.store.moves.transfer import Page, PathTime, Peer, Peers, RefusedError
from millstream.store.segments import Segment, disk_errors, sync
from millstream.store.streams import Streams


class Receiver:
    """The asking side: keeps local copies of streams that are made elsewhere."""

    def __init__(self, me: str, streams: Streams, ownership: Ownership, peers: Peers) -> None:
        self.me, self.ownership, self.peers = me, ownership, peers
        self.streams = streams
        self.ledger, self._files = streams.ledger, streams.files
        self.behind: dict[str, int] = {}  # rows that the source has and we do not, last known
        self._acknowledged: dict[str, int] = {}  # what this process has said
        self._leaving = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._relays: dict[str, Relay] = {}  # by stream, as a manager said last
        # what the processor says to a new copy, to one that grows, and to rows that have come
        self.may_copy: Callable[[str], None] = lambda stream: None  # noqa: ARG005
        self.crowded: Callable[[str], bool] = lambda stream: False  # noqa: ARG005
        self.pulled: Callable[[str, PathTime, float], None] = lambda *_: None

    def connect(self, stream: str, source: Place, epoch: int, *, kept: bool = True) -> None:
        """From now on a stream is pulled; said again, a new address of the source counts.

        Another owner with a higher epoch is reached through the pointer of the present one, once
        everything below it is here; another holder of the same epoch takes over at once.
        """
        if self.ownership.owned(stream) is not None:
            return
        self.may_copy(stream)
        gone: list[str] = []
        with self.ledger.transaction() as ledger:
            ledger.add_stream(stream, "base" if stream.startswith("s:") else "copy")
            known = self.ownership.copy(stream)
            if known is None:
                if not ledger.consumers(stream) and not self.ownership.handed(stream):
                    gone = self.streams.reset(stream)  # of a copy that a move held to its end
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
        self.streams.remove(gone)

    def _position(self, stream: str) -> int | None:
        """Where a new copy goes on: for readers that were here before, after what this processor
        has made of the stream itself; else where its source begins."""
        handed = self.ownership.handed(stream)
        head = self.ledger.stream(stream)
        if handed and head is not None and self.ledger.segments(stream):
            return int(head["next"])
        return None

    def disconnect(self, stream: str) -> None:
        copy = self.ownership.copy(stream)
        if copy is None:
            return
        self.take_from(stream, None)
        with self.ledger.transaction():
            self.ownership.drop_copy(stream)
        self.say_farewells()

    def expect(self, stream: str, source: Place) -> tuple[int, int]:
        """Asks a source to keep a stream for us; a farewell that was not heard is forgotten."""
        with self._leaving:
            with self.ledger.transaction():
                self.ownership.stay(stream, source.processor)
            return self.peers(source).expect(stream, self.me)

    def take_from(self, stream: str, relay: Place | None) -> None:
        """From whom the bytes of a stream come while that goes well; None: from its source."""
        known = self._relays.get(stream)
        if relay is None or relay.processor == self.me:
            self._relays.pop(stream, None)
        elif known is None or known.place != relay:
            self._relays[stream] = Relay(relay, self.peers, self.me)

    def relays(self) -> dict[str, Place]:
        for stream in list(self._relays):
            if self.ownership.copy(stream) is None:
                self._relays.pop(stream, None)
        return {stream: relay.place for stream, relay in list(self._relays.items())}

    def say_farewells(self) -> None:
        """Tells sources that they need not keep streams for us; who is away hears it later."""
        for stream, source in self.ownership.farewells():
            with self._leaving:
                if (stream, source) in self.ownership.farewells():
                    self._say_farewell(stream, source)

    def _say_farewell(self, stream: str, source: Place) -> None:
        further = None
        if not self._needed(stream, source.processor):
            try:
                further = self.peers(source).unexpect(stream, self.me)
            except RefusedError as refusal:
                if refusal.code == "busy":
                    return
                # else it knows nothing of the stream: so much the better
            except MillstreamError:
                return
        with self.ledger.transaction():
            self.ownership.stay(stream, source.processor)
            if further is not None and not self._needed(stream, further.processor):
                self.ownership.leave(stream, further)  # who has it now may know us from before

    def _needed(self, stream: str, processor: str) -> bool:
        """Whether a processor is to keep a stream for us: for a copy, or one that is being made."""
        copy = self.ownership.copy(stream)
        if processor == self.me or (copy is not None and copy.source.processor == processor):
            return True
        return any(
            (stream, processor) == (expected, place.processor)
            for move in self.ownership.moves("new", ARRIVING)
            for expected, place in move.expected
        )

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
            begun = time.monotonic()
            self._take(copy, page, peer)
            self.pulled(stream, page.path, time.monotonic() - begun)
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
            if page.home_epoch:
                self.ownership.leave(copy.stream, copy.source)
            # else a manager pointed there: it hands a farewell on to the very owner that we ask now
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
        relay = self._relays.get(copy.stream)
        if relay is not None:
            relay.begin_page()
        with self.downloaded(page.segments, peer, relay) as (size, stored):
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
                ledger.count(f"relayed_bytes:{copy.stream}", relay.taken() if relay else 0)
                ledger.count(f"pulled_rows:{copy.stream}", sum(s.rows for s in stored))
        faults.reach("pull.committed")

    @contextmanager
    def downloaded(
        self, segments: Iterable[Segment], peer: Peer, relay: Relay | None = None
    ) -> Iterator[tuple[int, list[Segment]]]:
        """Fetches files; gives the bytes that came and the segments as they lie here.

        Where the block fails, nobody will name the files: they go again.
        """
        size, stored = 0, []
        try:
            for segment in segments:
                got, kept = self._download(segment, peer, relay) if segment.rows else (0, segment)
                size += got
                stored.append(kept)
            yield size, stored
        except Exception:
            for kept in stored:
                if kept.file is not None:
                    self._files.remove(kept.file)
            raise

    def _download(self, segment: Segment, peer: Peer, relay: Relay | None) -> tuple[int, Segment]:
        """From the relay, if it has the very file that the source means; else from the source."""
        if relay is not None and relay.serves(segment):
            try:
                found = self._stored(segment, relay.fetch(segment))
            except MillstreamError:
                relay.failed()
            else:
                relay.succeeded(found[0])
                return found
        return self._stored(segment, peer.fetch(segment.stream, segment.first, segment.last))

    def _stored(self, segment: Segment, chunks: Iterable[bytes]) -> tuple[int, Segment]:
        name = self._files.new_name()
        path = self._files.path(name)
        try:
            size, digest = self._store(path, chunks)
            if digest is None or digest != (segment.digest or digest):
                raise RefusedError("broken", f"a file of {segment.stream} was damaged on its way")
            if self._files.rows_in(name) != segment.rows:
                raise RefusedError("broken", f"a file of {segment.stream} came incomplete")
        except Exception:
            self._files.remove(name)
            raise
        return size, replace(segment, file=name, tag=None, size=size, digest=digest)

    def _store(self, path: str, chunks: Iterable[bytes]) -> tuple[int, str | None]:
        """Writes and syncs a file; gives its size, and its digest where that is the one told."""
        size, held, digest = 0, b"", hashlib.sha256()
        with disk_errors():
            with open(path, "wb") as file:
                for chunk in chunks:
                    held += chunk
                    data, held = held[:-LENGTH], held[-LENGTH:]
                    file.write(data)
                    digest.update(data)
                    size += len(data)
            sync(path)
        found = digest.hexdigest()[:LENGTH]
        return size, found if held == found.encode() else None
