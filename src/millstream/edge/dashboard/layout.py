"""Where the nodes of the dataflow stand: layers from sources to results, few crossings.

Pure: from a snapshot's shape to positions, the same for the same shape. Each processor is a band of
its own; within it a node's column is its distance from the sources, and columns are ordered by the
mean place of their neighbours (the barycentre method of Sugiyama, Tagawa and Toda, 1981). Tall
columns are folded, so that 2,000 operators stay on a page.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millstream.control.snapshot.model import Snapshot
from millstream.core.operator_graph import GraphOperator, PlanGraph

COLUMN = 230  # from one layer to the next
ROW = 58
FOLD = 40  # nodes in a column at most
BAND_GAP = 120
SWEEPS = 4

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Shape:
    """Who feeds whom, and who stands where."""

    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    band: Mapping[str, str]  # node to processor

    @property
    def key(self) -> int:
        return hash((self.nodes, self.edges, tuple(self.band.values())))

    @property
    def graph(self) -> PlanGraph:
        """Streams and operators alike, each after what it reads."""
        inputs: dict[str, list[str]] = {node: [] for node in self.nodes}
        for source, target in self.edges:
            inputs[target].append(source)
        return PlanGraph(GraphOperator(node, tuple(read)) for node, read in inputs.items())


def shape_of(snapshot: Snapshot) -> Shape:
    """Streams and operators; edges between what is there."""
    band = {s.id: s.processor for s in snapshot.streams}
    band |= {o.id: o.processor for o in snapshot.operators}
    edges = tuple(
        (e.source, e.target) for e in snapshot.edges if e.source in band and e.target in band
    )
    return Shape(tuple(band), edges, band)


def place(shape: Shape) -> dict[str, Place]:
    """A position for each node.

    >>> place(Shape(("s", "a", "b"), (("s", "a"), ("a", "b")), dict.fromkeys("sab", "p")))
    {'s': (0.0, 0.0), 'a': (230.0, 0.0), 'b': (460.0, 0.0)}
    """
    graph, layer = shape.graph, layers(shape)
    bands = [
        _ordered([n for n in shape.nodes if shape.band[n] == band], layer, graph)
        for band in sorted(set(shape.band.values()))
    ]
    left = _lefts(bands)
    found: dict[str, Place] = {}
    top = 0.0
    for columns in bands:
        top += _put(columns, left, top, found) + BAND_GAP
    return found


def layers(shape: Shape) -> dict[str, int]:
    """The longest way from a source to each node; nodes of a cycle, which no dataflow has, at 0.

    >>> layers(Shape(("s", "a", "b"), (("s", "a"), ("s", "b"), ("a", "b")), {}))
    {'s': 0, 'a': 1, 'b': 2}
    """
    depth = shape.graph.depth
    return {node: depth.get(node, 0) for node in shape.nodes}


def _ordered(
    members: Sequence[str],
    layer: Mapping[str, int],
    graph: PlanGraph,
) -> dict[int, list[str]]:
    columns: dict[int, list[str]] = {}
    for node in sorted(members, key=lambda n: layer[n]):
        columns.setdefault(layer[node], []).append(node)
    ordered = list(columns.values())
    rank = {n: float(i) for column in ordered for i, n in enumerate(column)}
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        neighbours = graph.producers if forward else graph.parents
        for column in ordered if forward else reversed(ordered):
            column.sort(key=lambda n: (_centre(n, neighbours, rank), rank[n]))
            span = max(1, len(column))
            for index, node in enumerate(column):
                rank[node] = index * 1000 / span  # columns of other lengths compare by share
    return columns


def _centre(
    node: str, neighbours: Callable[[str], Sequence[str]], rank: Mapping[str, float]
) -> float:
    known = [rank[n] for n in neighbours(node) if n in rank]
    return sum(known) / len(known) if known else rank[node]


def _lefts(bands: Sequence[Mapping[int, Sequence[str]]]) -> dict[int, float]:
    """Where each layer begins: the same in all bands, so that rows flow from left to right."""
    left: dict[int, float] = {}
    x = 0.0
    for number in sorted({number for columns in bands for number in columns}):
        left[number] = x
        longest = max(len(columns.get(number, ())) for columns in bands)
        x += COLUMN * -(-longest // FOLD)
    return left


def _put(
    columns: Mapping[int, Sequence[str]],
    left: Mapping[int, float],
    top: float,
    found: dict[str, Place],
) -> float:
    """Places a band's columns, folding tall ones; gives the height."""
    tallest = min(FOLD, max((len(c) for c in columns.values()), default=0))
    for number, column in columns.items():
        for start in range(0, len(column), FOLD):
            part = column[start : start + FOLD]
            indent = (tallest - len(part)) * ROW / 2
            x = left[number] + start // FOLD * COLUMN
            for index, node in enumerate(part):
                found[node] = (x, top + indent + index * ROW)
    return max(0, tallest - 1) * ROW
