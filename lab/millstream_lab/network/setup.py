"""The workload of seed 003's experiments, and one tidy row for each (tree, bound, planner, mode).

Ten transit-stub networks, 100 random trees each; sources arranged as star, uniform or cluster;
every planner centralised, the seed's three also by the distributed protocol over an overlay, and
the optimum beside them. All in virtual time: a run is a function of its seed. Networks are worked
on by as many processes as there are processors; rows come in their order all the same.

The seed's bounds of 120 and 300 ms cannot be kept at its own scale for `uniform` (the average
source is 0.4 x 500 = 200 ms from the proxy): there they are scaled with the distance.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from millstream.control.coordinators.overlay import Overlay
from millstream.control.coordinators.state import Refuse
from millstream.control.protocol.coordinator_messages import Settings
from millstream.decide.place.network.outcome import Options, Placed
from millstream.decide.place.network.planner import NETWORK_PLANNERS
from millstream.decide.place.network.tree import NetworkTree
from millstream.sim.topologies.arrangements import SCENARIOS, Arrangement, Scenario, arrange
from millstream.sim.topologies.families import Topology, transit_stub
from millstream.sim.topologies.transit_stub import TransitStub
from millstream.sim.topologies.trees import TreeModel, random_tree
from millstream_lab.claims import Bound, MissingError, at_least, confidence, numbers, values
from millstream_lab.network.overlay_run import place_distributed

Row = dict[str, Any]
Progress = Callable[[str], None]
Bounds = dict[str, float | None]

NEAR = 0.18  # APD of star and cluster; at this scale the seed's bounds are taken as printed
TIGHT_MS, LOOSE_MS = 120.0, 300.0
DISTRIBUTED = ("edge", "edge_plus", "in_network")
SHOWN = ("edge", "edge_plus", "in_network", "descent", "optimal_tree")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run: the seed's figures, or enough to see that it works."""

    topologies: int
    trees: int
    model: TransitStub | None = None


FULL = Scale(10, 100)
QUICK = Scale(2, 4, TransitStub(transit_nodes=(1, 2), stubs_per_transit_node=(2, 3)))


def scale(quick: bool) -> Scale:
    return QUICK if quick else FULL


@dataclass(frozen=True, slots=True)
class Instance:
    """One tree on one network; `labels` go into its rows."""

    topology: Topology
    overlay: Overlay
    arrangement: Arrangement
    problem: NetworkTree
    labels: Row


@dataclass(frozen=True, slots=True)
class Workload:
    """Trees of one kind in one arrangement."""

    arrangement: str
    scenario: Scenario
    model: TreeModel = field(default_factory=TreeModel)
    labels: tuple[tuple[str, Any], ...] = ()
    share: float = 1.0  # of the scale's trees
    sources_a_node: int = 1  # neighbours in the tree that share a node: the seed's k


def bounds_of(scenario: Scenario) -> Bounds:
    """Tight and loose as printed, scaled where sources lie farther out than they allow."""
    factor = scenario.proxy_distance / NEAR
    return {"tight": TIGHT_MS * factor, "loose": LOOSE_MS * factor}


def named(arrangement: str) -> Workload:
    return Workload(arrangement, SCENARIOS.get(arrangement))


