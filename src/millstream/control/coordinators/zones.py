"""How a processing tree is cut into zones, one coordinator each (seed 003, sections 2.3 and 4.1).

A zone is a subtree of `levels` operators from its root down; the seed studies one operator a zone
and calls the choice open. The proxy precomputes, for every zone, the places that operators above
may have in common, because their costs are needed further up (section 4.2).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from millstream.control.protocol.coordinator_messages import Zone, ZoneOperator
from millstream.control.protocol.records import Amount, Name, Names
from millstream.core.errors import UsageError
from millstream.core.operator_graph import OperatorGraph
from millstream.decide.place.network.tree import NetworkTree


@dataclass(frozen=True, slots=True)
class TreeSource:
    id: Name
    location: Name
    rate: Amount


@dataclass(frozen=True, slots=True)
class TreeOperator:
    id: Name
    inputs: Annotated[Names, Field(min_length=1)]
    rate: Amount


@dataclass(frozen=True, slots=True)
class Tree:
    """The processing tree that a proxy has placed; a source is read once."""

    id: Name
    sources: Annotated[tuple[TreeSource, ...], Field(max_length=5000)]
    operators: Annotated[tuple[TreeOperator, ...], Field(max_length=5000)]
    root: Name

    def __post_init__(self) -> None:
        names = [s.id for s in self.sources] + [o.id for o in self.operators]
        read = [name for operator in self.operators for name in operator.inputs]
        if len(set(names)) != len(names) or sorted([*read, self.root]) != sorted(names):
            raise UsageError(
                f"tree {self.id!r} is not a tree", hint="every stream but the root is read once"
            )
        if self.root not in {operator.id for operator in self.operators}:
            raise UsageError(f"tree {self.id!r} has no operator to place")
        if not graph_of(self).is_tree(self.root):
            raise UsageError(f"tree {self.id!r} has operators that do not lead to its root")


def tree_of(problem: NetworkTree, name: str) -> Tree:
    """The tree of a planning problem, to be placed by its processors among themselves."""
    rates = problem.rates()
    return Tree(
        name,
        tuple(TreeSource(*source) for source in problem.sources),
        tuple(TreeOperator(o.id, o.inputs, rates[o.id]) for o in problem.operators),
        problem.root,
    )


def graph_of(tree: Tree) -> OperatorGraph[TreeOperator]:
    return OperatorGraph(tree.operators)


def below(tree: Tree) -> dict[str, tuple[str, ...]]:
    """dl: for every vertex the places of the sources below it, sorted, each once."""
    places: dict[str, tuple[str, ...]] = {s.id: (s.location,) for s in tree.sources}
    graph = graph_of(tree)
    for name in graph.order:
        gathered = {place for child in graph.by_id[name].inputs for place in places[child]}
        places[name] = tuple(sorted(gathered))
    return places


def zones(tree: Tree, levels: int = 1) -> tuple[Zone, ...]:
    """The zones, those nearest the root first."""
    if levels < 1:
        raise UsageError(f"a zone of {levels} levels", hint="at least 1")
    places = below(tree)
    common = {operator.id: _shared(operator, places) for operator in tree.operators}
    by_name = graph_of(tree).by_id
    made: list[Zone] = []
    pending: list[tuple[str, str | None, frozenset[str]]] = [(tree.root, None, frozenset())]
    while pending:
        root, upstream, wanted = pending.pop(0)
        if root not in by_name:
            continue
        inside = list(_inside(root, by_name, levels))
        names = {operator.id for operator in inside}
        boundary = tuple(
            child for operator in inside for child in operator.inputs if child not in names
        )
        made.append(
            Zone(
                root,
                tuple(ZoneOperator(o.id, o.rate, o.inputs, common[o.id]) for o in inside),
                boundary,
                upstream,
                tuple(sorted(wanted)),
            )
        )
        here = wanted.union(*(common[name] for name in names))
        pending.extend((child, root, here) for child in boundary)
    return tuple(made)


def _inside(root: str, by_name: Mapping[str, TreeOperator], levels: int) -> Iterator[TreeOperator]:
    operator = by_name.get(root)
    if operator is None or levels == 0:
        return
    for child in operator.inputs:
        yield from _inside(child, by_name, levels - 1)
    yield operator


def _shared(operator: TreeOperator, places: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    shared = set(places[operator.inputs[0]])
    for child in operator.inputs[1:]:
        shared &= set(places[child])
    return tuple(sorted(shared))
