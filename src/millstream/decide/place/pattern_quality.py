"""The quality-aware distribution pattern: least expected delay, weighted by the plans' priority.

D-CAPE names such a pattern as future work (sections 2.4 and 7.2). It decides from what may be known
before a start: priorities of plans (`weight`), estimated CPU of operators (`cpu`, CPU seconds a
second) and their results' rate (`rows_per_s`), and the processors' `cpu` (CPU seconds a second),
`memory_rows` and `connections_max`. It never looks at data and never moves what runs.

A row waits at a processor like in a queue: its work takes 1 / (1 - load) times as long. So the
expected delay of a plan is the sum over its operators of work / (1 - load of their processor), plus
a hop for each crossing. The pattern starts from operators in order, each where it costs least, and
then moves single operators and neighbouring pairs while the weighted delay falls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.core.operator_graph import GraphOperator, PlanGraph
from millstream.core.placement import Placement, ProcessorDescription

# Relative work by kind where nothing is estimated: a join reads its windows (equation 3.3).
WORK_BY_KIND = {"join": 10.0, "aggregate": 3.0, "partial": 3.0}
LOAD_ASSUMED = 0.5  # of all processors together, where no CPU is estimated
HOP_WORK = 1.0  # a crossing is a segment written, sent and read: as much as a mean operator
CONNECTIONS_SAFE = 12.0  # figure 4.5: 8 to 12 connections a processor are safe
FULL = 0.95  # beyond this load the wait goes on rising in a straight line, so that it stays finite
ROUNDS_MAX = 8
GAIN_MIN = 1e-9


@dataclass(slots=True)
class _Search:
    """A table under construction and what it costs."""

    graph: PlanGraph
    speed: dict[str, float]
    memory: dict[str, float]
    connections_max: dict[str, float]
    work: dict[str, float]  # CPU seconds a second
    state: dict[str, float]
    weight: dict[str, float]
    hop: float
    table: dict[str, str] = field(default_factory=dict)
    load: dict[str, float] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)  # rows of state
    members: dict[str, float] = field(default_factory=dict)  # weighted work on each processor

    def put(self, operator: str, processor: str) -> None:
        self.table[operator] = processor
        self._change(operator, processor, 1.0)

    def take(self, operator: str) -> str:
        processor = self.table.pop(operator)
        self._change(operator, processor, -1.0)
        return processor

    def _change(self, operator: str, processor: str, sign: float) -> None:
        work = self.work[operator]
        self.load[processor] = self.load.get(processor, 0.0) + sign * work / self.speed[processor]
        self.held[processor] = self.held.get(processor, 0.0) + sign * self.state[operator]
        self.members[processor] = (
            self.members.get(processor, 0.0)
            + sign * self.weight[operator] * work / self.speed[processor]
        )

    def delay(self) -> float:
        """Weighted delay; memory and connections beyond a limit cost as much as a full processor"""
        total = sum(
            weighted * waiting(self.load[processor]) for processor, weighted in self.members.items()
        )
        connections: dict[str, set[tuple[str, str]]] = {}
        for operator in self.graph:
            here = self.table.get(operator.id)
            if here is None:
                continue
            for source in operator.inputs:
                there = self.table.get(source, "")
                if there == here or (source in self.graph.by_id and not there):
                    continue
                connections.setdefault(here, set()).add((source, here))
                if there:
                    connections.setdefault(there, set()).add((source, here))
                    total += self.hop * self.weight[operator.id]
        return total + self._excess(connections)

    def _excess(self, connections: dict[str, set[tuple[str, str]]]) -> float:
        price = waiting(1.0) * self.hop
        over = 0.0
        for processor in self.load:
            many = len(connections.get(processor, ())) - self.connections_max[processor]
            over += max(0.0, many)
            over += 10 * max(0.0, self.held[processor] / self.memory[processor] - 1.0)
        return over * price


def waiting(load: float) -> float:
    """By how much longer work takes at that load.

    >>> waiting(0.0), waiting(0.5), round(waiting(0.95)), waiting(1.5) > waiting(1.0)
    (1.0, 2.0, 20, True)
    """
    if load <= FULL:
        return 1.0 / (1.0 - load)
    return 1.0 / (1.0 - FULL) + (load - FULL) / (1.0 - FULL) ** 2


def quality_aware(
    graph: PlanGraph, processors: Sequence[ProcessorDescription], running: Placement
) -> Placement:
    """Plans of high weight first, each operator where delay rises least; then improved."""
    search = _start(graph, processors)
    names = [processor.id for processor in processors]
    for operator, processor in running.items():
        search.put(operator, processor)
    fresh = [o for o in graph if o.id not in running]
    # Stable: among equal weights the graph's order, which puts neighbours side by side.
    for first in sorted(fresh, key=lambda o: -search.weight[o.id]):
        _put_best(search, (first.id,), names)
    movable = {o.id for o in fresh}
    groups = [(o.id,) for o in fresh]
    pairs = [(a, b) for a, b in graph.edges() if a in movable and b in movable]
    for _ in range(ROUNDS_MAX):
        before = search.delay()
        for group in (*groups, *pairs):
            _put_best(search, group, names)
        if search.delay() > before - GAIN_MIN:
            break
    return search.table


def _put_best(search: _Search, group: tuple[str, ...], names: Sequence[str]) -> None:
    """Puts operators where the delay is least together; they stay put unless another is better."""
    before = [search.take(name) if name in search.table else None for name in group]
    places: list[tuple[str, ...]] = [(name,) * len(group) for name in names]
    old = tuple(name for name in before if name is not None)
    if len(old) == len(group):
        places.insert(0, old)
    best, least = places[0], float("inf")
    for place in places:
        for operator, processor in zip(group, place, strict=True):
            search.put(operator, processor)
        delay = search.delay()
        if delay < least - GAIN_MIN:
            best, least = place, delay
        for operator in group:
            search.take(operator)
    for operator, processor in zip(group, best, strict=True):
        search.put(operator, processor)


def _start(graph: PlanGraph, processors: Sequence[ProcessorDescription]) -> _Search:
    speed = {p.id: max(1e-9, p.number("cpu", 1.0)) for p in processors}
    work = {o.id: _work(o) for o in graph}
    if not any("cpu" in o.properties for o in graph) and work:
        scale = LOAD_ASSUMED * sum(speed.values()) / sum(work.values())
        work = {name: value * scale for name, value in work.items()}
    weight = {
        o.id: max((graph.plan_weight(plan) for plan in o.plans), default=1.0) or 1e-6 for o in graph
    }
    mean_work = sum(work.values()) / max(1, len(work))
    return _Search(
        graph,
        speed,
        {p.id: max(1.0, p.number("memory_rows", float("inf"))) for p in processors},
        {p.id: p.number("connections_max", CONNECTIONS_SAFE) for p in processors},
        work,
        {o.id: o.number("state_rows", 0.0) for o in graph},
        weight,
        HOP_WORK * mean_work,
    )


def _work(operator: GraphOperator) -> float:
    return max(0.0, operator.number("cpu", WORK_BY_KIND.get(operator.kind, 1.0)))
