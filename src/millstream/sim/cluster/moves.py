"""Live moves in virtual time: the state is copied ahead, then the unit switches over.

A move takes as long as its state needs over the network plus two round trips, and holds the unit's
rows only while it switches. Until the switch the old host owns the unit and works; if an end fails
or the way is cut before, the move is undone and nothing has happened. It never decides what moves.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from millstream.decide.balance.model.dataflow import Floats
from millstream.sim.cluster.flows import Flows
from millstream.sim.cluster.network import Network

LEAST_SHARE = 0.1  # of the bandwidth: what a move gets even on a full network
BANDWIDTH_SHARE = 0.5  # of what is free, so that rows keep flowing
COPIES_A_HOST = 4  # sent at a time
ROUND_TRIPS = 2  # of a move's messages: prepare and switch


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


@dataclass(slots=True)
class UnderWay:
    """A move that has begun or waits for its turn."""

    number: int
    unit: int
    source: int
    target: int
    started_s: float
    state_bytes: float
    left_bytes: float
    ready_s: float  # not before: round trips
    reason: str


class Moves:
    def __init__(self, flows: Flows, network: Network, *, pause_s: float) -> None:
        self.flows, self.network, self.pause_s = flows, network, pause_s
        self.under_way: dict[int, UnderWay] = {}
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
        ready_s = now_s + ROUND_TRIPS * 2 * self.network.latency_s(source, target)
        self.count += 1
        self.under_way[unit] = UnderWay(
            self.count, unit, source, target, now_s, state, state, ready_s, reason
        )
        return True

    def copy(self, tick_s: float) -> tuple[Floats, Floats]:
        """Copies state for a tick; gives the bytes out of and into each host.

        A host sends a few copies at a time, in the order asked; copies share what is free.
        """
        out, into = np.zeros(self.network.hosts), np.zeros(self.network.hosts)
        active = self._active()
        sending = Counter(move.source for move in active)
        receiving = Counter(move.target for move in active)
        whole = self.network.model.bytes_per_s
        shared = self.network.model.medium == "shared"
        for move in active:
            used = self.network.busiest_bytes_per_s(move.source, move.target)
            room = max((whole - used) * BANDWIDTH_SHARE, whole * LEAST_SHARE) * tick_s
            rivals = len(active) if shared else max(sending[move.source], receiving[move.target])
            sent = min(move.left_bytes, room / rivals)
            move.left_bytes -= sent
            self.bytes_moved += sent
            out[move.source] += sent
            into[move.target] += sent
        return out, into

    def _active(self) -> list[UnderWay]:
        busy: Counter[int] = Counter()
        chosen = []
        for move in self.under_way.values():  # in the order they were asked for
            if move.left_bytes > 0 and busy[move.source] < COPIES_A_HOST:
                busy[move.source] += 1
                chosen.append(move)
        return chosen

    def settle(self, now_s: float, told: Callable[[int, int, int], None]) -> None:
        """Ends moves that are due or failed; `told` hears (unit, source, target) of each done."""
        done = []
        for move in list(self.under_way.values()):
            failure = self._failure(move)
            if failure:
                self._close(move, now_s, failure)
            elif move.left_bytes <= 0 and move.ready_s <= now_s:
                self._close(move, now_s, "done")
                done.append(move)
        if not done:
            return
        self.flows.move(
            np.array([move.unit for move in done]), np.array([move.target for move in done])
        )
        for move in done:
            self.flows.held_until_s[move.unit] = now_s + self.pause_s
            told(move.unit, move.source, move.target)

    def _failure(self, move: UnderWay) -> str:
        up = self.flows.hosts.up
        if not up[move.source]:
            return "undone: the old host failed"
        if not up[move.target]:
            return "undone: the new host failed"
        if not self.network.connected(move.source, move.target):
            return "undone: the hosts lost each other"
        return ""

    def _close(self, move: UnderWay, now_s: float, outcome: str) -> None:
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
