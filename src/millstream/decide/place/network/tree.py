"""One query of a planning problem as a tree over a network: what network-aware planners read.

A view of a `Problem` with one query, built once: the vertices under the root in post-order, the
nodes by position, the distances as a matrix. After Ahmad and Cetintemel, "Network-Aware Query
Processing for Stream-based Applications" (VLDB 2004), section 3.1, with the edge from the root to
the proxy, which its objective (1) leaves out. Refuses what is no tree; decides nothing.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.core.errors import UsageError
from millstream.decide.place.problem import Host, Links, Matrix, Operator, Problem, Query, Stream

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


NAMED_MAX = 10  # names of what there is, in a message


class Source(NamedTuple):
    """A stream that enters the network at a fixed node."""

    id: str
    node: str
    rate: float


@dataclass(frozen=True, slots=True)
class Vertex:
    """One place in the processing tree, in post-order; `node` is set for sources only."""

    id: str
    rate: float
    node: int | None
    children: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class NetworkTree:
    """A tree of operators over fixed sources, to be spread over nodes towards a proxy.

    `distance[i, j]` is from node i to node j and may differ from `distance[j, i]`. `tree` is the
    post-order of the vertices under the root, the root last; a source read twice stands twice.
    """

    problem: Problem
    nodes: tuple[str, ...]
    distance: Matrix
    tree: tuple[Vertex, ...]
    proxy: str
    proxy_index: int
    latency_bound: float | None = None

    @property
    def root(self) -> str:
        return self.problem.queries[0].stream

    @property
    def operators(self) -> tuple[Operator, ...]:
        return self.problem.operators

    @property
    def sources(self) -> tuple[Source, ...]:
        streams = self.problem.streams
        return tuple(Source(s.id, s.host, s.rate) for s in streams if s.host is not None)

    def rates(self) -> dict[str, float]:
        """The rate of every stream, by the source or operator it leaves."""
        return {stream.id: stream.rate for stream in self.problem.streams}

    def unrolled(
        self, row: int, child_row: Callable[[int, int, int], int]
    ) -> Iterator[tuple[int, int]]:
        """(position, row) of every operator, from the root at `row` down.

        A row is what a planner has chosen for a vertex; `child_row` gives that of a child from its
        parent's position and row, and the child's number.
        """
        rows = {len(self.tree) - 1: row}
        for position in range(len(self.tree) - 1, -1, -1):
            vertex = self.tree[position]
            if vertex.node is not None:
                continue
            yield position, rows[position]
            for number, child in enumerate(vertex.children):
                if self.tree[child].node is None:
                    rows[child] = child_row(position, rows[position], number)

    def with_bound(self, latency_bound: float | None) -> "NetworkTree":
        """The same tree under another latency bound."""
        _check_bound(latency_bound)
        return self._asked(latency_bound=latency_bound)

    def towards(self, proxy: str) -> "NetworkTree":
        """The same tree with its result wanted at another node."""
        return self._asked(proxy=proxy, proxy_index=_position(proxy, self.nodes))

    def with_rate(self, stream: str, rate: float) -> "NetworkTree":
        streams = (replace(s, rate=rate) if s.id == stream else s for s in self.problem.streams)
        return tree_of(replace(self.problem, streams=tuple(streams)))

    def _asked(self, **changes: object) -> "NetworkTree":
        """All else has been validated."""
        changed: NetworkTree = replace(self, **changes)  # type: ignore[arg-type]
        query = Query(self.root, self.root, changed.proxy, changed.latency_bound)
        return replace(changed, problem=replace(self.problem, queries=(query,)))


Sent = tuple[str, Sequence[str], float]  # operator, its inputs, the rate of what it sends on


def network_tree(
    nodes: Iterable[str],
    distance: Matrix,
    sources: Iterable[Stream],
    operators: Iterable[Sent],
    root: str,
    proxy: str,
    latency_bound: float | None = None,
) -> NetworkTree:
    """The tree of operators over sources at fixed nodes; a mistake is a `UsageError`."""
    made = tuple(operators)
    return tree_of(
        Problem(
            hosts=tuple(Host(node, math.inf) for node in nodes),
            streams=(*sources, *(Stream(name, rate) for name, _, rate in made)),
            operators=tuple(Operator(name, tuple(read), name, 0.0) for name, read, _ in made),
            queries=(Query(root, root, proxy, latency_bound),),
            links=Links(distance=distance),
        )
    )


def tree_of(problem: Problem) -> NetworkTree:
    """The tree of a problem's one query, whose links tell the distances of all pairs."""
    (query,) = problem.queries
    nodes = tuple(host.id for host in problem.hosts)
    index = _unique("node", nodes)
    assert problem.links.distance is not None
    distance = _checked_distance(problem.links.distance, nodes)
    proxy = query.deliver_to or ""
    position = _position(proxy, nodes)
    _unique("stream", [stream.id for stream in problem.streams])
    for stream in problem.streams:
        if not math.isfinite(stream.rate) or stream.rate < 0:
            raise UsageError(f"rate of {stream.id!r} is {stream.rate}", hint="a number from 0 up")
    _check_bound(query.latency_bound)
    tree = _vertices(problem, index)
    _check_size(tree, distance)
    checked = replace(problem, links=Links(distance=distance))
    return NetworkTree(checked, nodes, distance, tree, proxy, position, query.latency_bound)


