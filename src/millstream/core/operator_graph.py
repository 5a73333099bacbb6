"""The one operator graph: operators, the streams they read and give, and the edges between them.

A manager, an engine, a planner or the simulator builds it. Every module that decides over operators
reads it, and keeps its own figures (queues, prices, loads) beside it, by operator id. Operators are
records of any type with an id and inputs; `GraphOperator` is the plain one. The graph knows no
processors and decides nothing. D-CAPE, section 5.1.2: plans and operators carry properties of any
name, so that a new pattern needs no new structure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

PATHS_MAX = 4096  # a dense graph costs no more than a large tree


class Reader(Protocol):
    """What every operator says: its id, and the streams it reads, in order.

    It gives the stream of its `output`, or of its id where it has none.
    """

    @property
    def id(self) -> str: ...

    @property
    def inputs(self) -> tuple[str, ...]: ...


R = TypeVar("R", bound=Reader)


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


class OperatorGraph(Generic[R]):
    """Operators in the order of their plans; the order is part of the input of a pattern.

    A stream that no operator gives is a base stream. Several operators may give one stream: they
    are alternatives, of which a planner chooses.

    >>> graph = OperatorGraph((GraphOperator("f", ("s",)), GraphOperator("g", ("f",))))
    >>> graph.leaves, graph.roots, graph.consumers("f"), graph.consumers("s"), graph.streams
    (('f',), ('g',), ('g',), ('f',), ('s',))
    >>> graph.order, graph.depth, list(graph.paths())
    (('f', 'g'), {'f': 0, 'g': 1}, [('f', 'g')])
    """

    def __init__(
        self,
        operators: Iterable[R],
        plan_properties: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.operators: tuple[R, ...] = tuple(operators)
        self.plan_properties = plan_properties or {}
        self.by_id: Mapping[str, R] = {operator.id: operator for operator in self.operators}
        if len(self.by_id) != len(self.operators):
            raise ValueError("an operator is twice in a graph")
        consumers: dict[str, list[str]] = {}
        makers: dict[str, list[str]] = {}
        for operator in self.operators:
            makers.setdefault(output_of(operator), []).append(operator.id)
            for source in dict.fromkeys(operator.inputs):  # a self-join reads one stream twice
                consumers.setdefault(source, []).append(operator.id)
        self._consumers = {stream: tuple(ids) for stream, ids in consumers.items()}
        self._makers = {stream: tuple(ids) for stream, ids in makers.items()}

    def __iter__(self) -> Iterator[R]:
        return iter(self.operators)

    def __len__(self) -> int:
        return len(self.operators)

    def consumers(self, stream: str) -> tuple[str, ...]:
        """The operators that read a stream: an operator's result, or a base stream."""
        return self._consumers.get(stream, ())

    def makers(self, stream: str) -> tuple[str, ...]:
        """The operators that give a stream; none for a base stream."""
        return self._makers.get(stream, ())

    def producers(self, operator: str) -> tuple[str, ...]:
        """The operators whose results it reads (the seed's children)."""
        return self._producers[operator]

    def parents(self, operator: str) -> tuple[str, ...]:
        """The operators that read its result; one, or none at the root, where it is a tree."""
        return self._parents[operator]

    @cached_property
    def _producers(self) -> Mapping[str, tuple[str, ...]]:
        return {
            o.id: tuple(dict.fromkeys(name for source in o.inputs for name in self.makers(source)))
            for o in self
        }

    @cached_property
    def _parents(self) -> Mapping[str, tuple[str, ...]]:
        return {o.id: self.consumers(output_of(o)) for o in self}

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """Base streams, in order of first use."""
        named = dict.fromkeys(source for operator in self for source in operator.inputs)
        return tuple(source for source in named if source not in self._makers)

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Operators that read base streams only."""
        return tuple(o.id for o in self if not self.producers(o.id))

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Operators that no other reads: they give results."""
        return tuple(o.id for o in self if not self.parents(o.id))

    def edges(self) -> Iterator[tuple[str, str]]:
        """(producer, consumer) between operators."""
        for operator in self:
            for source in self.producers(operator.id):
                yield source, operator.id

    @cached_property
    def depth(self) -> Mapping[str, int]:
        """Operators on the longest way below each; those on or above a circle are left out.

        In topological order: an operator stands after those it reads.
        """
        waiting = {o.id: len(self.producers(o.id)) for o in self}
        depth = {name: 0 for name, count in waiting.items() if not count}
        for name in (ready := list(depth)):
            for consumer in self.parents(name):
                waiting[consumer] -= 1
                if not waiting[consumer]:
                    depth[consumer] = 1 + max(depth[p] for p in self.producers(consumer))
                    ready.append(consumer)
        return depth

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Operators, each after those it reads; those on or above a circle are left out."""
        return tuple(self.depth)

    @cached_property
    def circle(self) -> tuple[str, ...]:
        """Operators that read themselves by some way, and those above them: none in a dataflow."""
        return tuple(o.id for o in self if o.id not in self.depth)

    def by_depth(self) -> list[R]:
        """Operators from the leaves up, those of one depth in the graph's order."""
        found = (o for o in self if o.id in self.depth)
        return sorted(found, key=lambda o: self.depth[o.id])

    def rates(
        self, streams: Mapping[str, float], selectivity: Callable[[R], float]
    ) -> dict[str, float]:
        """Rows a second of every stream: an operator gives its selectivity times what it reads."""
        rates = {name: float(streams[name]) for name in self.streams}
        for name in self.order:
            operator = self.by_id[name]
            rates[name] = selectivity(operator) * sum(rates[i] for i in operator.inputs)
        return rates

    def subplan(self, operator: str) -> tuple[str, ...]:
        """The operator and all below it, nearest first: a sub-plan that can move as one."""
        found = {operator: None}
        for name in (waiting := [operator]):
            for source in self.producers(name):
                if source not in found:
                    found[source] = None
                    waiting.append(source)
        return tuple(found)

    def paths(self) -> Iterator[tuple[str, ...]]:
        """Every way from a leaf to a root, at most `PATHS_MAX` of them, in a fixed order."""
        left = PATHS_MAX
        for leaf in self.leaves:
            stack: list[tuple[str, ...]] = [(leaf,)]
            while stack and left:
                path = stack.pop()
                onward = self.parents(path[-1])
                if not onward:
                    left -= 1
                    yield path
                stack.extend((*path, consumer) for consumer in reversed(onward))

    def postorder(self, root: str) -> Iterator[str]:
        """The streams of the tree below a stream, children first, the root last.

        A base stream stands as often as it is read. Only for trees: see `is_tree`.

        >>> join = GraphOperator("j", ("f", "s"))
        >>> list(OperatorGraph((GraphOperator("f", ("s",)), join)).postorder("j"))
        ['s', 'f', 's', 'j']
        """
        stack = [(root, False)]
        while stack:
            stream, leaving = stack.pop()
            makers = self.makers(stream)
            if leaving or not makers:
                yield stream
                continue
            stack.append((stream, True))
            inputs = self.by_id[makers[0]].inputs
            stack.extend((name, False) for name in reversed(inputs))

    def is_tree(self, root: str) -> bool:
        """Whether every operator leads to this one, each on one way."""
        read = [name for o in self for name in o.inputs if name in self._makers]
        return (
            not self.circle
            and self.roots == (root,)
            and len(set(read)) == len(read) == len(self.operators) - 1
        )

    def parts(self, joined: Callable[[str, str], bool]) -> tuple[tuple[str, ...], ...]:
        """Operators connected by edges for which `joined(producer, consumer)` holds."""
        group = {o.id: o.id for o in self}

        def head(name: str) -> str:
            while group[name] != name:
                group[name] = group[group[name]]
                name = group[name]
            return name

        for source, target in self.edges():
            if joined(source, target):
                group[head(source)] = head(target)
        found: dict[str, list[str]] = {}
        for operator in self:
            found.setdefault(head(operator.id), []).append(operator.id)
        return tuple(tuple(part) for part in found.values())

    def plan_weight(self, plan: str) -> float:
        """A plan's priority relative to others; 1 where none is given."""
        return max(0.0, number_of(self.plan_properties.get(plan, {}), "weight", 1.0))


PlanGraph = OperatorGraph[GraphOperator]


def output_of(operator: Reader) -> str:
    """The stream that an operator gives."""
    return str(getattr(operator, "output", "")) or operator.id


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
