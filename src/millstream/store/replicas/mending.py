"""Files that are damaged at home come back from a follower that has them as they were written.

Whoever is about to read a segment finds the damage. Of what followers have, that counts whose
digest is the one in the ledger; where nobody has it, the damage is told as ever.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from millstream.core.errors import DamageError, MillstreamError
from millstream.store.integrity.mended import Mended, note_mended
from millstream.store.replicas.keeper import ReplicaKeeper
from millstream.store.replicas.replica import store_file
from millstream.store.segments import Segment, SegmentStore, sync


class Mender:
    """Puts right what the store of a home finds damaged."""

    def __init__(
        self,
        home: Path,
        files: SegmentStore,
        keeper: ReplicaKeeper,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._home, self._files, self._keeper = home, files, keeper
        self._say, self._clock = say, clock
        self._lock = threading.Lock()
        files.mend = self.mend

    def mend(self, segment: Segment, damage: DamageError) -> bool:
        """Whether the file of a segment is right again."""
        assert segment.file is not None
        path = Path(self._files.path(segment.file))
        draft = path.with_suffix(".mending")
        with self._lock:
            for name, copy in self._keeper.others():
                with suppress(MillstreamError):
                    found = store_file(draft, copy.copied(self._keeper.me, segment.file))
                    if found == segment.digest:
                        os.replace(draft, path)
                        sync(str(path))
                        self._told(segment, damage, name)
                        return True
            draft.unlink(missing_ok=True)
        return False

    def _told(self, segment: Segment, damage: DamageError, source: str) -> None:
        self._say(f"{damage.message}: {damage.detail}; fetched anew from {source}")
        one = Mended(str(segment.file), segment.stream, damage.detail, source, self._clock())
        with suppress(OSError):  # the file is right, whether it is noted or not
            note_mended(self._home, one)
