"""A placement: which processor runs which operator; whether it is valid, what it connects.

A placement is a mapping from operator to processor (D-CAPE, figure 5.1: a distribution table). The
functions here judge and count; they never choose. Connections are counted as the seed does: a
stream that crosses to a processor is one connection, however many operators read it there; base
streams that enter and results that leave are connections too, where asked for.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.core.operator_graph import OperatorGraph, R, number_of

Placement = Mapping[str, str]  # operator -> processor


@dataclass(frozen=True, slots=True)
class ProcessorDescription:
    """A processor, described by properties of any name (D-CAPE, table 5.1)."""

    id: str
    properties: Mapping[str, Any] = field(default_factory=dict)

    def number(self, name: str, otherwise: float) -> float:
        return number_of(self.properties, name, otherwise)


def problems(graph: OperatorGraph[R], table: Placement, alive: Collection[str]) -> tuple[str, ...]:
    """Why a placement is not valid; empty if it is.

    Valid: every operator stands in it (a mapping holds each once), nothing else does, and every
    processor in it is alive (section 5.1.3).

    >>> from millstream.core.operator_graph import GraphOperator, PlanGraph
    >>> problems(PlanGraph((GraphOperator("o", ("s",)),)), {"o": "p9"}, ["p1"])
    ('o is on p9, which does not answer',)
    """
    found = [f"{o.id} is on no processor" for o in graph if o.id not in table]
    for operator, processor in table.items():
        if operator not in graph.by_id:
            found.append(f"{operator} is not an operator")
        elif processor not in alive:
            found.append(f"{operator} is on {processor}, which does not answer")
    return tuple(found)


def pieces(graph: OperatorGraph[R], table: Placement) -> int:
    """Connected groups of operators on one processor."""
    return len(graph.parts(lambda source, target: table[source] == table[target]))


def crossings(graph: OperatorGraph[R], table: Placement) -> tuple[tuple[str, str, str], ...]:
    """(stream, from, to): streams that go from one processor to another, each once.

    Base streams too, where the table says at which processor they are.
    """
    found = {
        (stream, table[stream], table[operator.id]): None
        for operator in graph
        for stream in operator.inputs
        if stream in table and table[stream] != table[operator.id]
    }
    return tuple(found)


def connection_count(
    graph: OperatorGraph[R], table: Placement, *, streams: bool = True, results: bool = False
) -> int:
    """Connections of the whole placement; figures 5.2 and 5.3 count streams, not results."""
    count = len(crossings(graph, table))
    if streams:
        count += sum(len(processors_reading(graph, table, s)) for s in graph.streams)
    return count + (len(graph.roots) if results else 0)


def connections_by_processor(graph: OperatorGraph[R], table: Placement) -> dict[str, int]:
    """Connections that each processor handles, in and out, streams and results included."""
    counts = dict.fromkeys(table.values(), 0)
    for _, source, target in crossings(graph, table):
        counts[source] += 1
        counts[target] += 1
    for stream in graph.streams:
        for processor in processors_reading(graph, table, stream):
            counts[processor] += 1
    for root in graph.roots:
        counts[table[root]] += 1
    return counts


def processors_reading(graph: OperatorGraph[R], table: Placement, stream: str) -> tuple[str, ...]:
    """Processors with an operator that reads it."""
    return tuple(dict.fromkeys(table[consumer] for consumer in graph.consumers(stream)))


def sends(graph: OperatorGraph[R], table: Placement, operator: str) -> bool:
    """Whether its result leaves its processor: to another one, or to whoever asked."""
    consumers = graph.consumers(operator)
    return not consumers or any(table[c] != table[operator] for c in consumers)
