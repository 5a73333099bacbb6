"""Cuts a compiled query into the fragments of seed 002, section 3.1, and judges where they lie.

The operators of a compiled query may read many inputs, and one may feed several others; a query
tree allows neither. So a wide operator becomes a chain of operators of two inputs, whose first ones
disappear again, and each further reader of an operator reads it as a stream of its own, which
enters where that operator is made. `limit_problems` is the checker of heuristic 2, the distribution
limit: it counts for itself and knows nothing of how fragments were cut.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from millstream.core.operator_graph import OperatorGraph, R
from millstream.decide.balance.model.fragments import Fragment, fragment_query
from millstream.decide.balance.model.operator_tree import Operator, QueryTree

AGAIN = "="  # begins the name of an operator's result that is read once more
CHAINED = "#"  # between a wide operator's id and the number of a part of its chain


@dataclass(frozen=True, slots=True)
class OperatorFragment:
    """Operators of a query that are placed as one, each after those it reads.

    `stream` is the base stream at whose delegation node they begin.
    """

    stream: str
    operators: tuple[str, ...]


def compiled_fragments(
    query: str, operators: Sequence[R], rates: Mapping[str, float]
) -> tuple[OperatorFragment, ...]:
    """The fragments of a query; `rates` are of base streams and of the operators' results.

    >>> from millstream.core.operator_graph import GraphOperator as Op
    >>> read = (Op("f", ("s",)), Op("j", ("f", "t")), Op("g", ("j",)))
    >>> cut = compiled_fragments("q", read, {"s": 9.0, "t": 5.0, "f": 2.0, "j": 2.0, "g": 1.0})
    >>> [(part.stream, part.operators) for part in cut]
    [('s', ('f',)), ('t', ('j', 'g'))]
    """
    tree, streams = _tree(query, OperatorGraph(operators), rates)
    parts = fragment_query(tree, streams)
    made_in = {operator.id: part for part in parts for operator in part.operators}
    found = []
    for part in parts:
        own = tuple(o.id for o in part.operators if CHAINED not in o.id)
        if own:
            found.append(OperatorFragment(_base(part, made_in), own))
    return tuple(found)


def _base(part: Fragment, made_in: Mapping[str, Fragment]) -> str:
    """The base stream that a fragment stands on, also where it reads a result once more."""
    while part.stream.startswith(AGAIN):
        part = made_in[part.stream.removeprefix(AGAIN)]
    return part.stream


def _tree(
    query: str, graph: OperatorGraph[R], rates: Mapping[str, float]
) -> tuple[QueryTree, dict[str, float]]:
    """The operators as a tree of at most two inputs each, and the rates of its streams."""
    made: list[Operator] = []
    streams: dict[str, float] = {}
    read: set[str] = set()
    for operator in graph.by_depth():
        names = []
        for source in operator.inputs:
            name = AGAIN + source if source in read else source
            if name not in graph.by_id:
                streams[name] = rates.get(source, 0.0)
            if source in graph.by_id:
                read.add(source)
            names.append(name)
        below, coming = names[0], rates.get(operator.inputs[0], 0.0)
        for n, (name, source) in enumerate(zip(names[1:], operator.inputs[1:], strict=True), 1):
            coming += rates.get(source, 0.0)
            if n < len(names) - 1:
                part = f"{operator.id}{CHAINED}{n}"
                made.append(Operator(part, (below, name), 0.0, 1.0))
                below = part
        inputs = (below,) if len(names) == 1 else (below, names[-1])
        gives = rates.get(operator.id, 0.0) / coming if coming else 1.0
        made.append(Operator(operator.id, inputs, 0.0, gives))
    return QueryTree(query, tuple(made)), streams


def distribution_limit(operators: Collection[R]) -> int:
    """On how many processors a query may lie: as many as it accesses streams.

    Every operator but the last is read once by another; what is read besides are streams, and
    results that are read once more.

    >>> from millstream.core.operator_graph import GraphOperator as Op
    >>> distribution_limit((Op("f", ("s",)), Op("j", ("f", "t", "u"))))
    3
    """
    return sum(len(operator.inputs) for operator in operators) - (len(operators) - 1)


def limit_problems(
    query: str, operators: Collection[R], table: Mapping[str, str], shared: Callable[[str], bool]
) -> tuple[str, ...]:
    """Where a query is spread over more processors than its distribution limit allows.

    An operator that other queries use too runs once, wherever it is: it counts for none of them.
    """
    own = sorted({table[o.id] for o in operators if o.id in table and not shared(o.id)})
    limit = distribution_limit(operators)
    if len(own) <= limit:
        return ()
    return (f"query {query} lies on {', '.join(own)}, more than its limit of {limit}",)
