"""The network-aware placement problem: one processing tree, the nodes it may run on, distances.

Holds the records, their validation and the JSON codec of the placement problem. Decides nothing:
planners read a `PlacementProblem`, the checker judges what they answer. After Ahmad and
Cetintemel, "Network-Aware Query Processing for Stream-based Applications" (VLDB 2004), section
3.1, with the edge from the root to the proxy, which its objective (1) leaves out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import UsageError
from millstream.place.network_distances import completed
from millstream.place.problem_json import NUMBER_HINT, refuse_misspelt

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

# Sums of distances in different orders differ in the last bits; a bound is kept within this
# share of it, whatever the unit of the distances is.
BOUND_TOLERANCE = 1e-9

# `topology` stands for nodes and distance; who reads the file looks it up (`millstream place`).
PROBLEM_KEYS = (
    "nodes", "distance", "sources", "operators", "root", "proxy", "latency_bound", "topology",
)  # fmt: skip
SOURCE_KEYS = ("id", "node", "rate")
OPERATOR_KEYS = ("id", "inputs", "rate")


@dataclass(frozen=True, slots=True)
class Source:
    """A stream that enters the network at a fixed node."""

    id: str
    node: str
    rate: float


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator to place; `rate` is what it sends on: selectivity times the sum of its inputs."""

    id: str
    inputs: tuple[str, ...]
    rate: float


@dataclass(frozen=True, slots=True)
class Vertex:
    """One place in the processing tree, in post-order; `node` is set for sources only."""

    id: str
    rate: float
    node: int | None
    children: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PlacementProblem:
    """A tree of operators over fixed sources, to be spread over nodes towards a proxy.

    `distance[i, j]` is from node i to node j and may differ from `distance[j, i]`. `tree` is the
    post-order of the vertices under the root, the root last; a source read twice stands twice.
    """

    nodes: tuple[str, ...]
    distance: Matrix
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    root: str
    proxy: str
    latency_bound: float | None = None
    tree: tuple[Vertex, ...] = field(init=False, repr=False)
    proxy_index: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        index = _unique("node", self.nodes)
        distance = _checked_distance(self.distance, self.nodes)
        object.__setattr__(self, "distance", distance)
        if self.proxy not in index:
            raise UsageError(f"proxy {self.proxy!r} is not among the nodes")
        object.__setattr__(self, "proxy_index", index[self.proxy])
        _unique("stream", [s.id for s in self.sources] + [o.id for o in self.operators])
        for name, rate in self.rates().items():
            if not math.isfinite(rate) or rate < 0:
                raise UsageError(f"rate of {name!r} is {rate}", hint="a number from 0 up")
        _check_bound(self.latency_bound)
        object.__setattr__(self, "tree", _post_order(self, index))
        _check_size(self)

    def rates(self) -> dict[str, float]:
        """The rate of every stream, by the source or operator it leaves."""
        rates = {source.id: source.rate for source in self.sources}
        return rates | {operator.id: operator.rate for operator in self.operators}

    def with_bound(self, latency_bound: float | None) -> "PlacementProblem":
        """The same problem under another latency bound."""
        _check_bound(latency_bound)
        other = copy(self)  # all else has been validated
        object.__setattr__(other, "latency_bound", latency_bound)
        return other


def within(delay: float, bound: float | None) -> bool:
    """Whether a delay keeps a bound.

    >>> within(0.1 + 0.2, 0.3), within(1.0, None), within(1.1, 1.0)
    (True, True, False)
    """
    return bound is None or delay <= bound_limit(bound)


def _check_bound(bound: float | None) -> None:
    if bound is not None and not (math.isfinite(bound) and bound >= 0):
        raise UsageError(f"latency_bound is {bound}", hint="a number from 0 up, or null")


def _check_size(problem: PlacementProblem) -> None:
    """No placement may cost, or take, more than a number can say."""
    farthest = float(problem.distance.max())
    dearest = sum(vertex.rate for vertex in problem.tree) * farthest
    slowest = len(problem.tree) * farthest
    if not (math.isfinite(dearest) and math.isfinite(slowest)):
        raise UsageError(
            "rates times distances are too large for a number",
            detail=f"the largest distance is {farthest:g}",
            hint="give distances or rates in a larger unit",
        )


def bound_limit(bound: float) -> float:
    """The greatest delay that `within` accepts."""
    return bound * (1 + BOUND_TOLERANCE)


def _unique(kind: str, names: Iterable[str]) -> dict[str, int]:
    index: dict[str, int] = {}
    for name in names:
        if name in index:
            raise UsageError(f"{kind} {name!r} is given twice")
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


