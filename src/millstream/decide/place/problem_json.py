"""The two JSON forms of the planning problem: for reuse, and for one tree in a network.

Turns parsed JSON into a checked `Problem`, or its `NetworkTree`; says exactly where a file is
wrong, and never guesses a missing field. Each form keeps its own words.
"""

import math
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from millstream.core.errors import UsageError
from millstream.decide.place.json_fields import (
    NUMBER_HINT,
    Fields,
    read_json,
    refuse_misspelt,
    shown,
    text,
)
from millstream.decide.place.network.distances import completed
from millstream.decide.place.network.tree import NetworkTree, network_tree
from millstream.decide.place.problem import (
    Host,
    Link,
    Links,
    Matrix,
    Operator,
    Problem,
    Query,
    Stream,
    Weights,
    check_problem,
)

SECTIONS = ("hosts", "links", "streams", "operators", "queries", "weights", "timeout_s")
# `topology` stands for nodes and distance; who reads the file looks it up (`millstream place`).
TREE_KEYS = (
    "nodes", "distance", "sources", "operators", "root", "proxy", "latency_bound", "topology",
)  # fmt: skip
SOURCE_KEYS = ("id", "node", "rate")
OPERATOR_KEYS = ("id", "inputs", "rate")


def read_problem(path: Path) -> Problem:
    return problem_from_json(read_json(path))


def problem_from_json(document: Any) -> Problem:
    """A checked problem from parsed JSON."""
    fields = Fields("problem", document, SECTIONS)
    return check_problem(
        Problem(
            hosts=tuple(_host(item) for item in fields.items("hosts", required=True)),
            streams=tuple(_stream(item) for item in fields.items("streams", required=True)),
            operators=tuple(_operator(item) for item in fields.items("operators")),
            queries=tuple(_query(item) for item in fields.items("queries")),
            links=_links(fields.get("links")),
            weights=_weights(fields.get("weights")),
            timeout_s=fields.number("timeout_s", None),
        )
    )


def _host(item: tuple[str, Any]) -> Host:
    fields = Fields(*item, ("id", "cpu", "bandwidth_in", "bandwidth_out", "memory", "site"))
    return Host(
        id=fields.word("id"),
        cpu=fields.capacity("cpu"),
        bandwidth_in=fields.capacity("bandwidth_in", inf),
        bandwidth_out=fields.capacity("bandwidth_out", inf),
        memory=fields.capacity("memory", inf),
        site=fields.text("site", required=False) or "",
    )


def _stream(item: tuple[str, Any]) -> Stream:
    fields = Fields(*item, ("id", "rate", "host"))
    return Stream(fields.word("id"), fields.amount("rate"), fields.text("host", required=False))


def _operator(item: tuple[str, Any]) -> Operator:
    fields = Fields(*item, ("id", "inputs", "output", "cpu", "memory"))
    inputs = fields.get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(name, str) for name in inputs):
        raise UsageError(
            f"inputs of {fields.place} must be a list of stream ids",
            detail=shown(inputs),
            hint='as in "inputs": ["a", "b"]',
        )
    return Operator(
        id=fields.word("id"),
        inputs=tuple(dict.fromkeys(inputs)),
        output=fields.word("output"),
        cpu=fields.amount("cpu"),
        memory=fields.amount("memory", 0.0),
    )


def _query(item: tuple[str, Any]) -> Query:
    fields = Fields(*item, ("id", "stream", "deliver_to", "latency_bound"))
    return Query(
        id=fields.word("id"),
        stream=fields.word("stream"),
        deliver_to=fields.text("deliver_to", required=False),
        latency_bound=fields.number("latency_bound"),
    )


def _links(value: Any) -> Links:
    if value is None:
        return Links()
    if isinstance(value, list):
        return Links(
            listed=tuple(_link((f"links[{number}]", item)) for number, item in enumerate(value))
        )
    return Links(bandwidth=Fields("links", value, ("bandwidth",)).capacity("bandwidth", inf))


