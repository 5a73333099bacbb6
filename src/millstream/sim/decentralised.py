"""Drives the nodes of the decentralised scheme in virtual time.

Each host has a node (`balance.balancer`), a clock of its own and a mailbox; this module turns ticks
of that clock and messages into events, and commands into messages and moves. Messages take the
network's latency and may be lost or repeated by the weather. A crash loses the node's memory. No
decision here.
"""

from dataclasses import replace

import numpy as np

from millstream.decide.balance import balancer
from millstream.decide.balance.balancer import Node, Settings
from millstream.decide.balance.model.fragments import neighbouring_factors
from millstream.decide.balance.partners import by_factor
from millstream.decide.balance.protocol import (
    Command,
    Event,
    FragmentsRead,
    FragmentView,
    LoadShifted,
    Message,
    Move,
    ReadFragments,
    Received,
    RefreshDue,
    RoundStarted,
    Send,
    WindowClosed,
)
from millstream.sim.cluster.cluster import Cluster

MESSAGE_BYTES = 120  # a control message with its headers


class Decentralised:
    """The controller of one run."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.windows_a_round = max(1, round(settings.round_s / settings.window_s))
        self.windows_a_refresh = max(1, round(settings.refresh_s / settings.window_s))
        self.control_bytes = 0.0
        self.messages = 0

    def start(self, cluster: Cluster) -> None:
        self.cluster = cluster
        flow = cluster.flow
        self.names = flow.hosts
        self.number = {name: n for n, name in enumerate(self.names)}
        self.unit_number = {unit.id: n for n, unit in enumerate(flow.units)}
        delegation = {stream.id: stream.host for stream in flow.streams}
        factors = neighbouring_factors(flow.units, delegation)
        self.neighbours = [by_factor(factors.get(name, {})) for name in self.names]
        self.others = [tuple(o for o in self.names if o != name) for name in self.names]
        self.nodes = [self._newborn(n, 0) for n in range(len(self.names))]
        self.lives = [0] * len(self.names)
        self.read_busy_s = np.zeros(len(self.names))
        self.read_at_s = np.zeros(len(self.names))
        self.last_load = np.zeros(len(self.names))
        self._find_neighbours()
        phase = cluster.kernel.generator("phase").random(len(self.names))
        for n in range(len(self.names)):
            self._live(n, 0, float(phase[n]) * self.settings.window_s)

    def _newborn(self, n: int, life: int) -> Node:
        cpu = float(self.cluster.hosts.cpu[n])
        return Node(self.names[n], seed=self.cluster.kernel.seed * 1009 + life, cpu=cpu)

    def _find_neighbours(self) -> None:
        """For each unit the units it exchanges rows with, as arrays."""
        flow = self.cluster.flow
        fed = np.flatnonzero(flow.unit_exit >= 0)
        reader = flow.edge_unit[flow.unit_exit[fed]]
        near: list[list[int]] = [[] for _ in flow.units]
        for a, b in zip(fed.tolist(), reader.tolist(), strict=True):
            near[a].append(b)
            near[b].append(a)
        self.near = [np.array(units, dtype=np.int64) for units in near]

    # --- a node's clock ---------------------------------------------------------------------
    def _local_s(self, n: int) -> float:
        offset_s, drift = self.cluster.weather.clock(self.names[n])
        return self.cluster.now_s * (1 + drift) + offset_s

    def _live(self, n: int, life: int, first_s: float) -> None:
        """Begins a node's own beat: windows, every so many a round, every so many a refresh."""
        start = int(self.cluster.kernel.random("phase").random() * self.windows_a_round)
        self._beat(n, life, start, first_s)

    def _beat(self, n: int, life: int, count: int, wait_s: float) -> None:
        def beat() -> None:
            if self.lives[n] != life or not self.cluster.hosts.up[n]:
                return
            self._window(n, count)
            _, drift = self.cluster.weather.clock(self.names[n])
            self._beat(n, life, count + 1, self.settings.window_s / (1 + drift))

        self.cluster.kernel.after(wait_s, beat)

    def _window(self, n: int, count: int) -> None:
        now_s = self._local_s(n)
        if count % self.windows_a_refresh == 0 or not self.nodes[n].partners.others:
            self._give(n, RefreshDue(now_s, self.neighbours[n], self.others[n]))
        self._give(n, WindowClosed(now_s, self._measured(n)))
        if count % self.windows_a_round == 0:
            self._give(n, RoundStarted(now_s))

    def _measured(self, n: int) -> float:
        """Busy fraction since the node last looked; ticks are the finest grain there is."""
        hosts = self.cluster.hosts
        ticked_s = np.floor(self.cluster.now_s / self.cluster.setting.tick_s + 1e-9)
        ticked_s *= self.cluster.setting.tick_s
        span_s = ticked_s - self.read_at_s[n]
        if span_s > 0:
            busy = float(hosts.busy_total_s[n] - self.read_busy_s[n]) / span_s
            self.last_load[n] = self._noisy(n, busy, span_s)
            self.read_busy_s[n], self.read_at_s[n] = hosts.busy_total_s[n], ticked_s
        return float(self.last_load[n])

    def _noisy(self, n: int, busy: float, span_s: float) -> float:
        if not self.cluster.setting.noise or busy >= 1:
            return min(busy, 1.0)
        scatter = float(np.sqrt(self.cluster.hosts.spread[n] / span_s))
        noise = self.cluster.kernel.random("measurement").gauss(0.0, scatter)
        return min(max(busy + noise, 0.0), 1.0)

    # --- events and commands ----------------------------------------------------------------
    def _give(self, n: int, event: Event) -> None:
        self.nodes[n], commands = balancer.step(self.nodes[n], event, self.settings)
        for command in commands:
            self._obey(n, command)

    def _obey(self, n: int, command: Command) -> None:
        match command:
            case Send(to, message):
                self._send(n, self.number[to], message)
            case ReadFragments():
                self._give(n, FragmentsRead(self._local_s(n), self._fragments(n)))
            case Move(fragment, to, reason=reason):
                unit = self.unit_number[fragment]
                self.cluster.moves.start(unit, self.number[to], self.cluster.now_s, reason)

    def _send(self, n: int, to: int, message: Message) -> None:
        self.messages += 1
        self.control_bytes += MESSAGE_BYTES
        cluster, chance = self.cluster, self.cluster.kernel.random("messages")
        loss, repeat = cluster.weather.probability("loss"), cluster.weather.probability("repeat")
        if (loss and chance.random() < loss) or not cluster.network.connected(n, to):
            return
        latency_s = cluster.network.latency_s(n, to)
        copies = 2 if repeat and chance.random() < repeat else 1
        for copy in range(copies):
            late_s = latency_s * (1 + 20 * copy * chance.random())
            cluster.kernel.after(late_s, lambda: self._deliver(n, to, message))

    def _deliver(self, sender: int, to: int, message: Message) -> None:
        if self.cluster.hosts.up[to]:
            self._give(to, Received(self._local_s(to), self.names[sender], message))

    def _fragments(self, n: int) -> list[FragmentView]:
        cluster, flow = self.cluster, self.cluster.flow
        host = cluster.flows.placed.unit_host
        # Measured on the node: an overloaded one sees only the work it gets done.
        offered = max(float(cluster.hosts.offered[n]), 1e-12)
        speed = max(float(cluster.hosts.speed[n]), 1e-12)
        scale = min(1.0, float(cluster.hosts.busy[n]) / offered) / speed
        loads, states = cluster.flows.unit_loads(), cluster.flows.unit_state_bytes()
        return [
            FragmentView(
                flow.units[unit].id,
                float(loads[unit]) * scale,
                float(states[unit]),
                self.names[flow.unit_native[unit]],
                tuple(self.names[at] for at in sorted(set(host[self.near[unit]].tolist()))),
                flow.units[unit].query,
            )
            for unit in np.flatnonzero(host == n).tolist()
            if unit not in cluster.moves.under_way
        ]

    # --- what the cluster tells ---------------------------------------------------------------
    def moved(self, unit: int, source: int, target: int) -> None:
        if self.cluster.hosts.up[target]:
            speed = max(float(self.cluster.hosts.speed[target]), 1e-12)
            gain = float(self.cluster.flows.unit_loads()[unit]) / speed
            self._give(target, LoadShifted(self._local_s(target), gain))

    def crashed(self, host: int) -> None:
        self.lives[host] += 1

    def restarted(self, host: int) -> None:
        self.nodes[host] = replace(self._newborn(host, self.lives[host]), draws=0)
        self.read_busy_s[host] = self.cluster.hosts.busy_total_s[host]
        self.read_at_s[host] = self.cluster.now_s
        self._live(host, self.lives[host], self.settings.window_s)
