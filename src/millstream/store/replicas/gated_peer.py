"""Other processors as a home with followers speaks to them: they hear nothing that could be undone.

A word that lets the other one forget, or count on something, waits until what was committed here is
safe. Questions do not wait.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.store.moves.records import Extent, Place, SealedRecord
from millstream.store.moves.transfer import Page, Peer, Peers
from millstream.store.replicas.commit_log import CommitLog


@dataclass(frozen=True, slots=True)
class GatedPeer:
    """`store.moves.transfer.Peer`."""

    peer: Peer
    log: CommitLog

    def page(self, stream: str, after: int, consumer: str, epoch: int, wait: float) -> Page:
        return self.peer.page(stream, after, consumer, epoch, wait)

    def fetch(self, stream: str, first: int, last: int) -> Iterable[bytes]:
        return self.peer.fetch(stream, first, last)

    def relayed(
        self, stream: str, first: int, last: int, digest: str, reader: str, wait: float
    ) -> Iterable[bytes]:
        return self.peer.relayed(stream, first, last, digest, reader, wait)

    def needs(self, move: str, operators: tuple[str, ...], to: Place) -> Extent:
        return self.peer.needs(move, operators, to)

    def sealed(self, move: str, wait: float) -> SealedRecord | None:
        return self.peer.sealed(move, wait)

    def acknowledge(self, stream: str, consumer: str, following: int) -> None:
        self.log.demand()
        self.peer.acknowledge(stream, consumer, following)

    def expect(self, stream: str, consumer: str) -> tuple[int, int]:
        self.log.demand()
        return self.peer.expect(stream, consumer)

    def unexpect(self, stream: str, consumer: str) -> Place | None:
        self.log.demand()
        return self.peer.unexpect(stream, consumer)

    def ready(self, move: str) -> None:
        self.log.demand()
        self.peer.ready(move)

    def taken(self, move: str) -> None:
        self.log.demand()
        self.peer.taken(move)

    def undo(self, move: str) -> None:
        self.log.demand()
        self.peer.undo(move)


def gated(peers: Peers, log: CommitLog) -> Peers:
    """Everybody behind the same gate."""
    return lambda place: GatedPeer(peers(place), log)
