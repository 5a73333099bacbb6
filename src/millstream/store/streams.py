"""The streams of one home: ledger, segment files, layouts, and files that are on their way out."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from millstream.language.plan.windows import BEGINNING
from millstream.language.share.shared_plan import Place
from millstream.store import faults
from millstream.store.consumers import Consumer
from millstream.store.integrity.digests import digest_of_file
from millstream.store.integrity.set_aside import SetAside
from millstream.store.layouts import Layouts
from millstream.store.ledger import Ledger
from millstream.store.removals import Removals
from millstream.store.segments import Segment, SegmentStore


class Streams:
    """Opening a home sets aside what a crash has left in it."""

    def __init__(
        self, home: Path, *, local_disk: bool = True, files: type[SegmentStore] = SegmentStore
    ) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)  # rows and sources: its owner's
        self.home = home
        self.ledger = Ledger(home / "ledger.db", local_disk=local_disk)
        self.layouts = Layouts(self.ledger)
        self.files = files(home / "segments", self.layouts.places)
        self.removals = Removals()
        self.pasts: dict[str, set[str]] = {}  # streams of the past, by the stream whose they are
        self.retains: dict[str, int] = {}  # microseconds of history that a base stream keeps
        self.set_aside = SetAside(home)
        self._sweep_orphans()
        self._add_digests()

    def close(self) -> None:
        self.ledger.close()

    def _sweep_orphans(self) -> None:
        """Files of attempts that never committed, and of removals that did not finish."""
        named = self.ledger.named_files()
        unnamed = [f for f in self.files.files() if f not in named]
        self.set_aside.take([self.files.folder / f for f in unnamed])
        self.set_aside.expire()
        self.files.remove_drafts()
        with self.ledger.transaction() as ledger:
            ledger.drop_holds()
            self.layouts.forget_unused()

    def _add_digests(self) -> None:
        """Segments from before there were digests get that of their file as it is now."""
        for file in self.ledger.without_digest():
            with suppress(FileNotFoundError):  # told when somebody reads it
                digest = digest_of_file(self.files.path(file))
                with self.ledger.transaction() as ledger:
                    ledger.set_digest(file, digest)

    def hold(self, consumer: Consumer | str, stream: str) -> None:
        """A new reader begins with the first segment that is still there (in a transaction)."""
        following, watermark = self.ledger.cursor(consumer, stream)
        if (following, watermark) == (1, BEGINNING):
            segments = self.ledger.segments(stream)
            row = self.ledger.stream(stream)
            following = segments[0].first if segments else int(row["next"]) if row else 1
        self.ledger.set_cursor(consumer, stream, following, watermark)

    def reset(self, stream: str) -> list[str]:
        """Forgets the rows of a stream that is no more copied here (inside a transaction).

        Its columns stay; its head does not, so that a later copy begins anew. Gives files to go.
        """
        head = self.ledger.stream(stream)
        if head is None:
            return []
        kind, columns = head["kind"], head["columns"]
        gone = self.ledger.drop_stream(stream)
        self.ledger.add_stream(stream, kind)
        self.ledger.set_columns(stream, columns)
        return gone

    def remove(self, files: Sequence[str]) -> None:
        """Removes files that nobody names any more, once nobody reads them."""
        self.removals.add(files)
        for file in self.removals.due():
            self.files.remove(file)
            faults.reach("removal.done")

    def layouts_of(self, segments: Iterable[Segment]) -> dict[int, Mapping[str, Place]]:
        """The layouts of the shared files among segments, by number."""
        tags = {s.tag for s in segments if s.file and s.tag is not None}
        return {tag: self.layouts.places(tag) for tag in tags}
