"""With whom a node balances load (seed 002, section 3.2, algorithm 1).

Decides, from a node's neighbours by neighbouring factor, whom to ask, and whom to accept. Partners
are symmetric and in two groups: `asked` (g1, by this node's own request) and `accepted` (g2, by the
other's), each with its limit. The algorithm is asynchronous: it sends what it may and goes on when
an answer comes. It never waits and never sends by itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

Draw = Callable[[int], int]  # a number below the given one, by the node's own chance


@dataclass(frozen=True, slots=True)
class Limits:
    asked_max: int = 5  # max1
    accepted_max: int = 3  # max2 = ceil(max1 / 2)
    random_tries_max: int = 10  # MaximumTry, which the seed does not give

    @classmethod
    def of(cls, asked_max: int, random_tries_max: int = 10) -> "Limits":
        """With max2 = ceil(max1 / 2), as in the seed's experiments.

        >>> Limits.of(5).accepted_max
        3
        """
        return cls(asked_max, -(-asked_max // 2), random_tries_max)


@dataclass(frozen=True, slots=True)
class Partners:
    asked: frozenset[str] = frozenset()  # g1
    accepted: frozenset[str] = frozenset()  # g2
    waiting: frozenset[str] = frozenset()  # asked, no answer yet
    cursor: int = 0  # i of algorithm 1
    neighbours: tuple[str, ...] = ()  # by descending neighbouring factor
    others: tuple[str, ...] = ()

    @property
    def all(self) -> frozenset[str]:
        return self.asked | self.accepted


def by_factor(factors: dict[str, int]) -> tuple[str, ...]:
    """Neighbours by descending neighbouring factor.

    >>> by_factor({"a": 1, "b": 3, "c": 1})
    ('b', 'a', 'c')
    """
    return tuple(sorted(factors, key=lambda node: (-factors[node], node)))


def seek(partners: Partners, limits: Limits, draw: Draw) -> tuple[Partners, tuple[str, ...]]:
    """Algorithm 1 from where it stands: whom to ask now."""
    asked, accepted, waiting = set(partners.asked), set(partners.accepted), set(partners.waiting)
    cursor, requests = partners.cursor, []
    last = len(partners.neighbours) + limits.random_tries_max
    while len(asked) + len(waiting) < limits.asked_max and cursor < last:
        if cursor < len(partners.neighbours):
            node: str | None = partners.neighbours[cursor]
        else:
            node = _stranger(partners, asked | waiting, draw)
        cursor += 1
        if node is None:
            break
        if node in accepted:
            accepted.discard(node)
            asked.add(node)
        elif node not in asked and node not in waiting:
            waiting.add(node)
            requests.append(node)
    found = replace(
        partners,
        asked=frozenset(asked),
        accepted=frozenset(accepted),
        waiting=frozenset(waiting),
        cursor=cursor,
    )
    return found, tuple(requests)


def _stranger(partners: Partners, taken: set[str], draw: Draw) -> str | None:
    known = taken | set(partners.neighbours)
    strangers = [node for node in partners.others if node not in known]
    return strangers[draw(len(strangers))] if strangers else None


def consider(
    partners: Partners, sender: str, limits: Limits, *, welcome: bool = False
) -> tuple[Partners, bool]:
    """Whether to accept a request; `welcome` lifts the limit for one who was told of room."""
    if sender in partners.asked:
        return partners, True
    if sender in partners.waiting:  # both asked each other
        return answered(partners, sender, accepted=True), True
    if sender in partners.accepted:
        return partners, True
    if len(partners.accepted) < limits.accepted_max or welcome:
        return replace(partners, accepted=partners.accepted | {sender}), True
    return partners, False


def answered(partners: Partners, sender: str, *, accepted: bool) -> Partners:
    """Takes in an answer; one that nobody waits for changes nothing."""
    if sender not in partners.waiting:
        return partners
    return replace(
        partners,
        waiting=partners.waiting - {sender},
        asked=partners.asked | {sender} if accepted else partners.asked,
        accepted=partners.accepted - {sender} if accepted else partners.accepted,
    )


def without(partners: Partners, gone: Iterable[str]) -> Partners:
    lost = frozenset(gone)
    return replace(
        partners,
        asked=partners.asked - lost,
        accepted=partners.accepted - lost,
        waiting=partners.waiting - lost,
    )


def refreshed(
    partners: Partners, neighbours: tuple[str, ...], others: tuple[str, ...], silent: Iterable[str]
) -> Partners:
    """Starts algorithm 1 anew: silent partners are dropped, lost requests forgotten."""
    return replace(
        without(partners, silent),
        waiting=frozenset(),
        cursor=0,
        neighbours=neighbours,
        others=others,
    )
