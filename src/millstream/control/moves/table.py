"""One move: its phases, which phase may follow which, and the story of what has happened.

The one table for all participants of a move: the manager or the partner that leads it, the old and
the new owner, views and the simulator. They differ in their part, not in the phases. Each keeps the
phase that it has seen as the last event of its own story; one that was away learns of several
phases at once and goes through all of them. The seal, one transaction in the old owner's ledger, is
the commit point: before it a move can be undone, after it there is only forward.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from millstream.core.errors import StateError


class Phase(StrEnum):
    REQUESTED = "requested"
    PREPARING = "preparing"
    READY = "ready"
    SEALED = "sealed"
    OWNED = "owned"
    DONE = "done"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class Row:
    """A phase: what the two owners do in it, and which phases may follow."""

    old_owner: str
    new_owner: str
    may_go_to: tuple[Phase, ...]


TABLE: Mapping[Phase, Row] = {
    Phase.REQUESTED: Row("runs", "knows nothing of it", (Phase.PREPARING, Phase.UNDONE)),
    Phase.PREPARING: Row(
        "runs, keeps rows for the new owner", "copies, warms up", (Phase.READY, Phase.UNDONE)
    ),
    Phase.READY: Row("runs", "follows", (Phase.SEALED, Phase.UNDONE)),
    Phase.SEALED: Row("has stopped, serves", "fetches the rest", (Phase.OWNED,)),
    Phase.OWNED: Row("forwards readers", "runs", (Phase.DONE,)),
    Phase.DONE: Row("has forgotten it", "runs", ()),
    Phase.UNDONE: Row("runs", "has forgotten it", ()),
}
BEFORE_SEAL = (Phase.REQUESTED, Phase.PREPARING, Phase.READY)
COMMITTED = (Phase.SEALED, Phase.OWNED)  # there is only forward
ENDED = (Phase.DONE, Phase.UNDONE)
UNDER_WAY = (Phase.PREPARING, Phase.READY, Phase.SEALED, Phase.OWNED)
ARRIVING = (Phase.PREPARING, Phase.READY, Phase.SEALED)  # the new owner is not the owner yet
RUNNING = (Phase.PREPARING, Phase.READY)  # the old owner still runs what moves


@dataclass(frozen=True, slots=True)
class MoveEvent:
    """A phase was reached: who says so, when, and why where that is not plain."""

    phase: Phase
    by: str
    at_s: float
    why: str = ""

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.at_s, UTC).isoformat(timespec="milliseconds")
        return f"{when} {self.by}: {self.phase}{f', {self.why}' if self.why else ''}"


class IllegalPhaseError(StateError):
    """A phase that the table does not allow after the present one."""


@dataclass(frozen=True, slots=True)
class Story:
    """What one who takes part has seen of a move. A move without events is requested."""

    events: tuple[MoveEvent, ...] = ()

    @property
    def phase(self) -> Phase:
        return self.events[-1].phase if self.events else Phase.REQUESTED

    def then(self, phase: Phase, by: str, at_s: float, why: str = "") -> "Story":
        """The story with one more phase; raises with all of it where the table forbids that."""
        if phase not in TABLE[self.phase].may_go_to:
            told = "; ".join(str(event) for event in self.events) or "nothing has happened yet"
            raise IllegalPhaseError(
                f"a move that is {self.phase} cannot become {phase}",
                detail=f"{by} at {at_s:.3f} s{f': {why}' if why else ''}; so far: {told}",
                hint="please report this with the detail",
            )
        return Story((*self.events, MoveEvent(phase, by, at_s, why)))

    def through(self, phase: Phase, by: str, at_s: float, why: str = "") -> "Story":
        """The story up to a later phase, through all between: what one has missed who was away."""
        story = self
        while story.phase is not phase:
            forward = TABLE[story.phase].may_go_to[:1]
            step = forward[0] if forward and phase in _ahead(forward[0]) else phase
            story = story.then(step, by, at_s, why)
        return story


def _ahead(phase: Phase) -> tuple[Phase, ...]:
    """The phases of a move that goes well, from one on."""
    found = [phase]
    while TABLE[found[-1]].may_go_to:
        found.append(TABLE[found[-1]].may_go_to[0])
    return tuple(found)
