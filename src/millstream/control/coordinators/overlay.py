"""A prefix-routing overlay with locality-aware tables, after Tapestry (Zhao et al., J-SAC 2004).

Every peer has an identifier, the digest of its name; every key belongs to one peer. A message is
passed to peers that share ever longer prefixes with the key, each time to the nearest such peer,
so that it takes about log16(peers) hops and early hops are short. Where no peer has the next
digit the next higher one that exists is taken (surrogate routing): all routes to a key end at
the same peer. `next_hop` is what one processor knows: the others' names and its own distances to
them. `Overlay` has the tables of all peers of a network at once, for virtual time, with the same
routes. Decides routes only; sends nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha1
from itertools import pairwise

import numpy as np
import numpy.typing as npt

BASE = 16  # Tapestry's: for hundreds of peers
FINE = 2  # for tens of processors, so that a route meets some on its way


@cache
def digits(name: str, base: int = BASE) -> tuple[int, ...]:
    """The identifier of a peer or a key, in a base of 2, 4 or 16.

    >>> digits("zone-1")[:4], len(digits("zone-1"))
    ((7, 6, 13, 15), 40)
    >>> digits("zone-1", 2)[:8]
    (0, 1, 1, 1, 0, 1, 1, 0)
    """
    left, found = int(sha1(name.encode()).hexdigest(), 16), []
    for _ in range(160 // (base - 1).bit_length()):
        left, digit = divmod(left, base)
        found.append(digit)
    return tuple(reversed(found))


def next_hop(
    here: str, key: str, level: int, near: Mapping[str, float], base: int = FINE
) -> tuple[str, int] | None:
    """Where a processor passes a message on to, and at which level; None: the key is its own.

    `near` has the others whom it knows, with their distances from here. The level grows with every
    hop, so that no route runs in a circle, whatever each of them believes of the others.

    >>> next_hop("qp1", "qp4", 0, {"qp2": 3.0, "qp4": 9.0})
    ('qp4', 3)
    >>> next_hop("qp4", "qp4", 3, {"qp1": 9.0, "qp2": 7.0}) is None
    True
    """
    mine, wanted = digits(here, base), digits(key, base)
    while level < len(mine):
        alike = [
            (ms, peer)
            for peer, ms in near.items()
            if peer != here and digits(peer, base)[:level] == mine[:level]
        ]
        if not alike:
            return None
        nearest = {mine[level]: here}  # it is its own nearest
        for _, peer in sorted(alike):
            nearest.setdefault(digits(peer, base)[level], peer)
        turns = ((wanted[level] + turn) % base for turn in range(base))
        chosen = nearest[next(digit for digit in turns if digit in nearest)]
        level += 1
        if chosen != here:
            return chosen, level
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Overlay:
    """Peers by name with their distances; `down` are known to have failed and are routed around."""

    peers: tuple[str, ...]
    distance: npt.NDArray[np.float64]
    down: frozenset[str] = frozenset()
    base: int = BASE
    index: dict[str, int] = field(init=False)
    ids: tuple[tuple[int, ...], ...] = field(init=False)
    tables: tuple[tuple[tuple[int, ...], ...], ...] = field(init=False)  # [peer][level][digit]

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", {peer: i for i, peer in enumerate(self.peers)})
        object.__setattr__(self, "ids", tuple(digits(peer, self.base) for peer in self.peers))
        object.__setattr__(self, "tables", self._built())

    def _built(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        alive = [i for i, peer in enumerate(self.peers) if peer not in self.down]
        tables: list[list[tuple[int, ...]]] = [[] for _ in self.peers]
        pending = [(0, alive)]
        while pending:
            level, members = pending.pop()
            if len(members) < 2:
                continue
            nearest = np.full((len(members), self.base), -1, dtype=np.intp)
            parts: dict[int, list[int]] = {}
            for member in members:
                parts.setdefault(self.ids[member][level], []).append(member)
            for digit, part in parts.items():
                there = np.array(part)
                hops = np.argmin(self.distance[np.ix_(members, part)], axis=1)
                nearest[:, digit] = there[hops]
                pending.append((level + 1, part))
            for row, member in enumerate(members):
                entries = nearest[row].copy()
                entries[self.ids[member][level]] = member  # it is its own nearest
                tables[member].append(tuple(entries.tolist()))
        return tuple(tuple(levels) for levels in tables)

    def route(self, origin: str, key: str) -> tuple[str, ...]:
        """The peers from the origin to the owner of the key, both included."""
        wanted = digits(key, self.base)
        here = self.index[origin]
        passed = [here]
        level = 0
        while level < len(self.tables[here]):
            row = self.tables[here][level]
            turn = next(t for t in range(self.base) if row[(wanted[level] + t) % self.base] >= 0)
            here = row[(wanted[level] + turn) % self.base]
            if here != passed[-1]:
                passed.append(here)
            level += 1
        return tuple(self.peers[peer] for peer in passed)

    def owner(self, key: str) -> str:
        """The peer that a key belongs to, wherever one asks."""
        origin = next(peer for peer in self.peers if peer not in self.down)
        return self.route(origin, key)[-1]

    def delay(self, route: tuple[str, ...]) -> float:
        """How long a message takes along a route."""
        at = [self.index[peer] for peer in route]
        return float(sum(self.distance[a, b] for a, b in pairwise(at)))

    def without(self, peers: Collection[str]) -> "Overlay":
        """The overlay after peers failed: their keys fall to others."""
        return Overlay(self.peers, self.distance, self.down | frozenset(peers), self.base)
