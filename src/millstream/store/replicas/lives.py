"""Whether one state of a home goes on from another, by the lives that the home has had.

Whoever opens a home begins a life: an epoch, and the commit after which it begins. A home that was
put back from a backup begins a life at a commit that a later copy has left behind; one that goes on
from a follower's copy may do so as well, and its epoch has leapt. Compares, and reads no file.
"""

from dataclasses import dataclass
from itertools import pairwise

LEAP = 1000  # an adopted home's epoch is beyond those of processes that have the lost one
Lives = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a copy of a home has come."""

    epoch: int
    commit: int
    lives: Lives = ()  # epochs, and the commit after which each began; the latest last


def objection(draft: Standing, present: Standing) -> str:
    """Why a draft must not take the place of what is there; empty where it may.

    >>> before = Standing(2, 14, ((1, 0), (2, 10)))
    >>> objection(Standing(3, 20, ((1, 0), (2, 10), (3, 17))), before)
    ''
    >>> objection(Standing(3, 20, ((1, 0), (2, 10), (3, 12))), before)
    'it went back to commit 12, and the copy has 14'
    >>> objection(Standing(1003, 20, ((2, 10), (3, 12), (1003, 13))), before)
    ''
    """
    epochs = (present.epoch, *(e for e, _ in draft.lives if e > present.epoch))
    if any(later - earlier >= LEAP // 2 for earlier, later in pairwise(epochs)):
        return ""  # another has taken its place, from a copy that had all that was told
    if draft.epoch < present.epoch:
        return f"its epoch is {draft.epoch}, that of the copy {present.epoch}"
    known = dict(draft.lives)
    if any(known.get(epoch, after) != after for epoch, after in present.lives):
        return "it has another past than the copy"
    went_on = min((after for e, after in draft.lives if e > present.epoch), default=draft.commit)
    if went_on < present.commit:
        return f"it went back to commit {went_on}, and the copy has {present.commit}"
    return ""