def _link(item: tuple[str, Any]) -> Link:
    fields = Fields(*item, ("from", "to", "bandwidth", "distance"))
    return Link(
        source=fields.word("from"),
        target=fields.word("to"),
        bandwidth=fields.capacity("bandwidth", inf),
        distance=fields.amount("distance", 0.0),
    )


def _weights(value: Any) -> Weights:
    if value is None:
        return Weights()
    fields = Fields("weights", value, ("admit", "network", "cpu", "balance"))
    default = Weights()
    return Weights(
        admit=fields.amount("admit", default.admit),
        network=fields.amount("network", default.network),
        cpu=fields.amount("cpu", default.cpu),
        balance=fields.amount("balance", default.balance),
    )


def tree_from_json(data: object) -> NetworkTree:
    """Reads the placement problem of the file format; a mistake is a `UsageError` that names it."""
    if not isinstance(data, Mapping):
        raise UsageError(
            "a placement problem is a JSON object",
            detail=shown(data),
            hint=f"with {', '.join(TREE_KEYS)}",
        )
    refuse_misspelt("placement problem", data, TREE_KEYS)
    missing = [
        key for key in ("nodes", "distance", "sources", "operators", "root", "proxy")
        if key not in data
    ]  # fmt: skip
    if missing:
        raise UsageError(
            f"placement problem lacks {', '.join(missing)}",
            hint=f"it has {', '.join(TREE_KEYS[:6])}",
        )
    nodes = tuple(_name(node, f"nodes[{n}]") for n, node in enumerate(_list(data, "nodes")))
    bound = data.get("latency_bound")
    return network_tree(
        nodes,
        _read_distance(data["distance"], nodes),
        [
            Stream(_text(item, "id"), host=_text(item, "node"), rate=_number(item, "rate"))
            for item in _entries(data, "sources", SOURCE_KEYS)
        ],
        [
            (
                _text(item, "id"),
                tuple(
                    _name(name, f"an input of {_text(item, 'id')!r}")
                    for name in _list(item, "inputs")
                ),
                _number(item, "rate"),
            )
            for item in _entries(data, "operators", OPERATOR_KEYS)
        ],
        root=_name(data["root"], "root"),
        proxy=_name(data["proxy"], "proxy"),
        latency_bound=None if bound is None else _number(data, "latency_bound"),
    )


def _read_distance(rows: Any, nodes: tuple[str, ...]) -> Matrix:
    if not _is_list(rows) or not all(_is_list(row) for row in rows):
        raise UsageError(
            "distance is a list of rows, one a node",
            detail=shown(rows),
            hint="each row is a list: the distances from that node to every node",
        )
    if any(len(row) != len(nodes) for row in rows) or len(rows) != len(nodes):
        widths = sorted({len(row) for row in rows})
        raise UsageError(
            f"distance needs {len(nodes)} rows of {len(nodes)} numbers",
            detail=f"it has {len(rows)} rows of {' or '.join(map(str, widths)) or 'no'} numbers",
            hint="one row and one column a node, in the order of nodes",
        )
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
        raise UsageError(f"{key!r} must be a list", detail=shown(value), hint=f'"{key}": [...]')
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
        raise UsageError(
            f"an entry lacks {key!r}", detail=f"in {item!r}"[:200], hint=f'"{key}" is text'
        )
    return _name(item[key], f"{key} of an entry")


def _name(value: object, what: str) -> str:
    """An id of a tree's form, where nodes may be numbered."""
    return str(value) if type(value) is int else text(value, what)


def _number(item: object, key: str) -> float:
    value = item.get(key) if isinstance(item, Mapping) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(
            f"{key!r} must be a number",
            detail=f"in {item!r}"[:200],
            hint="write it without quotes, as in 0.5",
        )
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"{key!r} is too large", hint=NUMBER_HINT) from None
