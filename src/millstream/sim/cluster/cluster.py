"""A cluster in virtual time: hosts, network, queries, faults and a balancing policy.

Runs a `Setting` tick by tick and records what happened. Placement changes only through `Moves`, on
the wish of a controller; checkers look on and judge. It decides nothing itself and draws chance
only from the kernel's named streams, so that a run is a function of setting and seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from millstream.decide.balance.model.dataflow import Dataflow, Floats, Ints
from millstream.sim.cluster.checkers import Checker, Problem, View
from millstream.sim.cluster.flows import Flows
from millstream.sim.cluster.hosts import Hosts
from millstream.sim.cluster.moves import MoveRecord, Moves
from millstream.sim.cluster.network import Network, NetworkModel
from millstream.sim.faults import Fault, Weather
from millstream.sim.kernel import Kernel

TICK_FIRST = -1  # ticks come before the events of the same instant
NEARLY = 1 - 1e-6  # times that are sums of others are off by some last digits


@dataclass(frozen=True, slots=True)
class RateChange:
    """Streams run at `factor` times their rate from `at_s` to `until_s`."""

    at_s: float
    streams: tuple[int, ...]
    factor: float
    until_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    flow: Dataflow
    host_cpu: Floats
    network: NetworkModel
    placement: Ints
    duration_s: float = 60.0
    tick_s: float = 0.1
    sample_s: float = 1.0
    pause_s: float = 0.002  # that a unit's rows wait while a move switches over
    noise: bool = True  # measured loads vary as Poisson arrivals make them
    changes: tuple[RateChange, ...] = ()
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The cluster at one instant; rates are means since the sample before."""

    now_s: float
    loads: Floats  # fraction of time busy, by host
    offered: Floats  # work arriving over capacity, by host
    ratio_worst: float
    ratio_processing: float  # of the worst query
    ratio_communication: float
    ratio_median: float
    ratio_worst_query: str
    data_mbps: float
    state_mbps: float
    control_kbps: float
    moves: int
    waiting_rows: float


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    samples: tuple[Sample, ...]
    moves: tuple[MoveRecord, ...]
    problems: tuple[Problem, ...]
    placement: Ints
    results: Floats
    messages: int

    def mean(self, name: str, from_s: float = 0.0, until_s: float = float("inf")) -> float:
        """A figure of the samples, averaged over a span."""
        values = [getattr(s, name) for s in self.samples if from_s < s.now_s <= until_s]
        return float(np.mean(values))


def load_deviation(loads: Floats) -> float:
    """Standard deviation over hosts, with n - 1 as in the seed's section 4.1."""
    return float(loads.std(ddof=1)) if len(loads) > 1 else 0.0


class Controller(Protocol):
    """Carries a policy: hears of the cluster, asks it for moves."""

    control_bytes: float
    messages: int

    def start(self, cluster: "Cluster") -> None: ...
    def moved(self, unit: int, source: int, target: int) -> None: ...
    def restarted(self, host: int) -> None: ...
    def crashed(self, host: int) -> None: ...


@dataclass(slots=True)
class _Mark:
    """Totals at the last sample."""

    now_s: float = 0.0
    data: float = 0.0
    state: float = 0.0
    control: float = 0.0
    moves: int = 0
    busy: Floats = field(default_factory=lambda: np.zeros(0))


