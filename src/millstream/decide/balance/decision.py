"""Whether to ask for load, from whom, how much; how much to give (seed 002, section 3.4).

Receiver-initiated and local (algorithm 2): a node clearly below the average of itself and its
partners asks the heaviest of them for half of the difference. A node that is asked gives at most
half of the load it had when its round began, and serves the largest request first. When a node and
all its partners are overloaded it probes others. The decision does not weigh the cost of a move:
queries run long, and what a move costs is paid once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownLoad:
    """What a partner last told."""

    load: float
    cpu: float = 1.0
    number: int = 0
    heard_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Wish:
    """Load that a node asks for."""

    of: str
    amount: float  # of the giver's time


@dataclass(frozen=True, slots=True)
class Demand:
    """A request that a node received."""

    sender: str
    amount: float
    number: int


def generate_request(
    own: float, partners: Mapping[str, KnownLoad], kappa: float, cpu: float = 1.0
) -> Wish | None:
    """Algorithm 2. With unlike processors the amount is what makes the two loads equal.

    >>> generate_request(0.2, {"a": KnownLoad(0.8), "b": KnownLoad(0.4)}, kappa=1.2)
    Wish(of='a', amount=0.30000000000000004)
    >>> generate_request(0.4, {"a": KnownLoad(0.5)}, kappa=1.2) is None
    True
    """
    if not partners:
        return None
    average = (own + sum(known.load for known in partners.values())) / (len(partners) + 1)
    if kappa * own >= average:
        return None
    heaviest = min(partners, key=lambda node: (-partners[node].load, node))
    known = partners[heaviest]
    # The giver falls by x, the taker rises by x * (giver's cpu / taker's cpu): equal at this x.
    amount = (known.load - own) / (1 + known.cpu / cpu)
    return Wish(heaviest, amount) if amount > 0 else None


def in_order(demands: Iterable[Demand]) -> list[Demand]:
    """Requests as they are served: the largest first; of one sender only its latest round's."""
    latest: dict[str, Demand] = {}
    for demand in demands:
        if demand.sender not in latest or latest[demand.sender].number < demand.number:
            latest[demand.sender] = demand
    return sorted(latest.values(), key=lambda demand: (-demand.amount, demand.sender))


def export_budget(load_at_round_start: float, exported: float) -> float:
    """What may still leave in this round: half of the load at its start in all.

    >>> export_budget(0.8, 0.3)
    0.10000000000000003
    """
    return max(0.0, load_at_round_start / 2 - exported)


def all_overloaded(own: float, partners: Mapping[str, KnownLoad], level: float) -> bool:
    """Whether nobody near can help, so that strangers must be probed."""
    return own >= level and all(known.load >= level for known in partners.values())
