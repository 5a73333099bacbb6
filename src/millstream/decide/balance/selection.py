"""Which fragments leave when a node is asked for load (seed 002, section 3.5).

A selection is a sort key over the sender's fragments; `choose` takes them in that order while they
fit what is asked and what may leave. `flow_aware` is the seed's: three classes by where the
fragment's stream arrives, four sub-classes by where its neighbours run, then load density, all
local knowledge. `ratio_aware` prefers, of equal ones, those of badly served queries. `elementary`
and `intermediate` are the rivals it is compared with. None of them knows what a query means.
"""

from collections import Counter
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
TOGETHER_MAX = 12  # fragments of one job that leave at once: each is tried out before it is taken


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
    What shares a job goes together, so that nobody pays for a job twice. Only where nothing fits so
    is a job split: with loads as they would be at the receiver, where it begins anew; and then
    where that loses least first, if what begins there is not far more than was asked for.
    """
    everything = list(fragments)
    movable = [fragment for fragment in everything if fragment.load > 0]
    ordered = sorted(movable, key=lambda fragment: key(fragment, transfer))
    return (
        _together(ordered, everything, limit)
        or _that_fit(ordered, limit, limit)
        or _that_fit(sorted(ordered, key=_lost), limit, SPLIT * limit)
    )


def _together(
    ordered: Iterable[FragmentView], everything: Iterable[FragmentView], limit: float
) -> list[FragmentView]:
    """Whole groups of what shares jobs, in the order of their first members, that fit."""
    chosen: list[FragmentView] = []
    groups = job_groups(everything)
    for fragment in ordered:
        group = groups[fragment.id]
        load = sum(member.load for member in group)
        whole = len(group) <= TOGETHER_MAX and not _parts_elsewhere(group)
        if fragment not in chosen and whole and load <= limit + ROUNDING:
            chosen += group
            limit -= load
    return chosen


def _parts_elsewhere(group: Iterable[FragmentView]) -> set[str]:
    """Jobs that are shared with something else than these: one alone shares with nobody here."""
    counts = Counter(job for fragment in group for job, _ in fragment.jobs)
    return {job for job, count in counts.items() if count == 1}


def job_groups(fragments: Iterable[FragmentView]) -> dict[str, list[FragmentView]]:
    """By fragment: those with which it shares jobs, directly or by way of others, and itself.

    >>> a, b, c = (FragmentView(f, 0.1, 0.0, "n", (), jobs=j) for f, j in (
    ...     ("a", (("x", 0.2),)), ("b", (("x", 0.2), ("y", 0.1))), ("c", (("y", 0.1),))))
    >>> [f.id for f in job_groups([a, b, c])["c"]]
    ['a', 'b', 'c']
    """
    groups: dict[str, list[FragmentView]] = {}
    by_job: dict[str, list[FragmentView]] = {}
    for fragment in fragments:
        group = [fragment]
        for job, _ in fragment.jobs:
            other = by_job.get(job, group)
            if other is not group:
                group = [*other, *group]
        for member in group:
            groups[member.id] = group
            by_job.update(dict.fromkeys((job for job, _ in member.jobs), group))
    return groups


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


def arriving(chosen: Collection[FragmentView], staying: Iterable[FragmentView] = ()) -> list[float]:
    """The load that each will be at the receiver, the first of a job with the job's fixed cost
    where a part of the job stays here.

    >>> pair = [FragmentView(f, 0.1, 0.0, "n", (), jobs=(("j", 0.2),)) for f in "ab"]
    >>> arriving(pair), arriving(pair[:1], pair[1:])
    ([0.1, 0.1], [0.30000000000000004])
    """
    split = {job for fragment in staying for job, _ in fragment.jobs} | _parts_elsewhere(chosen)
    begun = {job for fragment in chosen for job, _ in fragment.jobs if job not in split}
    found = []
    for fragment in chosen:
        found.append(_anew(fragment, begun))
        begun.update(job for job, _ in fragment.jobs)
    return found


def _anew(fragment: FragmentView, begun: Collection[str]) -> float:
    return fragment.load + sum(load for job, load in fragment.jobs if job not in begun)
