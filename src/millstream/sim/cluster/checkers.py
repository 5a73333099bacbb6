"""Judges of a run: what must hold whatever the policy, the faults and the seed.

A checker sees the cluster after every tick and says what is wrong; it knows nothing of policies and
changes nothing. Each is independent of the code it judges: it recomputes from first principles.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from millstream.core.registry import Registry
from millstream.decide.balance.model.dataflow import NONE, Dataflow, Flags, Floats, Ints
from millstream.sim.cluster.moves import MoveRecord
from millstream.sim.cluster.network import NetworkModel

TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Problem:
    at_s: float
    checker: str
    what: str


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The cluster after a tick."""

    now_s: float
    tick_s: float
    flow: Dataflow
    unit_host: Ints
    host_cpu: Floats
    host_up: Flags
    busy: Floats
    served_total_s: Floats
    waiting: Floats
    under_way: Floats
    sent: Floats
    stream_rows: Floats  # rows that entered by each stream edge, in all
    results: Floats  # by query, in all
    carried_bytes: float
    medium: NetworkModel
    moves: Sequence[MoveRecord]


class Checker(Protocol):
    def look(self, view: View) -> list[Problem]: ...


CHECKERS: Registry[type[Checker]] = Registry("checker")


@CHECKERS.member("rows_kept")
@dataclass(slots=True)
class RowsKept:
    """No row is lost or made: what came in equals what came out and what is still there.

    A row on an edge is worth the results it will yield; the worth of all rows is conserved.
    """

    _worth: Floats | None = None

    def look(self, view: View) -> list[Problem]:
        if self._worth is None:
            self._worth = self._values(view.flow)
        entered = float((view.stream_rows * self._worth).sum())
        there = float(((view.waiting + view.under_way + view.sent) * self._worth).sum())
        out = float(view.results.sum())
        problems = []
        if abs(entered - there - out) > TOLERANCE * max(entered, 1.0):
            what = f"rows worth {entered:.6f} came in, {out:.6f} came out, {there:.6f} are there"
            problems.append(Problem(view.now_s, "rows_kept", what))
        lowest = min(float(view.waiting.min(initial=0)), float(view.under_way.min(initial=0)))
        if lowest < -TOLERANCE:
            problems.append(Problem(view.now_s, "rows_kept", f"{lowest} rows wait somewhere"))
        return problems

    @staticmethod
    def _values(flow: Dataflow) -> Floats:
        worth = np.zeros(flow.edges)
        for edge in range(flow.edges):
            value, at = 1.0, edge
            while at != NONE:
                value *= flow.out_rows[at]
                at = int(flow.unit_exit[flow.edge_unit[at]])
            worth[edge] = value
        return worth


@CHECKERS.member("one_owner")
@dataclass(slots=True)
class OneOwner:
    """Every unit runs at one host, and came there by the moves in the log, one after the other."""

    _seen: int = 0
    _at: dict[str, str] = field(default_factory=dict)
    _ended_s: dict[str, float] = field(default_factory=dict)

    def look(self, view: View) -> list[Problem]:
        problems = []
        hosts = view.flow.hosts
        if not self._at:
            moved = {m.unit: m.source for m in reversed(view.moves)}  # where each was at first
            self._at = {
                unit.id: moved.get(unit.id, hosts[at])
                for unit, at in zip(view.flow.units, view.unit_host, strict=True)
            }
        for move in view.moves[self._seen :]:
            before = self._ended_s.get(move.unit, -1.0)
            if self._at[move.unit] != move.source or move.started_s < before:
                what = f"{move.unit} moved from {move.source}, but was at {self._at[move.unit]}"
                problems.append(Problem(view.now_s, "one_owner", what))
            if move.outcome == "done":
                self._at[move.unit] = move.target
            self._ended_s[move.unit] = move.ended_s
        if len(view.moves) > self._seen:
            self._seen = len(view.moves)
            for unit, at in zip(view.flow.units, view.unit_host, strict=True):
                if self._at[unit.id] != hosts[at]:
                    what = f"{unit.id} runs at {hosts[at]}, the log says {self._at[unit.id]}"
                    problems.append(Problem(view.now_s, "one_owner", what))
        return problems


@CHECKERS.member("within_capacity")
@dataclass(slots=True)
class WithinCapacity:
    """No host works faster than it can, none works while down, the medium carries what it can."""

    _served_s: Floats | None = None
    _carried: float = 0.0
    _up: Flags | None = None

    def look(self, view: View) -> list[Problem]:
        problems = []
        before = np.zeros(len(view.host_cpu)) if self._served_s is None else self._served_s
        worked = view.served_total_s - before
        for host in np.flatnonzero(worked > view.host_cpu * view.tick_s * (1 + TOLERANCE)):
            what = f"{view.flow.hosts[host]} did {worked[host]:.6f} s of work in {view.tick_s} s"
            problems.append(Problem(view.now_s, "within_capacity", what))
        down = ~view.host_up & (worked > TOLERANCE)
        if self._up is not None:
            down &= ~self._up  # a host that went down within the tick may have worked before
        problems += [
            Problem(view.now_s, "within_capacity", f"{view.flow.hosts[host]} works while down")
            for host in np.flatnonzero(down)
        ]
        hosts = 1 if view.medium.medium == "shared" else len(view.host_cpu)
        room = view.medium.bytes_per_s * view.tick_s * hosts
        if view.carried_bytes - self._carried > room * (1 + TOLERANCE):
            problems.append(Problem(view.now_s, "within_capacity", "the network carried too much"))
        self._served_s, self._carried = view.served_total_s.copy(), view.carried_bytes
        self._up = view.host_up.copy()
        return problems


@CHECKERS.member("distribution_limit")
@dataclass(slots=True)
class DistributionLimit:
    """A query of whole fragments is never on more hosts than it reads streams."""

    _limit: Ints | None = None

    def look(self, view: View) -> list[Problem]:
        flow = view.flow
        if not all(unit.reads_stream for unit in flow.units):
            return []  # operators as units: there is no such promise
        if self._limit is None:
            self._limit = np.bincount(flow.path_query, minlength=len(flow.queries))
        pairs = np.unique(flow.unit_query * len(flow.hosts) + view.unit_host) // len(flow.hosts)
        spread = np.bincount(pairs, minlength=len(flow.queries))
        return [
            Problem(view.now_s, "distribution_limit", f"{flow.queries[q]} is on {spread[q]} hosts")
            for q in np.flatnonzero(spread > self._limit)
        ]


@CHECKERS.member("live_hosts_only")
@dataclass(slots=True)
class LiveHostsOnly:
    """A move is done only between hosts that were up when it ended."""

    _seen: int = 0

    def look(self, view: View) -> list[Problem]:
        up = dict(zip(view.flow.hosts, view.host_up, strict=True))
        new = view.moves[self._seen :]
        self._seen = len(view.moves)
        return [
            Problem(view.now_s, "live_hosts_only", f"{m.unit} moved {m.source} to {m.target}")
            for m in new
            if m.outcome == "done" and not (up[m.source] and up[m.target])
        ]


def all_checkers() -> list[Checker]:
    """A fresh one of each."""
    return [make() for _, make in CHECKERS.items()]