def instances(
    workloads: Sequence[Workload], seed: int, size: Scale, number: int
) -> Iterator[Instance]:
    """The trees on one of the networks."""
    topology = transit_stub(seed * 1000 + number, size.model)
    overlay = Overlay(topology.nodes, topology.distance_ms)
    for place, workload in enumerate(workloads):
        rng = np.random.default_rng([seed, number, place])
        for tree in range(max(1, round(size.trees * workload.share))):
            depth = workload.model.drawn_depth(rng)
            count = workload.model.fanout**depth
            found = _shared(
                arrange(topology, workload.scenario, -(-count // workload.sources_a_node), rng),
                workload.sources_a_node,
                count,
            )
            problem = random_tree(topology, found, workload.model, depth, rng)
            labels: Row = {
                "topology": number,
                "tree": tree,
                "arrangement": workload.arrangement,
                "depth": depth,
                "fanout": workload.model.fanout,
                **dict(workload.labels),
            }
            yield Instance(topology, overlay, found, problem, labels)


def _shared(found: Arrangement, times: int, count: int) -> Arrangement:
    """Every source's node taken by so many sources, which are neighbours in the tree."""
    if times == 1:
        return found
    nodes = [node for node in found.sources for _ in range(times)]
    return replace(found, sources=tuple(nodes[:count]))


# The rows of an experiment on one network: (seed, quick, number of the network).
Part = Callable[[int, bool, int], list[Row]]


def gathered(part: Part, seed: int, quick: bool, progress: Progress) -> list[Row]:
    """The rows of all networks, in order; in one process where there is little to do."""
    count = scale(quick).topologies
    workers = 1 if quick else min(count, _processors())
    numbers = range(count)
    rows: list[Row] = []
    if workers == 1:
        for number in numbers:
            progress(f"network {number + 1} of {count}")
            rows += part(seed, quick, number)
        return rows
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        found = pool.map(part, [seed] * count, [quick] * count, numbers)
        for number, some in enumerate(found):
            progress(f"network {number + 1} of {count} done")
            rows += some
    return rows


def _processors() -> int:
    """Those that this process may use, where a system can say so."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def rows_of(
    instance: Instance,
    bounds: Bounds,
    *,
    planners: Sequence[str] = SHOWN,
    distributed: Sequence[str] = DISTRIBUTED,
    levels: int = 1,
) -> Iterator[Row]:
    """Every planner on one tree under every bound, centralised and distributed."""
    for bound, bound_ms in bounds.items():
        problem = instance.problem.with_bound(bound_ms)
        reference = _reference(problem)
        labels = {**instance.labels, "bound": bound, "bound_ms": bound_ms}
        for name in planners:
            outcome = NETWORK_PLANNERS.get(name)(problem, Options())
            figures = None
            if isinstance(outcome, Placed):
                figures = (outcome.cost, outcome.delay, outcome.placement)
            yield {**labels, "planner": name, "mode": "centralised"} | _figures(
                problem, reference, figures
            )
        for name in distributed:
            asked = Settings("tree", 1, problem.proxy, name)  # type: ignore[arg-type]
            answer = place_distributed(problem, instance.overlay, asked, levels)
            figures, extra = None, {}
            if not isinstance(answer, Refuse):
                figures = (answer.cost, answer.delay, answer.placement)
                extra = {
                    "messages": sum(answer.counts.messages.values()),
                    "envelopes": answer.counts.envelopes,
                    "probed_pairs": answer.counts.probed_pairs,
                    "mapping_s": round(answer.seconds, 4),
                }
            row = {**labels, "planner": name, "mode": "distributed"}
            yield row | _figures(problem, reference, figures) | extra


def _reference(problem: NetworkTree) -> tuple[float, float]:
    """What the baseline costs and how long its slowest path takes, bound or no bound."""
    proxy = problem.proxy_index
    ways = [(v.rate, problem.distance[v.node, proxy]) for v in problem.tree if v.node is not None]
    return float(sum(rate * way for rate, way in ways)), float(max(way for _, way in ways))


def _figures(
    problem: NetworkTree,
    reference: tuple[float, float],
    found: tuple[float, float, Any] | None,
) -> Row:
    row: Row = dict.fromkeys(
        ("ratio", "stretch", "at_proxy", "at_sources", "inside", "messages", "envelopes",
         "probed_pairs", "mapping_s")
    )  # fmt: skip
    row["feasible"] = found is not None
    if found is None:
        return row
    cost, delay, placement = found
    sources = {source.node for source in problem.sources}
    proxy = sum(node == problem.proxy for node in placement.values())
    edge = sum(node in sources and node != problem.proxy for node in placement.values())
    row["ratio"] = cost / reference[0] if reference[0] else 1.0
    row["stretch"] = delay / reference[1] if reference[1] else 1.0
    row["at_proxy"] = proxy / len(placement)
    row["at_sources"] = edge / len(placement)
    row["inside"] = 1 - (proxy + edge) / len(placement)
    return row


VALUES = (
    "ratio", "stretch", "at_proxy", "at_sources", "inside", "messages", "envelopes",
    "probed_pairs", "mapping_s",
)  # fmt: skip


def by_network(rows: Iterable[Row], *keys: str) -> list[Row]:
    """One row for each network, planner, mode and values of the keys: means over its trees."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    names = ("topology", *keys, "planner", "mode")
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    found = []
    for group, some in groups.items():
        placed = [row for row in some if row["feasible"]]
        means = {
            column: _mean_of([row[column] for row in placed if row[column] is not None])
            for column in VALUES
        }
        won = _mean_of([float(row["ratio"] < 1 - 1e-9) for row in placed])
        found.append(
            dict(zip(names, group, strict=True))
            | {"trees": len(some), "placed": len(placed), "won": won}
            | means
        )
    return found


def _mean_of(found: Sequence[float]) -> float | None:
    return float(np.mean(found)) if found else None


def mean(rows: Iterable[Mapping[str, Any]], column: str, **where: object) -> float:
    """The mean of a column over the trees that were placed, in the rows that match."""
    total = weights = 0.0
    for row in rows:
        if row[column] is None or any(row[key] != value for key, value in where.items()):
            continue
        weight = float(row.get("placed", 1) or 0)
        total, weights = total + weight * float(row[column]), weights + weight
    if not weights:
        raise MissingError(f"{column} where {where}")
    return total / weights


def interval(rows: Sequence[Mapping[str, Any]], column: str, **where: object) -> str:
    """The mean, and half the 95 % interval over networks."""
    found = [mean(rows, column, topology=name, **where) for name in values(rows, "topology")]
    return f"{mean(rows, column, **where):.3f} ± {confidence(found):.3f}"


def full(trees: int, **where: object) -> tuple[Bound, ...]:
    """The seed's ten networks, and as many trees a point as the experiment has at full size."""
    return (
        at_least("networks", lambda rows: len(values(rows, "topology")), FULL.topologies),
        at_least("trees a point and network", lambda rows: min(numbers(rows, "trees", **where)),
                 trees),
    )  # fmt: skip


def with_selectivity(workload: Workload, selectivity_max: float) -> Workload:
    return replace(
        workload,
        model=replace(workload.model, selectivity_max=selectivity_max),
        labels=(*workload.labels, ("selectivity_max", selectivity_max)),
    )
