"""One plan over several processors in virtual time, with the distribution that decisions give it.

The driver of patterns, cost models and redistribution policies without any process: it moves rows
between processors, carries out moves, and asks the production decisions at the interval they are
set to. It decides nothing itself. A run is a function of the plan, the table and the settings:
rates are constant or given by the minute, so there is no chance in it.

A move follows the six steps: connections first, then the old processor ends its step and hands
queues and states over (both sides pay for each row), consumers switch, the new processor runs. Rows
that arrive in between wait for it, in order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.core.operator_graph import PlanGraph
from millstream.core.placement import (
    Placement,
    ProcessorDescription,
    connections_by_processor,
    problems,
    processors_reading,
)
from millstream.decide.balance.cost_models import COST_MODELS, CostMemory, measured
from millstream.decide.balance.redistribution import (
    Memory,
    Move,
    Parameters,
    Situation,
    redistribute,
)
from millstream.decide.schedule import ScheduleSettings
from millstream.sim.kernel import Kernel
from millstream_lab.dcape.connected_processor import ConnectedProcessor, Machine, Tally
from millstream_lab.dcape.counted_rows import Batch, CountedOperator, unary, window_join

# A step compares all rows it takes with the other side's state, so long steps of a join that lags
# cost more a row; CAPE's workload (RATIO, THRESHOLD) has no upper end, here it has one.
# Round Robin looks at no statistics, so they are gathered seldom.
ROUND_ROBIN = ScheduleSettings(
    candidates=("round_robin",),
    selector="fixed",
    rows_max=500,
    statistics_s=30.0,
    scoring_s=60.0,
    trace_length=1,
)


@dataclass(frozen=True, slots=True)
class VirtualPlan:
    """Operators with `per_input`, and for joins `window_s` and `rates`, as properties."""

    name: str
    graph: PlanGraph
    streams: Mapping[str, float]  # rows a second
    rates: Mapping[str, float]  # rows a second of every operator when all keep up


@dataclass(frozen=True, slots=True)
class Redistribution:
    """What is asked at every check."""

    model: str = "network_output_rate"
    policy: str = "degradation"
    parameters: Parameters = field(default_factory=Parameters)
    note: str = ""  # what sets it apart from another of the same policy and model

    @property
    def name(self) -> str:
        return f"{self.policy} by {self.model}{self.note}"


@dataclass(frozen=True, slots=True)
class Environment:
    """Machines, network, and how fine time is."""

    machine: Machine = field(default_factory=Machine)
    settings: ScheduleSettings = ROUND_ROBIN
    tick_s: float = 1.0  # rows of a stream arrive together so often
    latency_s: float = 1e-3
    row_bytes: float = 100.0
    bytes_per_s: float = 125e6  # gigabit Ethernet (section 4.3.1)
    message_s: float = 5e-3  # one of the manager's messages and its answer
    sample_s: float = 10.0
    minutes: tuple[float, ...] = ()  # rates of each minute, in mean rates; empty: constant


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of a processor so far; the rest of `busy_s` went to connections and collector."""

    busy_s: float
    engine_s: float
    transfer_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    rows_out: float  # results so far
    rows_held: Mapping[str, float]  # by processor: queues and states
    spent: Mapping[str, Spent]  # by processor


@dataclass(slots=True)
class PlanRecord:
    samples: list[Sample] = field(default_factory=list)
    moves: list[tuple[float, Move]] = field(default_factory=list)
    sentences: list[tuple[float, str]] = field(default_factory=list)
    failed: dict[str, float] = field(default_factory=dict)  # out of memory, and when
    connections: dict[str, int] = field(default_factory=dict)
    engine_share: dict[str, float] = field(default_factory=dict)

    @property
    def rows_out(self) -> float:
        return self.samples[-1].rows_out if self.samples else 0.0

    def rows_out_at(self, at: float) -> float:
        """Results up to a time; between samples the earlier one."""
        return max((s.rows_out for s in self.samples if s.at <= at + 1e-9), default=0.0)


