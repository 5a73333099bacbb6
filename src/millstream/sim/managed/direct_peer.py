"""A processor as another one in the same process reaches it: no network, the same questions."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from millstream.core.errors import AwayError, RefusedError
from millstream.engine.processor import Processor
from millstream.store.integrity.digests import digest_of
from millstream.store.moves.records import Extent, Place, SealedRecord
from millstream.store.moves.transfer import CHUNK, Page
from millstream.store.replicas.records import Commits

Ask = Callable[[Callable[[Processor], Any]], Any]  # puts a question, or raises: nobody is there


class DirectPeer:
    """`store.moves.transfer.Peer`; whoever gives `ask` decides what gets through."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def page(self, stream: str, after: int, consumer: str, epoch: int, wait: float) -> Page:
        page: Page = self._ask(lambda p: p.distributor.page(stream, after, consumer, epoch))
        return page

    def fetch(self, stream: str, first: int, last: int) -> Iterator[bytes]:
        with self._ask(lambda p: p.distributor.open(stream, first, last)) as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def relayed(
        self, stream: str, first: int, last: int, digest: str, reader: str, wait: float
    ) -> Iterator[bytes]:
        with self._ask(
            lambda p: p.distributor.relayed(stream, first, last, digest, reader)
        ) as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def acknowledge(self, stream: str, consumer: str, following: int) -> None:
        self._ask(lambda p: p.distributor.acknowledge(stream, consumer, following))

    def expect(self, stream: str, consumer: str) -> tuple[int, int]:
        following, epoch = self._ask(lambda p: p.distributor.expect(stream, consumer))
        return following, epoch

    def unexpect(self, stream: str, consumer: str) -> Place | None:
        further: Place | None = self._ask(lambda p: p.distributor.unexpect(stream, consumer))
        return further

    def needs(self, move: str, operators: tuple[str, ...], to: Place) -> Extent:
        extent: Extent = self._ask(lambda p: p.old_owner.needs(move, operators, to))
        return extent

    def sealed(self, move: str, wait: float) -> SealedRecord | None:
        record: SealedRecord | None = self._ask(lambda p: p.old_owner.sealed(move))
        return record

    def ready(self, move: str) -> None:
        self._ask(lambda p: p.old_owner.ready(move))

    def taken(self, move: str) -> None:
        self._ask(lambda p: p.old_owner.taken(move))

    def undo(self, move: str) -> None:
        self._ask(lambda p: p.old_owner.undo(move))


class DirectHome:
    """`store.replicas.records.HomeSource`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def commits(
        self, after: int, rows_sum: int, follower: str, number: int, wait: float
    ) -> Commits:
        found: Commits = self._ask(lambda p: p.log.page(after, rows_sum, follower, number))
        return found

    def ledger(self) -> Iterator[bytes]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.db"
            self._ask(lambda p: p.log.snapshot(path))
            yield from _with_digest(path.read_bytes())

    def file(self, name: str) -> Iterator[bytes]:
        try:
            data = self._ask(lambda p: Path(p.engine.store.path(name)).read_bytes())
        except FileNotFoundError:
            raise RefusedError("unknown", f"file {name} is there no more") from None
        yield from _with_digest(data)

    def copied(self, owner: str, name: str) -> Iterator[bytes]:
        raise AwayError(f"nobody asks for file {name} of {owner} here")


def _with_digest(data: bytes) -> Iterator[bytes]:
    yield data
    yield digest_of(data).encode()
