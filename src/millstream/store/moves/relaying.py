"""Bytes of a stream from another reader, so that its owner need not send them to everybody.

The owner says which segments there are, keeps them until this reader has them, and hears of it; a
relay only hands over files, which count where their digest is the one that the owner told. Whatever
a relay does not have, it is asked for less often, and the owner is asked instead.
"""

from collections.abc import Callable, Iterable

from millstream.store.moves.records import Place
from millstream.store.moves.transfer import Peer
from millstream.store.segments import Segment

RESTS_MAX = 64  # pages that are taken from the owner alone after a relay has failed again and again
WAIT_S = 2.0  # for a segment that the relay does not have yet


class Relay:
    """Another reader of one stream, from which its bytes are taken while that goes well."""

    def __init__(self, place: Place, reach: Callable[[Place], Peer], me: str) -> None:
        self.place, self._reach, self._me = place, reach, me
        self._failures = self._rests = 0
        self._resting = False
        self._bytes = 0

    def begin_page(self) -> None:
        """A relay that has failed is asked again at a later page, after ever more of them."""
        self._resting = self._rests > 0
        self._rests -= self._resting

    def serves(self, segment: Segment) -> bool:
        """Whether to ask it: without a digest nobody could tell that the bytes are right."""
        return not self._resting and bool(segment.digest)

    def fetch(self, segment: Segment) -> Iterable[bytes]:
        peer = self._reach(self.place)
        return peer.relayed(
            segment.stream, segment.first, segment.last, segment.digest, self._me, WAIT_S
        )

    def succeeded(self, size: int) -> None:
        self._failures = 0
        self._bytes += size

    def taken(self) -> int:
        """Bytes that have come since this was last asked."""
        size, self._bytes = self._bytes, 0
        return size

    def failed(self) -> None:
        """The rest of this page comes from the owner, and some pages after it."""
        self._resting = True
        self._failures += 1
        self._rests = min(RESTS_MAX, 2**self._failures - 1)
