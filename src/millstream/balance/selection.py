"""Which fragments leave when a node is asked for load (seed 002, section 3.5).

A selection is a sort key over the sender's fragments; `choose` takes them in that order while they
fit what is asked and what may leave. `flow_aware` is the seed's: three classes by where the
fragment's stream arrives, four sub-classes by where its neighbours run, then load density, all
local knowledge. `ratio_aware` prefers, of equal ones, those of badly served queries. `elementary`
and `intermediate` are the rivals it is compared with. None of them knows what a query means.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millstream.balance.protocol import FragmentView
from millstream.registry import Registry


@dataclass(frozen=True, slots=True)
class Transfer:
    """From whom to whom."""

    sender: str
    receiver: str


SortKey = Callable[[FragmentView, Transfer], tuple[float | str, ...]]  # lower leaves first
SELECTIONS: Registry[SortKey] = Registry("load selection")

ROUNDING = 1e-12


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
    """
    chosen, room = [], limit
    for fragment in sorted(fragments, key=lambda fragment: key(fragment, transfer)):
        if 0 < fragment.load <= room + ROUNDING:
            chosen.append(fragment)
            room -= fragment.load
    return chosen
