"""Live moves in virtual time: the state is copied ahead, then the unit switches over.

A move takes as long as its state needs over the network plus a round trip, and holds the unit's
rows only while it switches. Until the switch the old host owns the unit and works; if an end fails
or the way is cut before, the move is undone and nothing has happened. It never decides what moves.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from millstream.balance.dataflow import Floats
from millstream.sim.flows import Flows
from millstream.sim.network import Network

LEAST_SHARE = 0.1  # of the bandwidth: what a move gets even on a full network
BANDWIDTH_SHARE = 0.5  # at most, so that rows keep flowing


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A move as the log has it."""

    number: int
    unit: str
    source: str
    target: str
    started_s: float
    ended_s: float
    state_bytes: float
    outcome: str  # "done", or why it was undone
    reason: str


@dataclass(frozen=True, slots=True)
class _UnderWay:
    number: int
    unit: int
    source: int
    target: int
    started_s: float
    due_s: float
    state_bytes: float
    reason: str


class Moves:
    def __init__(self, flows: Flows, network: Network, *, pause_s: float) -> None:
        self.flows, self.network, self.pause_s = flows, network, pause_s
        self.under_way: dict[int, _UnderWay] = {}
        self.log: list[MoveRecord] = []
        self.bytes_moved = 0.0
        self.count = 0

    def start(self, unit: int, target: int, now_s: float, reason: str) -> bool:
        """Begins a move; refuses one that makes no sense now: a unit moves once at a time."""
        source = int(self.flows.placed.unit_host[unit])
        up = self.flows.hosts.up
        if unit in self.under_way or source == target or not (up[source] and up[target]):
            return False
        if not self.network.connected(source, target):
            return False
        state = float(self.flows.unit_state_bytes()[unit])
        rate = self._rate(source, target)
        due_s = now_s + state / rate + 4 * self.network.latency_s(source, target)
        self.count += 1
        self.under_way[unit] = _UnderWay(
            self.count, unit, source, target, now_s, due_s, state, reason
        )
        return True

    def _rate(self, source: int, target: int) -> float:
        """Bytes a second for one more copy: the free bandwidth, shared by the copies under way."""
        whole = self.network.model.bytes_per_s
        free = whole - self.network.busiest_bytes_per_s(source, target)
        return max(free * BANDWIDTH_SHARE, whole * LEAST_SHARE) / (1 + self._rivals(source, target))

    def _rivals(self, source: int, target: int) -> int:
        ends = {source, target}
        shared = self.network.model.medium == "shared"
        return sum(shared or bool(ends & {m.source, m.target}) for m in self.under_way.values())

    def traffic(self, now_s: float, tick_s: float) -> tuple[Floats, Floats]:
        """State bytes on their way in the coming tick, out of and into each host."""
        out, into = np.zeros(self.network.hosts), np.zeros(self.network.hosts)
        for move in self.under_way.values():
            lasts = max(move.due_s - move.started_s, 1e-9)
            overlap = min(move.due_s, now_s + tick_s) - max(move.started_s, now_s)
            share = move.state_bytes * max(0.0, overlap) / lasts
            out[move.source] += share
            into[move.target] += share
        return out, into

    def settle(self, now_s: float, told: Callable[[int, int, int], None]) -> None:
        """Ends moves that are due or failed; `told` hears (unit, source, target) of each done."""
        done = []
        for move in sorted(self.under_way.values(), key=lambda move: move.number):
            failure = self._failure(move)
            if failure:
                self._close(move, now_s, failure)
            elif move.due_s <= now_s:
                self._close(move, now_s, "done")
                done.append(move)
        if not done:
            return
        self.flows.move(
            np.array([move.unit for move in done]), np.array([move.target for move in done])
        )
        for move in done:
            self.flows.held_until_s[move.unit] = now_s + self.pause_s
            self.bytes_moved += move.state_bytes
            told(move.unit, move.source, move.target)

    def _failure(self, move: _UnderWay) -> str:
        up = self.flows.hosts.up
        if not up[move.source]:
            return "undone: the old host failed"
        if not up[move.target]:
            return "undone: the new host failed"
        if not self.network.connected(move.source, move.target):
            return "undone: the hosts lost each other"
        return ""

    def _close(self, move: _UnderWay, now_s: float, outcome: str) -> None:
        del self.under_way[move.unit]
        names = self.flows.flow.hosts
        self.log.append(
            MoveRecord(
                move.number,
                self.flows.flow.units[move.unit].id,
                names[move.source],
                names[move.target],
                move.started_s,
                now_s,
                move.state_bytes,
                outcome,
                move.reason,
            )
        )
