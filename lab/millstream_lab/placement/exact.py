"""The same cluster row by row: an exact simulation to hold the expected-value model against.

Every source row is an event: it waits at hosts first come, first served, is worked on to its end
there, passes operators by chance, and travels over links with a fixed latency. Placement is fixed,
the network has no queues, arrivals are Poisson, operator times exponential or fixed. Far too slow
for a cluster of the seed's size, exact for a small one. It shares no code with `flows` but the
queries.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from millstream.core.placement import Placement
from millstream.decide.balance.model.fragments import Fragment
from millstream.sim.kernel import Kernel


@dataclass(slots=True)
class PathDelays:
    """Of the rows of one stream that yielded results for one query."""

    count: int = 0
    delay_s: float = 0.0  # sum
    evaluation_s: float = 0.0  # sum

    @property
    def ratio(self) -> float:
        """Mean delay over mean evaluation time."""
        return self.delay_s / self.evaluation_s


@dataclass(slots=True)
class _Host:
    queue: deque["_Task"] = field(default_factory=deque)
    busy: bool = False
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Row:
    """A source row on its way for one query."""

    unit: str
    entry: int
    born_s: float
    worked_s: float
    stream: str


@dataclass(frozen=True, slots=True)
class _Task:
    rows: tuple[_Row, ...]  # one arrival: all that read it on this host


class RowSimulation:
    """Runs one placement and gives the delays of every (query, stream)."""

    def __init__(
        self,
        units: Sequence[Fragment],
        rates: Mapping[str, float],
        delegation: Mapping[str, str],
        placement: Placement,
        *,
        latency_s: float,
        exponential: bool = True,
        seed: int = 0,
    ) -> None:
        self.units = {unit.id: unit for unit in units}
        self.rates, self.delegation, self.placement = rates, delegation, placement
        self.latency_s, self.exponential = latency_s, exponential
        self.kernel = Kernel(seed)
        self.chance = self.kernel.random("rows")
        self.hosts: defaultdict[str, _Host] = defaultdict(_Host)
        self.delays: defaultdict[tuple[str, str], PathDelays] = defaultdict(PathDelays)
        self.readers: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for unit in units:
            if unit.reads_stream:
                self.readers[unit.stream][placement[unit.id]].append(unit.id)

    def run(self, duration_s: float, warm_up_s: float = 0.0) -> dict[tuple[str, str], PathDelays]:
        self.warm_up_s = warm_up_s
        for stream in sorted(self.readers):
            self._next_row(stream)
        self.kernel.run(until=duration_s)
        return dict(self.delays)

    def loads(self) -> dict[str, float]:
        return {name: host.busy_s / self.kernel.now for name, host in self.hosts.items()}

    def _next_row(self, stream: str) -> None:
        self.kernel.after(self.chance.expovariate(self.rates[stream]), lambda: self._born(stream))

    def _born(self, stream: str) -> None:
        now = self.kernel.now
        for host in sorted(self.readers[stream]):
            names = list(self.readers[stream][host])
            self.chance.shuffle(names)  # no reader of a row is always first
            task = _Task(tuple(_Row(name, 0, now, 0.0, stream) for name in names))
            delay = 0.0 if host == self.delegation[stream] else self.latency_s
            self.kernel.after(delay, partial(self._arrive, host, task))
        self._next_row(stream)

    def _arrive(self, host: str, task: _Task) -> None:
        self.hosts[host].queue.append(task)
        if not self.hosts[host].busy:
            self._work(host)

    def _work(self, name: str) -> None:
        """Works on the first task to its end: every reader, through all its units on this host."""
        host = self.hosts[name]
        if not host.queue:
            host.busy = False
            return
        host.busy = True
        begun = self.kernel.now
        clock = begun
        for row in host.queue.popleft().rows:
            clock = self._through(name, row, clock)
        host.busy_s += clock - begun
        self.kernel.at(clock, lambda: self._work(name))

    def _through(self, name: str, row: _Row, clock: float) -> float:
        worked, entry = row.worked_s, row.entry
        at: str | None = row.unit
        while at is not None and self.placement[at] == name:
            unit = self.units[at]
            for operator in unit.operators[entry:]:
                cost = operator.cost_s
                spent = self.chance.expovariate(1 / cost) if self.exponential else cost
                clock, worked = clock + spent, worked + spent
                if self.chance.random() >= operator.selectivity:
                    return clock
            at, entry = unit.downstream, unit.entry
        if at is None:
            self._result(self.units[row.unit].query, row, clock, worked)
        else:
            onward = _Task((_Row(at, entry, row.born_s, worked, row.stream),))
            target = self.placement[at]
            self.kernel.at(clock + self.latency_s, lambda: self._arrive(target, onward))
        return clock

    def _result(self, query: str, row: _Row, clock: float, worked: float) -> None:
        if row.born_s < self.warm_up_s:
            return
        path = self.delays[query, row.stream]
        path.count += 1
        path.delay_s += clock - row.born_s
        path.evaluation_s += worked