class Cluster:
    def __init__(
        self,
        setting: Setting,
        controllers: Sequence[Controller],
        checkers: Sequence[Checker] = (),
        seed: int = 0,
    ) -> None:
        self.setting, self.controllers, self.checkers = setting, controllers, checkers
        self.kernel = Kernel(seed)
        self.flow = setting.flow
        self.hosts = Hosts.of(setting.host_cpu.copy())
        self.network = Network(setting.network, len(self.flow.hosts))
        self.flows = Flows(self.flow, self.hosts, self.network, setting.placement)
        self.moves = Moves(self.flows, self.network, pause_s=setting.pause_s)
        self.weather = Weather(self.flow.hosts, self.hosts, self.network)
        self.base_rates = np.array([stream.rate for stream in self.flow.streams])
        self.factors = np.ones(len(self.base_rates))
        self.samples: list[Sample] = []
        self.problems: list[Problem] = []
        self._mark = _Mark(busy=np.zeros(len(self.flow.hosts)))

    @property
    def now_s(self) -> float:
        return self.kernel.now

    @property
    def stream_rates(self) -> Floats:
        return self.base_rates * self.factors

    def run(self) -> Run:
        setting = self.setting
        ticks = max(1, round(setting.duration_s / setting.tick_s))
        for n in range(1, ticks + 1):
            self.kernel.at(n * setting.tick_s, self._tick, priority=TICK_FIRST)
        for n in range(1, round(setting.duration_s / setting.sample_s) + 1):
            self.kernel.at(n * setting.sample_s, self._sample)
        self._schedule_changes()
        self._schedule_faults()
        for controller in self.controllers:
            controller.start(self)
        self.kernel.run(until=setting.duration_s)
        if not self.samples or self.now_s - self._mark.now_s >= setting.tick_s * NEARLY:
            self._sample()  # the run's end, where the samples' interval does not fall on it
        return Run(
            tuple(self.samples),
            tuple(self.moves.log),
            tuple(self.problems),
            self.flows.placed.unit_host,
            self.flows.results,
            sum(controller.messages for controller in self.controllers),
        )

    def _schedule_changes(self) -> None:
        for change in self.setting.changes:
            at = np.array(change.streams, dtype=np.int64)
            self.kernel.at(change.at_s, partial(self._scale, at, change.factor))
            if change.until_s is not None:
                self.kernel.at(change.until_s, partial(self._scale, at, 1 / change.factor))

    def _scale(self, streams: Ints, factor: float) -> None:
        self.factors[streams] *= factor

    def _schedule_faults(self) -> None:
        for fault in self.setting.faults:
            self.weather.numbers(fault)  # refuses unknown hosts before the run begins
            self.kernel.at(fault.at_s, partial(self._begin, fault))
            if fault.until_s is not None:
                self.kernel.at(fault.until_s, partial(self._end, fault))

    def _begin(self, fault: Fault) -> None:
        was_up = self.hosts.up
        self.weather.begin(fault, self.now_s)
        for host in np.flatnonzero(was_up & ~self.hosts.up):
            for controller in self.controllers:
                controller.crashed(int(host))

    def _end(self, fault: Fault) -> None:
        was_up = self.hosts.up
        self.weather.end(fault, self.now_s)
        for host in np.flatnonzero(~was_up & self.hosts.up):
            for controller in self.controllers:
                controller.restarted(int(host))

    def _tick(self) -> None:
        tick_s = self.setting.tick_s
        out, into = self.moves.copy(tick_s)
        self.flows.tick(self.stream_rates, tick_s, self.now_s, out, into)
        self.moves.settle(self.now_s, self._moved)
        if self.checkers:
            self._check()

    def _moved(self, unit: int, source: int, target: int) -> None:
        for controller in self.controllers:
            controller.moved(unit, source, target)

    def _check(self) -> None:
        view = View(
            now_s=self.now_s,
            tick_s=self.setting.tick_s,
            flow=self.flow,
            unit_host=self.flows.placed.unit_host,
            host_cpu=self.hosts.cpu,
            host_up=self.hosts.up,
            busy=self.hosts.busy,
            served_total_s=self.hosts.served_total_s,
            waiting=self.flows.waiting,
            under_way=self.flows.under_way,
            sent=self.flows.sent,
            stream_rows=self.flows.rows_by_edge,
            results=self.flows.results,
            carried_bytes=self.network.carried_bytes,
            medium=self.network.model,
            moves=self.moves.log,
        )
        for checker in self.checkers:
            self.problems.extend(checker.look(view))

    def _sample(self) -> None:
        mark, flows = self._mark, self.flows
        span_s = self.now_s - mark.now_s
        ratios = flows.ratios(self.now_s)
        worst = int(np.argmax(ratios.total))
        control = sum(controller.control_bytes for controller in self.controllers)
        self.samples.append(
            Sample(
                now_s=self.now_s,
                loads=(self.hosts.busy_total_s - mark.busy) / span_s,
                offered=self.hosts.offered.copy(),
                ratio_worst=float(ratios.total[worst]),
                ratio_processing=float(ratios.processing[worst]),
                ratio_communication=float(ratios.communication[worst]),
                ratio_median=float(np.median(ratios.total)),
                ratio_worst_query=self.flow.queries[worst],
                data_mbps=(flows.data_bytes - mark.data) * 8e-6 / span_s,
                state_mbps=(self.moves.bytes_moved - mark.state) * 8e-6 / span_s,
                control_kbps=(control - mark.control) * 8e-3 / span_s,
                moves=len(self.moves.log) - mark.moves,
                waiting_rows=float(flows.waiting.sum()),
            )
        )
        self._mark = _Mark(
            self.now_s,
            flows.data_bytes,
            self.moves.bytes_moved,
            control,
            len(self.moves.log),
            self.hosts.busy_total_s.copy(),
        )