def _post_order(problem: PlacementProblem, index: Mapping[str, int]) -> tuple[Vertex, ...]:
    sources = {source.id: source for source in problem.sources}
    operators = {operator.id: operator for operator in problem.operators}
    for source in problem.sources:
        if source.node not in index:
            raise UsageError(f"source {source.id!r} lies on unknown node {source.node!r}")
    if problem.root not in sources and problem.root not in operators:
        raise UsageError(f"root {problem.root!r} is neither an operator nor a source")
    vertices: list[Vertex] = []
    done: dict[str, int] = {}
    entered: set[str] = set()
    stack: list[tuple[str, bool]] = [(problem.root, False)]
    positions: dict[str, list[int]] = {}
    while stack:
        name, leaving = stack.pop()
        if name in sources:
            source = sources[name]
            vertices.append(Vertex(name, source.rate, index[source.node], ()))
            positions.setdefault(name, []).append(len(vertices) - 1)
            continue
        operator = operators[name]
        if leaving:
            # A source read twice was pushed twice: take its occurrences from the latest back.
            children = tuple(positions[child].pop() for child in reversed(operator.inputs))[::-1]
            vertices.append(Vertex(name, operator.rate, None, children))
            positions.setdefault(name, []).append(len(vertices) - 1)
            done[name] = len(vertices) - 1
            continue
        if name in entered:
            raise UsageError(
                f"operator {name!r} has more than one consumer, or reads itself",
                hint="the operators must form a tree; split shared operators first",
            )
        entered.add(name)
        if not operator.inputs:
            raise UsageError(f"operator {name!r} has no inputs")
        stack.append((name, True))
        for child in reversed(operator.inputs):
            if child not in sources and child not in operators:
                raise UsageError(f"operator {name!r} reads unknown stream {child!r}")
            stack.append((child, False))
    loose = [name for name in operators if name not in done]
    if loose:
        raise UsageError(
            f"operator {loose[0]!r} does not lead to root {problem.root!r}",
            hint="remove it, or place its tree as another problem",
        )
    return tuple(vertices)


def problem_from_json(data: object) -> PlacementProblem:
    """Reads the placement problem of the file format; a mistake is a `UsageError` that names it."""
    if not isinstance(data, Mapping):
        raise UsageError("a placement problem is a JSON object")
    refuse_misspelt("placement problem", data, PROBLEM_KEYS)
    missing = [
        key for key in ("nodes", "distance", "sources", "operators", "root", "proxy")
        if key not in data
    ]  # fmt: skip
    if missing:
        raise UsageError(f"placement problem lacks {', '.join(missing)}")
    nodes = tuple(str(node) for node in _list(data, "nodes"))
    bound = data.get("latency_bound")
    return PlacementProblem(
        nodes=nodes,
        distance=_read_distance(data["distance"], nodes),
        sources=tuple(
            Source(_text(item, "id"), _text(item, "node"), _number(item, "rate"))
            for item in _entries(data, "sources", SOURCE_KEYS)
        ),
        operators=tuple(
            Operator(
                _text(item, "id"),
                tuple(str(name) for name in _list(item, "inputs")),
                _number(item, "rate"),
            )
            for item in _entries(data, "operators", OPERATOR_KEYS)
        ),
        root=str(data["root"]),
        proxy=str(data["proxy"]),
        latency_bound=None if bound is None else _number(data, "latency_bound"),
    )


def problem_to_json(problem: PlacementProblem) -> dict[str, Any]:
    """The inverse of `problem_from_json`."""
    return {
        "nodes": list(problem.nodes),
        "distance": problem.distance.tolist(),
        "sources": [{"id": s.id, "node": s.node, "rate": s.rate} for s in problem.sources],
        "operators": [
            {"id": o.id, "inputs": list(o.inputs), "rate": o.rate} for o in problem.operators
        ],
        "root": problem.root,
        "proxy": problem.proxy,
        "latency_bound": problem.latency_bound,
    }


def _read_distance(rows: Any, nodes: tuple[str, ...]) -> Matrix:
    if not _is_list(rows) or not all(_is_list(row) for row in rows):
        raise UsageError("distance is a list of rows, one a node")
    if any(len(row) != len(nodes) for row in rows) or len(rows) != len(nodes):
        raise UsageError(f"distance needs {len(nodes)} rows of {len(nodes)} numbers")
    for kind in {type(cell) for row in rows for cell in row}:
        if not issubclass(kind, int | float | None) or kind is bool:
            raise UsageError(
                "distance holds something that is not a number",
                detail=f"a value of type {kind.__name__}",
                hint="numbers from 0 up; null where it was not measured",
            )
    try:
        matrix = np.array(
            [[math.nan if cell is None else float(cell) for cell in row] for row in rows],
            dtype=np.float64,
        ).reshape(len(nodes), len(nodes))
    except OverflowError:
        raise UsageError("distance holds a number that is too large", hint=NUMBER_HINT) from None
    if not any(cell is None for row in rows for cell in row):
        return matrix
    np.fill_diagonal(matrix, 0.0)
    filled = completed(matrix)
    if np.isnan(filled).any():
        i, j = (int(at) for at in np.argwhere(np.isnan(filled))[0])
        raise UsageError(
            f"no distance from {nodes[i]!r} to {nodes[j]!r}",
            detail="neither the way back nor any detour was measured",
            hint="measure it, or leave the node out",
        )
    return filled


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _list(data: object, key: str) -> Sequence[Any]:
    value = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(value, Sequence) or not _is_list(value):
        raise UsageError(f"{key!r} must be a list")
    return value


def _entries(data: object, key: str, known: Sequence[str]) -> Sequence[Any]:
    """The objects of a list, with no field that nobody reads."""
    items = _list(data, key)
    for number, item in enumerate(items):
        if isinstance(item, Mapping):
            refuse_misspelt(f"{key}[{number}]", item, known)
    return items


def _text(item: object, key: str) -> str:
    if not isinstance(item, Mapping) or key not in item:
        raise UsageError(f"an entry lacks {key!r}", detail=f"in {item!r}")
    return str(item[key])


def _number(item: object, key: str) -> float:
    value = item.get(key) if isinstance(item, Mapping) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"{key!r} must be a number", detail=f"in {item!r}"[:200])
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"{key!r} is too large", hint=NUMBER_HINT) from None
