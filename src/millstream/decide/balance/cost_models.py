"""Cost models: how full each processor is, and how much each operator has to do with it.

D-CAPE, sections 6.1 and 6.2. A cost model names the statistics it needs (only those are sent) and
turns statistics, the placement and the processors' properties into a cost table: numbers from 0
to 1 for processors and operators, whatever they mean, so that any redistribution policy works with
any model. Processors that have not reported are left out: nothing is known of them. A model keeps
what it must remember in a value that its caller hands back; it reads no clock and moves nothing.

Statistics of operators: `queue_rows` (waiting at its inputs), `late_rows` (of them those that came
at a pace of their own, and not as fast as they are taken), `state_rows` (its windows),
`rows_in_per_s`, `rows_out_per_s`, `cpu_s_per_s` (CPU seconds a second), `ratio` (the worst
performance ratio among its queries). Properties of processors: `memory_rows` (rows that fit), `cpu`
(CPU seconds a second), each with a default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from millstream.core.errors import UsageError
from millstream.core.operator_graph import PlanGraph
from millstream.core.placement import Placement, ProcessorDescription, sends
from millstream.core.registry import Registry

Figures = Mapping[str, Mapping[str, float]]  # operator -> statistic -> value

MEMORY_ROWS = 1_000_000.0  # where a processor does not say how many rows fit
CPU = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What a model sees: statistics of the operators of those processors that have reported."""

    graph: PlanGraph
    table: Placement
    processors: tuple[ProcessorDescription, ...]
    operators: Figures
    reported: frozenset[str]  # processors whose figures are in

    def on(self, processor: str) -> tuple[str, ...]:
        """Its operators, in the graph's order."""
        return tuple(o.id for o in self.graph if self.table.get(o.id) == processor)

    def figure(self, operator: str, statistic: str) -> float:
        """A statistic; one that has not come yet counts as nought."""
        return max(0.0, float(self.operators.get(operator, {}).get(statistic, 0.0)))


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs from 0 to 1 (figure 6.1).

    `capacity` is by what an operator's cost was divided: an operator that costs 0.3 on a processor
    of capacity 2 costs 0.6 on one of capacity 1.
    """

    model: str
    processors: Mapping[str, float]
    operators: Mapping[str, float]
    capacity: Mapping[str, float]

    @property
    def heaviest(self) -> float:
        return max(self.processors.values(), default=0.0)

    @property
    def lightest(self) -> float:
        return min(self.processors.values(), default=0.0)


@dataclass(frozen=True, slots=True)
class CostMemory:
    """Best output rate of each processor since its operators were allocated."""

    allocation: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    best_rate: Mapping[str, float] = field(default_factory=dict)


class CostModel(Protocol):
    name: str
    statistics: tuple[str, ...]  # of operators; only these need to be sent

    def costs(self, seen: Measured, memory: CostMemory) -> tuple[CostTable, CostMemory]: ...


COST_MODELS: Registry[CostModel] = Registry("cost model")
DEFAULT_COST_MODEL = "network_output_rate"


class TuplesInMemory:
    """Rows in queues and states, as a share of what fits (figure 6.1)."""

    name = "tuples_in_memory"
    statistics: tuple[str, ...] = ("queue_rows", "state_rows")

    def costs(self, seen: Measured, memory: CostMemory) -> tuple[CostTable, CostMemory]:
        capacity = _capacities(seen, "memory_rows", MEMORY_ROWS)
        return _summed(self.name, seen, self.statistics, capacity), memory


class CpuTime:
    """CPU seconds a second, as a share of what the processor has."""

    name = "cpu_time"
    statistics: tuple[str, ...] = ("cpu_s_per_s",)

    def costs(self, seen: Measured, memory: CostMemory) -> tuple[CostTable, CostMemory]:
        return _summed(self.name, seen, self.statistics, _capacities(seen, "cpu", CPU)), memory


class NetworkOutputRate:
    """How far the rate at which a processor sends has fallen (equations 6.1 and 6.2).

    The seed takes the rate itself as cost, which has the wrong sign for Balance: a processor that
    is choked sends least. So the cost is 1 - rate / best rate since its operators were allocated:
    0 for one that sends as well as it ever did, 1 for one that sends nothing any more. An
    operator's cost is its share of what its processor sends (equation 6.2).
    """

    name = "network_output_rate"
    statistics: tuple[str, ...] = ("rows_out_per_s",)

    def costs(self, seen: Measured, memory: CostMemory) -> tuple[CostTable, CostMemory]:
        costs: dict[str, float] = {}
        shares: dict[str, float] = {}
        allocation, best = dict(memory.allocation), dict(memory.best_rate)
        for processor in _reported(seen):
            mine = seen.on(processor)
            rates = {
                name: seen.figure(name, "rows_out_per_s")
                if sends(seen.graph, seen.table, name)
                else 0.0
                for name in mine
            }
            rate = sum(rates.values())  # equation 6.1
            if allocation.get(processor) != mine:
                allocation[processor], best[processor] = mine, rate
            best[processor] = max(best[processor], rate)
            costs[processor] = _unit(1.0 - rate / best[processor]) if best[processor] else 0.0
            shares |= {name: value / rate if rate else 0.0 for name, value in rates.items()}
        table = CostTable(self.name, costs, shares, dict.fromkeys(costs, 1.0))
        return table, CostMemory(allocation, best)


class ServedRatio:
    """CPU time, weighed by how badly the queries that it serves are served (seed 002, section 2).

    The objective there is the worst performance ratio, delay over evaluation time. An operator
    weighs 1 - 1/ratio of its CPU time, with the worst ratio among its queries: nothing where rows
    never wait, all of it where they wait for ever, half of it where nothing is known yet. So a
    policy that evens these costs out takes from where the worst served queries are worked on.
    """

    name = "performance_ratio"
    statistics: tuple[str, ...] = ("cpu_s_per_s", "ratio")
    UNKNOWN = 2.0  # a ratio that halves

    def costs(self, seen: Measured, memory: CostMemory) -> tuple[CostTable, CostMemory]:
        capacity = _capacities(seen, "cpu", CPU)
        costs: dict[str, float] = {}
        operators: dict[str, float] = {}
        for processor, room in capacity.items():
            weighed = {name: self._weighed(seen, name) / room for name in seen.on(processor)}
            operators |= {name: _unit(cost) for name, cost in weighed.items()}
            costs[processor] = _unit(sum(weighed.values()))
        return CostTable(self.name, costs, operators, capacity), memory

    def _weighed(self, seen: Measured, operator: str) -> float:
        ratio = seen.figure(operator, "ratio") or self.UNKNOWN
        return seen.figure(operator, "cpu_s_per_s") * (1 - 1 / max(ratio, 1.0))


class Backlog:
    """How long rows wait: a processor that keeps up costs at most half, whatever it has to do.

    Up to 0.5 is half of its CPU time; one that has waiting rows beyond what it works off in
    `SLACK_S` costs more, up to 1 for one that will never be done. CPU time alone does not tell:
    a processor may be choked by what no operator's steps take, such as its connections. An
    operator's cost is its part of the CPU time, which is what leaves with it.
    """

    name = "backlog"
    statistics: tuple[str, ...] = ("late_rows", "rows_in_per_s", "cpu_s_per_s")
    SLACK_S = 10.0  # two cycles, in which every operator has its turn
    HALF_S = 30.0  # beyond them, that make three quarters

    def costs(self, seen: Measured, memory: CostMemory) -> tuple[CostTable, CostMemory]:
        capacity = _capacities(seen, "cpu", CPU)
        costs: dict[str, float] = {}
        operators: dict[str, float] = {}
        for processor, room in capacity.items():
            mine = seen.on(processor)
            parts = {name: seen.figure(name, "cpu_s_per_s") / room for name in mine}
            operators |= {name: _unit(part) for name, part in parts.items()}
            late_s = self._waiting_s(seen, mine) - self.SLACK_S
            costs[processor] = _unit(sum(parts.values())) / 2
            if late_s > 0:
                costs[processor] = 0.5 + 0.5 * late_s / (late_s + self.HALF_S)
        return CostTable(self.name, costs, operators, capacity), memory

    def _waiting_s(self, seen: Measured, mine: tuple[str, ...]) -> float:
        """Seconds in which a processor, as fast as it was, works off what waits."""
        waiting = sum(seen.figure(name, "late_rows") for name in mine)
        pace = sum(seen.figure(name, "rows_in_per_s") for name in mine)
        return waiting / max(pace, 1.0)


def measured(
    graph: PlanGraph,
    table: Placement,
    processors: tuple[ProcessorDescription, ...],
    operators: Figures,
    reported: frozenset[str] | None = None,
) -> Measured:
    """Checks what is put together by hand; without `reported` all processors have."""
    known = frozenset(p.id for p in processors)
    unknown = sorted(set(reported or ()) - known)
    if unknown:
        raise UsageError(f"statistics of unknown processors: {', '.join(unknown)}")
    return Measured(graph, table, processors, operators, known if reported is None else reported)


def _summed(
    model: str, seen: Measured, statistics: tuple[str, ...], capacity: Mapping[str, float]
) -> CostTable:
    costs, operators = {}, {}
    for processor, room in capacity.items():
        total = 0.0
        for name in seen.on(processor):
            amount = sum(seen.figure(name, statistic) for statistic in statistics)
            operators[name] = _unit(amount / room)
            total += amount
        costs[processor] = _unit(total / room)
    return CostTable(model, costs, operators, capacity)


def _capacities(seen: Measured, name: str, otherwise: float) -> dict[str, float]:
    described = {p.id: p for p in seen.processors}
    return {
        processor: max(1e-9, described[processor].number(name, otherwise))
        for processor in _reported(seen)
    }


def _reported(seen: Measured) -> list[str]:
    return [p.id for p in seen.processors if p.id in seen.reported]


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))


_MODELS: tuple[CostModel, ...] = (
    TuplesInMemory(),
    NetworkOutputRate(),
    CpuTime(),
    ServedRatio(),
    Backlog(),
)
for _model in _MODELS:
    COST_MODELS.add(_model.name, _model)
