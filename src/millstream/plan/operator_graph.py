"""The dataflow as those who distribute it see it: operators, who feeds whom, free properties.

Built by whoever knows the operators (a manager from compiled queries, the simulator from virtual
ones); read by distribution patterns, cost models and redistribution policies. It knows no
processors and decides nothing. D-CAPE, section 5.1.2: plans and operators carry properties of any
name, so that a new pattern needs no new structure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class GraphOperator:
    """One operator; `inputs` name operators or base streams, in order.

    `plans` are the queries it works for: several where they share it.
    """

    id: str
    inputs: tuple[str, ...]
    kind: str = ""
    plans: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)

    def number(self, name: str, otherwise: float) -> float:
        """A property as a number; a value that is none counts as not given."""
        return number_of(self.properties, name, otherwise)


@dataclass(frozen=True, slots=True, eq=False)
class OperatorGraph:
    """Operators in the order of their plans; the order is part of the input of a pattern.

    >>> graph = OperatorGraph((GraphOperator("f", ("s",)), GraphOperator("g", ("f",))))
    >>> graph.leaves, graph.roots, graph.consumers("f"), graph.consumers("s")
    (('f',), ('g',), ('g',), ('f',))
    """

    operators: tuple[GraphOperator, ...]
    plan_properties: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    by_id: Mapping[str, GraphOperator] = field(init=False)
    _consumers: Mapping[str, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        by_id = {operator.id: operator for operator in self.operators}
        if len(by_id) != len(self.operators):
            raise ValueError("an operator stands twice in a graph")
        consumers: dict[str, list[str]] = {}
        for operator in self.operators:
            for source in dict.fromkeys(operator.inputs):  # a self-join reads one stream twice
                consumers.setdefault(source, []).append(operator.id)
        object.__setattr__(self, "by_id", by_id)
        object.__setattr__(self, "_consumers", {k: tuple(v) for k, v in consumers.items()})

    def __iter__(self) -> Iterator[GraphOperator]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    def consumers(self, stream: str) -> tuple[str, ...]:
        """The operators that read an operator's result or a base stream (the seed's parents)."""
        return self._consumers.get(stream, ())

    def producers(self, operator: str) -> tuple[str, ...]:
        """The operators whose results it reads (the seed's children)."""
        inputs = dict.fromkeys(self.by_id[operator].inputs)
        return tuple(source for source in inputs if source in self.by_id)

    @property
    def streams(self) -> tuple[str, ...]:
        """Base streams, in order of first use."""
        named = dict.fromkeys(source for operator in self for source in operator.inputs)
        return tuple(source for source in named if source not in self.by_id)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Operators that read base streams only."""
        return tuple(o.id for o in self if not self.producers(o.id))

    @property
    def roots(self) -> tuple[str, ...]:
        """Operators that no other reads: they give results."""
        return tuple(o.id for o in self if not self.consumers(o.id))

    def edges(self) -> Iterator[tuple[str, str]]:
        """(producer, consumer) between operators."""
        for operator in self:
            for source in self.producers(operator.id):
                yield source, operator.id

    def subplan(self, operator: str) -> tuple[str, ...]:
        """The operator and all below it, nearest first: a sub-plan that can move as one."""
        found = {operator: None}
        for name in (waiting := [operator]):
            for source in self.producers(name):
                if source not in found:
                    found[source] = None
                    waiting.append(source)
        return tuple(found)

    def plan_weight(self, plan: str) -> float:
        """A plan's priority relative to others; 1 where none is given."""
        return max(0.0, number_of(self.plan_properties.get(plan, {}), "weight", 1.0))


def number_of(properties: Mapping[str, Any], name: str, otherwise: float) -> float:
    """A property as a number, however it was given.

    >>> number_of({"memory": "2048"}, "memory", 1.0), number_of({"memory": "lots"}, "memory", 1.0)
    (2048.0, 1.0)
    """
    try:
        value = float(properties[name])
    except (KeyError, TypeError, ValueError):
        return otherwise
    return value if value == value else otherwise  # noqa: PLR0124  (not a number is no value)
