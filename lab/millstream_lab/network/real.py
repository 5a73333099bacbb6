"""Beyond the seed: the same planners on real networks, with sources anywhere.

The ten Topology Zoo networks, the 20 cloud regions (measured: asymmetric, and some detours are
faster than the direct way) and the published GT-ITM graphs; random sources and proxy, no bound
and a bound of 1.2 times the longest way to the proxy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from millstream.control.coordinators.overlay import Overlay
from millstream.sim.plotting import COLOURS
from millstream.sim.topologies.arrangements import Arrangement
from millstream.sim.topologies.families import TOPOLOGIES, Topology
from millstream.sim.topologies.trees import TreeModel, random_tree
from millstream_lab.claims import Claim, Rows, at_least, at_most, listed, values
from millstream_lab.experiment import EXPERIMENTS, Experiment
from millstream_lab.network.plots import LABELS
from millstream_lab.network.setup import (
    SHOWN,
    VALUES,
    Instance,
    Progress,
    Row,
    by_network,
    mean,
    rows_of,
)

TREES, TREES_QUICK = 50, 2
QUICK_NETWORKS = ("zoo-abilene", "zoo-geant2012", "cloud-regions")


def real_instances(seed: int, quick: bool, progress: Progress) -> Iterator[Instance]:
    names = [name for name in TOPOLOGIES.names() if name != "transit-stub"]
    for number, name in enumerate(QUICK_NETWORKS if quick else names):
        topology = TOPOLOGIES.get(name)(seed)
        overlay = Overlay(topology.nodes, topology.distance_ms)
        rng = np.random.default_rng([seed, number, 99])
        progress(f"network {name}, {len(topology.nodes)} nodes")
        for tree in range(TREES_QUICK if quick else TREES):
            model = TreeModel()
            depth = model.drawn_depth(rng)
            found = _anywhere(topology, model.fanout**depth, rng)
            problem = random_tree(topology, found, model, depth, rng)
            labels: Row = {"topology": name, "tree": tree, "depth": depth}
            yield Instance(topology, overlay, found, problem, labels)


def _anywhere(topology: Topology, count: int, rng: np.random.Generator) -> Arrangement:
    proxy, *sources = (int(node) for node in rng.choice(topology.stubs, count + 1))
    if all(source == proxy for source in sources):  # on a small network: nothing to place
        sources[0] = next(node for node in topology.stubs if node != proxy)
    return Arrangement(proxy, tuple(sources), float("nan"), float("nan"))


def run_real(seed: int, quick: bool, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    for instance in real_instances(seed, quick, progress):
        problem = instance.problem
        reach = max(
            float(problem.distance[v.node, problem.proxy_index])
            for v in problem.tree
            if v.node is not None
        )
        rows.extend(rows_of(instance, {"none": None, "tight": 1.2 * reach}))
    return by_network(rows, "bound")


def _central(rows: Rows, planner: str, **where: object) -> float:
    return mean(rows, "ratio", planner=planner, mode="centralised", **where)


def _worse(better: str, worse: str) -> Callable[[Rows], float]:
    """The largest difference of means, without a bound and with one."""
    return lambda rows: max(
        _central(rows, better, bound=b) - _central(rows, worse, bound=b) for b in ("none", "tight")
    )


def _told(rows: Rows) -> str:
    return "mean ratio: " + ", ".join(f"{p} {_central(rows, p):.3f}" for p in SHOWN)


def _gaps(rows: Rows, planner: str) -> dict[str, float]:
    """How far above the optimum each network's mean lies, without a bound and tight."""
    return {
        f"{name}, {bound}": _central(rows, planner, bound=bound, topology=name)
        / _central(rows, "optimal_tree", bound=bound, topology=name)
        - 1
        for bound in ("none", "tight")
        for name in values(rows, "topology")
    }


def _gap(planner: str) -> Callable[[Rows], float]:
    return lambda rows: max(_gaps(rows, planner).values())


def _beyond(planner: str, most: float) -> Callable[[Rows], str]:
    """The networks in which a planner is farther from the optimum."""

    def tell(rows: Rows) -> str:
        found = _gaps(rows, planner)
        missed = {name: gap for name, gap in found.items() if gap > most}
        return f"missed in {len(missed)} of {len(found)} cases: {listed(missed, '.2%')}"

    return tell


NEEDS = (
    at_least("networks", lambda rows: len(values(rows, "topology")), 12),
    at_least("trees a network", lambda rows: min(row["trees"] for row in rows), TREES),
)
CLAIMS = (
    *(
        Claim(
            f"knowing distances pays: {better} below {worse} (section 6.2)",
            at_most(f"{better} less {worse}, at worst", _worse(better, worse), 0.0),
            NEEDS,
            _told,
        )
        for better, worse in (("edge_plus", "edge"), ("in_network", "edge_plus"))
    ),
    *(
        Claim(
            f"target, not in the seed: {planner} within {most:.0%} of the optimum on every network",
            at_most("gap of the worst network's mean", _gap(planner), most, 0, "%"),
            NEEDS,
            why=_beyond(planner, most),
        )
        for planner, most in (("in_network", 0.1), ("descent", 0.01))
    ),
)


def plot_real(rows: Sequence[Mapping[str, Any]], figure: Any) -> None:
    """The mean ratio by network, centralised, without a bound and tight."""
    axes = figure.subplots(2, 1, sharex=True)
    tidy = [dict(row) for row in rows]
    names = list(dict.fromkeys(row["topology"] for row in tidy))
    for axis, bound in zip(axes, ("none", "tight"), strict=True):
        for number, planner in enumerate(SHOWN):
            values = [
                mean(tidy, "ratio", planner=planner, mode="centralised", bound=bound, topology=name)
                for name in names
            ]
            shown = LABELS.get(planner, planner)
            axis.plot(names, values, "o", color=COLOURS[number], label=shown)
        axis.set_ylabel(f"bandwidth ratio\nbound: {bound}")
        axis.set_ylim(0, 1.05)
    axes[1].tick_params(axis="x", rotation=60, labelsize=7)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=5, fontsize=7, loc="outside lower center")


EXPERIMENTS.add(
    "network-real",
    Experiment(
        "network-real",
        "all planners on real networks: Topology Zoo, cloud regions, GT-ITM",
        "network",
        run_real,
        plot_real,
        CLAIMS,
        VALUES,
    ),
)
