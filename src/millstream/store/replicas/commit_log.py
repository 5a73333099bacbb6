"""The commits of a home in order, for the followers that keep a copy of it, and the position of
each.

What others could see of a commit (an answer, an acknowledgement, a delivery) waits until as many
followers as are wanted have it: `demand`. So a processor that continues from a follower's copy
continues from a moment after everything that was visible outside, as after a crash at that moment.
Commits are kept in memory; a follower that lags behind takes the whole ledger. Without followers
wanted nothing waits.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millstream.core.errors import AwayError
from millstream.store.ledger import Ledger
from millstream.store.replicas.records import Commit, Commits, Configuration

KEPT_CHARACTERS = 64 << 20
PAGE_CHARACTERS = 16 << 20
PATIENCE_S = 5.0
NEEDED_S = 60.0
CONFIGURED = "replicas"  # where the ledger keeps its configuration
FOREVER = 1 << 62


class CommitLog:
    """The owner's side of a home that is kept at several processors."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        known = json.loads(ledger.meta(CONFIGURED) or "{}")
        self.configuration = _configuration(known)
        self._changed = threading.Condition()
        self._commits: deque[Commit] = deque()
        self._characters = 0
        self._before = ledger.sealed  # number and digest before the first of them
        self._has: dict[str, int] = {}  # by follower: everything up to this commit
        self._going: dict[str, tuple[int, float]] = {}  # files: after which commit, since when
        self._floor = ledger.changes  # nothing that was told before lies above it
        self.on_safe: list[Callable[[], None]] = []  # told when more is safe, from any thread
        self.on_passed: list[Callable[[], None]] = []  # told when files may go
        self.hasten: Callable[[int], None] = self._wait  # until a number is safe, or in vain
        self.closed: int | None = None  # the first commit that was waited for in vain
        ledger.safety = self
        self._record()

    def _record(self) -> None:
        on = self.configuration.wanted > 0
        with self.ledger.alone():
            self.ledger.on_commit = self._committed if on else None
            self.ledger.record(on=on)
            if not on:
                self._commits.clear()
                self._characters = 0
            if not self._commits:
                self._before = self.ledger.sealed

    def _committed(self, statements: list[tuple[str, Any]]) -> None:
        """Called after each commit, in order, under the ledger's lock."""
        number, rows_sum = self.ledger.sealed
        text = json.dumps(statements)
        with self._changed:
            self._commits.append(Commit(number, rows_sum, text))
            self._characters += len(text)
            while self._characters > KEPT_CHARACTERS and len(self._commits) > 1:
                gone = self._commits.popleft()
                self._before = (gone.number, gone.rows_sum)
                self._characters -= len(gone.statements)
            self._changed.notify_all()

    # -- configuration --------------------------------------------------------------------------

    def configure(self, wanted: Configuration) -> None:
        """Who is to follow; an older word than the last changes nothing."""
        if wanted.number <= self.configuration.number:
            return
        with self.ledger.transaction() as ledger:
            ledger.set_meta(CONFIGURED, json.dumps(asdict(wanted)))
        with self._changed:
            self._has = {}  # each says anew, under this configuration, what it has
            self.configuration = wanted
            self._floor = self.ledger.changes  # after that: the former one has told no more
        self._record()
        self._told()
        self._passed()

    # -- what followers ask ---------------------------------------------------------------------

    def page(
        self, after: int, rows_sum: int, follower: str, number: int, wait: float = 0.0
    ) -> Commits:
        """What follows a number; the follower has everything up to it.

        It counts only from the floor on: whoever chooses an heir takes a copy that has not come
        there for one to which nothing was told under this configuration.
        """
        deadline = time.monotonic() + wait
        with self._changed:
            if number != self.configuration.number:
                raise AwayError(f"configuration {number} is not that of this home")
            floor = self._floor
            if not self._continues(after, rows_sum):
                self._has.pop(follower, None)  # whatever it had before
                return Commits(floor, whole=True)
            if after >= floor:
                self._acknowledged(follower, after)
            while self._last <= after and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            found, size = [], 0
            for commit in self._commits:
                if commit.number > after and size <= PAGE_CHARACTERS:
                    found.append(commit)
                    size += len(commit.statements)
        self._passed()
        return Commits(floor, tuple(found))

    def _continues(self, after: int, rows_sum: int) -> bool:
        """Whether commits that are still noted follow upon what a follower has."""
        number, digest = self._before
        if number < after <= self._last:
            known = self._commits[after - number - 1]
            number, digest = known.number, known.rows_sum
        return (number, digest) == (after, rows_sum)

    @property
    def _last(self) -> int:
        return self._commits[-1].number if self._commits else self._before[0]

    def _acknowledged(self, follower: str, after: int) -> None:
        if follower in self.configuration.followers and after != self._has.get(follower, 0):
            self._has[follower] = after
            self._changed.notify_all()
            self._told()

    def snapshot(self, path: Path) -> None:
        """The whole ledger at this moment, as a file."""
        self.ledger.copy_to(path)

    def needs(self, file: str) -> bool:
        """Whether a follower may still fetch a file that nobody names here any more: until it has
        the commit that says so, and not for ever."""
        now = time.monotonic()
        number, since = self._going.setdefault(file, (self.ledger.changes, now))
        if self.safe < number and now - since < NEEDED_S:
            return True
        del self._going[file]
        return False

    def _passed(self) -> None:
        for listener in self.on_passed if self._going else ():
            listener()

    def _told(self) -> None:
        for listener in self.on_safe:
            listener()

    # -- what waits -----------------------------------------------------------------------------

    @property
    def safe(self) -> int:
        """The last commit that as many others have as are wanted."""
        wanted, followers = self.configuration.wanted, self.configuration.followers
        if not wanted:
            return FOREVER
        if len(followers) < wanted:
            return 0
        return min(self._has.get(name, 0) for name in followers)

    @property
    def open(self) -> bool:
        """Whether followers keep up: the last thing that was waited for has become safe."""
        wanted = self.configuration
        return len(wanted.followers) >= wanted.wanted and self.safe > 0 and not self._in_vain()

    def _in_vain(self) -> bool:
        return self.closed is not None and self.safe < self.closed

    def demand(self) -> None:
        """Returns when all that is committed is safe; raises where that takes too long."""
        if not self.configuration.wanted:
            return
        number = self.ledger.changes
        if self.safe < number:
            self.hasten(number)
        if self.safe < number:
            self.waited_in_vain(number)
            raise not_safe()

    def waited_in_vain(self, number: int) -> None:
        if not self._in_vain():
            self.closed = number

    def _wait(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.safe >= number, PATIENCE_S)


def not_safe() -> AwayError:
    return AwayError(
        "too few others have what was committed here",
        detail="what is not at as many processors as `replicas` says is not told to anybody",
        hint="try again later",
    )


def _configuration(known: dict[str, Any]) -> Configuration:
    if not known:
        return Configuration()
    return Configuration(known["number"], known["wanted"], tuple(known["followers"]))
