"""What a home and its followers tell each other: commits, copies, how far each is. No decision."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

FOLLOWING, FENCED, ADOPTED = "following", "fenced", "adopted"


@dataclass(frozen=True, slots=True)
class Configuration:
    """Who is to have everything of a home before it counts; the greatest number is valid."""

    number: int = 0
    wanted: int = 0  # others; 0: this home alone is enough
    followers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction of a ledger: its number, the digest of all rows after it, and how."""

    number: int
    rows_sum: int
    statements: str  # JSON: [[SQL, arguments], ...]


@dataclass(frozen=True, slots=True)
class Commits:
    """What follows a number of a home; `whole`: nobody knows any more, take all of it."""

    floor: int  # a copy that has come to this number has had everything under its configuration
    commits: tuple[Commit, ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """What a follower remembers of a home that it follows."""

    processor: str
    url: str = ""
    number: int = 0  # of the configuration
    complete: int = 0  # the last configuration under which it has come to the owner's floor
    state: str = FOLLOWING
    had: int = 0  # the last one under which a copy before this one was complete


class HomeSource(Protocol):
    """A home as its followers reach it."""

    def commits(
        self, after: int, rows_sum: int, follower: str, number: int, wait: float
    ) -> Commits:
        """What follows; who asks has everything up to `after`, durably."""
        ...

    def ledger(self) -> Iterator[bytes]:
        """The whole ledger at one moment."""
        ...

    def file(self, name: str) -> Iterator[bytes]:
        """A segment's file, and the digest of its bytes behind them."""
        ...

    def copied(self, owner: str, name: str) -> Iterator[bytes]:
        """The same of the copy that this one keeps of another's home."""
        ...
