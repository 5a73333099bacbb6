"""Which fragments leave when a node is asked for load (seed 002, section 3.5).

A selection is a sort key over the sender's fragments; `choose` takes them in that order while they
fit what is asked and what may leave. `flow_aware` is the seed's: three classes by where the
fragment's stream arrives, four sub-classes by where its neighbours run, then load density, all
local knowledge. `ratio_aware` prefers, of equal ones, those of badly served queries. `elementary`
and `intermediate` are the rivals it is compared with. None of them knows what a query means.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from millstream.core.registry import Registry
from millstream.decide.balance.protocol import FragmentView


@dataclass(frozen=True, slots=True)
class Transfer:
    """From whom to whom."""

    sender: str
    receiver: str


SortKey = Callable[[FragmentView, Transfer], tuple[float | str, ...]]  # lower leaves first
SELECTIONS: Registry[SortKey] = Registry("load selection")

ROUNDING = 1e-12
# What a part of a split job may be at the receiver, in terms of what it asked for, half of what it
# is lighter by: beyond that it would be the heavier of the two by far.
SPLIT = 3.0


def load_density(fragment: FragmentView) -> float:
    """Load that moves with each byte of state.

    >>> load_density(FragmentView("f", 0.5, 0.0, "n", ()))
    0.5
    """
    return fragment.load / max(fragment.state_bytes, 1.0)


def flow_class(fragment: FragmentView, transfer: Transfer) -> int:
    """1: comes home; 2: foreign here and there; 3: native here."""
    if fragment.native == transfer.sender:
        return 3
    return 1 if fragment.native == transfer.receiver else 2


def flow_subclass(fragment: FragmentView, transfer: Transfer) -> int:
    """1: neighbours at the receiver only; 2: at both; 3: at neither; 4: at the sender only."""
    here = transfer.sender in fragment.neighbours_at
    there = transfer.receiver in fragment.neighbours_at
    if there:
        return 2 if here else 1
    return 4 if here else 3


@SELECTIONS.member("flow_aware")
def flow_aware(fragment: FragmentView, transfer: Transfer) -> tuple[float | str, ...]:
    return (
        flow_class(fragment, transfer),
        flow_subclass(fragment, transfer),
        -load_density(fragment),
        fragment.id,
    )


@SELECTIONS.member("ratio_aware")
def ratio_aware(fragment: FragmentView, transfer: Transfer) -> tuple[float | str, ...]:
    """As flow-aware, but of equal ones those of the worst served queries leave first: a light node
    makes them wait least, and the worst ratio is what is to fall (section 2.1)."""
    return (
        flow_class(fragment, transfer),
        flow_subclass(fragment, transfer),
        -fragment.ratio,
        -load_density(fragment),
        fragment.id,
    )


@SELECTIONS.member("intermediate")
def intermediate(fragment: FragmentView, transfer: Transfer) -> tuple[float | str, ...]:
    return (fragment.native == transfer.sender, -load_density(fragment), fragment.id)


@SELECTIONS.member("elementary")
def elementary(fragment: FragmentView, transfer: Transfer) -> tuple[float | str, ...]:  # noqa: ARG001  (one signature for all)
    return (-load_density(fragment), fragment.id)


def choose(
    fragments: Iterable[FragmentView], transfer: Transfer, limit: float, key: SortKey
) -> list[FragmentView]:
    """Fragments to send, in order of the key, whose loads together stay within the limit.

    One that would go beyond it is passed over, so that a transfer never turns the imbalance round.
    Loads are first taken as they would be at the receiver, where a shared job begins anew. Only
    where nothing fits so is a job split, where that loses least first, and only if what begins
    there is not far more than was asked for.
    """
    movable = [fragment for fragment in fragments if fragment.load > 0]
    ordered = sorted(movable, key=lambda fragment: key(fragment, transfer))
    return _that_fit(ordered, limit, limit) or _that_fit(
        sorted(ordered, key=_lost), limit, SPLIT * limit
    )


def _lost(fragment: FragmentView) -> float:
    """What it would be more where it begins its jobs anew, for each part that it is here."""
    return sum(load for _, load in fragment.jobs) / fragment.load


def _that_fit(ordered: Iterable[FragmentView], here: float, there: float) -> list[FragmentView]:
    """Those that are together no more than the one at the sender and the other at the receiver."""
    chosen, begun = [], set[str]()
    for fragment in ordered:
        anew = _anew(fragment, begun)
        if fragment.load <= here + ROUNDING and anew <= there + ROUNDING:
            chosen.append(fragment)
            here -= fragment.load
            there -= anew
            begun.update(job for job, _ in fragment.jobs)
    return chosen


def arriving(chosen: Iterable[FragmentView]) -> list[float]:
    """The load that each will be at the receiver, the first of a job with the job's fixed cost.

    >>> pair = [FragmentView(f, 0.1, 0.0, "n", (), jobs=(("j", 0.2),)) for f in "ab"]
    >>> arriving(pair)
    [0.30000000000000004, 0.1]
    """
    begun, found = set[str](), []
    for fragment in chosen:
        found.append(_anew(fragment, begun))
        begun.update(job for job, _ in fragment.jobs)
    return found


def _anew(fragment: FragmentView, begun: Collection[str]) -> float:
    return fragment.load + sum(load for job, load in fragment.jobs if job not in begun)