class DistributedPlan:
    """A run; `run` may be called once."""

    def __init__(
        self,
        plan: VirtualPlan,
        table: Placement,
        processors: tuple[str, ...],
        environment: Environment | None = None,
        redistribution: Redistribution | None = None,
    ) -> None:
        wrong = problems(plan.graph, table, processors)
        if wrong:
            raise ValueError("; ".join(wrong))
        self.plan, self.table = plan, dict(table)
        self.environment = environment or Environment()
        self.redistribution = redistribution
        self.kernel = Kernel(0)
        self.record = PlanRecord()
        self._rows_out = 0.0
        self._link_free: dict[tuple[str, str], float] = {}
        self._under_way: dict[str, list[tuple[int, list[Batch]]]] = {}  # operators on the move
        self._cost_memory, self._memory = CostMemory(), Memory()
        self._readers = self._ports()
        machine, settings = self.environment.machine, self.environment.settings
        self.processors = {
            name: ConnectedProcessor(name, self.kernel, machine, settings, self._emit)
            for name in processors
        }
        for operator in plan.graph:
            self._host(_virtual(plan, operator.id), self.table[operator.id])
        self._connect()

    def run(self, seconds: float) -> PlanRecord:
        environment = self.environment
        for name, rate in self.plan.streams.items():
            self.kernel.every(environment.tick_s, lambda n=name, r=rate: self._arrive(n, r))  # type: ignore[misc]
        self.kernel.every(environment.sample_s, self._sample)
        if self.redistribution is not None:
            self.kernel.every(self.redistribution.parameters.check_s, self._check)
        self.kernel.run(until=seconds)
        self.record.connections = connections_by_processor(self.plan.graph, self.table)
        for name, processor in self.processors.items():
            busy = processor.engine_s + processor.transfer_s
            self.record.engine_share[name] = processor.engine_s / busy if busy else 1.0
        return self.record

    def move(self, move: Move) -> None:
        """Steps 1 to 6; an operator that is already under way stays on its way."""
        if move.operator in self._under_way or self.table[move.operator] != move.source:
            return
        self.record.moves.append((self.kernel.now, move))
        self._under_way[move.operator] = []
        source = self.processors[move.source]
        operator = source.operators[move.operator]

        def hand_over() -> None:
            state = operator.queue_rows + operator.state_rows
            source.charge_transfer(state, self.environment.machine.send_s)
            pause = self.environment.message_s
            pause += state * self.environment.row_bytes / self.environment.bytes_per_s
            self.kernel.after(pause, lambda: self._take_over(operator, move.target, state))

        source.release(move.operator, hand_over)

    # ---- inside

    def _ports(self) -> dict[str, list[tuple[str, int]]]:
        readers: dict[str, list[tuple[str, int]]] = {}
        for operator in self.plan.graph:
            for port, source in enumerate(operator.inputs):
                readers.setdefault(source, []).append((operator.id, port))
        return readers

    def _host(self, operator: CountedOperator, processor: str) -> None:
        graph = self.plan.graph
        here = {name for name, place in self.table.items() if place == processor}
        producers = tuple(p for p in graph.producers(operator.id) if p in here)
        consumers = tuple(c for c in graph.consumers(operator.id) if c in here)
        self.processors[processor].host(operator, producers, consumers)

    def _connect(self) -> None:
        counts = connections_by_processor(self.plan.graph, self.table)
        for name, processor in self.processors.items():
            processor.connections = counts.get(name, 0)

    def _take_over(self, operator: CountedOperator, target: str, state: float) -> None:
        self.table[operator.id] = target
        self.processors[target].charge_transfer(state, self.environment.machine.receive_s)
        self._host(operator, target)
        self._connect()
        for port, batches in self._under_way.pop(operator.id):
            self._give(operator.id, port, batches, remote=True)

    def _arrive(self, stream: str, rate: float) -> None:
        minutes = self.environment.minutes
        if minutes:
            rate *= minutes[min(int(self.kernel.now / 60), len(minutes) - 1)]
        batch = [(self.kernel.now, rate * self.environment.tick_s)]
        for reader, port in self._readers.get(stream, ()):
            self._give(reader, port, batch, remote=True)

    def _give(self, reader: str, port: int, batches: list[Batch], *, remote: bool) -> None:
        if reader in self._under_way:
            self._under_way[reader].append((port, batches))
        else:
            self.processors[self.table[reader]].receive(reader, port, batches, remote=remote)

    def _emit(self, name: str, batches: list[Batch]) -> None:
        sender = self.processors[self.table[name]]
        rows = sum(count for _, count in batches)
        readers = self._readers.get(name, ())
        if not readers:
            sender.charge_transfer(rows, self.environment.machine.send_s)
            self._rows_out += rows
        local = [r for r in readers if self.table[r[0]] == sender.id]
        for reader, port in local:
            self._give(reader, port, batches, remote=False)
        for place in processors_reading(self.plan.graph, self.table, name):
            if place != sender.id:
                sender.charge_transfer(rows, self.environment.machine.send_s)
                mine = [r for r in readers if self.table[r[0]] == place]
                self._send((sender.id, place), mine, batches, rows)

    def _send(
        self,
        link: tuple[str, str],
        readers: list[tuple[str, int]],
        batches: list[Batch],
        rows: float,
    ) -> None:
        environment = self.environment
        lasts = rows * environment.row_bytes / environment.bytes_per_s
        begins = max(self.kernel.now, self._link_free.get(link, 0.0))
        self._link_free[link] = begins + lasts

        def arrive() -> None:
            for reader, port in readers:
                self._give(reader, port, batches, remote=True)

        self.kernel.at(begins + lasts + environment.latency_s, arrive)

    def _sample(self) -> None:
        held = {name: processor.rows for name, processor in self.processors.items()}
        spent = {
            name: Spent(processor.busy_s, processor.engine_s, processor.transfer_s)
            for name, processor in self.processors.items()
        }
        self.record.samples.append(Sample(self.kernel.now, self._rows_out, held, spent))
        for name, processor in self.processors.items():
            if processor.failed_at is not None:
                self.record.failed.setdefault(name, processor.failed_at)

    def _check(self) -> None:
        """Statistics, cost model, policy; then the moves, one after the other."""
        assert self.redistribution is not None
        asked = self.redistribution
        graph = self.plan.graph
        described = tuple(
            ProcessorDescription(
                name, {"memory_rows": p.machine.memory_rows, "cpu": p.machine.speed}
            )
            for name, p in self.processors.items()
        )
        alive = frozenset(n for n, p in self.processors.items() if p.failed_at is None)
        seen = measured(graph, self.table, described, self._figures(), alive)
        costs, self._cost_memory = COST_MODELS.get(asked.model).costs(seen, self._cost_memory)
        state_rows = {
            n: o.state_rows for p in self.processors.values() for n, o in p.operators.items()
        }
        situation = Situation(graph, dict(self.table), costs, state_rows)
        decision, self._memory = redistribute(
            asked.policy, situation, asked.parameters, self._memory
        )
        self.record.sentences.append((self.kernel.now, decision.sentence))
        for move in decision.moves:
            self.move(move)

    def _figures(self) -> dict[str, dict[str, float]]:
        """Statistics since the last check."""
        assert self.redistribution is not None
        span = self.redistribution.parameters.check_s
        figures = {}
        for processor in self.processors.values():
            for name, operator in processor.operators.items():
                tally = processor.tallies[name]
                figures[name] = {
                    "queue_rows": operator.queue_rows,
                    "late_rows": operator.queue_rows,
                    "state_rows": operator.state_rows,
                    "rows_in_per_s": tally.rows_in / span,
                    "rows_out_per_s": tally.rows_out / span,
                    "cpu_s_per_s": tally.seconds / span,
                }
                processor.tallies[name] = Tally()
        return figures


def _virtual(plan: VirtualPlan, name: str) -> CountedOperator:
    operator = plan.graph.by_id[name]
    per_input = operator.number("per_input", 1.0)
    if len(operator.inputs) == 1:
        return unary(name, per_input)
    first, second = (plan.streams.get(s, plan.rates.get(s, 0.0)) for s in operator.inputs)
    return window_join(name, operator.number("window_s", 0.0), (first, second), per_input)