def _position(proxy: str, nodes: Sequence[str]) -> int:
    if proxy not in nodes:
        raise UsageError(
            f"proxy {proxy!r} is not among the nodes",
            detail=_listed("nodes", nodes),
            hint="the proxy is the node where the result is wanted",
        )
    return nodes.index(proxy)


def _check_bound(bound: float | None) -> None:
    if bound is not None and not (math.isfinite(bound) and bound >= 0):
        raise UsageError(f"latency_bound is {bound}", hint="a number from 0 up, or null")


def _check_size(tree: Sequence[Vertex], distance: Matrix) -> None:
    """No placement may cost, or take, more than a number can say."""
    farthest = float(distance.max())
    dearest = sum(vertex.rate for vertex in tree) * farthest
    slowest = len(tree) * farthest
    if not (math.isfinite(dearest) and math.isfinite(slowest)):
        raise UsageError(
            "rates times distances are too large for a number",
            detail=f"the largest distance is {farthest:g}",
            hint="give distances or rates in a larger unit",
        )


def _unique(kind: str, names: Iterable[str]) -> dict[str, int]:
    index: dict[str, int] = {}
    for name in names:
        if name in index:
            raise UsageError(f"{kind} {name!r} is given twice", hint=f"every {kind} has its own id")
        index[name] = len(index)
    return index


def _checked_distance(matrix: Matrix, nodes: tuple[str, ...]) -> Matrix:
    distance = np.ascontiguousarray(matrix, dtype=np.float64)
    if distance.shape != (len(nodes), len(nodes)):
        shape = " x ".join(str(size) for size in distance.shape)
        raise UsageError(
            f"distance is {shape} for {len(nodes)} nodes", hint="one row and one column a node"
        )
    bad = ~np.isfinite(distance) | (distance < 0)
    if bad.any():
        i, j = (int(at) for at in np.argwhere(bad)[0])
        raise UsageError(
            f"distance from {nodes[i]!r} to {nodes[j]!r} is {distance[i, j]}",
            hint="a number from 0 up; null where it was not measured",
        )
    if np.diagonal(distance).any():  # equation (3): what stays on a node costs nothing
        distance = distance.copy()
        np.fill_diagonal(distance, 0.0)
    if distance is not matrix or distance.flags.writeable:
        distance = distance.view()
        distance.flags.writeable = False
    return distance


def _vertices(problem: Problem, index: Mapping[str, int]) -> tuple[Vertex, ...]:
    streams = {stream.id: stream for stream in problem.streams}
    for stream in problem.streams:
        if stream.host is not None and stream.host not in index:
            raise UsageError(
                f"source {stream.id!r} lies on unknown node {stream.host!r}",
                detail=_listed("nodes", index),
                hint="name one of them, or add the node with its distances",
            )
    root = problem.queries[0].stream
    if root not in streams:
        raise UsageError(
            f"root {root!r} is neither an operator nor a source",
            detail=_listed("operators", [operator.id for operator in problem.operators]),
            hint="the root gives the result that goes to the proxy",
        )
    _check_tree(problem, root, streams)
    graph = problem.graph
    vertices: list[Vertex] = []
    open_: list[int] = []  # vertices without a parent yet
    for name in graph.postorder(root):
        host, operator = streams[name].host, graph.by_id.get(name)
        first = len(open_) - (len(operator.inputs) if operator else 0)
        node = None if host is None else index[host]
        vertices.append(Vertex(name, streams[name].rate, node, tuple(open_[first:])))
        open_[first:] = [len(vertices) - 1]
    return tuple(vertices)


def _check_tree(problem: Problem, root: str, streams: Mapping[str, Stream]) -> None:
    """Every operator leads to the root on one way, and reads what there is."""
    graph = problem.graph
    reached = graph.subplan(root) if root in graph.by_id else ()
    read = Counter(name for below in reached for name in graph.by_id[below].inputs)
    for name in reached:
        inputs = graph.by_id[name].inputs
        if not inputs:
            raise UsageError(
                f"operator {name!r} has no inputs", hint="a stream without inputs is a source"
            )
        for stream in inputs:
            if stream not in streams:
                raise UsageError(
                    f"operator {name!r} reads unknown stream {stream!r}",
                    hint="declare it as a source, or as an operator",
                )
    for name in reached:
        if read[name] > (name != root):
            raise UsageError(
                f"operator {name!r} has more than one consumer, or reads itself",
                hint="the operators must form a tree; split shared operators first",
            )
    loose = graph.by_id.keys() - set(reached)
    if loose:
        first = next(operator.id for operator in graph if operator.id in loose)
        raise UsageError(
            f"operator {first!r} does not lead to root {root!r}",
            hint="remove it, or place its tree as another problem",
        )


def _listed(what: str, names: Iterable[str]) -> str:
    known = list(names)
    more = ", ..." if len(known) > NAMED_MAX else ""
    return f"{what}: {', '.join(known[:NAMED_MAX]) or 'none'}{more}"
