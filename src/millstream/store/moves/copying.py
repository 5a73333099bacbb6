"""What the new owner of an operator needs of its inputs: kept at the sources, then copied here.

First the sources keep what follows, then what the operator can still reach is fetched from the old
owner, then the stream is pulled like any other copy. Every method may be called again; one that
finds its move ended writes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from millstream.language.plan.windows import BEGINNING
from millstream.store import faults
from millstream.store.consumers import holder
from millstream.store.moves.hosted import Hosting
from millstream.store.moves.missing_segments import Lack, lack_of
from millstream.store.moves.old_owner import busy
from millstream.store.moves.ownership import Copy, Ownership
from millstream.store.moves.receiving import Receiver
from millstream.store.moves.records import Extent, InputExtent, Move, Place
from millstream.store.moves.transfer import Peers, RefusedError
from millstream.store.segments import Segment


def still_under_way(ownership: Ownership, known: Move) -> Move:
    """The move as it is now (in a transaction); refused where it has ended meanwhile."""
    present = ownership.move(known.id)
    if present is None or present.phase != known.phase:
        raise RefusedError("undone", f"move {known.id} has changed meanwhile")
    return present


class Copying:
    """The inputs of operators that come to one processor."""

    def __init__(self, me: str, hosting: Hosting, receiver: Receiver, peers: Peers) -> None:
        self.me, self.hosting, self.receiver, self.peers = me, hosting, receiver, peers
        self.ownership, self.ledger = hosting.ownership, hosting.ledger
        self.missing: dict[str, int] = {}  # by move: rows, as last seen
        self._expected: dict[str, set[tuple[str, str]]] = {}  # by move, of this process

    def forget(self, move: str) -> None:
        """What this process remembered of a move that is over."""
        self.missing.pop(move, None)
        self._expected.pop(move, None)

    def expect(self, known: Move, needs: Extent) -> bool:
        """Lets sources keep the streams that are to be copied; says whether that was news.

        First they keep, then the old owner is asked how far it is: so nothing is merged between
        its position and ours.
        """
        news = False
        for stream, part in needs.inputs.items():
            if self.ownership.owned(stream) is not None or self.ownership.copy(stream) is not None:
                continue
            source, _, _ = self._origin(stream, part, known)
            if (stream, source.processor) in self._expected.get(known.id, ()):
                continue
            with self.ledger.transaction():
                present = still_under_way(self.ownership, known)
                if (stream, source) not in present.expected:
                    expected = (*present.expected, (stream, source))
                    self.ownership.set_move(replace(present, expected=expected))
            self.receiver.expect(stream, source)
            self._leave_if_undone(known, stream, source)
            self._expected.setdefault(known.id, set()).add((stream, source.processor))
            faults.reach("prepare.expected")
            news = True
        return news

    def _leave_if_undone(self, known: Move, stream: str, source: Place) -> None:
        """Who undid the move while the source was asked could not know that it keeps the stream."""
        with self.ledger.transaction():
            present = self.ownership.move(known.id)
            if present is not None and present.phase == known.phase:
                return
            self._part_from(stream, source)
        self.receiver.say_farewells()

    def _origin(self, stream: str, part: InputExtent, known: Move) -> tuple[Place, int, int]:
        """From whom a copy is pulled, with which epoch, from which number on.

        Where the old owner pulls it, because our position is its position; where that is this
        processor itself, which had the stream once, from whoever has had it after us.
        """
        source = known.other if part.source.processor == known.other.processor else part.source
        if source.processor == self.me:
            after = [h for h in self.ownership.handed(stream) if h.next >= part.next]
            later = [h for h in after if h.epoch > part.epoch]
            if later:
                chosen = min(later, key=lambda h: (h.next, h.epoch))
                return chosen.to, chosen.epoch, chosen.next
        return source, part.epoch, part.next

    def copy(self, known: Move, needs: Extent) -> bool:
        """Fetches what is missing of every stream; gives whether nothing is."""
        missing = 0
        complete = True
        for stream, part in sorted(needs.inputs.items()):
            copy = self.ownership.copy(stream)
            if copy is not None and copy.next is None:
                complete = False  # it is for others here, and begins where they are to begin
                continue
            self._hold(known, stream, part.first)
            lack = self._lack(stream, part.segments, needs.cursors_on(stream))
            complete = complete and not lack.waiting
            missing += lack.rows
            self._fetch(known, stream, lack, part)
        self.missing[known.id] = 0 if complete else max(missing, 1)
        for stream in needs.inputs:
            if self.ownership.copy(stream) is not None:
                self.receiver.pull(stream)
        return complete

    def _hold(self, known: Move, stream: str, first: int) -> None:
        if holder(known.id) not in self.ledger.consumers(stream):
            with self.ledger.transaction() as ledger:
                still_under_way(self.ownership, known)
                ledger.set_cursor(holder(known.id), stream, first, BEGINNING)
            faults.reach("prepare.held")

    def _lack(self, stream: str, segments: Sequence[Segment], cursors: Sequence[int]) -> Lack:
        owned, copy = self.ownership.owned(stream), self.ownership.copy(stream)
        head = self.ledger.stream(stream)
        position = copy.next if copy is not None else None
        if owned is not None:
            position = int(head["next"]) if head else 1
        others = [
            at.next
            for consumer, at in self.ledger.consumers(stream).items()
            if consumer.kind != "move"
        ]
        return lack_of(
            segments,
            self.ledger.segments(stream),
            cursors=cursors,
            position=position,
            passed=min(others, default=1 << 62),
        )

    def _fetch(self, known: Move, stream: str, lack: Lack, part: InputExtent) -> None:
        """Copies segments from the old owner; where there was no copy yet, there is one then."""
        fresh = self.ownership.owned(stream) is None and self.ownership.copy(stream) is None
        if not lack.fetch and not fresh:
            return
        with self.receiver.downloaded(lack.fetch, self.peers(known.other)) as (size, stored):
            faults.reach("prepare.written")
            with self.ledger.transaction() as ledger:
                still_under_way(self.ownership, known)
                present = ledger.segments(stream)
                if any(s not in present for s in lack.replaced):
                    raise busy(f"stream {stream} has changed meanwhile")
                gone = ledger.replace(lack.replaced, None) if lack.replaced else []
                ledger.adopt(stored, past=not fresh)
                ledger.count(f"copied_bytes:{stream}", size)
                if fresh:
                    self._begin_copy(known.id, stream, self._origin(stream, part, known))
        self.hosting.remove(gone)
        faults.reach("prepare.copied")

    def _begin_copy(self, move: str, stream: str, origin: tuple[Place, int, int]) -> None:
        """From now on the stream is pulled, from where the old owner is (in a transaction)."""
        place, epoch, following = origin
        self.ownership.set_copy(Copy(stream, place, epoch, 0, following, kept=False))
        known = self.ownership.move(move)
        assert known is not None
        self.ownership.set_move(replace(known, copied=(*known.copied, stream)))
        self.ledger.change(
            "UPDATE streams SET next = max(next, ?) WHERE id = ?", (following, stream)
        )

    def part(self, known: Move) -> None:
        """Leaves sources that were asked to keep a stream and are not needed (in a transaction)."""
        for stream, source in known.expected:
            self._part_from(stream, source)

    def _part_from(self, stream: str, place: Place) -> None:
        copy = self.ownership.copy(stream)
        if copy is None or copy.source.processor != place.processor:
            self.ownership.leave(stream, place)
