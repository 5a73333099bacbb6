"""Random placement problems for the tests of network-aware planners."""

import itertools
from typing import Any

import numpy as np

from millstream.decide.place.network.tree import NetworkTree, Sent, network_tree
from millstream.decide.place.problem import Stream


def random_problem(seed: int, *, nodes_max: int = 5, operators_max: int = 4) -> NetworkTree:
    """Any shape of tree; distances metric, asymmetric or without the triangle inequality."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, nodes_max + 1))
    nodes = tuple(f"n{i}" for i in range(size))
    kind = rng.integers(3)
    if kind == 0:
        points = rng.uniform(0, 10, (size, 2))
        distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    elif kind == 1:
        distance = rng.uniform(0, 10, (size, size))
    else:  # whole numbers make ties
        distance = rng.integers(0, 4, (size, size)).astype(float)
    np.fill_diagonal(distance, 0.0)
    sources: list[Stream] = []
    operators: list[Sent] = []

    def new_source() -> str:
        name = f"s{len(sources)}"
        host = nodes[rng.integers(size)]
        sources.append(Stream(name, float(rng.integers(0, 9)), host))
        return name

    loose = [new_source()]
    count = int(rng.integers(1, operators_max + 1))
    for number in range(count):
        while len(loose) < rng.integers(1, 4):
            loose.append(new_source())
        take = len(loose) if number == count - 1 else int(rng.integers(1, len(loose) + 1))
        inputs = tuple(loose[:take])
        loose = [*loose[take:], f"o{number}"]
        operators.append((f"o{number}", inputs, float(rng.uniform(0, 12))))
    return network_tree(
        nodes, distance, tuple(sources), tuple(operators), f"o{count - 1}", nodes[0]
    )


def every_placement(problem: NetworkTree) -> list[dict[str, str]]:
    names = [operator.id for operator in problem.operators]
    return [
        dict(zip(names, places, strict=True))
        for places in itertools.product(problem.nodes, repeat=len(names))
    ]


def tree_to_json(problem: NetworkTree) -> dict[str, Any]:
    """The inverse of `tree_from_json`."""
    rates = problem.rates()
    return {
        "nodes": list(problem.nodes),
        "distance": problem.distance.tolist(),
        "sources": [{"id": s, "node": node, "rate": rate} for s, node, rate in problem.sources],
        "operators": [
            {"id": o.id, "inputs": list(o.inputs), "rate": rates[o.id]} for o in problem.operators
        ],
        "root": problem.root,
        "proxy": problem.proxy,
        "latency_bound": problem.latency_bound,
    }
