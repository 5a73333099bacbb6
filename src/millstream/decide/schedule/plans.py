"""The running plan as the operator graph: from operator views to who feeds whom.

Pure; a plan that changes is a new graph. Edges to operators not among the views are left out.
"""

from collections.abc import Sequence

from millstream.core.operator_graph import GraphOperator, PlanGraph
from millstream.decide.schedule.facts import OperatorView


def graph_of(views: Sequence[OperatorView]) -> PlanGraph:
    """The graph of these operators; either end of an edge may name it.

    >>> graph = graph_of([OperatorView("a", 0, consumers=("b",)), OperatorView("b", 0)])
    >>> graph.order, graph.leaves, graph.roots, list(graph.paths())
    (('a', 'b'), ('a',), ('b',), [('a', 'b')])
    """
    fed_by: dict[str, set[str]] = {view.id: set(view.producers) for view in views}
    for view in views:
        for consumer in view.consumers:
            if consumer in fed_by:
                fed_by[consumer].add(view.id)
    place = {view.id: number for number, view in enumerate(views)}
    graph = PlanGraph(
        GraphOperator(name, tuple(sorted(place.keys() & sources, key=place.__getitem__)))
        for name, sources in fed_by.items()
    )
    if graph.circle:
        raise ValueError(f"operators feed themselves: {', '.join(sorted(graph.circle))}")
    return graph
