"""Standing trees (seed 003, section 4): their proxy, how they are mapped, what is moved.

Every tree of what runs (`control/admission/parts.py`) has one proxy: the processor where a query's
result is wanted, or, where it may be handed over anywhere or several read it, the one that makes
it. So the proxy follows from what runs; none is appointed, and a dead one is replaced when the
members look again. At its interval a proxy lets its trees be mapped with the rates and places of
now; coordinators stay in between, and when one of them is gone its zone is mapped by another at
once. Live moves follow the result where it pays (`propose_part`); an operator that was moved a
short while ago, by any cause, stays. Pure: the same in virtual time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from millstream.control.admission.parts import Part, parts
from millstream.control.admission.query_tree import Survey, survey
from millstream.control.admission.replacement import REST, Proposal, propose_part
from millstream.control.coordinators.zones import Tree, tree_of
from millstream.control.manager.state import ManagerState
from millstream.control.protocol.coordinator_messages import Settings
from millstream.core.errors import UsageError
from millstream.core.placement import Placement

EVERY_S = 60.0
NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class StandingSettings:
    """How a processor keeps trees placed."""

    every_s: float = EVERY_S  # between looks at rates and distances
    gain: float = 0.1  # of traffic x distance that a move must save
    moves: bool = True  # else only what would be done is told
    finding: Literal["routes", "hash"] = "routes"  # of coordinators and candidates
    levels: int = 1  # of operators in a zone
    k: int = 32

    def __post_init__(self) -> None:
        if self.finding not in ("routes", "hash"):
            raise UsageError(
                f"coordinators are not found by {self.finding}", hint="routes, or hash"
            )

    @property
    def probe_s(self) -> float:
        """Between two measurements of a distance: several count between two looks."""
        return max(0.25, min(30.0, self.every_s / 4))


@dataclass(frozen=True, slots=True)
class Kept:
    """A tree at its proxy, between looks."""

    tree: Tree
    places: Placement  # when it was last looked at
    moved_s: float = NEVER  # when one of its operators was last seen to have moved
    epoch: int = 0  # of its last mapping
    zones: Mapping[str, str] = field(default_factory=dict)  # to coordinators, of that mapping
    cost: float = 0.0  # traffic x distance as it runs
    found: float = 0.0  # ... and as the processors would have it
    sentence: str = ""  # what became of it last, and why


Trees = Mapping[str, Kept]  # by part


def proxy_of(part: Part) -> str:
    """Who lets a tree be mapped."""
    return part.running[part.problem.root] if part.shared else part.ends[0]


def looked(state: ManagerState, settings: StandingSettings) -> tuple[ManagerState, Survey]:
    """What is known, as proposals want it."""
    known = replace(state.settings, replace_s=settings.every_s, replace_gain=settings.gain)
    state = replace(state, settings=known)
    return state, survey(state)


def own_parts(state: ManagerState, seen: Survey, me: str) -> dict[str, Part]:
    """The trees of which this processor is the proxy now."""
    return {part.id: part for part in parts(state, seen) if proxy_of(part) == me}


def noticed(kept: Trees, found: Mapping[str, Part], me: str, life: int, now_s: float) -> Trees:
    """The trees that stand from now on, with the rates of now; what has moved is to rest."""
    after: dict[str, Kept] = {}
    for name, part in found.items():
        tree = tree_of(part.problem, f"{name}@{me}-{life}")
        known = kept.get(name)
        if known is None:
            after[name] = Kept(tree, part.running)
        else:
            same = known.places == part.running
            moved_s = known.moved_s if same else now_s
            after[name] = replace(known, tree=tree, places=part.running, moved_s=moved_s)
    return after


def asked(
    part: Part, tree: Tree, me: str, settings: StandingSettings, up: Iterable[str]
) -> Settings:
    """How the tree is to be mapped; by hash, everybody who is there is a candidate."""
    return Settings(
        tree.id, 1, me, "in_network", settings.k, part.problem.latency_bound,
        candidates=tuple(sorted(up)) if settings.finding == "hash" else (),
        ends=() if part.ends == (me,) else part.ends, timed=part.timed, finding=settings.finding,
    )  # fmt: skip


def rests(kept: Kept, settings: StandingSettings, now_s: float) -> bool:
    return now_s - kept.moved_s < REST * settings.every_s


def decided(
    state: ManagerState, seen: Survey, part: Part, placement: Placement, *, resting: bool
) -> Proposal:
    """Whether what the processors have found is carried out."""
    unknown = sorted(set(placement.values()) - set(part.problem.nodes))
    if placement.keys() != part.running.keys() or unknown:
        reason = f"{unknown[0]} is gone" if unknown else "it has changed meanwhile"
        return Proposal(part.id, {}, f"{part.id} stays where it is: {reason}", reason)
    return propose_part(state, part, placement, seen, rests=resting)
