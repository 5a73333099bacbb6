"""How long network-aware planning takes, and how far each planner is from the optimum.

`run_placement_bench` plans the seed's deepest trees (depth 5, 31 operators) in its three
arrangements on transit-stub networks of about 600 and 1,000 nodes and on the published GT-ITM
graph, without a bound and under a tight and a looser one. Targets stand beside the figures.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from millstream.decide.place.network.outcome import Options, Placed
from millstream.decide.place.network.planner import NETWORK_PLANNERS
from millstream.decide.place.network.tree import NetworkTree
from millstream.sim.topologies.arrangements import SCENARIOS, arrange
from millstream.sim.topologies.families import TOPOLOGIES, Topology, transit_stub
from millstream.sim.topologies.transit_stub import TransitStub
from millstream.sim.topologies.trees import TreeModel, random_tree

Progress = Callable[[str], None]
DEPTH = 5
BOUNDS: dict[str, float | None] = {"none": None, "loose": 3.0, "middle": 1.5, "tight": 1.2}
LARGE = TransitStub(stubs_per_transit_node=(3, 5), stub_nodes=(4, 7))

# Target medians in ms: (planner, bounded) to nodes to limit.
TARGETS_MS = {
    ("optimal_tree", False): {600: 50.0, 1000: 150.0},
    ("optimal_tree", True): {600: 1000.0, 1000: 1000.0},
    ("in_network", False): {600: 10.0, 1000: 10.0},
    ("in_network", True): {600: 10.0, 1000: 10.0},
}


@dataclass(frozen=True, slots=True)
class Network:
    size: int  # nominal, as in the targets
    topology: Topology


def networks() -> tuple[Network, ...]:
    """The first generated networks of about each size, and the published one."""
    about_600 = min(
        (transit_stub(seed) for seed in range(8)), key=lambda t: abs(len(t.nodes) - 600)
    )
    about_1000 = min(
        (transit_stub(seed, LARGE) for seed in range(8)), key=lambda t: abs(len(t.nodes) - 1000)
    )
    published = TOPOLOGIES.get("gt-itm-1000")(0)
    return (Network(600, about_600), Network(1000, about_1000), Network(1000, published))


def run_placement_bench(
    *,
    trees: int | None = None,
    quick: bool = False,
    seed: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Figures for every (network, bound, planner), ready for JSON."""
    say = progress or _silent
    trees = trees or (1 if quick else 10)  # in each of the three arrangements
    figures = []
    for network in networks():
        problems = _problems(network.topology, trees, seed)
        for bound, factor in BOUNDS.items():
            bounded = [_bounded(problem, factor) for problem in problems]
            rows = _measured(network, bound, bounded)
            figures.extend(rows)
            for row in rows:
                say(
                    f"{row['network']:>16} bound {bound:<6} {row['planner']:<12} "
                    f"median {row['median_ms']:7.2f} ms (cpu {row['median_cpu_ms']:.2f}), "
                    f"max {row['max_ms']:7.2f} ms (cpu {row['max_cpu_ms']:.2f}), "
                    f"{row['above_optimum_percent']:6.2f} % above the optimum"
                )
    return {"name": "placement", "depth": DEPTH, "trees": 3 * trees, "figures": figures}


def _silent(line: str) -> None:
    del line


def _problems(topology: Topology, trees: int, seed: int) -> list[NetworkTree]:
    rng = np.random.default_rng(seed)
    model = TreeModel(depths=(DEPTH, DEPTH))
    return [
        random_tree(topology, arrange(topology, scenario, 2**DEPTH, rng), model, DEPTH, rng)
        for _, scenario in SCENARIOS.items()
        for _ in range(trees)
    ]


def _bounded(problem: NetworkTree, factor: float | None) -> NetworkTree:
    """The bound as a multiple of the longest way from a source to the proxy."""
    if factor is None:
        return problem
    reach = [
        problem.distance[v.node, problem.proxy_index] for v in problem.tree if v.node is not None
    ]
    return problem.with_bound(factor * float(max(reach)))


def _measured(network: Network, bound: str, problems: list[NetworkTree]) -> list[dict[str, Any]]:
    costs: dict[str, list[float]] = {}
    times_ms: dict[str, list[float]] = {}
    cpu_ms: dict[str, list[float]] = {}  # what a machine that is not shared would need
    proven = 0
    for name, planner in NETWORK_PLANNERS.items():
        for problem in problems:
            started, started_cpu = perf_counter(), process_time()
            outcome = planner(problem, Options())
            times_ms.setdefault(name, []).append((perf_counter() - started) * 1e3)
            cpu_ms.setdefault(name, []).append((process_time() - started_cpu) * 1e3)
            assert isinstance(outcome, Placed)
            costs.setdefault(name, []).append(outcome.cost)
            proven += name == "optimal_tree" and outcome.optimal
    best = costs["optimal_tree"]
    rows = []
    for name, times in times_ms.items():
        target = TARGETS_MS.get((name, bound != "none"), {}).get(network.size)
        above = [100 * (cost / least - 1) for cost, least in zip(costs[name], best, strict=True)]
        rows.append(
            {
                "network": network.topology.name,
                "nodes": len(network.topology.nodes),
                "bound": bound,
                "planner": name,
                "median_ms": round(median(times), 3),
                "p95_ms": round(float(np.percentile(times, 95)), 3),
                "max_ms": round(max(times), 3),
                "median_cpu_ms": round(median(cpu_ms[name]), 3),
                "max_cpu_ms": round(max(cpu_ms[name]), 3),
                "target_ms": target,
                "met": None if target is None else median(times) <= target,
                "above_optimum_percent": round(sum(above) / len(above), 3),
                "proven_optimal": proven if name == "optimal_tree" else None,
            }
        )
    return rows
