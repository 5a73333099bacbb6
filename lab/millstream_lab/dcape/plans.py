"""The query plans of D-CAPE's experiments, rebuilt from what its text says of them.

Its figures are lost, so shapes are chosen to agree with every number in the text: operators, joins,
depth, streams, and for plan 2 also what the two patterns make of it on three processors (Round
Robin 12 pieces and 17 connections, Grouping 8 connections) and that Round Robin puts three of its
five joins on one processor whether there are 2, 3, 4 or 5. 'Breadth' is taken as the number of
streams. Operators are listed level by level from the leaves up, the order in which Round Robin
deals them. Joins give twice what they read, other operators as much as they read (section 4.3.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from millstream.core.operator_graph import GraphOperator, PlanGraph
from millstream_lab.dcape.distributed_plan import VirtualPlan

ROWS_PER_S = 40.0  # 72,000 rows a stream in 30 minutes


@dataclass(frozen=True, slots=True)
class Part:
    """A stream or a join of two parts, with so many unary operators above it."""

    unary: int = 0
    sides: "tuple[Part, Part] | None" = None


def join(left: Part, right: Part, unary: int = 0) -> Part:
    return Part(unary, (left, right))


def virtual_plan(name: str, parts: tuple[Part, ...], window_s: float) -> VirtualPlan:
    """Operators of the parts, numbered in the order in which they are listed."""
    builder = _Builder()
    order: list[int] = []
    for part in parts:  # plan by plan, as both patterns go
        before = len(builder.inputs)
        builder.add(part, 0)
        mine = list(builder.inputs)[before:]
        order += sorted(mine, key=lambda key: (-builder.depth[key], -key))
    names = {key: f"o{number + 1}" for number, key in enumerate(order)}
    names |= {key: f"s{number + 1}" for number, key in enumerate(builder.streams)}
    operators = tuple(
        GraphOperator(
            names[key],
            tuple(names[source] for source in builder.inputs[key]),
            "join" if len(builder.inputs[key]) == 2 else "map",
            (name,),
            {"per_input": 2.0, "window_s": window_s} if len(builder.inputs[key]) == 2 else {},
        )
        for key in order
    )
    graph = PlanGraph(operators)
    streams = {names[key]: ROWS_PER_S for key in builder.streams}
    return VirtualPlan(name, graph, streams, rates_of(graph, streams))


class _Builder:
    """Numbers operators from the root down; depth counts from the root."""

    def __init__(self) -> None:
        self.inputs: dict[int, tuple[int, ...]] = {}
        self.depth: dict[int, int] = {}
        self.streams: list[int] = []
        self._next = 0

    def add(self, part: Part, depth: int) -> int:
        chain = [self._new(depth + level) for level in range(part.unary)]
        depth += part.unary
        if part.sides is None:
            bottom = self._new(depth)
            self.streams.append(bottom)
            del self.depth[bottom]
        else:
            bottom = self._new(depth)
            self.inputs[bottom] = tuple(self.add(side, depth + 1) for side in part.sides)
        for upper, lower in pairwise((*chain, bottom)):
            self.inputs[upper] = (lower,)
        return chain[0] if chain else bottom

    def _new(self, depth: int) -> int:
        self._next += 1
        self.depth[self._next] = depth
        return self._next


def rates_of(graph: PlanGraph, streams: Mapping[str, float]) -> dict[str, float]:
    """Rows a second that each operator gives when all keep up."""
    rates = graph.rates(streams, lambda operator: operator.number("per_input", 1.0))
    return {operator.id: rates[operator.id] for operator in graph}


def plan_1(window_s: float, *, joins: bool) -> VirtualPlan:
    """5 operators, depth 5: unary ones over one stream, or joins that each take one more stream."""
    if not joins:
        return virtual_plan("plan 1", (Part(5),), window_s)
    part = Part()
    for _ in range(5):
        part = join(part, Part())
    return virtual_plan("plan 1", (part,), window_s)


def plan_2(window_s: float) -> VirtualPlan:
    """20 operators, 5 of them joins, depth 9, 6 streams."""
    left = join(join(Part(1), Part(2), 3), Part(4), 1)
    right = join(join(Part(), Part(1)), Part(1), 2)
    return virtual_plan("plan 2", (join(left, right),), window_s)


def _forty() -> Part:
    """40 operators: 7 joins in three levels, 33 unary ones, depth 14, 8 streams."""
    first = join(join(Part(8), Part(3), 2), join(Part(3), Part(3)), 1)
    second = join(join(Part(4), Part(3)), join(Part(3), Part(3)))
    return join(first, second)


def plan_3(window_s: float) -> VirtualPlan:
    """40 operators, depth 14, 8 streams."""
    return virtual_plan("plan 3", (_forty(),), window_s)


def plan_4(window_s: float) -> VirtualPlan:
    """80 operators, depth 14, 16 streams in and 2 out: twice plan 3 over streams of its own."""
    return virtual_plan("plan 4", (_forty(), _forty()), window_s)
