"""Random processing trees over arranged sources: the seed's workload (003, section 6.1)."""

from dataclasses import dataclass

import numpy as np

from millstream.decide.place.network.tree import NetworkTree, Sent, network_tree
from millstream.decide.place.problem import Stream
from millstream.sim.topologies.arrangements import Arrangement
from millstream.sim.topologies.families import Topology


@dataclass(frozen=True, slots=True)
class TreeModel:
    """Depth is in operators from the root down; ranges are drawn evenly, both ends included."""

    depths: tuple[int, int] = (3, 5)
    fanout: int = 2
    selectivity_max: float = 1.0
    rates: tuple[float, float] = (1.0, 10.0)  # of sources; the seed: "between two size bounds"

    def drawn_depth(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.depths[0], self.depths[1] + 1))


def random_tree(
    topology: Topology,
    arrangement: Arrangement,
    model: TreeModel,
    depth: int,
    rng: np.random.Generator,
) -> NetworkTree:
    """A full tree; an operator sends on its selectivity times the sum of its inputs."""
    order = rng.permutation(len(arrangement.sources))
    sources = [
        Stream(
            f"s{number}",
            float(rng.uniform(*model.rates)),
            topology.nodes[arrangement.sources[int(at)]],
        )
        for number, at in enumerate(order)
    ]
    assert len(sources) == model.fanout**depth
    operators: list[Sent] = []
    level = [(source.id, source.rate) for source in sources]
    while len(level) > 1:
        above = []
        for first in range(0, len(level), model.fanout):
            inputs = level[first : first + model.fanout]
            rate = float(rng.uniform(0, model.selectivity_max)) * sum(r for _, r in inputs)
            operators.append((f"o{len(operators)}", tuple(name for name, _ in inputs), rate))
            above.append((operators[-1][0], rate))
        level = above
    return network_tree(
        topology.nodes,
        topology.distance_ms,
        sources,
        operators,
        level[0][0],
        topology.nodes[arrangement.proxy],
    )
