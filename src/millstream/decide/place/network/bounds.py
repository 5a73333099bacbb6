"""What section 5 of seed 003 says about its algorithms, as formulas to set beside measurements.

Its exponents are partly garbled in print; they are given here as they follow from its reasoning.
"""

from dataclasses import dataclass

from millstream.decide.place.network.tree import NetworkTree


def probability_of_saving(fanout: int, height: int) -> float:
    """P_S: that a tree of d^h sources beats the baseline at all, costs being independent.

    Every one of the d^(h-1) operators above the sources must send more than its largest input,
    each with probability 1 / (d + 1), for the baseline to win.

    >>> probability_of_saving(2, 1), round(probability_of_saving(2, 3), 4)
    (0.6666666666666667, 0.9877)
    """
    return float(1 - (1 / (fanout + 1)) ** (fanout ** (height - 1)))


@dataclass(frozen=True, slots=True)
class MessageBounds:
    """Orders of magnitude with all constants 1, for a full tree of d^h sources."""

    zones: int  # ADD_SUBTREE messages: one a coordinator
    initialization: int  # O(d^h): zones, and two messages a source
    topology: int  # O(d^(2(h-t))): pairs of places below different children
    total: int


def message_bounds(fanout: int, height: int, levels: int = 1) -> MessageBounds:
    """The bounds for zones of `levels` operators from the root down.

    The seed sums (d - 1) d^(2(h - jt)) over the depths j; its closed form d^(h(h-1)/t) is wrong,
    the first term d^(2(h-t)) dominates.

    >>> message_bounds(2, 3)
    MessageBounds(zones=7, initialization=23, topology=21, total=44)
    """
    zones = sum(fanout**depth for depth in range(0, height, levels))
    initialization = zones + 2 * fanout**height
    topology = (fanout - 1) * sum(
        fanout ** (2 * (height - j * levels)) for j in range(1, height // levels + 1)
    )
    return MessageBounds(zones, initialization, topology, initialization + topology)


def tree_bounds(problem: NetworkTree, levels: int = 1) -> MessageBounds:
    """The same reasoning on a tree at hand, which need not be full, nor all of one fan-out.

    One ADD_SUBTREE a zone, two messages a source; and for every zone the pairs of sources below
    different boundary children, which is what the seed's sum counts by depth.

    >>> from millstream.decide.place.problem_json import tree_from_json
    >>> chain = {"nodes": ["a"], "distance": [[0]], "root": "g", "proxy": "a",
    ...          "sources": [{"id": "s", "node": "a", "rate": 1.0}],
    ...          "operators": [{"id": "f", "inputs": ["s"], "rate": 1.0},
    ...                        {"id": "g", "inputs": ["f"], "rate": 1.0}]}
    >>> tree_bounds(tree_from_json(chain))
    MessageBounds(zones=2, initialization=4, topology=0, total=4)
    """
    depth = {len(problem.tree) - 1: 0}
    for at in range(len(problem.tree) - 1, -1, -1):
        depth.update(dict.fromkeys(problem.tree[at].children, depth[at] + 1))
    below: list[int] = []
    zones = topology = 0
    reaching: list[list[int]] = []  # of a zone's part so far: sources below each boundary child
    for at, vertex in enumerate(problem.tree):
        below.append(1 if vertex.node is not None else sum(below[c] for c in vertex.children))
        reaching.append([])
        if vertex.node is not None:
            continue
        for child in vertex.children:
            cut = problem.tree[child].node is not None or depth[child] % levels == 0
            reaching[at] += [below[child]] if cut else reaching[child]
        if depth[at] % levels == 0:
            zones += 1
            parts = reaching[at]
            topology += (sum(parts) ** 2 - sum(part**2 for part in parts)) // 2
    initialization = zones + 2 * sum(vertex.node is not None for vertex in problem.tree)
    return MessageBounds(zones, initialization, topology, initialization + topology)
