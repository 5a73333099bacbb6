"""Hosts: processors of some speed that work on arriving rows first come, first served.

Decides how much of what waits is served in a tick and how long a row waits. It knows nothing of
queries or policies. A host that is down serves nothing and loses nothing: rows wait for its return.
"""

from dataclasses import dataclass

import numpy as np

from millstream.decide.balance.model.dataflow import Flags, Floats, Ints, sum_by
from millstream.decide.balance.model.queueing import SMALLEST, backlog_after


@dataclass(slots=True)
class Hosts:
    """Speeds, and what the last tick left behind."""

    cpu: Floats  # nominal speed: CPU seconds a second
    slowdown: Floats  # 1 unless a fault slows the host
    up: Flags
    down_since_s: Floats
    backlog_s: Floats  # CPU seconds waiting
    busy: Floats  # fraction of the last tick
    offered: Floats  # load that arrived in the last tick, over capacity
    spread: Floats  # variance of a second's work: rate times second moment, over capacity squared
    busy_total_s: Floats
    served_total_s: Floats

    @classmethod
    def of(cls, cpu: Floats) -> "Hosts":
        zeros = [np.zeros(len(cpu)) for _ in range(7)]
        return cls(cpu, np.ones(len(cpu)), np.ones(len(cpu), dtype=bool), *zeros)

    @property
    def speed(self) -> Floats:
        return np.where(self.up, self.cpu / self.slowdown, 0.0)

    def serve(
        self,
        *,
        edge_host: Ints,
        waiting: Floats,
        arriving: Floats,
        run_s: Floats,
        run2_s2: Floats,
        tick_s: float,
    ) -> Floats:
        """One tick; returns the share of its rows that each host served."""
        count = len(self.cpu)
        backlog = sum_by(edge_host, waiting * run_s, count)
        work = sum_by(edge_host, arriving * run_s, count)
        second = sum_by(edge_host, arriving * run2_s2, count)
        rest = second / np.maximum(2 * work, SMALLEST)
        capacity = self.speed * tick_s
        left = backlog_after(backlog, work, capacity, rest)
        total = backlog + work
        served = np.where(capacity > 0, np.minimum(total - left, capacity), 0.0)
        share: Floats = np.divide(served, total, out=np.zeros(count), where=total > SMALLEST)
        full = np.maximum(capacity, SMALLEST)
        self.busy = np.where(self.up, np.clip(served / full, 0.0, 1.0), 0.0)
        self.offered = np.where(self.up, work / full, 0.0)
        self.spread = np.where(self.up, second / tick_s / np.maximum(self.speed, SMALLEST) ** 2, 0)
        self.backlog_s = total - served
        self.busy_total_s += self.busy * tick_s
        self.served_total_s += served
        return share

    def waits_s(self, now_s: float) -> Floats:
        """How long a row that arrives now waits for its turn, or the host has been down."""
        wait = self.backlog_s / np.maximum(self.speed, SMALLEST)
        return np.where(self.speed > 0, wait, now_s - self.down_since_s)
